"""A translator from nothing: it learns, goes on after a kill, and refuses bad data."""

import json
import os
import random
from contextlib import contextmanager

import pytest
from support.corpora import contents
from support.fuzz.damage import flipped

from exhibit_a.errors import BadRequestError
from exhibit_a.models import TransformerConfig
from exhibit_a.training import trainer
from exhibit_a.training.data import read_pairs
from exhibit_a.training.train import train

PAIRS = [
    ("two dogs run", "zwei Hunde rennen"),
    ("a cat sleeps .", "eine Katze schläft ."),
    ("two cats run", "zwei Katzen rennen"),
    ("a dog sleeps .", "ein Hund schläft ."),
] * 3
SIZES = {"vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "num_heads": 2}


def trained(out, **options):
    usual = {"epochs": 4, "batch_tokens": 40, "warmup": 8, "learning_rate": 0.02, "average": 2}
    return train(
        TransformerConfig(**SIZES, d_ff=32),
        PAIRS,
        dev=PAIRS[:4],
        out=out,
        progress=False,
        **usual | options,
    )


@contextmanager
def interrupted_in_epoch(monkeypatch, epoch):
    """Ctrl-C at the first step of an epoch."""
    step = trainer._AveragingTrainer.training_step

    def dying(self, *inputs, **options):
        if self.state.epoch >= epoch - 1:
            raise KeyboardInterrupt
        return step(self, *inputs, **options)

    with monkeypatch.context() as patched:
        patched.setattr(trainer._AveragingTrainer, "training_step", dying)
        yield


def test_a_killed_training_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    trained(whole)
    record = json.loads((whole / "training.json").read_text())
    losses = [epoch["loss"] for epoch in record["epochs"]]
    assert losses[-1] < losses[0]
    with interrupted_in_epoch(monkeypatch, 3), pytest.raises(KeyboardInterrupt):
        trained(killed)
    assert not killed.exists()
    with pytest.raises(BadRequestError, match=r"learning_rate 0\.02"):
        trained(killed, learning_rate=0.5)
    with monkeypatch.context() as patched:
        patched.setattr(__name__ + ".PAIRS", PAIRS[::-1])
        with pytest.raises(BadRequestError, match="data"):
            trained(killed)
    trained(killed)
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


def test_bad_pairs_get_one_line(tmp_path):
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    source.write_text("two dogs\na cat\n")
    target.write_bytes("zwei Hunde\neine grüne Katze\n".encode("latin-1"))
    with pytest.raises(BadRequestError, match="line 2"):
        read_pairs((source, target))
    target.write_text("zwei Hunde\n\n")
    with pytest.raises(BadRequestError, match="line 2"):
        read_pairs((source, target))
    target.write_text("zwei Hunde\n")
    with pytest.raises(BadRequestError, match="2 sentences"):
        read_pairs((source, target))
    with pytest.raises(BadRequestError, match="There is no file"):
        read_pairs((source, tmp_path / "nothing"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadRequestError, match="is a pipe or a device"):
        read_pairs((source, tmp_path / "pipe"))
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(2**40)
    with pytest.raises(BadRequestError, match="too much for the memory"):
        read_pairs((source, tmp_path / "huge"))
    with pytest.raises(BadRequestError, match="half a character"):
        read_pairs([("two dogs", "zwei \ud800")])


def test_a_shortened_training_without_a_measured_epoch_says_so(tmp_path, monkeypatch):
    with interrupted_in_epoch(monkeypatch, 3), pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "new", bleu_every=3, epochs=9)
    with pytest.raises(BadRequestError, match="epochs"):
        trained(tmp_path / "new", bleu_every=3, epochs=1)


def test_checkpoints_that_were_changed_are_named_and_never_read(tmp_path, monkeypatch):
    with interrupted_in_epoch(monkeypatch, 3), pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "new")
    folder = tmp_path / "new.checkpoints"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert {path.parent.name for path in files} >= {"new.checkpoints", "checkpoint-6"}
    chance = random.Random(0)
    of_checkpoints = [path for path in files if path.parent != folder]
    for path in [*of_checkpoints, folder / "settings.json"]:
        whole = path.read_bytes()
        for changed in (whole[:-20], b"", flipped(whole, chance.randrange(8 * len(whole)))):
            path.write_bytes(changed)
            with pytest.raises(BadRequestError) as caught:
                trained(tmp_path / "new")
            assert "remove the folder" in str(caught.value).lower()
            assert "\n" not in str(caught.value)
            assert not (tmp_path / "new").exists()
        path.write_bytes(whole)
    trained(tmp_path / "new")


def test_a_checkpoint_that_was_not_completed_is_left_out(tmp_path, monkeypatch):
    with interrupted_in_epoch(monkeypatch, 3), pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "new")
    for path in (tmp_path / "new.checkpoints").glob("checkpoint-*/sha256.json"):
        path.unlink()
    trained(tmp_path / "new")
    trained(tmp_path / "again")
    one, two = (tmp_path / name / "model.safetensors" for name in ("new", "again"))
    assert one.read_bytes() == two.read_bytes()


def test_a_folder_of_somebody_elses_is_not_taken_for_checkpoints(tmp_path):
    taken = tmp_path / "new.checkpoints"
    taken.mkdir()
    (taken / "thesis.txt").write_text("mine")
    with pytest.raises(BadRequestError, match="holds something else"):
        trained(tmp_path / "new")
    assert contents(tmp_path) == {"new.checkpoints/thesis.txt": b"mine"}
