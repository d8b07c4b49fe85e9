"""Token mixing: what the definition says, by the slow way, on several families."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.jacobians import run_from
from support.subjects import averaging_only, precise, subject_of, trace_of
from support.zoo import FAMILIES
from torch import nn
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.mixing import pushforward as tangents
from exhibit_a.methods.mixing.hidden_attribution import by_distance, hidden_attribution
from exhibit_a.methods.mixing.pushforward import orthonormal, push_to_heads, push_to_layers
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture

EXAMINED = [
    ("bert", "encoder", "encoder"),
    ("gpt2", "decoder", "decoder"),
    ("llama", "decoder", "decoder"),
    ("t5", "encoder", "encoder"),
    ("t5", "decoder", "decoder"),
    ("t5", "decoder", "encoder"),
    ("vit", "encoder", "encoder"),
]
QUICK = {"bert", "gpt2", "llama", "gpt-oss", "mobilebert", "bloom", "vit"}
FOLDED = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(FAMILIES)
]
_exact: dict[str, object] = {}


def exact(name):
    if name not in _exact:
        _exact[name] = hidden_attribution(trace_of(name))
    return _exact[name]


def states_from(trace, source, stack):
    """x -> the outputs of every layer of a stack, by running the model with x as its input."""
    places = [i for i, layer in enumerate(trace.layers) if layer.stack == stack]
    return run_from(trace, source, lambda seen: torch.stack([seen[i][0] for i in places]))


def blocks_by_definition(trace, source, stack):
    """∂e_j/∂x_i of every layer, by reverse mode: (layer, target, source, out, in)."""
    run = states_from(trace, source, stack)
    jacobian = torch.autograd.functional.jacobian(run, trace.stack_inputs[source], vectorize=True)
    return jacobian.squeeze(3).permute(0, 1, 3, 2, 4)


@pytest.mark.parametrize(("name", "stack", "source"), EXAMINED)
def test_norms_are_those_of_the_jacobian(name, stack, source):
    trace = precise(name)
    blocks = blocks_by_definition(trace, source, stack)
    result = hidden_attribution(trace, stack=stack, source=source)
    close = 1e-10 if name in ("bert", "gpt2") else 1e-6  # the others have a float32 softmax
    assert_close(result.norms[1:], blocks.square().sum((-2, -1)).sqrt(), rtol=close, atol=close)
    assert result.checks["parity"] == 0
    assert result.checks["adjoint_gap"] < 10 * close


@pytest.mark.parametrize("name", FOLDED)
def test_layers_folded_into_matrices_give_the_same(name, monkeypatch):
    trace = trace_of(name)
    folded = exact(name)
    monkeypatch.setattr(tangents, "FOLDED_BYTES", 0)
    plain = hidden_attribution(trace)
    assert "folded" not in plain.checks["mode"]
    assert "folded" in folded.checks["mode"]
    assert_close(folded.norms, plain.norms, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("share", "distance"), [(0.3, 1), (1e-7, 2)])
def test_tokens_that_meet_outside_attention_are_not_folded(share, distance):
    """One matrix for each token cannot say it; it is noticed, and the layer stays as it is."""
    model = FAMILIES["bert"].build().double()
    model.bert.encoder.layer[0].output.register_forward_hook(
        lambda module, given, output: output + share * output.roll(distance, dims=1)
    )
    trace = capture(load(model), FAMILIES["bert"].inputs())
    result = hidden_attribution(trace)
    assert "folded" not in result.checks["mode"]
    blocks = blocks_by_definition(trace, "encoder", "encoder")
    assert_close(result.norms[1:], blocks.square().sum((-2, -1)).sqrt(), rtol=1e-9, atol=1e-9)


def test_other_norms_are_theirs():
    trace = precise("bert")
    blocks = blocks_by_definition(trace, "encoder", "encoder")
    spectral = hidden_attribution(trace, norm="spectral")
    assert_close(spectral.norms[1:], torch.linalg.matrix_norm(blocks, 2), rtol=1e-8, atol=1e-12)
    assert_close(spectral.norms[0], torch.eye(7, dtype=torch.float64))
    weighted = hidden_attribution(trace, norm="times_input")
    by_hand = (blocks * trace.stack_inputs["encoder"][0].unsqueeze(1)).square().sum((-2, -1)).sqrt()
    assert_close(weighted.norms[1:], by_hand, rtol=1e-10, atol=1e-12)
    assert_close(weighted.norms[0].diagonal(), trace.stack_inputs["encoder"][0].norm(dim=-1))


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit"])
def test_contributions_share_out_a_whole_and_start_as_the_identity(name):
    result = exact(name)
    assert (result.contribution >= 0).all()
    assert_close(result.contribution.sum(-1), torch.ones(result.contribution.shape[:2]))
    assert torch.equal(result.contribution[0], torch.eye(result.contribution.shape[1]))
    assert (result.standard_error == 0).all()
    assert (result.self_contribution[1] < 1).any()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_future_contributes_nothing(name):
    contribution = exact(name).contribution
    assert (contribution.triu(1) == 0).all()
    assert (contribution[1:].tril(-1).sum(-1)[:, 1:] > 0).all()


def test_nobody_mixes_without_attention():
    model = FAMILIES["bert"].build()
    for layer in model.bert.encoder.layer:
        nn.init.zeros_(layer.attention.output.dense.weight)
    result = hidden_attribution(capture(load(model), FAMILIES["bert"].inputs()))
    assert torch.equal(result.contribution, torch.eye(7).expand_as(result.contribution))
    assert (result.not_own_top == 0).all()


def test_padding_changes_nothing():
    inputs = FAMILIES["bert"].inputs()
    padded = {
        "input_ids": torch.cat([inputs["input_ids"], torch.zeros(1, 3, dtype=torch.long)], 1),
        "attention_mask": torch.tensor([[1] * 7 + [0] * 3]),
    }
    result = hidden_attribution(capture(subject_of("bert"), padded))
    assert result.tokens == exact("bert").tokens
    assert_close(result.contribution, exact("bert").contribution, rtol=1e-4, atol=1e-6)


def test_a_linear_model_is_attention_rollout():
    trace = averaging_only()
    step = torch.eye(7, dtype=torch.float64) + trace.attention[0][0]
    result = hidden_attribution(trace)
    for layer, contribution in enumerate(result.contribution):
        rolled = torch.linalg.matrix_power(step, layer)
        assert_close(contribution, rolled / rolled.sum(-1, keepdim=True), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("norm", ["frobenius", "times_input"])
def test_a_sketch_is_unbiased_and_its_error_is_honest(norm):
    trace, draws = trace_of("bert"), 24
    truth = hidden_attribution(trace, norm=norm)
    sketches = [hidden_attribution(trace, probes=6, norm=norm, seed=seed) for seed in range(draws)]
    squares = torch.stack([s.norms.square() for s in sketches])[:, 1:]
    spread = squares.std(0) / draws**0.5
    off = (squares.mean(0) - truth.norms[1:].square()).abs()
    assert (off <= 5 * spread).double().mean() > 0.99
    missed = torch.stack([(s.contribution - truth.contribution).abs() for s in sketches])[:, 1:]
    errors = torch.stack([s.standard_error for s in sketches])[:, 1:]
    assert (missed <= 2 * errors).double().mean() > 0.9
    assert (missed <= 4 * errors).double().mean() > 0.985
    assert errors.mean() < 3 * missed.mean()


def test_cross_stack_results_name_both_sides():
    trace = trace_of("t5")
    result = hidden_attribution(trace, probes=4, stack="decoder", source="encoder")
    assert result.contribution.shape == (4, 5, 7)
    assert (result.contribution[0] == 0).all()
    table = result.to_pandas().query("field == 'contribution'")
    assert set(table["source_token"]) == set(trace.sequences["encoder"].tokens)
    assert set(table["target_token"]) == set(trace.sequences["decoder"].tokens)
    with pytest.raises(NotComputableError, match="Ask with source='decoder'"):
        _ = result.self_contribution


@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 99))
def test_distances_lose_nothing(tokens, layers, seed):
    maps = torch.rand(layers, tokens, tokens, generator=torch.Generator().manual_seed(seed))
    total, pairs = by_distance(maps)
    assert_close(total.sum(-1), maps.sum((-2, -1)))
    assert pairs.sum() == tokens**2
    assert_close(total[:, 0], maps.diagonal(dim1=1, dim2=2).sum(-1))


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 99))
def test_probes_are_orthonormal(sources, count, seed):
    drawn = orthonormal(sources, count, 12, seed)
    assert_close(drawn @ drawn.mT, torch.eye(count).double().expand(sources, -1, -1))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"norm": "nuclear"}, "frobenius, spectral, times_input"),
        ({"norm": "spectral", "probes": 4}, "use probes=None"),
        ({"probes": 1}, "2 to 32"),
        ({"probes": 33}, "2 to 32"),
        ({"stack": "decoder"}, "found encoder"),
        ({"source": "middle"}, "found encoder"),
    ],
)
def test_bad_requests_are_told_what_exists(asked, message):
    with pytest.raises(BadRequestError, match=message):
        hidden_attribution(trace_of("bert"), **asked)


ROUGH = {"transformer"}  # post-norm layers lose digits: 7.5e-5 in float32, 4e-14 in float64


def pushes(trace):
    """From every stack to its layers and to its heads."""
    for stack in trace.sequences:
        sites = [s.index for s in trace.sites if s.stack == stack and s.kind == "self"]
        yield push_to_layers(trace, stack, stack)
        if sites:  # none in a recurrent stack
            yield push_to_heads(trace, stack, sites)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_pushed_forward(name):
    subject, inputs = subject_of(name), FAMILIES[name].inputs()
    for push in pushes(capture(subject, inputs)):
        assert push.checks["parity"] <= subject.anatomy.tolerance
        assert push.checks["adjoint_gap"] < 2e-5 or name in ROUGH


def test_the_encoder_does_not_depend_on_the_decoder():
    with pytest.raises(NotComputableError, match="depends on these tokens"):
        hidden_attribution(trace_of("t5"), stack="encoder", source="decoder")
