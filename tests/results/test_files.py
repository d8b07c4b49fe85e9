"""Files and folders are complete or absent, and a place that cannot be had is named."""

import os
from pathlib import Path

import pytest

from exhibit_a.errors import BadRequestError, ExhibitError
from exhibit_a.results.files import free_folder, require_place, whole_folder, writing


@pytest.fixture
def forbidden(monkeypatch):
    """Nothing may be written; a test may be run by one who may do anything."""
    monkeypatch.setattr(os, "access", lambda *_: False)


@pytest.mark.usefixtures("forbidden")
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path):
    with pytest.raises(BadRequestError, match="may not be written to"):
        require_place(tmp_path / "file")
    with pytest.raises(BadRequestError, match="nothing can be made in"):
        free_folder(tmp_path / "new" / "folder")


def test_a_folder_is_free_if_nothing_is_in_it(tmp_path):
    assert free_folder(tmp_path / "new") == tmp_path / "new"
    assert free_folder(tmp_path) == tmp_path
    (tmp_path / "file").write_text("mine")
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(BadRequestError, match="already exists"):
            free_folder(taken)
    with pytest.raises(BadRequestError, match="too long"):
        free_folder(tmp_path / ("long" * 100))
    with pytest.raises(BadRequestError, match="nothing can be made in"):
        free_folder(tmp_path / "file" / "folder")


def test_a_folder_appears_when_it_is_whole_and_on_the_disk(tmp_path, monkeypatch):
    flushed, target = [], tmp_path / "deep" / "folder"
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_size)
    )
    with whole_folder(target) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("whole")
        assert not target.exists()
    assert (target / "inner" / "file").read_text() == "whole"
    assert flushed == [5]
    assert list(target.parent.iterdir()) == [target]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    def interrupted():
        with whole_folder(tmp_path / "deep" / "folder") as folder:
            (folder / "file").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_what_a_writer_of_ours_says_is_not_said_twice(tmp_path):
    with pytest.raises(BadRequestError, match=r"^no such layer$"), writing(tmp_path):
        raise BadRequestError("no such layer")
    with pytest.raises(ExhibitError, match=r"cannot be written: ValueError\.$"), writing(tmp_path):
        raise ValueError


def test_the_current_folder_cannot_be_replaced():
    with pytest.raises(BadRequestError, match="current folder"):
        free_folder(Path())
