"""Where a head looks and where its output comes from, by definition and by construction."""

import pytest
import torch
from scipy import stats
from support.jacobians import run_from
from support.subjects import averaging_only, precise
from torch.testing import assert_close

from exhibit_a.methods.mixing.head_mixing import agreement, head_mixing
from exhibit_a.subject.tap import Tap


def contexts_from(trace, source, site):
    """x -> what the heads of a site averaged, by running the model with x as its input."""

    class Watch(Tap):
        def result(self, call, context):
            if call.site == site:
                self.seen = context[0]

    watch = Watch()
    return run_from(trace, source, lambda _: watch.seen, watch)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit"])
def test_contributions_are_those_of_the_jacobian(name):
    trace = precise(name)
    result = head_mixing(trace)
    for site in (trace.sites[1], trace.sites[-1]):
        source = "encoder" if site.kind == "cross" else site.stack
        run = contexts_from(trace, source, site.index)
        jacobian = torch.autograd.functional.jacobian(
            run, trace.stack_inputs[source], vectorize=True
        )
        norms = jacobian.squeeze(3).square().sum((2, 4)).sqrt()  # (head, query, source)
        expected = norms / norms.sum(-1, keepdim=True)
        assert_close(result.contribution[site.index], expected, rtol=1e-5, atol=1e-7)
        assert torch.equal(result.attention[site.index], trace.attention[site.index])


def test_the_projected_output_is_measured_through_its_weights():
    trace = precise("bert")
    result = head_mixing(trace, output="projected")
    run, weight = contexts_from(trace, "encoder", 2), trace.output_weight(2)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: run(x) @ weight, trace.stack_inputs["encoder"], vectorize=True
    )
    norms = jacobian.squeeze(3).square().sum((2, 4)).sqrt()
    expected = norms / norms.sum(-1, keepdim=True)
    assert_close(result.contribution[2], expected, rtol=1e-9, atol=1e-12)


def test_a_first_layer_that_only_averages_takes_from_where_it_looks():
    result = head_mixing(averaging_only())
    assert_close(result.contribution[0], result.attention[0])
    assert_close(result.pearson[0], torch.ones(4))
    assert_close(result.total_variation[0], torch.zeros(4))
    assert (result.total_variation[1] > 0.05).all()


def test_deeper_layers_that_only_average_take_from_mixtures():
    trace = averaging_only()
    result, attention = head_mixing(trace), trace.attention[0][0]
    step = torch.eye(7, dtype=torch.float64) + attention
    for layer in range(3):
        mixed = attention @ torch.linalg.matrix_power(step, layer)
        expected = (mixed / mixed.sum(-1, keepdim=True)).expand(4, -1, -1)
        assert_close(result.contribution[layer], expected, rtol=1e-6, atol=1e-9)
    assert (result.jensen_shannon[1] > 0.01).all()
    assert (result.jensen_shannon[2] > 1.5 * result.jensen_shannon[1]).all()
    assert (result.pearson[2] < result.pearson[1]).all()


def test_agreement_is_what_scipy_says():
    chance = torch.Generator().manual_seed(0)
    local, wide = torch.rand(2, 2, 3, 6, generator=chance, dtype=torch.float64)
    local[..., 2] = local[..., 4]  # a tie
    reach = torch.ones_like(local, dtype=torch.bool)
    reach[:, 1, 4:] = False
    scores = agreement(local, wide, reach)
    for head in range(2):
        rows = [(local[head, q][reach[head, q]], wide[head, q][reach[head, q]]) for q in range(3)]
        expected = sum(stats.pearsonr(a, b)[0] for a, b in rows) / 3
        assert scores["pearson"][head] == pytest.approx(expected, abs=1e-5)
        expected = sum(stats.spearmanr(a, b)[0] for a, b in rows) / 3
        assert scores["spearman"][head] == pytest.approx(expected, abs=1e-5)
