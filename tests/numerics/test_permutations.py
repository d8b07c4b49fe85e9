"""Laws of dealing weights to keys."""

from itertools import permutations

import pytest
import torch
from torch.testing import assert_close

from exhibit_a.numerics.permutations import permute_rows, random_orders
from exhibit_a.numerics.seeds import generator


def test_every_order_is_as_likely_as_any_other():
    orders = random_orders(torch.Size((60_000, 4)), None, generator(0))
    kinds, counts = orders.unique(dim=0, return_counts=True)
    assert sorted(map(tuple, kinds.tolist())) == sorted(permutations(range(4)))
    expected = 60_000 / 24
    assert float(((counts - expected) ** 2 / expected).sum()) < 50  # χ² of 23: 99.9 % below 49.7


@pytest.mark.parametrize("keys", [1, 2, 33, 512, 513])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_keep_what_they_have_and_hidden_keys_what_is_theirs(keys, causal):
    maps = torch.rand(3, keys, keys, generator=generator(keys))
    seen = torch.ones(keys, keys, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    new = permute_rows(maps, seen, generator(1))
    assert torch.equal(new.sort(-1).values, maps.sort(-1).values)
    assert torch.equal(new[:, ~seen], maps[:, ~seen])
    if keys > 2:
        assert not torch.equal(new, maps)
        assert not torch.equal(new[0].argsort(-1), new[1].argsort(-1))  # heads are dealt apart


def test_every_key_gets_every_weight_as_often():
    maps = torch.arange(5.0).expand(1, 8000, 5)
    seen = torch.tensor([True, True, False, True, True]).expand(8000, 5)
    new = permute_rows(maps, seen, generator(2))[0]
    assert_close(new.mean(0), torch.tensor([2.0] * 5), atol=0.08, rtol=0)
    assert bool((new[:, 2] == 2).all())
