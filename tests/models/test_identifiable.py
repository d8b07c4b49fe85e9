"""Heads side by side and heads added up: what each leaves undetermined (METHODS: Con and Add)."""

import pytest
import torch
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture

HEADS, WIDTH = 4, 32


def trace_of(tokens, **options):
    torch.manual_seed(0)
    model = FAMILIES["identifiable"].build(num_layers=1, **options).double()
    ids = torch.randint(4, 80, (1, tokens), generator=torch.Generator().manual_seed(1))
    return capture(load(model), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


@pytest.mark.parametrize("tokens", [6, 20, 40])
@pytest.mark.parametrize("d_key", [1, 5])
def test_each_head_has_the_rank_that_is_promised(tokens, d_key):
    for heads, width in (("con", WIDTH // HEADS), ("add", WIDTH)):
        trace = trace_of(tokens, heads=heads, d_key=d_key)
        assert trace.sites[0].d_query == d_key
        passed_on = trace.values[0] @ trace.output_weight(0)
        assert torch.linalg.matrix_rank(passed_on).tolist() == [min(tokens, width)] * HEADS


@pytest.mark.parametrize(("heads", "changes"), [("add", False), ("con", True)])
def test_heads_that_are_added_have_no_order(heads, changes):
    model = FAMILIES["identifiable"].build(num_layers=1, heads=heads)
    attention, inputs = model.layers[0].attention, FAMILIES["identifiable"].inputs()
    with torch.no_grad():
        before = model(**inputs).logits
        for part in (attention.query, attention.key, attention.value):
            for weight in part.parameters():
                weight.copy_(weight.unflatten(0, (HEADS, -1)).flip(0).flatten(0, 1))
        after = model(**inputs).logits
    assert torch.allclose(before, after, atol=1e-4) != changes


def test_masked_texts_do_not_see_each_other_or_padding():
    """The released masks are inverted, and those of different examples are mixed up."""
    model = FAMILIES["identifiable"].build()
    ids = torch.randint(4, 80, (3, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 2 + [0] * 4])
    with torch.no_grad():
        together = model(ids, mask).logits
        for row, count in enumerate((6, 4, 2)):
            assert_close(together[row], model(ids[row : row + 1, :count]).logits[0])
