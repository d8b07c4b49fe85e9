"""A model held in half precision gives the numbers of the same stored weights held in float32."""

import copy

import pytest
import torch
from support.half_precision import (
    FAMILIES,
    HELD,
    TOLERANCE,
    both,
    every_method,
    held_in,
    inputs_of,
    traces,
)
from support.words import marked_tokenizer
from support.zoo import CONTRACT
from torch import nn
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.methods.registry import methods
from exhibit_a.subject import precision
from exhibit_a.subject.guard import floating, frozen_eval
from exhibit_a.subject.precision import float32_arithmetic

QUICK = (("bert", "bfloat16"), ("llama", "float16"), ("gpt2", "mixed"))
HALVES = [how for how in HELD if how != "float32"]


@pytest.mark.parametrize("how", HALVES)
@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_every_family_is_seen_as_in_float32(name, how):
    held, wide = traces(name, how)
    kinds = {weight.dtype for weight in held.subject.model.parameters()}
    assert held.subject.anatomy.parity == 0
    assert held.subject.dtype == torch.float32
    for ours, theirs in zip(floating(held.output), floating(wide.output), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for what in ("attention", "values", "hidden", "keys"):
        for ours, theirs in zip(getattr(held, what), getattr(wide, what), strict=True):
            assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert {weight.dtype for weight in held.subject.model.parameters()} == kinds


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(name, how, marks=() if (name, how) in QUICK else pytest.mark.slow)
        for name in FAMILIES
        for how in HALVES
    ],
)
def test_every_method_gives_the_same_ranks_words_and_orders(name, how):
    outcomes = every_method(name, how)
    assert set(outcomes) == set(methods())
    answered = {method: found for method, found in outcomes.items() if not isinstance(found, str)}
    assert len(answered) >= 15
    assert {method: found.others for method, found in answered.items() if found.others} == {}
    apart = {method: found.difference for method, found in answered.items()}
    assert max(apart.values()) <= TOLERANCE, max(apart, key=apart.get)


# -- what the model's own rounding does is told -------------------------------------------------


def told(subject, inputs):
    result = xa.effective_attention(xa.capture(subject, inputs))
    return result.checks.get("held in half precision", "")


def test_results_say_how_far_the_model_rounds_by_itself():
    held, wide = both("llama", "bfloat16")
    inputs = inputs_of("llama", "bfloat16")
    said = told(held, inputs)
    with torch.no_grad():
        own, exact = (each.model(**inputs).logits[0, -1] for each in (held, wide))
    assert f"{float((own - exact).abs().amax()):.2g}" in said
    assert "another" not in said
    assert told(wide, inputs) == ""


def test_an_answer_that_rounding_turns_is_told():
    held, _ = both("bert", "bfloat16")
    head, inputs = held.model.classifier, inputs_of("bert", "bfloat16")
    with torch.no_grad():
        state = held.model.bert(**inputs).pooler_output[0]
        head.weight.zero_()
        head.weight[1] = 0.02 * state.sign()  # adds less than 1 to 256, which bfloat16 cannot add
        head.bias.copy_(torch.tensor([256.0, 256.0, 0.0]))
    assert "another" in told(xa.load(held.model), inputs)


# -- arithmetic ----------------------------------------------------------------------------------


def computed(module, work):
    with torch.no_grad(), float32_arithmetic(module):
        return work()


def test_weights_are_widened_and_left_as_they_are():
    linear = nn.Linear(6, 5).bfloat16()
    before, states = linear.weight.clone(), torch.randn(3, 6)
    wide = copy.deepcopy(linear).float()
    assert_close(computed(linear, lambda: linear(states)), wide(states))
    assert linear.weight.dtype == torch.bfloat16
    assert torch.equal(linear.weight, before)
    assert computed(linear, lambda: linear.weight.dtype) == torch.float32
    assert computed(linear, lambda: linear.weight[0].unsqueeze(0).mT.shape) == (6, 1)
    assert computed(linear, lambda: torch.zeros(2, dtype=torch.float16).dtype) == torch.float32
    assert computed(linear, lambda: states.half().to(torch.bfloat16).dtype) == torch.float32
    assert computed(linear, lambda: (linear.weight[0] * 1).dtype) == torch.float32


def test_products_can_be_differentiated_twice_and_for_many_vectors_at_once():
    linear = nn.Linear(4, 3).bfloat16()
    wide = copy.deepcopy(linear).float()

    def twice(module):
        states = torch.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()
        with frozen_eval(module):
            answer = module(module(states).cos() @ torch.ones(3, 4)).sin().sum()
            (gradient,) = torch.autograd.grad(answer, states, create_graph=True)
            vectors = torch.eye(8).reshape(8, 2, 4)

            def back(vector):
                return torch.autograd.grad(gradient, states, vector, retain_graph=True)[0]

            return torch.func.vmap(back)(vectors)

    assert_close(twice(linear), twice(wide))


def test_a_saved_model_is_loaded_and_answers_in_the_words_of_its_tokenizer(tmp_path):
    model = held_in(CONTRACT["bert"].build(), "bfloat16")
    model.save_pretrained(tmp_path)
    marked_tokenizer().save_pretrained(tmp_path)
    subject = xa.load(tmp_path)
    assert subject.model.dtype == torch.bfloat16
    trial = xa.trial(subject, "w3 w14 w15 w9", probes=2)
    assert "computed in float32" in trial.checks["held in half precision"]


def test_an_answer_that_overflows_is_told():
    model = CONTRACT["llama"].build()
    with torch.no_grad():
        model.lm_head.weight.mul_(2e3)
        model.model.norm.weight.mul_(1e2)
    held = xa.load(model.half())
    assert "not finite" in told(held, inputs_of("llama", "float16"))


def test_large_weights_are_widened_in_parts(monkeypatch):
    monkeypatch.setattr(precision, "WIDENED_AT_ONCE", 16)
    linear = nn.Linear(6, 11).bfloat16()
    states = torch.randn(3, 6, requires_grad=True)
    wide = copy.deepcopy(linear).float()
    with frozen_eval(linear):
        ours = linear(states)
    assert_close(ours, wide(states))
    (gradient,) = torch.autograd.grad(ours.square().sum(), states)
    (wanted,) = torch.autograd.grad(wide(states).square().sum(), states)
    assert_close(gradient, wanted)
