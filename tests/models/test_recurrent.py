"""Recurrent models with additive attention, by the equations of their papers."""

import pytest
import torch
from support.zoo import FAMILIES
from torch import nn
from torch.testing import assert_close

from exhibit_a.models import RecurrentClassifier, RecurrentConfig
from exhibit_a.models.recurrence import BidirectionalLayer
from exhibit_a.subject.subject import load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture
from exhibit_a.trace.replay import replay


@torch.no_grad()
def linear(layer, vector):
    weight, bias = layer.weight.detach(), layer.bias
    return [
        sum(w.item() * x for w, x in zip(row, vector, strict=True))
        + (0.0 if bias is None else bias[number].item())
        for number, row in enumerate(weight)
    ]


def softmax(scores):
    chances = torch.tensor(scores, dtype=torch.float64).exp()
    return (chances / chances.sum()).tolist()


def look(attention, state, annotations):
    """α and c of one state, by loops over e_j = vᵀ tanh(W s + U h_j)."""
    asked = linear(attention.query, state)
    energies = []
    for annotation in annotations:
        sums = [a + b for a, b in zip(asked, linear(attention.key, annotation), strict=True)]
        energies += linear(attention.energy, [torch.tensor(x).tanh().item() for x in sums])
    alpha = softmax(energies)
    columns = zip(*annotations, strict=True)
    return alpha, [sum(a * h for a, h in zip(alpha, column, strict=True)) for column in columns]


def test_additive_attention_is_a_loop_over_the_equations():
    model = FAMILIES["additive"].build(d_model=6, d_attention=4)
    inputs = FAMILIES["additive"].inputs()
    trace = capture(load(model), inputs, keep=("attention", "hidden"))
    layer, annotations = model.decoder.layers[0], trace.hidden_of("encoder")[-1].tolist()
    state = torch.tensor(linear(layer.first, annotations[0][3:])).tanh().tolist()
    words = trace.hidden_of("decoder")[0].tolist()
    for row, word in zip(trace.attention[0][0], words, strict=True):
        alpha, context = look(layer.attention, state, annotations)
        assert_close(row.double(), torch.tensor(alpha, dtype=torch.float64), rtol=1e-4, atol=1e-5)
        parts = linear(layer.word, word), linear(layer.context, context)
        given = [a + b for a, b in zip(*parts, strict=True)]
        carried = torch.tensor(linear(layer.carried, state)).chunk(3)
        r, z, n = torch.tensor(given[:18]).chunk(3)
        r, z = (r + carried[0]).sigmoid(), (z + carried[1]).sigmoid()
        n = (n + r * carried[2]).tanh()
        state = ((1 - z) * n + z * torch.tensor(state)).tolist()


@pytest.mark.parametrize(("cell", "theirs"), [("gru", nn.GRU), ("lstm", nn.LSTM)])
def test_reading_is_torchs_and_padding_is_skipped(cell, theirs):
    torch.manual_seed(0)
    layer = BidirectionalLayer(cell, 6)
    other = theirs(6, 3, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for ours, ending in ((layer.forwards, "l0"), (layer.backwards, "l0_reverse")):
            getattr(other, f"weight_ih_{ending}").copy_(ours.given.weight)
            getattr(other, f"weight_hh_{ending}").copy_(ours.carried.weight)
            getattr(other, f"bias_ih_{ending}").copy_(ours.given.bias)
            getattr(other, f"bias_hh_{ending}").copy_(ours.carried.bias)
        text = torch.randn(2, 5, 6)
        expected = other(text)[0]
        assert_close(layer(text), expected, rtol=1e-5, atol=1e-6)
        padded = nn.functional.pad(text, (0, 0, 2, 1), value=9.0)
        real = torch.tensor([[False] * 2 + [True] * 5 + [False]] * 2)
        assert_close(layer(padded, real)[:, 2:7], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_the_scores_of_the_classifier_are_linear_in_its_attention(attention):
    torch.manual_seed(0)
    model = RecurrentClassifier(
        RecurrentConfig(vocab_size=80, d_model=8, d_attention=4, attention=attention)
    ).eval()
    trace = capture(load(model), FAMILIES["recurrent"].inputs())
    assert trace.sequences["decoder"].tokens == ("[query]",)
    assert trace.attention[0].shape == (1, 1, 7)
    other = torch.rand(1, 1, 7).softmax(-1)
    with torch.no_grad():
        logits = replay(trace, edits.replace(0, other)).logits[0]
    by_hand = model.classifier(other[0, 0] @ trace.hidden_of("encoder")[-1])
    assert_close(logits, by_hand)


def test_an_edited_row_moves_every_state_after_it_and_none_before():
    trace = capture(load(FAMILIES["additive"].build()), FAMILIES["additive"].inputs())
    other = trace.attention[0].clone()
    other[0, 2] = other[0, 2].flip(0)
    with torch.no_grad():
        moved = replay(trace, edits.replace(0, other)).logits[0]
    gap = (moved - trace.output.logits[0]).abs().amax(-1)
    assert (gap[:2] == 0).all()
    assert (gap[2:] > 0).all()
