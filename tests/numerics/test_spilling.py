"""What waits in a file is what it was."""

import copy

import pytest
import torch

from exhibit_a.numerics import spilling
from exhibit_a.numerics.spilling import copies_at_once, few_heads, spilled, zeros_to_add_to

MAPS = (torch.rand(3, 4, 4), torch.rand(2, 5, 6, dtype=torch.double).mT, torch.zeros(2, 0, 3))


def same(ours, theirs):
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(ours, theirs, strict=True))


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(spilling, "LARGE", 0)


@pytest.mark.usefixtures("everything_is_large")
def test_tensors_in_a_file_are_the_same_and_can_be_changed():
    waiting = spilled(MAPS)
    assert waiting[0].data_ptr() != MAPS[0].data_ptr()
    assert same(waiting, MAPS)
    assert same(copy.deepcopy(waiting), MAPS)
    waiting[0][0, 0, 0] = 7
    assert waiting[0][0, 0, 0] == 7


@pytest.mark.usefixtures("everything_is_large")
def test_without_a_place_for_the_file_tensors_stay_where_they_are(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert spilled(MAPS) is MAPS
    assert torch.equal(zeros_to_add_to(7, MAPS[0]), torch.zeros(7))


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("count", [1, 10, 3 * 2**18 + 5])
def test_sums_in_a_file_are_sums(count):
    numbers = torch.rand(count, dtype=torch.double)
    total, known = zeros_to_add_to(count, numbers), torch.zeros_like(numbers)
    for factor in (1, 2, 0.5):
        assert torch.equal(total.add_(numbers, alpha=factor), known.add_(numbers, alpha=factor))


def test_a_part_of_a_large_set_waits_in_a_file_too():
    (waiting,) = spilled(MAPS[:1], of=spilling.LARGE)
    assert waiting.data_ptr() != MAPS[0].data_ptr()
    assert torch.equal(waiting, MAPS[0])


def test_heads_in_runs_are_all_heads(monkeypatch):
    assert len(few_heads(MAPS[0])) == 1
    monkeypatch.setattr(spilling, "LARGE", 0)
    runs = few_heads(MAPS[0])
    assert [len(run) for run in runs] == [1, 1, 1]
    assert torch.equal(torch.cat(runs), MAPS[0])
    assert few_heads(MAPS[2][:0])[0].shape == (0, 0, 3)


def test_copies_hold_no_more_than_one_set():
    large = 10.0 * spilling.LARGE
    for of_a_copy in (large, large / 3, large / 7):
        assert copies_at_once(large, of_a_copy) * of_a_copy <= large
    assert copies_at_once(large, 5 * large) == 1
    assert copies_at_once(1.0, 1.0) == spilling.LARGE


def test_small_tensors_stay_where_they_are():
    assert spilled(MAPS) is MAPS
