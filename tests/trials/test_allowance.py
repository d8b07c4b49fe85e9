"""A trial of a model with many heads keeps to its passes and says what it left out."""

import pytest
import torch
from support.passes import counting
from support.words import plain_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

import exhibit_a as xa
from exhibit_a.trials.allowance import PASSES

TEXT = "a gripping , beautifully shot film , though the plot is thin at the end"


def deep(layers=30, heads=9):
    torch.manual_seed(0)
    tokenizer = plain_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8 * heads,
        intermediate_size=16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 3,
        head_dim=8,
    )
    return xa.load(LlamaForCausalLM(config), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def examined():
    subject = deep()
    modules = [subject.model.get_submodule(layer.module) for layer in subject.anatomy.layers]
    assert not subject.gradient_obstacle  # looked at once for a model, not for a text
    with counting(modules) as rows:
        trial = xa.trial(subject, TEXT, target_text="the film", probes=2)
    return subject, trial, sum(rows) / len(modules)


def test_it_keeps_to_its_passes_and_the_doctor_knows_how_many(examined):
    subject, trial, passes = examined
    assert passes <= PASSES
    assert trial.checks[f"forward passes, of {PASSES} allowed"] == pytest.approx(passes, abs=0.1)
    (told,) = (
        estimate.forwards
        for estimate in xa.diagnose(subject, length=16).methods
        if estimate.method == "trial"
    )
    assert passes / 1.5 <= told <= 1.5 * passes


def test_it_says_what_it_left_out_and_why(examined):
    _, trial, _ = examined
    assert trial.reliance is not None
    assert trial.heat_maps is not None
    assert "forward passes" in trial.skipped["attribution"]
    assert trial.skipped["tree"].startswith("It needs attribution")
    assert "self_attribution" in trial.heat_maps.checks["left out"]
