"""A disk that fails at any call leaves the old file or a whole new one, and one line about it."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.faults import failing, limited, points, sweep
from support.scenarios import NAMES, scenarios

from exhibit_a.errors import ExhibitError
from exhibit_a.results.files import write_whole


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return {one.name: one for one in scenarios(tmp_path_factory.mktemp("material"))}


def test_every_scenario_is_tried(every):
    assert tuple(every) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_fails_once_costs_nothing(every, tmp_path, name, record_property):
    count = {"command": 1, "figure": 2}.get(name, 4)  # these take longest
    outcomes = sweep(every[name], tmp_path / "work", seed=3, count=count)
    record_property("outcomes", json.dumps(outcomes))
    assert outcomes.total() == count


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_fails_at_any_call_costs_nothing(every, tmp_path, name, record_property):
    calls = points(every[name], tmp_path / "work")
    record_property("calls", len(calls))
    assert {"open", "write", "fsync", "rename"} <= set(calls)
    outcomes = sweep(every[name], tmp_path / "work", errors="in turn")
    record_property("outcomes", json.dumps(outcomes))
    assert outcomes.total() == len(calls)


def test_the_harness_notices_a_careless_writer(tmp_path):
    """Otherwise the other tests of this file could not fail."""
    from support.faults import Scenario

    path = "note.txt"

    def careless(folder):
        try:
            (folder / path).write_text("all of the new text")
        except OSError as problem:
            raise ExhibitError("cannot be written") from problem

    scenario = Scenario("careless", careless, lambda folder: (folder / path).write_text("old"))
    with pytest.raises(AssertionError, match=r"note\.txt is neither old nor new"):
        sweep(scenario, tmp_path / "work")
    with failing(tmp_path, 1, errno.EIO) as calls, pytest.raises(ExhibitError, match="Input/out"):
        write_whole(tmp_path / "whole.txt", b"text")
    assert calls.seen == ["open", "write"]


@pytest.mark.parametrize("size", [0, 4000])
def test_a_training_goes_on_when_a_disk_that_was_really_full_has_room(every, tmp_path, size):
    """The writers of weights and tokenizers are not in Python; no file may exceed this size."""
    training = every["training"]
    with limited(size), pytest.raises(ExhibitError) as caught:
        training.act(tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert "File too large" in message
    assert not (tmp_path / "model").exists()
    training.act(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_full_screen_is_one_line():
    """Standard output can be a file on a full disk."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no device that is always full")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for words in (["--version"], ["--help"], ["corpus", "--help"]):
        code = f"from exhibit_a.commands.main import main; main({words})"
        with Path("/dev/full").open("w") as full:
            process = subprocess.run(
                [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, env=environment
            )
        line = b"error: The answer cannot be written: No space left on device.\n"
        assert (process.returncode, process.stderr) == (2, line)
