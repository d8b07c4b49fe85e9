"""What a named edit does, against doing it by hand."""

import pytest
import torch
from support.subjects import subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture
from exhibit_a.trace.replay import replay


@pytest.fixture(params=["bert", "deberta-v2", "bloom"])
def trace(request):
    return capture(subject_of(request.param), FAMILIES[request.param].inputs())


def logits(trace, edit=None, **options):
    with torch.no_grad():
        return replay(trace, edit, **options).logits


def test_scaling_by_one_changes_nothing_and_by_zero_silences(trace):
    path = torch.tensor([0.0, 0.5, 1.0])
    along = logits(trace, edits.scale(1, path), copies=3)
    assert_close(along[2:], trace.output.logits, rtol=1e-4, atol=1e-4)
    silent = logits(trace, edits.replace(1, torch.zeros_like(trace.attention[1])))
    assert_close(along[:1], silent, rtol=1e-4, atol=1e-4)
    assert (along[0] - along[2]).abs().amax() > 1e-3


def test_dropping_one_head_zeroes_its_map(trace):
    without = trace.attention[0].clone()
    without[2] = 0
    expected = logits(trace, edits.replace(0, without))
    assert_close(logits(trace, edits.drop_heads([(0, 2)])), expected, rtol=1e-4, atol=1e-4)


def test_zeroed_values_are_columns_that_weigh_nothing(trace):
    tokens = torch.arange(7) == 3
    without = trace.attention[1].masked_fill(tokens, 0)
    expected = logits(trace, edits.replace(1, without))
    assert_close(logits(trace, edits.zero_values(1, tokens)), expected, rtol=1e-4, atol=1e-4)


def test_every_copy_can_zero_another_value(trace):
    each = torch.eye(7, dtype=torch.bool)
    batch = logits(trace, edits.zero_values(1, each), copies=7)
    for token in range(7):
        alone = logits(trace, edits.zero_values(1, each[token]))
        assert_close(batch[token : token + 1], alone, rtol=1e-4, atol=1e-4)


def test_a_permutation_moves_weights_between_keys(trace):
    order = torch.tensor([1, 0, 2, 3, 4, 5, 6])
    expected = logits(trace, edits.replace(1, trace.attention[1][:, :, order]))
    assert_close(logits(trace, edits.permute(1, order)), expected, rtol=1e-4, atol=1e-4)


def test_permuting_keys_permutes_attention():
    trace = capture(subject_of("bert"), FAMILIES["bert"].inputs())
    order = torch.tensor([2, 0, 1, 3, 6, 5, 4])
    by_keys = logits(trace, edits.edit_keys(1, lambda key: key[:, :, order]))
    by_maps = logits(trace, edits.permute(1, order))
    assert_close(by_keys, by_maps, rtol=1e-4, atol=1e-5)


def test_a_shift_of_all_keys_changes_nothing(trace):
    if "position bias" in trace.sites[1].variants:
        pytest.skip("positions read the keys as well")
    shifted = logits(trace, edits.edit_keys(1, lambda key: key + 3.0))
    assert_close(shifted, trace.output.logits, rtol=1e-3, atol=1e-4)


def test_edits_combine(trace):
    both = edits.together(edits.scale(0, 0.5), edits.drop_heads([(2, 1)]), edits.scale(0, 0.5))
    assert both.sites == {0, 2}
    quarter = trace.attention[0] * 0.25
    by_hand = edits.together(edits.replace(0, quarter), edits.drop_heads([(2, 1)]))
    assert_close(logits(trace, both), logits(trace, by_hand), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("edit", "options", "message"),
    [
        (edits.replace(0, torch.ones(4, 2, 2)), {}, r"\(4, 2, 2\)"),
        (edits.permute(0, torch.arange(3)), {}, r"\(3,\)"),
        (edits.scale(0, 0.0), {"start": 2}, "replay from 2"),
        (edits.scale(99, 0.0), {"start": 0}, "no site 99"),
        (edits.scale(-1, 0.0), {"start": 0}, "no site -1"),
        (None, {"copies": 0}, "0 copies"),
        (edits.drop_heads([(0, 4)]), {}, "0 to 3"),
        (edits.scale(3, 0.0), {}, "0 to 2"),
        (None, {"start": 4}, "0 to 3"),
        (edits.scale(1, 0.5), {"read": (7,)}, "0 to 6"),
    ],
)
def test_an_edit_that_would_do_nothing_or_does_not_fit_is_refused(trace, edit, options, message):
    with pytest.raises(BadRequestError, match=message):
        replay(trace, edit, **options)


def test_the_identity_permutation_changes_nothing(trace):
    same = logits(trace, edits.permute(1, torch.arange(7)))
    assert_close(same, trace.output.logits, rtol=1e-4, atol=1e-4)
