"""What waits in a file is what it was."""

import copy

import pytest
import torch

from exhibit_a.numerics import spilling
from exhibit_a.numerics.spilling import spilled, zeros_to_add_to

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
