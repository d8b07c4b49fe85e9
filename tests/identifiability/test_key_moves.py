"""The quick ways to count what keys can do give what singular vectors of every B give."""

import pytest
import torch
from torch.testing import assert_close

from exhibit_a.methods.identifiability import key_moves as room
from exhibit_a.methods.identifiability.key_moves import key_moves
from exhibit_a.methods.identifiability.ranks import tolerance_for
from exhibit_a.numerics.seeds import generator

KINDS = ("flat", "peaked", "sink", "small key", "repeated", "common", "masked")


def layer(kind, keys, width, d_head):
    """Weights, what is seen, values and keys of two heads in the precision of a float32 model."""
    seeded = generator(keys, width, d_head)
    value, key = (torch.randn(2, keys, size, generator=seeded) for size in (d_head, width))
    seen = torch.ones(keys, keys, dtype=torch.bool)
    if kind == "small key":
        key[:, 0] *= 1e-4
        value[:, 0] *= 1e-3
    if kind == "repeated":
        key[:, 3:6], value[:, 3:6] = key[:, :3], value[:, :3]
    if kind == "common":
        key, value = key + 20, value + 20
    if kind == "masked":
        seen = seen.tril()
    query = torch.randn(2, keys, width, generator=seeded)
    scores = query @ (key - key.mean(1, keepdim=True)).mT / width**0.5
    scores = scores * (6 if kind == "peaked" else 1)
    if kind in ("sink", "small key"):
        scores[..., 0] += 9
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    if kind == "sink":
        weights = weights * torch.rand(2, keys, 1, generator=seeded)  # rows need not sum to one
    return weights.double(), seen, value.double(), key.double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("keys", "width", "d_head"), [(9, 16, 16), (16, 16, 8), (40, 16, 16), (70, 24, 8), (90, 8, 32)]
)
def test_counts_are_those_of_singular_vectors(kind, keys, width, d_head, monkeypatch):
    given = layer(kind, keys, width, d_head)
    tolerance = tolerance_for(torch.float32, max(width, d_head))
    quick = key_moves(*given, tolerance)
    monkeypatch.setattr(room, "_by_sums", None)  # neither is asked again
    monkeypatch.setattr(room, "_by_pairs", None)
    monkeypatch.setattr(room, "EXACT", 1.0)
    slow = key_moves(*given, tolerance)
    assert torch.equal(quick.reach, slow.reach)
    assert torch.equal(quick.unseen, slow.unseen)
    assert_close(quick.visibility, slow.visibility, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_is_visible_unless_it_is_unseen(kind):
    for sizes in ((9, 16, 16), (40, 16, 16), (40, 24, 8)):
        moves = key_moves(*layer(kind, *sizes), tolerance_for(torch.float32, max(sizes[1:])))
        assert torch.equal(moves.visibility > 0, moves.unseen == 0)


@pytest.mark.parametrize("distinct", [1, 2, 3])
@pytest.mark.parametrize(("keys", "width"), [(5, 4), (7, 16), (24, 8)])
def test_equal_values_show_no_move_between_them(keys, width, distinct):
    """Moves keep the sum of a row, so that k different values show k - 1 of them."""
    weights, seen, value, key = layer("flat", keys, width, 8)
    value = value[:, torch.arange(keys) % distinct]
    moves = key_moves(weights, seen, value, key, tolerance_for(torch.float32, max(width, 8)))
    assert torch.equal(moves.reach - moves.unseen, torch.full_like(moves.reach, distinct - 1))
