"""No number comes out of a damaged run: what is read is compared with its hash as it is read."""

import re
import shutil
from pathlib import Path

import pytest
from support.corpora import contents, examples
from support.flips import flip, flip_outcomes, silent_differences
from support.subjects import speaker

from exhibit_a import corpus
from exhibit_a.corpus.run_folder import Folder
from exhibit_a.errors import BadRequestError, BrokenInvariantError, ExhibitError

METHOD = "effective_attention"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of tables and maps, and one of a single result."""
    folder = tmp_path_factory.mktemp("runs")
    corpus.run(speaker(), examples(6), METHOD, folder / "tables", window=2, dense=True)
    corpus.run(speaker(), examples(6), "head_importance", folder / "result", by="taylor")
    return folder


@pytest.fixture
def run(runs, tmp_path):
    """A copy of the run of tables, to be spoilt."""
    shutil.copytree(runs / "tables", tmp_path / "run")
    return tmp_path / "run"


NAMES = ("tables", "result")


@pytest.mark.parametrize("name", NAMES)
def test_no_flipped_bit_goes_unnoticed(runs, name):
    before = contents(runs / name)
    outcomes = flip_outcomes(runs / name, seed=1, count=12)
    assert outcomes.total() == 12
    assert contents(runs / name) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [2, 3])
def test_no_flipped_bit_goes_unnoticed_in_a_sweep(runs, tmp_path, name, seed):
    shutil.copytree(runs / name, tmp_path / "run")
    assert flip_outcomes(tmp_path / "run", seed=seed, count=100).total() == 100


@pytest.mark.parametrize(
    ("name", "needed_by"),
    [
        ("heads/00001.parquet", lambda run: run.to_pandas("heads")),
        ("examples/00002.parquet", lambda run: list(run.batches())),
        ("examples/00000.parquet", lambda run: run.to_polars()),
        ("examples/00001.parquet", lambda run: run.to_duckdb()),
        ("dense/00001.safetensors", lambda run: run.dense(3)),
        ("aggregates.parquet", lambda run: run.summary()),
        ("replicates.safetensors", lambda run: corpus.diff(run, run)),
        ("receipts/00001.json", lambda run: run.verify()),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_named(runs, run, name, needed_by):
    needed_by(corpus.open(run))
    data = (run / name).read_bytes()
    for left in (data[:-1], b"", data + b"\0", None):
        (run / name).write_bytes(left or b"")
        if left is None:
            (run / name).unlink()
        with pytest.raises(BrokenInvariantError, match=name) as caught:
            needed_by(corpus.open(run))
        assert re.search(r"\. Resume the run to (repair it|make it again)\.$", str(caught.value))
        assert silent_differences(run, runs / "tables") == []
    corpus.resume(run, subject=speaker(), examples=examples(6))
    assert contents(run) == contents(runs / "tables")


@pytest.mark.parametrize("kind", ["examples", "heads", "dense", "receipts"])
def test_shards_that_changed_places_are_noticed_and_put_back(runs, run, kind):
    first, second, *_ = sorted((run / kind).iterdir())
    here, there = first.read_bytes(), second.read_bytes()
    first.write_bytes(there)
    second.write_bytes(here)
    assert silent_differences(run, runs / "tables") == []
    with pytest.raises(BrokenInvariantError, match=first.name):
        corpus.open(run).verify()
    corpus.resume(run, subject=speaker(), examples=examples(6))
    assert contents(run) == contents(runs / "tables")


def test_files_that_do_not_belong_to_the_run_are_not_read(runs, run):
    for kind in ("examples", "heads", "dense", "receipts"):
        first = min((run / kind).iterdir())
        shutil.copy(first, first.with_name(f"00009{first.suffix}"))
        shutil.copy(first, first.with_name(f"copy{first.suffix}"))
    (run / "result").mkdir()
    assert silent_differences(run, runs / "tables") == []
    with pytest.raises(BadRequestError, match="dense, examples, heads"):
        corpus.open(run).files("result")
    corpus.open(run).verify()


def test_receipts_of_other_shards_do_not_count_as_done(run):
    (run / "manifest.json").unlink()
    shutil.copy(run / "receipts/00000.json", run / "receipts/00001.json")
    assert [receipt["shard"] for receipt in Folder(run).complete()] == [0, 2]
    with pytest.raises(BrokenInvariantError, match=r"00001\.json is missing or damaged"):
        Folder(run).receipt(1)


def test_a_damaged_card_is_noticed_and_written_again(runs, run):
    place = 8 * (run / "run.json").read_bytes().index(b"float32")
    flip(run / "run.json", place)
    with pytest.raises(BrokenInvariantError, match=r"run\.json not as written"):
        corpus.open(run).verify()
    corpus.resume(run, subject=speaker(), examples=examples(6))
    assert contents(run) == contents(runs / "tables")
    flip(run / "run.json", place)
    (run / "manifest.json").unlink()
    with pytest.raises(BadRequestError, match=r"run\.json is damaged"):
        corpus.resume(run, subject=speaker(), examples=examples(6))


def test_a_file_that_cannot_be_read_is_not_called_damaged(run, monkeypatch):
    real = Path.open

    def failing(path, *mode, **options):
        if path.name == "aggregates.parquet":
            raise OSError(5, "Input/output error")
        return real(path, *mode, **options)

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(ExhibitError, match=r"aggregates\.parquet cannot be read"):
        corpus.open(run).summary()


def test_a_shard_that_is_damaged_before_the_end_does_not_enter_the_aggregates(run, monkeypatch):
    folder = Folder(run)
    done = list(folder.complete())
    (run / "manifest.json").unlink()
    monkeypatch.setattr(Folder, "complete", lambda _: iter(done))  # as if it were damaged later
    flip(run / "heads/00001.parquet", 999)
    with pytest.raises(BrokenInvariantError, match=r"heads/00001\.parquet is damaged"):
        corpus.resume(run, subject=speaker(), examples=examples(6))
    assert not (run / "manifest.json").exists()
