"""Subjects to examine, each made once for the whole session."""

from functools import cache

import torch
from torch import nn

from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import Trace, capture
from support.words import marked_tokenizer, tokenizer
from support.zoo import CONTRACT, FAMILIES, WIDTH


@cache
def subject_of(name: str) -> Subject:
    """One subject per family, observed once for the whole session."""
    return load(CONTRACT[name].build())


def trace_of(name: str) -> Trace:
    return capture(subject_of(name), FAMILIES[name].inputs())


@cache
def speaker(name: str = "bert") -> Subject:
    """A tiny classifier with a tokenizer."""
    return load(FAMILIES[name].build(), tokenizer=tokenizer())


@cache
def talking(name, *names):
    return load(subject_of(name).model, tokenizer=marked_tokenizer(*names))


@cache
def opinionated(labels=2):
    """A small BERT whose answer depends on the text, and on where it looks."""
    model = FAMILIES["bert"].build(num_labels=labels)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "classifier.weight" in name:
                weight.mul_(12)
            if "query.weight" in name or "key.weight" in name or "value.weight" in name:
                weight.mul_(3)
    return load(model, tokenizer=marked_tokenizer())


def precise(name, **changes):
    """A family's trace in float64."""
    torch.manual_seed(0)
    family = FAMILIES[name]
    model = family.build(**changes).double()
    inputs = {
        key: part.double() if part.is_floating_point() else part
        for key, part in family.inputs().items()
    }
    return capture(load(model), inputs)


def averaging_only():
    """A T5 encoder that does x + A x and nothing else, with the same fixed A in every layer."""
    model = FAMILIES["t5"].build().double()
    with torch.no_grad():
        for layer in model.encoder.block:
            attention, feed = layer.layer[0], layer.layer[1]
            attention.layer_norm, feed.layer_norm = nn.Identity(), nn.Identity()
            attention.SelfAttention.q.weight.zero_()
            attention.SelfAttention.v.weight.copy_(torch.eye(WIDTH))
            attention.SelfAttention.o.weight.copy_(torch.eye(WIDTH))
            feed.DenseReluDense.wo.weight.zero_()
        table = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        table.copy_(table[:, :1].expand_as(table))
    return capture(load(model), FAMILIES["t5"].inputs())
