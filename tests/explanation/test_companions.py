"""Companion methods against their definitions, written out slowly."""

import itertools
import math

import pytest
import torch
from support.erased import answers_to
from support.subjects import opinionated, subject_of, talking
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, NotComputableError, UnsupportedModelError
from exhibit_a.methods.explanation import decomposition, flow
from exhibit_a.methods.explanation.companions import companions
from exhibit_a.methods.explanation.decomposition import (
    alti_maps,
    mixtures,
    norm_maps,
    value_zeroing_maps,
)
from exhibit_a.methods.explanation.erasure import erased, removable
from exhibit_a.methods.registry import attributions
from exhibit_a.subject.subject import load
from exhibit_a.trace import edits
from exhibit_a.trace.answer_rows import readout
from exhibit_a.trace.capture import capture
from exhibit_a.trace.passes import hidden_of_output
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import choose_target

POST = ["bert", "roberta", "distilbert", "electra", "albert", "deberta", "mpnet"]
PRE = ["modernbert", "gpt2", "llama", "qwen3", "vit", "opt", "bloom", "gpt-oss"]
MAPS = ["raw", "rollout", "flow", "relevance", "attention_gradient"]
VECTORS = ["norm", "norm_residual", "alti", "value_zeroing"]
TEXT = "w1 w2 w3 w4 w5"


def trace_of(name):
    return capture(subject_of(name), FAMILIES[name].inputs())


def test_rollout_is_its_definition():
    trace = trace_of("bert")
    maps = flow.steps(trace)
    full = torch.eye(maps[0].shape[0])
    for one in maps:
        mixed = 0.5 * one + 0.5 * torch.eye(len(one))
        full = (mixed / mixed.sum(-1, keepdim=True)) @ full
    for start in torch.eye(len(full)):
        assert_close(flow.rollout(start, maps, residual=True), start @ full)


def test_flow_is_the_max_flow_of_networkx():
    networkx = pytest.importorskip("networkx")
    seeded = torch.Generator().manual_seed(0)
    maps = [torch.randn(4, 4, generator=seeded).softmax(-1) for _ in range(3)]
    start = torch.tensor([0.7, 0.3, 0.0, 0.0])
    graph = networkx.DiGraph()
    for token, weight in enumerate(start.tolist()):
        graph.add_edge("answer", (3, token), capacity=weight)
    for depth, one in enumerate(maps, 1):
        pipes = (one + torch.eye(4)) / 2
        for i, j in itertools.product(range(4), repeat=2):
            graph.add_edge((depth, i), (depth - 1, j), capacity=float(pipes[i, j]))
    expected = [networkx.maximum_flow_value(graph, "answer", (0, token)) for token in range(4)]
    assert_close(flow.max_flow(start, maps), torch.tensor(expected), rtol=0, atol=1e-5)


def test_relevance_is_its_definition():
    trace = trace_of("bert")
    target = choose_target(trace)
    weighted = list(flow.attention_times_gradient(trace, target, trace.sites))
    full = torch.eye(weighted[0].shape[-1])
    for one in weighted:
        full = full + one.clamp_min(0).mean(0) @ full
    start = readout(trace, target)
    assert_close(flow.relevance(start, reversed(weighted)), start @ full)


@pytest.mark.parametrize("name", ["bert", "gpt2", "deberta"])
def test_attention_gradients_are_those_of_one_site_at_a_time(name):
    trace = trace_of(name)
    target = choose_target(trace)
    together = flow.attention_times_gradient(trace, target, trace.sites)
    for site, found in enumerate(together):
        leaf = trace.attention[site].clone().requires_grad_()
        answer = target(replay(trace, edits.replace(site, leaf))).sum()
        (gradient,) = torch.autograd.grad(answer, leaf)
        assert_close(found, leaf.detach() * gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", POST + PRE)
def test_decomposed_vectors_add_up_to_what_the_block_hands_on(name):
    trace = trace_of(name)
    blocks = decomposition._watch(trace, trace.sites)
    assert {block.post_norm for block in blocks} == {name in POST}
    for one, block in zip(mixtures(trace), blocks, strict=True):
        seen = block.normed if block.post_norm else block.residual + block.projected
        vectors = torch.cat([part for _, part in one.blocks()])
        assert_close(vectors.sum(1) + one.rest, seen[0], rtol=1e-3, atol=1e-4)
        assert_close(one.total(), seen[0], rtol=1e-3, atol=1e-4)


def test_norms_without_the_residual_are_those_of_weighted_transformed_values():
    trace = trace_of("bert")
    for site, one in enumerate(mixtures(trace, residual=False)):
        weight = trace.output_weight(site)
        vectors = torch.einsum(
            "hqk,hkv,hvd->qkd", trace.attention[site], trace.values[site], weight
        )
        assert_close(one.norms(), vectors.norm(dim=-1), rtol=1e-4, atol=1e-6)


def test_alti_is_its_definition():
    trace = trace_of("bert")
    for found, one in zip(alti_maps(trace), mixtures(trace), strict=True):
        vectors = torch.cat([part for _, part in one.blocks()])
        output = one.total()[:, None]
        nearer = (output.abs().sum(-1) - (output - vectors).abs().sum(-1)).clamp_min(0)
        assert_close(found, nearer / nearer.sum(-1, keepdim=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_value_zeroing_is_its_loop(name, monkeypatch):
    trace = trace_of(name)
    found = value_zeroing_maps(trace)
    for site, one in zip(trace.sites, found, strict=True):
        plain = hidden_of_output(trace.layer_outputs[site.call])[0]
        expected = torch.zeros_like(one)
        for key in range(one.shape[1]):
            marks = torch.arange(one.shape[1]) == key
            seen = []
            layer = subject_of(name).model.get_submodule(trace.layers[site.call].module)
            handle = layer.register_forward_hook(
                lambda _, __, out, s=seen: s.append(hidden_of_output(out))
            )
            with torch.no_grad():
                replay(trace, edits.zero_values(site.index, marks), start=0)
            handle.remove()
            turned, unturned = seen[-1][0].double(), plain.double()
            expected[:, key] = 1 - torch.cosine_similarity(turned, unturned, dim=-1)
        expected = expected / expected.sum(-1, keepdim=True)
        assert_close(one, expected, rtol=1e-3, atol=1e-5)
    monkeypatch.setattr(decomposition, "TOKENS", 1)
    for ours, own in zip(value_zeroing_maps(trace), found, strict=True):
        assert_close(ours, own, rtol=1e-2, atol=1e-3)


def test_rotating_values_against_the_projection_changes_no_norm():
    model = FAMILIES["bert"].build()
    inputs = FAMILIES["bert"].inputs()
    before = norm_maps(capture(load(model), inputs), residual=True)
    layer, width = model.bert.encoder.layer[1].attention, 8
    turn, _ = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        rows = slice(width, 2 * width)
        layer.self.value.weight[rows] = turn.T @ layer.self.value.weight[rows]
        layer.self.value.bias[rows] = turn.T @ layer.self.value.bias[rows]
        layer.output.dense.weight[:, rows] = layer.output.dense.weight[:, rows] @ turn
    after = norm_maps(capture(load(model), inputs), residual=True)
    for ours, own in zip(after, before, strict=True):
        assert_close(ours, own, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def answered():
    trace = capture(opinionated(), TEXT)
    return trace, companions(trace, samples=64)


def test_every_method_gives_one_number_for_each_token(answered):
    trace, found = answered
    assert set(found) == set(attributions())
    for name, result in found.items():
        assert result.scores.shape == (len(trace.tokens),)
        assert result.scores.isfinite().all(), name
        assert result.tokens == trace.tokens
        assert result.target == str(choose_target(trace))
    for name in ("raw", "rollout", "flow", "norm", "norm_residual", "alti", "value_zeroing"):
        assert_close(found[name].scores.sum(), torch.tensor(1.0), rtol=1e-4, atol=1e-4)


def test_padding_gets_nothing_and_changes_nothing():
    subject = subject_of("bert")
    inputs = FAMILIES["bert"].inputs()
    padded = {name: torch.nn.functional.pad(part, (0, 3)) for name, part in inputs.items()}
    for name in (*MAPS, *VECTORS):
        own = companions(capture(subject, inputs), methods=[name])[name].scores
        longer = companions(capture(subject, padded), methods=[name])[name].scores
        assert_close(longer[: len(own)], own, rtol=1e-3, atol=1e-4)
        assert longer[len(own) :].abs().amax() < 1e-6


def _presence(trace, target, how="hide"):
    """The target for every subset of the written tokens."""
    written = removable(trace)
    places = written.nonzero()[:, 0]
    subsets = list(itertools.product([0, 1], repeat=len(places)))
    texts = []
    for subset in subsets:
        gone = torch.zeros_like(written)
        gone[places[~torch.tensor(subset).bool()]] = True
        texts.append(erased(trace.subject, trace.inputs, gone, how))
    answers = answers_to(trace.subject, texts)[:, target.index].tolist()
    return places, dict(zip(subsets, answers, strict=True))


def test_shapley_values_add_up_and_agree_with_enumeration(answered):
    trace, found = answered
    target = choose_target(trace)
    places, value = _presence(trace, target)
    count = len(places)
    shap = found["kernel_shap"]
    change = value[(1,) * count] - value[(0,) * count]
    assert abs(float(shap.scores.sum()) - change) < 1e-6
    assert shap.checks["coalitions"] == "all"
    assert shap.checks["samples"] == 2**count - 2
    assert shap.standard_error.amax() == 0
    exact = torch.zeros(count)
    for subset, score in value.items():
        size = sum(subset)
        for token in range(count):
            if subset[token]:
                without = (*subset[:token], 0, *subset[token + 1 :])
                weight = math.factorial(size - 1) * math.factorial(count - size)
                exact[token] += weight / math.factorial(count) * (score - value[without])
    assert_close(shap.scores[places], exact, rtol=1e-4, atol=1e-6)
    few = companions(trace, methods=["kernel_shap"], samples=2 * count)["kernel_shap"]
    assert few.checks["coalitions"] != "all"
    assert few.checks["largest standard error"] == float(few.standard_error.amax()) > 0
    assert (few.standard_error[trace.special] == 0).all()


def test_occlusion_is_leave_one_out(answered):
    trace, found = answered
    places, value = _presence(trace, choose_target(trace))
    everything = (1,) * len(places)
    for token, place in enumerate(places):
        without = (*everything[:token], 0, *everything[token + 1 :])
        assert_close(
            float(found["occlusion"].scores[place]),
            value[everything] - value[without],
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("how", ["hide", "delete"])
def test_what_was_written_stays_when_the_source_is_shortened(how):
    trace = trace_of("bart")
    target = choose_target(trace)
    found = companions(trace, methods=["occlusion"], target=target, erase=how)["occlusion"]
    for place in removable(trace).nonzero()[:, 0].tolist():
        kept = torch.arange(len(trace.tokens)) != place
        mask = trace.inputs.get("attention_mask", torch.ones_like(trace.inputs["input_ids"]))
        shorter = {"input_ids": trace.inputs["input_ids"][:, kept], "attention_mask": mask[:, kept]}
        if how == "hide":
            shorter = {"attention_mask": mask * kept}
        without = float(target(capture(trace.subject, dict(trace.inputs) | shorter).output))
        assert_close(
            float(found.scores[place]), float(target(trace.output)) - without, rtol=1e-4, atol=1e-5
        )


def test_integrated_gradients_are_complete(answered):
    trace, found = answered
    result = found["integrated_gradients"]
    masked = erased(trace.subject, trace.inputs, removable(trace), "mask")
    index = choose_target(trace).index
    text, nothing = answers_to(trace.subject, [erased_nothing(trace), masked])[:, index]
    assert_close(result.scores.sum(), text - nothing, rtol=0.02, atol=1e-3)
    assert "mask token" in result.checks["baseline"]
    assert (result.scores[trace.special] == 0).all()


def erased_nothing(trace):
    return erased(trace.subject, trace.inputs, torch.zeros_like(trace.special), "delete")


def test_gradient_times_input_is_what_autograd_says(answered):
    trace, found = answered
    states = trace.hidden[0].clone().requires_grad_()
    layer = trace.subject.model.get_submodule(trace.layers[0].module)
    handle = layer.register_forward_pre_hook(lambda _, args: (states[None], *args[1:]))
    answer = choose_target(trace)(trace.subject.model(**trace.inputs)).sum()
    handle.remove()
    (gradient,) = torch.autograd.grad(answer, states)
    expected = (gradient * states.detach()).sum(-1)
    assert_close(found["gradient_input"].scores, expected, rtol=1e-3, atol=1e-6)


def test_what_does_not_apply_is_left_out_with_its_reason():
    found = companions(trace_of("bart"))
    on_the_input = {"gradient_input", "integrated_gradients", "occlusion", "lime", "kernel_shap"}
    assert set(found) == on_the_input
    reasons = found["gradient_input"].checks["left out"]
    assert "two stacks" in reasons["rollout"]
    with pytest.raises(NotComputableError, match="two stacks"):
        companions(trace_of("bart"), methods=["rollout"])
    with pytest.raises(UnsupportedModelError, match="parallel branches"):
        companions(trace_of("gpt-neox"), methods=["norm_residual"])
    assert "norm_residual" not in companions(trace_of("phi"), samples=8)


def test_an_unknown_companion_is_told_which_exist():
    trace = capture(opinionated(), TEXT)
    with pytest.raises(BadRequestError, match=r"gnorm.*raw"):
        companions(trace, methods=["gnorm"])
    with pytest.raises(BadRequestError, match="choose hide, delete, mask"):
        companions(trace, erase="burn")
    plain = capture(talking("bert", "pad", "cls", "sep", "unk"), TEXT)
    with pytest.raises(BadRequestError, match="no mask token"):
        companions(plain, erase="mask")
