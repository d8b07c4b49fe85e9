"""The first thing a user does, with the models inside."""

import pytest
import torch
from torch.testing import assert_close

import exhibit_a as xa


@pytest.fixture(scope="module")
def sentiment():
    return xa.load("sentiment")


def test_a_sentence_gives_tokens_maps_and_states(sentiment):
    trace = xa.capture(sentiment, "a gripping , beautifully shot film")
    n = len(trace.tokens)
    assert trace.tokens[:4] == ("[CLS]", "a", "gripping", ",")
    assert [m.shape for m in trace.attention] == [(12, n, n)] * 6
    for attention in trace.attention:
        assert_close(attention.sum(-1), torch.ones(12, n), rtol=0, atol=1e-5)
    assert [h.shape for h in trace.hidden] == [(n, 384)] * 7
    assert sentiment.labels == ("negative", "positive")
    assert xa.choose_target(trace).name == "positive"


def test_a_pair_is_judged():
    nli = xa.load("nli")
    assert set(nli.labels) == {"entailment", "neutral", "contradiction"}
    trace = xa.capture(nli, "A man is sleeping on a bench.", pair="Nobody is asleep.")
    assert trace.tokens.count("[SEP]") == 2
    assert xa.choose_target(trace).name == "contradiction"


def test_beyond_the_width_of_the_heads_other_attention_would_do(sentiment):
    trace = xa.capture(sentiment, "a gripping , beautifully shot film " * 8)
    result = xa.effective_attention(trace)
    assert all((verdict == 2).all() for verdict in result.verdict)
    alternatives = xa.alternative_attention(trace, site=0, head=0, samples=2)
    assert not alternatives.identifiable
    assert alternatives.distance > 0
