"""The words of the verdict, on models whose truth is known by construction."""

import copy

import pytest
import torch
from planted.kinds import KINDS, planted
from planted.truth import margin_when_even

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame
from exhibit_a.methods.attribution.reliance import along_rows
from exhibit_a.subject.subject import load
from exhibit_a.trace.targets import chosen_target, margin_of
from exhibit_a.trials.carriers import smallest_set
from exhibit_a.trials.trained_weights import weights_look_trained

SEED = 100  # neither among those for calibration nor among those that are reported


@pytest.fixture(scope="module")
def sentiment():
    return load("sentiment")


@pytest.fixture(scope="module")
def tried():
    """The planted model of each kind and its trial, made once."""
    kept = {}

    def of(kind):
        if kind not in kept:
            model = planted(kind, SEED)
            kept[kind] = model, xa.trial(model.subject, model.inputs, probes=2, heat_maps=False)
        return kept[kind]

    return of


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "random"])
def test_the_words_are_the_planted_ones(tried, kind):
    model, trial = tried(kind)
    assert trial.word == model.word, trial.verdict
    given = {(verdict.site, verdict.head): verdict.word for verdict in trial.verdicts}
    assert {head: given[head] for head in model.heads} == model.heads


@pytest.mark.parametrize("kind", ["redundant-same-layer", "redundant-across-layers"])
def test_heads_that_stand_in_for_each_other_are_shared(tried, kind):
    model, trial = tried(kind)
    assert {(v.site, v.head) for v in trial.verdicts if v.shared} == model.shared


def test_a_head_that_only_steers_is_not_without_effect(tried):
    model, trial = tried("induction")
    (first,) = model.through_maps
    verdict = trial.of(*first)
    size = trial.reliance.size
    assert abs(verdict.reliance) < 0.05 * size  # with frozen maps it has no share
    assert abs(verdict.steering) > 0.05 * size
    assert verdict.word == "undetermined"
    assert "steers" in verdict.reason


@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 12, SEED + 23])  # a family each
def test_random_weights_are_never_evidence(seed):
    model = planted("random", seed)
    trial = xa.trial(model.subject, model.inputs, probes=2, heat_maps=False)
    assert trial.word != "evidence"
    assert all(verdict.word != "evidence" for verdict in trial.verdicts)


@pytest.mark.parametrize("kind", ["redundant-same-layer", "redundant-across-layers"])
def test_the_smallest_set_is_confirmed_by_intervention(kind):
    model = planted(kind, SEED)
    trace = xa.capture(model.subject, model.inputs, keep=("attention", "values", "hidden"))
    game = HeadGame(trace, margin_of(chosen_target(trace, None)))
    relied = xa.reliance(trace)
    named = smallest_set(game, relied, seed=0)
    assert set(named.heads) == model.shared
    assert named.confirmed
    even = margin_when_even(trace, named.heads, model.answer)
    assert named.loss == pytest.approx(relied.margin - even, abs=1e-3)
    assert named.loss > 10 * abs(named.random_loss)
    for head in named.heads:  # neither alone takes half of it
        alone = relied.margin - margin_when_even(trace, [head], model.answer)
        assert alone < named.loss / 2


def test_shuffled_weights_have_learned_nothing(sentiment):
    model = copy.deepcopy(sentiment.model)
    seeded = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                order = torch.randperm(weight.numel(), generator=seeded)
                weight.copy_(weight.flatten()[order].view_as(weight))
    shuffled = load(model, tokenizer=sentiment.tokenizer)
    assert not any(weights_look_trained(shuffled).values())


def test_a_key_without_value_is_not_pointed_at():
    """Most of the weight on a key of gradient 0, others for and against."""
    own = torch.tensor([[[0.75, 0.15, 0.02, 0.02, 0.02, 0.02, 0.02]]])
    even = torch.full_like(own, 1 / 7)
    gradients = torch.tensor([[[0.0, 1.0, 1.0, 0.0, -1.0, -1.0, -1.0]]])
    visible = torch.ones(1, 7, dtype=torch.bool)
    pointing = along_rows(own, even, gradients, visible[None]).pointing
    contributions = own * gradients  # the median gradient is 0, the mean is not
    cosine = torch.cosine_similarity(own, contributions, -1)
    torch.testing.assert_close(pointing, cosine.flatten())
    assert float(pointing) < 0.3


def test_pointing_does_not_change_with_what_all_keys_share():
    """A constant added to all gradients of a row moves no answer: weights add up to one."""
    seeded = torch.Generator().manual_seed(1)
    visible = torch.ones(6, 6, dtype=torch.bool).tril()
    own = torch.rand(2, 6, 6, generator=seeded) * visible
    own = own / own.sum(-1, keepdim=True)
    even = visible.float() / visible.sum(-1, keepdim=True)
    gradients = torch.randn(2, 6, 6, generator=seeded)
    before = along_rows(own, even.expand_as(own), gradients, visible[None])
    after = along_rows(own, even.expand_as(own), gradients + torch.randn(2, 6, 1), visible[None])
    against = along_rows(own, even.expand_as(own), -gradients, visible[None])
    for first, second in zip(before, after, strict=True):
        torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        before.pointing, against.pointing
    )  # points as well for the other answer


def test_rows_that_speak_against_each_other_point_and_are_not_coherent():
    """One row speaks for the answer, one half as loudly against it; both look at what they say."""
    own = torch.tensor([[[0.94, 0.02, 0.02, 0.02], [0.02, 0.94, 0.02, 0.02]]])
    gradients = torch.tensor([[[8.0, 0.0, 0.0, 0.0], [0.0, -4.0, 0.0, 0.0]]])
    even = torch.full_like(own, 0.25)
    said = along_rows(own, even, gradients, torch.ones(1, 2, 4, dtype=torch.bool))
    assert float(said.pointing) > 0.99
    torch.testing.assert_close(said.coherence, torch.tensor([1 / 3]))
