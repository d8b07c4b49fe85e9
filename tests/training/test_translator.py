"""A translator from nothing: it learns, goes on after a kill, and refuses bad data."""

import json

import pytest

from exhibit_a.errors import BadRequestError
from exhibit_a.models import TransformerConfig
from exhibit_a.training import fit_translator
from exhibit_a.training.fit_translator import TranslatorSchedule
from exhibit_a.training.parallel_text import read_pairs
from exhibit_a.training.translator import train_translator
from exhibit_a.training.vocabulary import learnt_vocabulary

PAIRS = [
    ("two dogs run", "zwei Hunde rennen"),
    ("a cat sleeps .", "eine Katze schläft ."),
    ("two cats run", "zwei Katzen rennen"),
    ("a dog sleeps .", "ein Hund schläft ."),
] * 3
SIZES = {"vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "num_heads": 2}


def trained(out, **options):
    usual = {"epochs": 4, "batch_tokens": 40, "warmup": 8, "learning_rate": 0.02, "average": 2}
    return train_translator(
        TransformerConfig(**SIZES, d_ff=32),
        PAIRS,
        dev=PAIRS[:4],
        out=out,
        schedule=TranslatorSchedule(**usual | options),
    )


def test_a_killed_training_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    trained(whole)
    record = json.loads((whole / "training.json").read_text())
    losses = [epoch["loss"] for epoch in record["epochs"]]
    assert losses[-1] < losses[0]
    steps, one_step = [], fit_translator._one_step

    def dying(*args):
        steps.append(args)
        if len(steps) == 3 * record["epochs"][0]["step"]:
            raise KeyboardInterrupt
        return one_step(*args)

    with monkeypatch.context() as patched:
        patched.setattr(fit_translator, "_one_step", dying)
        with pytest.raises(KeyboardInterrupt):
            trained(killed)
    assert not killed.exists()
    with pytest.raises(BadRequestError, match=r"begun with learning_rate 0\.02, not 0\.5"):
        trained(killed, learning_rate=0.5)
    trained(killed)
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


def test_bad_pairs_get_one_line(tmp_path):
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    source.write_text("two dogs\na cat\n")
    target.write_bytes("zwei Hunde\neine grüne Katze\n".encode("latin-1"))
    with pytest.raises(BadRequestError, match="not UTF-8: line 2 has byte 0xfc"):
        read_pairs((source, target))
    target.write_text("zwei Hunde\n\n")
    with pytest.raises(BadRequestError, match="translation in line 2 is empty"):
        read_pairs((source, target))
    target.write_text("zwei Hunde\n")
    with pytest.raises(BadRequestError, match="2 sentences and 1 translations"):
        read_pairs((source, target))
    with pytest.raises(BadRequestError, match="cannot be read"):
        read_pairs((source, tmp_path / "nothing"))


def test_pieces_are_put_together_again_exactly():
    text = "zwei Katzen, (eine schläft) rennen."
    tokenizer = learnt_vocabulary([text, *(text for pair in PAIRS for text in pair)], 60)
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
