"""The laws of self-attention attribution, each from its definition, none from our code."""

import gc
import re
import weakref
from dataclasses import replace

import pytest
import torch
from captum.attr import IntegratedGradients
from support.subjects import speaker, subject_of
from support.zoo import FAMILIES, Family
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution import path_integral as paths
from exhibit_a.methods.attribution.self_attribution import self_attribution
from exhibit_a.numerics.quadrature import gauss
from exhibit_a.results.store import read
from exhibit_a.subject.subject import load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target, choose_target

QUICK = {"bert", "albert", "modernbert", "gpt2", "llama", "t5", "bart", "vit", "deberta", "bloom"}
EXPLAINED = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(FAMILIES)
    if name != "clip-text"  # which answers with states
]
ROUGH = {"gpt-oss", "t5", "opt", "transformer", "identifiable"}  # jumps (experts), kinks (ReLU)


def trace_of(name, **extra):
    return capture(subject_of(name), FAMILIES[name].inputs() | extra)


def by_scaling_attention(trace, site, rule, target):
    """The definition, read aloud: scale the map itself and differentiate by it at each point."""
    attention = trace.attention[site]
    total = torch.zeros_like(attention)
    for alpha, weight in zip(rule.points.tolist(), rule.weights.tolist(), strict=True):
        path = (alpha * attention).requires_grad_()
        answer = target(replay(trace, edits.replace(site, path), start=0)).sum()
        total += weight * torch.autograd.grad(answer, path)[0]
    return attention * total


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_entries_of_a_site_add_up_to_what_the_site_changed(name):
    trace = trace_of(name)
    found = self_attribution(trace)
    target = choose_target(trace)
    for site, scores in enumerate(found.scores):
        with torch.no_grad():
            silenced = target(replay(trace, edits.scale(site, 0.0)))
        change = float(target(trace.output) - silenced)
        assert_close(float(found.change[site]), change, rtol=0, atol=1e-5)
        assert abs(float(scores.sum()) - change) <= float(found.gap[site]) + 1e-5
        if name not in ROUGH:
            assert found.gap[site] <= max(0.01 * abs(change), 1e-4)
    if name not in ROUGH:
        assert "incomplete sites" not in found.checks


def assert_as_alone(traces, **options):
    """Several traces have the numbers that each has by itself."""
    for found, trace in zip(self_attribution(traces, **options), traces, strict=True):
        alone = self_attribution(trace, **options)
        assert (found.target, found.tokens) == (alone.target, alone.tokens)
        assert (found.provenance, found.reasons) == (alone.provenance, alone.reasons)
        assert found.checks.keys() == alone.checks.keys()
        assert torch.equal(found.points, alone.points)
        assert_close(found.change, alone.change, rtol=1e-3, atol=1e-5)
        for ours, theirs in zip(found.scores, alone.scores, strict=True):
            assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama", "t5", "deberta", "bloom", "modernbert"])
def test_several_texts_of_one_length_have_the_scores_of_each_alone(name):
    ids = torch.randint(4, 80, (3, 7), generator=torch.Generator().manual_seed(6))
    inputs = FAMILIES[name].inputs()
    rows = [inputs | {"input_ids": row[None], "attention_mask": torch.ones(1, 7)} for row in ids]
    assert_as_alone([capture(subject_of(name), row) for row in rows])


def test_several_texts_that_cannot_share_a_replay_have_a_result_each():
    subject = speaker()
    traces = [capture(subject, text) for text in ("a fine film", "dull", "the plot is dull")]
    assert_as_alone(traces, target=1)
    assert_as_alone([traces[0], capture(subject, "a fine film", rows=[0])])
    assert_as_alone([traces[0], traces[0]], rule="riemann", steps=3)


def test_the_gap_closes_at_the_rate_of_gauss():
    trace = capture(load(FAMILIES["gpt2"].build().double()), FAMILIES["gpt2"].inputs())
    target = Target(5, 6, "logit")
    gaps = [self_attribution(trace, target=target, steps=n).gap.max() for n in (2, 4, 8, 16)]
    assert gaps[0] > 100 * gaps[1] > 10_000 * gaps[2]
    assert gaps[3] < 1e-12
    steps = [self_attribution(trace, target=target, rule="left", steps=n).gap[0] for n in (16, 32)]
    assert 1.8 < steps[0] / steps[1] < 2.2


@pytest.mark.parametrize("name", ["bert", "llama", "t5", "vit", "deberta"])
def test_scaling_the_context_is_scaling_the_attention(name):
    trace, rule = trace_of(name), gauss(4)
    target = choose_target(trace, scale="logit")
    found = self_attribution(trace, target=target, steps=4)
    for site in range(len(trace.sites)):
        reference = by_scaling_attention(trace, site, rule, target)
        assert_close(found.scores[site], reference, rtol=1e-3, atol=1e-4 * reference.abs().max())


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])
def test_captum_gives_the_same_numbers_for_the_rule_of_the_paper(name):
    trace = trace_of(name)
    target = choose_target(trace)
    found = self_attribution(trace, rule="riemann", steps=20)

    for site, attention in enumerate(trace.attention):

        def answer(maps, site=site):
            copies = len(maps)
            return target(replay(trace, edits.replace(site, maps), start=0, copies=copies))

        oracle = IntegratedGradients(answer, multiply_by_inputs=True).attribute(
            attention.unsqueeze(0), n_steps=20, method="riemann_right", internal_batch_size=20
        )
        assert_close(found.scores[site], oracle[0].float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "gpt2", "modernbert"])
def test_padding_gets_nothing_and_changes_nothing(name):
    inputs = FAMILIES[name].inputs()
    longer = {
        "input_ids": torch.nn.functional.pad(inputs["input_ids"], (0, 4), value=3),
        "attention_mask": torch.nn.functional.pad(inputs["attention_mask"], (0, 4)),
    }
    short, padded = (self_attribution(trace_of(name, **extra)) for extra in ({}, longer))
    for bare, wider in zip(short.scores, padded.scores, strict=True):
        count = bare.shape[1]
        assert (wider[:, count:] == 0).all()
        assert (wider[:, :, count:] == 0).all()
        assert_close(wider[:, :count, :count], bare, rtol=1e-3, atol=1e-6)


def test_one_point_is_exact_where_the_answer_is_linear():
    model = FAMILIES["bert"].build(hidden_act="linear")
    last = model.bert.encoder.layer[-1]
    last.attention.output.LayerNorm = last.output.LayerNorm = torch.nn.Identity()
    model.bert.pooler.activation = torch.nn.Identity()
    trace = capture(load(model), FAMILIES["bert"].inputs())
    once = self_attribution(trace, target=Target(1, None, "logit"), steps=1)
    often = self_attribution(trace, target=Target(1, None, "logit"), steps=12)
    assert once.gap[-1] < 1e-5
    assert_close(once.scores[-1], often.scores[-1], rtol=1e-4, atol=1e-6)
    assert once.gap[0] > 10 * often.gap[0]


def test_rotating_values_and_undoing_it_in_the_output_changes_nothing():
    model = FAMILIES["bert"].build()
    before = self_attribution(capture(load(model), FAMILIES["bert"].inputs()), steps=12)
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=generator)).Q
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            attention, output = layer.attention.self, layer.attention.output.dense
            attention.value.weight[:8] = rotation @ attention.value.weight[:8]
            attention.value.bias[:8] = rotation @ attention.value.bias[:8]
            output.weight[:, :8] = output.weight[:, :8] @ rotation.T
    after = self_attribution(capture(load(model), FAMILIES["bert"].inputs()), steps=12)
    for old, new in zip(before.scores, after.scores, strict=True):
        assert_close(old, new, rtol=1e-3, atol=1e-6)


class Switch(torch.nn.Module):
    """Adds a constant as soon as what comes in is longer than a limit."""

    def __init__(self, module, limit, height):
        super().__init__()
        self.module, self.limit, self.height = module, limit, height

    def forward(self, states):
        result = self.module(states)
        long = states.norm(dim=-1, keepdim=True) > self.limit
        return result + self.height * torch.where(long, torch.arange(result.shape[-1]) % 2, 0.0)


def test_a_switch_on_the_way_is_located_and_its_site_marked(tmp_path):
    model, inputs = FAMILIES["bert"].build(), FAMILIES["bert"].inputs()
    output = model.bert.encoder.layer[-1].attention.output
    contexts = []
    hook = output.dense.register_forward_hook(lambda _, given, __: contexts.append(given[0]))
    with torch.no_grad():
        model(**inputs)
    hook.remove()
    length = float(contexts[0][0, 0].norm())  # only the first token is read
    output.dense = Switch(output.dense, 0.3 * length, 5.0)
    found = self_attribution(capture(load(model), inputs))
    assert found.complete == (True, True, False)
    assert "the target jumps by" in found.reasons[-1]
    start, stop = map(float, re.search(r"α = (\S+) and ([^;]+);", found.reasons[-1]).groups())
    assert start - 1e-5 <= 0.3 <= stop + 1e-5 < start + 0.01
    again = read(found.save(tmp_path / "found.safetensors"))
    assert (again.complete, again.reasons) == (found.complete, found.reasons)


@pytest.mark.parametrize("name", ["gemma2", "olmo2"])
def test_a_norm_after_attention_closes(name):
    """The norm makes a small context large: all of the change happens at α ≈ 0."""
    family = FAMILIES.get(name) or Family("Olmo2ForCausalLM", FAMILIES["llama"].options)
    model = family.build()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= 100
    trace = capture(load(model), family.inputs())
    target = choose_target(trace, scale="logit")
    found = self_attribution(trace, target=target)
    assert all(found.complete), found.reasons
    for site, scores in enumerate(found.scores):
        with torch.no_grad():
            silenced = target(replay(trace, edits.scale(site, 0.0)))
        change = float(target(trace.output) - silenced)
        assert float(scores.sum()) == pytest.approx(change, rel=0.011)
    plain = self_attribution(trace, target=target, steps=96)
    assert plain.gap[0] > 0.02 * plain.change[0].abs()  # which is why it takes panels
    assert not plain.complete[0]
    assert found.points[0] < 96


def test_an_unlikely_target_is_attributed_as_carefully_as_a_likely_one():
    model = FAMILIES["llama"].build()
    with torch.no_grad():
        model.lm_head.weight *= 20
    trace = capture(load(model), FAMILIES["llama"].inputs())
    chances = trace.output.logits.softmax(-1)[0, -1]
    token = 74
    assert 1e-8 < chances[token] < 1e-6
    target = choose_target(trace, token=token, scale="probability")
    found = self_attribution(trace, target=target)
    assert all(found.complete)
    assert (found.gap <= 0.01 * found.change.abs()).all()
    three = self_attribution(trace, target=target, steps=3)
    assert not three.complete[0]
    assert three.checks["largest gap as a share of the change"] > 1  # and it is told as it is


def test_nothing_stays_in_memory():
    """A graph that holds its own result is found by no garbage collector."""
    trace, seen = trace_of("bert"), []
    pooler = trace.subject.model.bert.pooler
    hook = pooler.register_forward_hook(lambda *given: seen.append(weakref.ref(given[-1])))
    self_attribution(trace)
    hook.remove()
    gc.collect()
    assert len(seen) > len(trace.sites)
    assert all(result() is None for result in seen)


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("bert", {"target": "joy"}, "0 LABEL_0"),
        ("bert", {"target": 3}, "knows no label 3"),
        ("bert", {"target": Target(3)}, "0 to 2"),
        ("bert", {"target": Target(1, 2)}, "gives one answer"),
        ("llama", {"target": Target(1)}, "answers at every token"),
        ("llama", {"target": Target(1, 9)}, "0 to 6"),
        ("llama", {"target": 80}, "0 to 79"),
        ("bert", {"rule": "simpson", "steps": 4}, "gauss"),
        ("bert", {"rule": "left"}, "steps"),
        ("bert", {"steps": 0}, "at least 1 step"),
        ("bert", {"steps": "many"}, 'whole number or "auto"'),
        ("bert", {"tolerance": 0.0}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_asked_is_said(name, asked, message):
    with pytest.raises(BadRequestError, match=message):
        self_attribution(trace_of(name), **asked)


def test_incomplete_sites_enter_no_score_of_a_token():
    found = self_attribution(trace_of("bert"))
    every = [site.index for site in found.sites]
    assert all(found.complete)
    spoilt = dict(found.checks) | {"incomplete sites": (1,)}
    less = replace(found, checks=spoilt, reasons=("", "it jumps", ""))
    rest = sum(found.scores[site].sum((0, 1)) for site in every if site != 1)
    assert_close(less.by_token(every), rest)
    assert_close(found.by_token(every), rest + found.scores[1].sum((0, 1)))
    with pytest.raises(NotComputableError, match="it jumps"):
        less.by_token([1])


def test_memory_does_not_decide_the_numbers(monkeypatch):
    trace = trace_of("bert")
    free = self_attribution(trace, steps=12)
    monkeypatch.setattr(paths, "free_bytes", lambda device: 3_000)
    tight = self_attribution(trace, steps=12)
    for ours, theirs in zip(free.scores, tight.scores, strict=True):
        assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_a_head_that_reaches_nothing_gets_nothing():
    model = FAMILIES["bert"].build()
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.output.dense.weight[:, 8:16] = 0
    scores = self_attribution(capture(load(model), FAMILIES["bert"].inputs())).scores[1]
    assert (scores[1] == 0).all()
    assert (scores[[0, 2, 3]].abs().sum((1, 2)) > 0).all()
