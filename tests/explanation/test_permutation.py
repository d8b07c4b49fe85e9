"""Shuffling attention: what must hold before any number of it is believed."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpora import numbered_sentences as sentences
from support.subjects import opinionated, subject_of, talking
from support.words import plain_tokenizer
from support.zoo import FAMILIES
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.explanation import permutation, shuffling
from exhibit_a.methods.explanation.permutation import permutation_test
from exhibit_a.methods.explanation.shuffling import shuffled, uniform
from exhibit_a.numerics.distances import farthest_divergence, jensen_shannon, total_variation
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value
from exhibit_a.results.store import read
from exhibit_a.subject.tap import Tap
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture
from exhibit_a.trace.replay import replay


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


def test_rows_without_a_common_key_are_ln_2_apart_and_fully_different():
    first, second = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.3, 0.7])
    assert_close(jensen_shannon(first, second), torch.tensor(math.log(2)))
    assert total_variation(first, second) == 1


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


@pytest.mark.parametrize("visible", [None, CAUSAL, WINDOW])
def test_the_identity_permutation_changes_nothing(visible):
    probs = _attention(visible)
    seen = None if visible is None else visible[None, None]
    same = shuffled(probs, seen, torch.linspace(0, 0.9, 5).reshape(1, 1, 1, 5))
    assert_close(same, probs, rtol=0, atol=0)


@pytest.mark.parametrize("visible", [CAUSAL, WINDOW])
def test_only_visible_weights_are_exchanged(visible):
    probs = _attention(visible)
    draw = torch.rand(probs.shape, generator=torch.Generator().manual_seed(1))
    other = shuffled(probs, visible[None, None], draw)
    assert (other[..., ~visible] == 0).all()
    assert_close(other.sort(-1).values, probs.sort(-1).values, rtol=0, atol=0)
    assert not torch.equal(other, probs)


def test_a_uniform_row_cannot_be_shuffled():
    flat = uniform(_attention(CAUSAL), CAUSAL[None, None])
    draw = torch.rand(flat.shape, generator=torch.Generator().manual_seed(1))
    assert_close(shuffled(flat, CAUSAL[None, None], draw), flat, rtol=0, atol=1e-7)
    assert_close(flat.sum(-1), torch.ones_like(flat[..., 0]))


def _attention(visible):
    scores = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    return (scores if visible is None else scores.masked_fill(~visible, -torch.inf)).softmax(-1)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "electra", "albert", "vit"])
def test_permuting_key_positions_permutes_attention_columns(name):
    subject = subject_of(name)
    trace = capture(subject, FAMILIES[name].inputs())
    site = 1
    keys = trace.attention[site].shape[-1]
    order = torch.randperm(keys, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        by_keys = replay(trace, edits.edit_keys(site, lambda key: key[:, :, order])).logits
        by_columns = replay(trace, edits.permute(site, order)).logits
    assert_close(by_keys, by_columns, rtol=1e-4, atol=1e-5)


class _MoveKeysAndValues(Tap):
    def __init__(self, order):
        self.order = order

    def scoring(self, site, query, key):
        return query, key[:, :, self.order]

    def values(self, site, value):
        return value[:, :, self.order]


@pytest.mark.parametrize("name", ["bert", "distilbert", "albert", "vit"])
def test_permuting_keys_and_values_together_changes_nothing(name):
    trace = capture(subject_of(name), FAMILIES[name].inputs())
    order = torch.randperm(trace.attention[0].shape[-1], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        moved = replay(trace, _MoveKeysAndValues(order), start=0).logits
    assert_close(moved, trace.output.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit"])
def test_a_shift_of_all_keys_leaves_attention_alone(name):
    subject = subject_of(name)
    trace = capture(subject, FAMILIES[name].inputs(), keep=("attention", "keys", "hidden"))
    width = trace.keys[0].shape[-1]
    shift = torch.randn(width, generator=torch.Generator().manual_seed(0))
    seen = []

    class Shift(Tap):
        def scoring(self, site, query, key):
            return query, key + shift

        def weighting(self, call):
            seen.append(call.probs[0])

    with torch.no_grad():
        replay(trace, Shift(), start=0)
    for ours, own in zip(seen, trace.attention, strict=True):
        assert_close(ours, own, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("what", "scope"), [("attention", "row"), ("keys", "global")])
def test_the_batch_leaves_no_mark(what, scope, monkeypatch):
    subject, data = opinionated(), sentences(5)
    together = permutation_test(subject, data, what=what, scope=scope, repeats=2)
    monkeypatch.setattr(permutation, "TOKENS", 1)
    monkeypatch.setattr(shuffling, "TOKENS", 1)
    alone = permutation_test(subject, data, what=what, scope=scope, repeats=2)
    assert_close(together.change, alone.change, rtol=1e-4, atol=1e-5)
    assert torch.equal(together.flipped, alone.flipped)


def test_the_cached_prefix_gives_what_a_full_run_gives(monkeypatch):
    subject, data = opinionated(), sentences(4)
    cached = permutation_test(subject, data, sites=[2], repeats=2)
    whole = shuffling.replay
    monkeypatch.setattr(shuffling, "replay", lambda trace, tap, **_: whole(trace, tap, start=0))
    full = permutation_test(subject, data, sites=[2], repeats=2)
    assert_close(cached.change, full.change, rtol=1e-4, atol=1e-6)


def test_the_same_seed_gives_the_same_bytes_and_survives_a_file(tmp_path):
    subject, data = opinionated(), sentences(5)
    first, second = (permutation_test(subject, data, repeats=2, seed=7) for _ in range(2))
    first.save(tmp_path / "a"), second.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    other = permutation_test(subject, data, repeats=2, seed=8)
    assert not torch.equal(first.change, other.change)
    again = read(tmp_path / "a")
    assert torch.equal(again.change, first.change)
    assert again.conditions == ("layer 0", "layer 1", "layer 2", "all 3")


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


def test_every_scope_and_thing_runs_and_says_what_it_did():
    subject, data = opinionated(), sentences(4)
    for what in get_args(shuffling.What):
        for scope in get_args(shuffling.Scope):
            result = permutation_test(subject, data, what=what, scope=scope, sites=[1], repeats=2)
            assert result.conditions == ("layer 1",)
            shared = what != "attention" and scope == "row"
            assert result.scope == ("head" if shared else scope)
            assert ("scope" in result.checks) == shared


def test_key_positions_per_head_are_attention_columns_per_head_over_a_data_set():
    subject, data = opinionated(), sentences(5)
    by_keys = permutation_test(subject, data, what="keys", scope="head", repeats=3)
    by_columns = permutation_test(subject, data, what="attention", scope="head", repeats=3)
    assert_close(by_keys.change, by_columns.change, rtol=1e-3, atol=1e-5)


def test_a_language_model_is_shuffled_within_each_prefix():
    result = permutation_test(talking("gpt2"), ["w1 w2 w3 w4", "w5 w6 w7"], repeats=2)
    assert (result.change.amax((0, 1)) > 0).all()
    features = permutation_test(talking("llama"), ["w1 w2 w3"], what="features", repeats=2)
    assert features.change.amax() > 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"what": "values"}, BadRequestError, "choose attention, keys, features"),
        ({"scope": "layer"}, BadRequestError, "choose row, head, example, global"),
        ({"sites": [9]}, BadRequestError, "There is no site 9; this model has 0 to 2"),
        ({"sites": []}, BadRequestError, "No sites were named; this model has 0 to 2"),
        ({"repeats": 0}, BadRequestError, "at least 1"),
    ],
)
def test_a_wrong_request_is_told_what_exists(options, error, message):
    with pytest.raises(error, match=message):
        permutation_test(opinionated(), sentences(2), **options)


def test_moving_keys_under_a_causal_mask_is_refused_with_the_reason():
    with pytest.raises(NotComputableError, match="would show it hidden ones"):
        permutation_test(talking("gpt2"), ["w1 w2 w3"], what="keys")


def test_models_without_one_answer_for_each_text_are_refused():
    with pytest.raises(NotComputableError, match="answers with hidden states"):
        permutation_test(talking("clip-text"), ["w1 w2 w3"])


def test_the_plot_shows_every_condition():
    pytest.importorskip("matplotlib")
    figure = permutation_test(opinionated(), sentences(3), repeats=2).plot()
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()][-1] == "all 3"


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
