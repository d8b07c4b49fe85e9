"""Contributions, sinks and patched heads, each beside the slow way from its definition."""

from dataclasses import replace

import pytest
import torch
from support.subjects import precise, trace_of
from support.words import plain_tokenizer
from support.zoo import FAMILIES
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.errors import BadRequestError
from exhibit_a.trace import edits

PROMPT, OTHER, ANSWER = "the plot is dull", "the film is dull", "but it is great"


@pytest.fixture(scope="module")
def speaker():
    return xa.load(FAMILIES["llama"].build(), tokenizer=plain_tokenizer())


@pytest.fixture(scope="module")
def trace(speaker):
    return xa.capture(speaker, PROMPT, target_text=ANSWER)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_a_contribution_is_weight_times_length_times_direction(name):
    trace = precise(name)
    result = xa.contribution_weights(trace)
    for site in range(len(trace.sites)):
        vectors = trace.values[site] @ trace.output_weight(site)  # head, key, d_model
        outputs = trace.attention[site] @ vectors
        directions = cosine_similarity(vectors[:, None], outputs[:, :, None], dim=-1)
        slow = trace.attention[site] * vectors.norm(dim=-1)[:, None] * directions
        assert_close(result.scores[site], slow)
        assert_close(result.scores[site].sum(-1), outputs.norm(dim=-1))
        assert_close(result.lengths[site], outputs.norm(dim=-1))


def planted(trace, *, sink, length):
    """A trace whose first head of site 0 looks at the first token, whose value has that length."""
    attention, values = trace.attention[0].clone(), trace.values[0].clone()
    rows = attention.shape[1]
    attention[0] = (1 - sink) * attention[0]
    attention[0, :, 0] += sink
    values[0, 0] *= length / values[0, 0].norm() * values[0, 1:].norm(dim=-1).median()
    assert rows == values.shape[1]
    at_sites = dict(trace.at_sites)
    at_sites["attention"] = (attention[None], *trace.at_sites["attention"][1:])
    at_sites["values"] = (values[None], *trace.at_sites["values"][1:])
    return replace(trace, at_sites=at_sites)


def test_planted_sinks_are_named():
    trace = trace_of("bert")
    assert xa.sink_diagnosis(planted(trace, sink=0.9, length=0.01)).kind_of(0, 0) == "no-op"
    broadcast = xa.sink_diagnosis(planted(trace, sink=0.9, length=3.0))
    assert broadcast.kind_of(0, 0) == "broadcast"
    assert int(broadcast.key[0][0]) == 0
    assert float(broadcast.weight[0][0]) > 0.9
    assert xa.sink_diagnosis(planted(trace, sink=0.0, length=1.0), threshold=1.0).sinks == {}
    with pytest.raises(BadRequestError, match="between 0 and 1"):
        xa.sink_diagnosis(trace, threshold=0)


def test_weight_that_no_output_shows_is_an_artefact():
    trace = trace_of("bert")
    attention, values = trace.attention[0], trace.values[0].clone()
    values[0] = values[0, :1] * torch.linspace(1, 2, values.shape[1])[:, None]  # one direction only
    maps = attention.clone()
    maps[0] = 0.1 / (maps.shape[2] - 1)
    maps[0, :, 0] = 0.9
    at_sites = dict(trace.at_sites)
    at_sites["attention"] = (maps[None], *trace.at_sites["attention"][1:])
    at_sites["values"] = (values[None], *trace.at_sites["values"][1:])
    assert xa.sink_diagnosis(replace(trace, at_sites=at_sites)).kind_of(0, 0) == "null space"


def test_scores_without_sinks_say_so(trace):
    sinks = xa.sink_diagnosis(trace, threshold=0.05)
    raw = xa.companions(trace, methods="raw")["raw"]
    without = sinks.without_sink(raw)
    places = list(sinks.sinks)
    assert without.scores[places].eq(0).all()
    assert len(without.checks["without sinks"]) == len(places)
    others = [place for place in range(len(trace.tokens)) if place not in places]
    assert_close(without.scores[others], raw.scores[others])


class Swap(edits.Edit):
    """One head says what it says in another pass."""

    def __init__(self, site, head, context):
        super().__init__([site])
        self.site, self.head, self.context = site, head, context

    def result(self, call, context):
        if call.site != self.site:
            return None
        context = context.clone()
        context[0, self.head] = self.context
        return context


def test_patching_is_what_one_head_at_a_time_does(trace, speaker):
    result = xa.head_patching(trace, counterfactual=OTHER, verify=99)
    other = xa.capture(speaker, OTHER, target_text=ANSWER)
    target = xa.choose_target(trace, "answer")
    for site in range(len(trace.sites)):
        contexts = other.attention[site] @ other.values[site]
        for head in range(trace.sites[site].heads):
            moved = target(xa.replay(trace, Swap(site, head, contexts[head])))
            effect = float(moved - target(trace.output))
            assert float(result.patched[site][head]) == pytest.approx(effect, abs=1e-4)
    assert result.counterfactual_value == pytest.approx(float(target(other.output)))
    assert result.correlation > 0.5
    assert result.checks["heads really patched"] == 12


def test_prompts_of_another_length_are_refused(trace):
    with pytest.raises(BadRequestError, match="of one length only"):
        xa.head_patching(trace, counterfactual="the plot is very dull")


def test_a_small_difference_is_patched_to_first_order(trace):
    values = tuple(rows * 1.001 for rows in trace.at_sites["values"])
    nearby = replace(trace, at_sites={**trace.at_sites, "values": values})
    result = xa.head_patching(trace, counterfactual=nearby, verify=99)
    for effect, patched in zip(result.effects, result.patched, strict=True):
        assert_close(effect, patched, rtol=0.02, atol=2e-5)
