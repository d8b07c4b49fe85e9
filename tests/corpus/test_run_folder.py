"""The folder of a run: one writer at a time, and nothing in the way."""

import os
import re
import socket
from pathlib import Path

import pytest

from exhibit_a import corpus
from exhibit_a.corpus import run_folder
from exhibit_a.corpus.plan import Card, Data, Model, Plan
from exhibit_a.corpus.run_folder import Folder, sealed
from exhibit_a.corpus.work import Shard
from exhibit_a.errors import BadRequestError, BrokenInvariantError, ExhibitError

MODEL = Model(name="model", revision=None, weights="0", dtype="float32", tap="registry")
CARD = Card(plan=Plan(method="any"), model=MODEL, data=Data(), versions={})
RECEIPT = {"shard": 0, "window": "0", "examples": 1, "unusable": [], "files": {}}


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "run")


@pytest.fixture
def begun(folder):
    """A folder with a card, for its writer."""
    with folder.locked(new=True):
        folder.begin(CARD)
        yield folder


def test_a_run_has_one_writer_who_is_named(folder):
    holder = re.escape(f"process {os.getpid()} on {socket.gethostname()}. Two runs")
    with folder.locked(new=True), pytest.raises(BadRequestError, match=holder):
        Folder(folder.path)._acquired()
    assert not folder.path.joinpath(".holder").exists()


def test_a_writer_without_a_name_is_some_process(folder):
    with folder.locked(new=True):
        (folder.path / ".holder").unlink()
        with pytest.raises(BadRequestError, match="a process"):
            Folder(folder.path)._acquired()
        (folder.path / ".holder").write_text("")
        with pytest.raises(BadRequestError, match="a process"):
            Folder(folder.path)._acquired()


def test_a_run_needs_a_folder(folder):
    with pytest.raises(BadRequestError, match="no run folder"), folder.locked():
        pass


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run.json", "Resume"),
        ("thesis.tex", r"thesis\.tex"),
    ],
)
def test_a_new_run_needs_an_empty_folder_and_leaves_what_is_in_it(folder, name, message):
    folder.path.mkdir()
    (folder.path / name).write_text("mine")
    with pytest.raises(BadRequestError, match=message), folder.locked(new=True):
        pass
    assert (folder.path / name).read_text() == "mine"


def test_a_folder_that_cannot_be_made_leaves_none(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadRequestError, match="Not a directory"):
        Folder(tmp_path / "file" / "run")._made()
    with pytest.raises(BadRequestError, match="too long"):
        Folder(tmp_path / ("long" * 100) / "run")._made()
    real = os.mkdir

    def full(path, *rest):
        if Path(path).name == "run":
            raise OSError(28, "No space left on device")
        real(path, *rest)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(BadRequestError, match="No space left"):
        Folder(tmp_path / "new" / "deep" / "run")._made()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_that_cannot_be_had_leaves_no_folder(folder, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(run_folder.FileLock, "acquire", refuse)
    refused = pytest.raises(BadRequestError, match="Permission denied")
    with refused, folder.locked(new=True):
        pass
    assert not folder.path.exists()


def test_a_run_that_came_to_nothing_is_removed(folder):
    def come_to_nothing():
        with folder.locked(new=True):
            folder.begin(CARD)
            folder.commit(Shard(RECEIPT, {"heads": b"numbers"}))
            folder.discard()
            raise ExhibitError

    with pytest.raises(ExhibitError):
        come_to_nothing()
    assert not folder.path.exists()


def test_a_folder_without_a_card_holds_no_run(folder):
    with pytest.raises(BadRequestError, match=r"run\.json"):
        folder.manifest()


def test_a_card_says_the_same_as_it_was_told(begun):
    assert begun.card == CARD
    with pytest.raises(BadRequestError, match="Resume"):
        begun.manifest()


def test_a_manifest_must_be_as_it_was_written(folder):
    with folder.locked(new=True):
        folder.begin(CARD)
        folder.commit(Shard(RECEIPT, {}))
        (folder.path / ".exhibit-a-dead.tmp").write_text("left by a writer that was killed")
        folder.finish({"run": CARD.model_dump(mode="json")}, [RECEIPT], {"x.jsonl": b""})
    assert not list(folder.path.glob(".*.tmp"))
    assert sorted(folder.manifest()["files"]) == ["receipts/00000.json", "run.json", "x.jsonl"]
    assert folder.damage() == []
    path = folder.path / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"any", b"all"))
    with pytest.raises(BrokenInvariantError, match=r"manifest\.json"):
        folder.manifest()


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_of_another_version_is_refused_with_the_version_that_wrote_it(folder, finished):
    older = CARD.model_dump(mode="json") | {"card": 1, "versions": {"exhibit_a": "0.2.0"}}
    with folder.locked(new=True):
        (folder.path / "run.json").write_bytes(sealed(older))
        if finished:
            (folder.path / "manifest.json").write_bytes(sealed({"run": older, "receipts": []}))
    for read in (folder.manifest, lambda: corpus.open(folder.path), lambda: folder.card):
        with pytest.raises(BadRequestError, match=r"written by exhibit-a 0\.2\.0.*Run it again"):
            read()
    with pytest.raises(BadRequestError, match=r"0\.2\.0"):
        corpus.resume(folder.path)
    (folder.path / "manifest.json").unlink(missing_ok=True)
    (folder.path / "run.json").write_text('{"card": 1}')  # without a hash, as in 0.1.0
    with pytest.raises(BadRequestError, match="damaged"):
        corpus.open(folder.path)


def test_a_shard_counts_only_with_its_own_receipt(begun):
    begun.commit(Shard(RECEIPT, {}))
    (begun.path / "receipts" / "00001.json").write_bytes(sealed(RECEIPT))
    (begun.path / "receipts" / "00002.json").write_bytes(b"half")
    hollow = {**RECEIPT, "shard": 3, "files": {"heads": "0"}}
    (begun.path / "receipts" / "00003.json").write_bytes(sealed(hollow))
    assert [receipt["shard"] for receipt in begun.complete()] == [0]


def test_a_damaged_manifest_is_named_among_the_damage(begun):
    (begun.path / run_folder.MANIFEST).write_bytes(b'{"files": {}}')
    assert begun.damage() == [run_folder.MANIFEST]
