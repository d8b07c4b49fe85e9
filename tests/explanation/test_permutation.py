"""Shuffling attention: what must hold before any number of it is believed."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpora import numbered_sentences as sentences
from support.subjects import opinionated, talking
from support.words import plain_tokenizer
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.explanation import shuffling
from exhibit_a.methods.explanation.permutation import permutation_test
from exhibit_a.methods.explanation.shuffling import shuffled, uniform
from exhibit_a.numerics.distances import farthest_divergence, jensen_shannon
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value


@st.composite
def rows(draw, count=2):
    keys = draw(st.integers(2, 6))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    scores = 4 * torch.randn(count, keys, generator=seeded, dtype=torch.float64)
    return scores.softmax(-1).unbind(0)


@given(rows())
def test_divergence_is_symmetric_and_at_most_ln_2(pair):
    first, second = pair
    forth, back = jensen_shannon(first, second), jensen_shannon(second, first)
    assert_close(forth, back)
    assert 0 <= forth <= math.log(2) + 1e-12
    assert jensen_shannon(first, first) == 0


@given(rows(count=4))
def test_no_distribution_is_farther_than_the_least_attended_key(several):
    own, *others = several
    limit = farthest_divergence(own, torch.ones_like(own, dtype=torch.bool))
    corners = torch.eye(len(own), dtype=own.dtype)
    assert all(jensen_shannon(other, own) <= limit + 1e-12 for other in (*others, *corners))


def test_an_interval_holds_its_mean_and_leaves_nan_out():
    values = torch.tensor([[1.0, 0.0, 1.0, torch.nan, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    low, high = bootstrap_interval(values, seed=0).T
    assert low[0] < 0.75 < high[0]
    assert low[1] == high[1] == 2


def test_sign_flips_see_a_difference_and_nothing_where_there_is_none():
    seeded = torch.Generator().manual_seed(0)
    noise = torch.randn(60, generator=seeded)
    small, large = sign_flip_p_value(torch.stack([noise - noise.mean(), noise + 1.0]), seed=0)
    assert small > 0.9
    assert large < 0.001


CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()
WINDOW = CAUSAL & ~CAUSAL.tril(-3)


@pytest.mark.parametrize("visible", [CAUSAL, WINDOW])
def test_only_visible_weights_are_exchanged(visible):
    probs = _attention(visible)
    draw = torch.rand(probs.shape, generator=torch.Generator().manual_seed(1))
    other = shuffled(probs, visible[None, None], draw)
    assert (other[..., ~visible] == 0).all()
    assert_close(other.sort(-1).values, probs.sort(-1).values, rtol=0, atol=0)
    assert not torch.equal(other, probs)


def _attention(visible):
    scores = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    return (scores if visible is None else scores.masked_fill(~visible, -torch.inf)).softmax(-1)


def test_accuracy_drop_and_p_value_are_those_of_the_answers():
    subject = opinionated()
    own = permutation_test(subject, [e.text for e in sentences(12)], repeats=3)
    assert own.own_accuracy == 1
    assert "none" in own.checks["labels"]
    assert own.p_value.isnan().all()
    assert_close(own.flip_rate, 1 - own.accuracy)
    assert_close(own.drop, own.flipped.float().mean((1, 2)))
    assert (own.accuracy_interval[:, 0] <= own.accuracy).all()
    assert (own.accuracy <= own.accuracy_interval[:, 1]).all()
    assert own.change[-1].mean() > 0
    labelled = permutation_test(subject, sentences(12), repeats=3)
    assert_close(labelled.accuracy, labelled.correct.float().mean((1, 2)))
    lost = labelled.own_correct.float() - labelled.correct.float().mean(1)
    assert_close(labelled.drop, lost.mean(-1))
    assert_close(labelled.p_value, sign_flip_p_value(lost, seed=0))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"what": "values"}, BadRequestError, "attention, keys, features"),
        ({"scope": "layer"}, BadRequestError, "row, head, example, global"),
        ({"sites": [9]}, BadRequestError, "0 to 2"),
        ({"sites": []}, BadRequestError, "0 to 2"),
        ({"repeats": 0}, BadRequestError, "at least 1"),
    ],
)
def test_a_wrong_request_is_told_what_exists(options, error, message):
    with pytest.raises(error, match=message):
        permutation_test(opinionated(), sentences(2), **options)


def test_moving_keys_under_a_causal_mask_is_refused_with_the_reason():
    with pytest.raises(NotComputableError, match="would show it hidden ones"):
        permutation_test(talking("gpt2"), ["w1 w2 w3"], what="keys")


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 8), st.integers(0, 1000))
def test_a_shorter_text_keeps_the_order_of_a_global_permutation(length, seed):
    plan = shuffling.Shuffling("attention", "global", frozenset([0]), seed, 8)
    long = plan.draw(0, shuffling._Texts([3], torch.tensor([8])), range(1), (2, 8, 8))
    short = plan.draw(
        0, shuffling._Texts([5], torch.tensor([length])), range(1), (2, length, length)
    )
    assert torch.equal(short[..., :length], long[..., :length])


def test_a_classifier_that_looks_once_is_shuffled_in_its_one_row():
    torch.manual_seed(0)
    tokenizer = plain_tokenizer()
    config = xa.models.RecurrentConfig(vocab_size=len(tokenizer), d_model=8, d_attention=4)
    model = xa.models.RecurrentClassifier(config).eval()
    texts = ["a gripping film", "a beautifully shot film , though the plot is thin"]
    subject = xa.load(model, tokenizer=tokenizer)
    together = xa.permutation_test(subject, texts, repeats=4)
    alone = xa.permutation_test(subject, texts[:1], repeats=4)
    assert (together.change[0] > 0).all()
    assert_close(together.change[..., :1], alone.change)  # whatever else is in its batch
    with torch.no_grad():
        model.answering[0].attention.energy.weight.zero_()  # an even row has no order
    even = xa.permutation_test(subject, texts, repeats=4)
    assert_close(even.change, torch.zeros_like(even.change), atol=1e-6, rtol=0)


@pytest.mark.parametrize("visible", [None, CAUSAL, WINDOW])
def test_the_identity_permutation_changes_nothing(visible):
    probs = _attention(visible)
    seen = None if visible is None else visible[None, None]
    same = shuffled(probs, seen, torch.linspace(0, 0.9, 5).reshape(1, 1, 1, 5))
    assert_close(same, probs, rtol=0, atol=0)


def test_a_uniform_row_cannot_be_shuffled():
    flat = uniform(_attention(CAUSAL), CAUSAL[None, None])
    draw = torch.rand(flat.shape, generator=torch.Generator().manual_seed(1))
    assert_close(shuffled(flat, CAUSAL[None, None], draw), flat, rtol=0, atol=1e-7)
    assert_close(flat.sum(-1), torch.ones_like(flat[..., 0]))
