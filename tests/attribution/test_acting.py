"""Attention in the rows where it acts: the sums of the definition, and where they are named."""

import pytest
import torch
from planted.kinds import planted
from support.subjects import opinionated, speaker
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.methods.attribution.acting import acting_in, head_in_rows

TEXT = "the cat sat on the mat"


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_rows_count_by_what_they_add(name):
    subject = opinionated() if name == "encoder" else speaker("llama")
    trace = xa.capture(subject, TEXT)
    relied = xa.reliance(trace)
    rows = range(len(trace.tokens)) if relied.rows is None else relied.rows
    by_hand = torch.zeros(len(trace.tokens))
    for site in trace.sites:
        for head in range(site.heads):
            for place, row in enumerate(rows):
                adds = float(relied.edges[site.index][head, place].sum())
                by_hand += max(0.0, adds) * trace.attention[site.index][head, row]
    assert_close(acting_in(relied, trace), by_hand, atol=1e-5, rtol=1e-4)
    named = xa.companions(trace, methods=["acting_attention"])["acting_attention"]
    assert_close(named.scores, by_hand, atol=1e-4, rtol=1e-3)


def test_a_head_in_its_rows_is_a_mean_of_its_rows():
    trace = xa.capture(opinionated(), TEXT)
    relied = xa.reliance(trace)
    weights = relied.edges[1][2].abs().sum(-1)
    by_hand = sum(w * row for w, row in zip(weights, trace.attention[1][2], strict=True))
    assert_close(head_in_rows(relied, trace, 1, 2), by_hand / weights.sum(), atol=1e-6, rtol=1e-5)
    assert float(head_in_rows(relied, trace, 1, 2).sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", ["relay", "decisive"])
def test_a_head_is_shown_where_it_acts_and_not_where_the_answer_is_read(kind):
    """The planted key has most of the weight in the planted row."""
    model = planted(kind, 500)
    trace = xa.capture(model.subject, model.inputs)
    relied = xa.reliance(trace, rows="all")
    for site, head in model.decisive:
        query, key = model.peaks[site, head]
        assert int(relied.rows_of(site, head).argmax()) == query
        assert int(head_in_rows(relied, trace, site, head).argmax()) == key


def test_they_are_heat_maps_like_others():
    trace = xa.capture(xa.load("sentiment"), "a gripping , beautifully shot film")
    shown = xa.heat_maps(trace, methods=["acting_attention", "head_in_its_rows", "raw"])
    assert set(shown) == {"acting_attention", "head_in_its_rows", "raw"}
    assert shown["head_in_its_rows"].label.startswith("layer ")
