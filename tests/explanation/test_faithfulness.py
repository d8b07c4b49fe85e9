"""Faithfulness: the ends of every curve are known, and so is what chance gives."""

import itertools

import pytest
import torch
from support.corpora import numbered_sentences as sentences
from support.erased import answers_to
from support.subjects import opinionated, talking
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.explanation.erasure import erased, removable
from exhibit_a.methods.explanation.faithfulness import (
    BINS,
    FRACTIONS,
    METRICS,
    RANDOM,
    _Answers,
    _Case,
    _judge,
    faithfulness,
)
from exhibit_a.trace.capture import capture
from exhibit_a.trace.targets import Target, choose_target

TEN = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10"
FOUR = "w3 w14 w15 w9"


def by_place(trace, target):
    """A ranking that knows nothing: the earlier, the better."""
    return -torch.arange(len(trace.tokens)).float()


def _answers(trace, lists):
    texts = []
    for leaving in lists:
        gone = torch.zeros_like(trace.special)
        gone[[1 + token for token in leaving]] = True
        texts.append(erased(trace.subject, trace.inputs, gone, "hide"))
    return answers_to(trace.subject, texts)[:, choose_target(trace).index]


def test_the_ends_of_the_curves_are_the_text_and_nothing():
    trace = capture(opinionated(), TEN)
    found = faithfulness(opinionated(), [TEN], attribution=by_place)
    text, nothing = _answers(trace, [[], range(10)])
    deletion, insertion = found.deletion["by_place"][0], found.insertion["by_place"][0]
    assert_close(deletion[0], text)
    assert_close(insertion[-1], text)
    assert_close(deletion[-1], nothing)
    assert_close(insertion[0], nothing)


def test_comprehensiveness_and_sufficiency_are_their_definitions():
    trace = capture(opinionated(), TEN)
    found = faithfulness(opinionated(), [TEN], attribution=by_place)
    sizes = [1, 1, 1, 2, 5]  # of ten tokens, for the bins
    without = _answers(trace, [range(size) for size in sizes])
    only = _answers(trace, [range(size, 10) for size in sizes])
    text = _answers(trace, [[]])[0]
    scores = dict(zip(METRICS, found.scores["by_place"][0], strict=True))
    assert len(BINS) == len(sizes)
    assert_close(scores["comprehensiveness"], (text - without).mean())
    assert_close(scores["sufficiency"], (text - only).mean())


def test_random_rankings_meet_their_expectation():
    trace = capture(opinionated(), FOUR)
    found = faithfulness(opinionated(), [FOUR], attribution=by_place, rankings=400)
    text = _answers(trace, [[]])[0]
    for size, fraction in ((1, 0.2), (2, 0.5), (3, 0.7)):
        subsets = list(itertools.combinations(range(4), size))
        expected = _answers(trace, subsets).mean()
        place = FRACTIONS.index(fraction)
        met = found.deletion[RANDOM][0, place]
        spread = (_answers(trace, subsets) - expected).abs().amax()
        assert abs(float(met - expected)) < 0.15 * float(spread) + 1e-4
    assert_close(found.deletion[RANDOM][0, 0], text)


def test_a_ranking_that_knows_beats_chance_and_its_reverse_does_not():
    def best(trace, target):
        written = removable(trace).nonzero()[:, 0]
        texts = [
            erased(trace.subject, trace.inputs, torch.arange(len(trace.tokens)) == token, "hide")
            for token in written
        ]
        scores = torch.zeros(len(trace.tokens))
        scores[written] = -answers_to(trace.subject, texts)[:, target.index]
        return scores

    def worst(trace, target):
        return -best(trace, target)

    found = faithfulness(
        opinionated(), sentences(10), attribution={"best": best, "worst": worst}, seed=1
    )
    first = METRICS.index("comprehensiveness")
    assert found.mean[0, first] > found.mean[2, first] > found.mean[1, first]
    assert found.p_value[0, first] < 0.05
    assert found.attributions == ("best", "worst", RANDOM)
    assert (found.interval[..., 0] <= found.mean + 1e-6).all()
    assert (found.mean <= found.interval[..., 1] + 1e-6).all()


def test_flips_are_counted_where_the_answer_turns():
    trace = capture(opinionated(), TEN)
    found = faithfulness(opinionated(), [TEN], attribution=by_place)
    scores = dict(zip(METRICS, found.scores["by_place"][0].tolist(), strict=True))
    index = choose_target(trace).index
    turned = [
        share
        for share, answer in zip(FRACTIONS, found.deletion["by_place"][0], strict=True)
        if answer < 0.5
    ]
    assert scores["flip_fraction"] == pytest.approx(turned[0] if turned else 1.0)
    one = _answers(trace, [[0]])[0]
    assert scores["first_flip"] == float(one < 0.5)
    assert trace.output.logits.argmax() == index


def test_the_first_flip_is_that_of_one_token_in_a_long_text_too():
    """Of 150 tokens, 1 % would be two; the answer turns with the second."""

    class TurnsWithTheSecond(_Case):
        def answers(self, removed):
            turned = torch.tensor([len(tokens) >= 2 for tokens in removed])
            return _Answers(1 - turned.float(), turned.long().unsqueeze(1))

    trace, written = capture(opinionated(), TEN), torch.ones(150, dtype=torch.bool)
    case = TurnsWithTheSecond(trace, Target(0), written, "hide")
    metrics, _ = _judge(case, [torch.arange(150.0)])
    named = dict(zip(METRICS, metrics[0].tolist(), strict=True))
    assert named["first_flip"] == 0
    assert named["flip_fraction"] == pytest.approx(0.01)


def test_wrong_requests_are_told_what_exists():
    subject = opinionated()
    with pytest.raises(BadRequestError, match=r"magic.*raw"):
        faithfulness(subject, [FOUR], attribution="magic")
    with pytest.raises(BadRequestError, match="attribution"):
        faithfulness(subject, [FOUR], attribution=[])
    with pytest.raises(BadRequestError, match="choose hide, delete, mask"):
        faithfulness(subject, [FOUR], attribution="raw", erase="burn")
    with pytest.raises(BadRequestError, match="6 tokens"):
        faithfulness(subject, [FOUR], attribution=lambda trace, target: torch.zeros(2))
    with pytest.raises(NotComputableError, match="hidden states"):
        faithfulness(talking("clip-text"), [FOUR], attribution="raw")


def from_behind(trace, target):
    return torch.arange(len(trace.tokens)).float()


def test_reversing_the_ranking_swaps_the_curves():
    ways = {"forth": by_place, "back": from_behind}
    found = faithfulness(opinionated(), [TEN], attribution=ways)
    tenths = [FRACTIONS.index(step / 10) for step in range(11)]
    forth, back = found.deletion["forth"][0, tenths], found.insertion["back"][0, tenths]
    assert_close(forth.flip(0), back)


def test_occlusion_is_its_own_leave_one_out():
    found = faithfulness(opinionated(), sentences(4), attribution=["occlusion", "raw"])
    place = METRICS.index("leave_one_out")
    assert_close(found.mean[0, place], torch.tensor(1.0))
    assert found.mean[1, place] < 1
