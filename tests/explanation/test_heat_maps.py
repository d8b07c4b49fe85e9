"""Heat maps: advice follows from hidden words alone, and every claim of it is true."""

import pytest
import torch
from planted.kinds import planted
from support.erased import answers_to
from support.passes import counting

import exhibit_a as xa
from exhibit_a.methods.explanation.advice import SURVIVES
from exhibit_a.methods.explanation.erasure import erased
from exhibit_a.methods.explanation.heat_maps import UNMOVED
from exhibit_a.methods.explanation.words import words_of

MIXED = "the plot is thin and the jokes are old , but the cast is a joy"
CHEAP = ["raw", "mean_attention", "rollout", "effective", "attention_gradient", "relevance", "alti"]


@pytest.fixture(scope="module")
def sentiment():
    return xa.load("sentiment")


@pytest.fixture(scope="module")
def mixed(sentiment):
    trace = xa.capture(sentiment, MIXED)
    modules = [sentiment.model.get_submodule(layer.module) for layer in sentiment.anatomy.layers]
    scores = {name: row.scores for name, row in xa.companions(trace, methods=CHEAP).items()}
    assert not sentiment.hiding.obstacle  # found out once, in passes of its own
    with counting(modules) as rows:
        result = xa.heat_maps(trace, methods=scores)
    return trace, result, sum(rows) / len(modules)


def answers_without(trace, places):
    """The distribution when the tokens at these places are gone."""
    removed = torch.zeros(len(trace.tokens), dtype=torch.bool)
    removed[list(places)] = True
    return answers_to(trace.subject, [erased(trace.subject, trace.inputs, removed, "hide")])[0]


def without_words(trace, words):
    return answers_without(
        trace, [place for word in words for place in words_of(trace).places[word]]
    )


def test_the_passes_are_counted_and_within_the_budget(mixed):
    _, result, passes = mixed
    assert (
        result.passes + 1 == passes <= 250
    )  # one asks whether the model is still that of the trace
    assert result.orders >= 100
    assert result.checks["texts run"] == result.passes


def test_losses_are_those_of_the_texts_with_words_hidden(mixed):
    trace, result, _ = mixed
    target = xa.choose_target(trace)
    for heat_map in result.values():
        kept = [
            float(without_words(trace, heat_map.ranking[:size])[target.index].double())
            for size in result.sizes
        ]
        margins = torch.tensor(kept, dtype=torch.double).logit()
        assert heat_map.loss == pytest.approx(float(result.margin - margins.mean()), abs=1e-3)
        expected = result.probability - sum(kept) / len(kept)
        assert heat_map.probability_loss == pytest.approx(expected, abs=1e-5)


def test_ranks_and_percentiles_follow_the_losses(mixed):
    _, result, _ = mixed
    best = max(result.values(), key=lambda heat_map: heat_map.loss)
    assert best.rank == 1
    random = result.margin - result.random_margins.mean(-1)
    for heat_map in result.values():
        below = float((random < heat_map.loss - 1e-5).double().mean())
        assert heat_map.percentile == pytest.approx(below, abs=1e-9)
        assert 0 < heat_map.p_value <= heat_map.adjusted <= 1


def test_each_word_of_advice_has_its_numbers(mixed):
    _, result, _ = mixed
    best = max(heat_map.loss for heat_map in result.values())
    assert {heat_map.advice for heat_map in result.values()} >= {"show", "do not show"}
    for heat_map in result.values():
        if heat_map.p_value > 0.05:
            assert heat_map.advice in ("do not show", "caution")
        elif heat_map.adjusted <= 0.05 and heat_map.loss >= 0.8 * best:
            assert heat_map.advice == "show"
        else:
            assert heat_map.advice == "caution"


def test_an_answer_that_nothing_moves_is_not_judged(sentiment):
    trace = xa.capture(sentiment, " , ".join(["wonderful and moving and brilliant"] * 6))
    result = xa.heat_maps(trace, methods=CHEAP)
    assert {heat_map.advice for heat_map in result.values()} == {"caution"}
    assert {heat_map.reason for heat_map in result.values()} == {SURVIVES.format("hiding")}
    assert result.advice.startswith("Hiding a few words never changes this answer")
    assert float(result.probabilities.amin()) >= UNMOVED * result.probability
    assert result.passes < 150  # the answer was clear early


def test_a_text_of_few_words_cannot_be_judged(sentiment):
    result = xa.heat_maps(xa.capture(sentiment, "unflinchingly bleak"), methods=["raw"])
    assert result.exact
    assert result["raw"].advice == "caution"
    assert "too short" in result.advice


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6])
def test_the_source_of_a_planted_answer_is_never_called_chance(seed):
    model = planted("decisive", seed)
    trace = xa.capture(model.subject, model.inputs)
    usual = int(trace.output.logits.argmax())
    alone = [answers_without(trace, [place])[usual] for place in range(len(trace.tokens) - 1)]
    right = -torch.stack([*alone, torch.ones(())])  # by what each token alone changes
    assert model.source in right.topk(2).indices
    others = torch.rand(len(trace.tokens), generator=torch.Generator().manual_seed(seed))
    others[[0, model.source]] = -1  # neither the query nor the source
    result = xa.heat_maps(trace, methods={"right": right, "others": others})
    assert result["right"].advice != "do not show"
    assert result["right"].p_value <= 2.5 / len(result.words)
    assert result["others"].advice == "do not show"
    assert result["others"].p_value > 0.3
    assert result.checks["units"].startswith("tokens")
