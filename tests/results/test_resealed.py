"""A file that was changed and sealed again: refused for what is wrong in it, never a traceback."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.resealed import CHANGES, NAMES, opened, resealed, save_results

from exhibit_a.errors import BadRequestError
from exhibit_a.results import store
from exhibit_a.results.store import read

TESTS = Path(__file__).parents[1]
TRIAL = {"values": 2, "effective/spectrum": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of several kinds."""
    folder = tmp_path_factory.mktemp("results")
    save_results(folder)
    return folder


@pytest.fixture(scope="module")
def attempts(folder):
    done = subprocess.run(
        [sys.executable, "-m", "support.resealed", str(folder)],
        cwd=TESTS,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def tried(attempts):
    return attempts["types"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_tree_sealed_again_opens(folder, name, tmp_path):
    path = folder / f"{name}.safetensors"
    data = path.read_bytes()
    file = tmp_path / "result.safetensors"
    file.write_bytes(resealed(data, opened(data)[1]))
    assert type(read(file)) is type(read(path))


@pytest.mark.parametrize("name", NAMES)
def test_wrong_types_are_refused_in_one_line(tried, name):
    outcomes = tried[name]
    assert len(outcomes) == CHANGES
    assert [line for kind, line in outcomes if kind == "traceback"] == []
    refused = [line for kind, line in outcomes if kind == "refused"]
    assert len(refused) > CHANGES / 2
    assert not [line for line in refused if "\n" in line]


def test_the_field_is_named(tried):
    ((kind, line),) = tried["a token that is a number"]
    assert kind == "refused"
    assert "tokens of its EffectiveAttention is no tuple[str" in line


def test_axes_of_one_name_have_one_size(tried):
    ((kind, line),) = tried["axes of other sizes"]
    assert kind == "refused"
    assert "of its IdentifiabilityByLength is no Float" in line


# What nothing else in the file tells: samples, singular values, bounds, text whose keys have names.
UNKNOWN = {
    "by-length": {"tokens"},
    "effective": {f"spectrum/{site} 1" for site in range(3)},
    "tokens": {"interval/identity 1"},
    "tree": {"tokens"},
    "trial": {"heat_maps/random_margins 0"}
    | {f"{name}/{site} {axis}" for name, axis in TRIAL.items() for site in range(3)},
}


@pytest.mark.parametrize("name", NAMES)
def test_lengths_that_do_not_fit_are_refused_in_one_line(attempts, name):
    outcomes = attempts["lengths"][name]
    assert {place for place, (kind, _) in outcomes.items() if kind == "opened"} == UNKNOWN.get(
        name, set()
    )
    lines = [line for kind, line in outcomes.values() if kind != "opened"]
    assert not [line for line in lines if "cannot be read: " not in line or "\n" in line]


def test_the_axis_and_both_lengths_are_named(attempts):
    _, line = attempts["lengths"]["alti"]["tokens"]
    assert line.endswith(
        "scores of its TokenAttribution has 8 entries along token, and there are 7."
    )


def sparse(path, promised, size):
    """A result whose header promises so many bytes, in a file that takes no room."""
    text = store._OPENING + store._BLANK + rb"{\"schema\":1,\"result\":null}" + b'"},'
    entry = {"dtype": "U8", "shape": [promised], "data_offsets": [0, promised]}
    text += b'"big":' + json.dumps(entry).encode() + b"}"
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(size or 8 + len(text) + promised)


LARGE = 14 * 10**9


def test_a_file_larger_than_its_header_says_is_not_read(tmp_path):
    path = tmp_path / "sparse.safetensors"
    sparse(path, 1000, LARGE)
    with pytest.raises(BadRequestError, match="14000000000"):
        read(path)


def test_a_file_larger_than_the_memory_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "sparse.safetensors"
    sparse(path, LARGE, None)
    monkeypatch.setattr(store, "free_bytes", lambda device: 2 * 10**9)
    with pytest.raises(BadRequestError, match=r"14\.0 GB"):
        read(path)


def test_a_limit_that_nobody_knew_of_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / "sparse.safetensors"
    sparse(path, LARGE, None)
    monkeypatch.setattr(store, "free_bytes", lambda device: 10**12)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    try:
        with pytest.raises(BadRequestError, match="memory"):
            read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_headers_have_a_largest_size(tmp_path):
    path = tmp_path / "long.safetensors"
    with path.open("wb") as file:
        file.write((2 * store._LONGEST_HEADER).to_bytes(8, "little") + store._OPENING)
        file.truncate(LARGE)
    with pytest.raises(BadRequestError, match="header"):
        read(path)


def test_results_have_a_largest_number_of_tensors(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MOST_TENSORS", 2)
    with pytest.raises(BadRequestError, match="more than any result has"):
        read(folder / "effective.safetensors")
    monkeypatch.undo()
    result = read(folder / "effective.safetensors")
    monkeypatch.setattr(store, "_MOST_TENSORS", 2)
    with pytest.raises(BadRequestError, match="too many parts"):
        result.save(tmp_path / "saved.safetensors")
