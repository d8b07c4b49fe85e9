"""On a device of its own a model is examined as on the processor: nothing mixes the two."""

import copy

import pytest
import torch
from support.every_method import OPTIONS, TEXT, call, same
from support.modes import KEPT
from support.other_device import ForbiddenThereError, NoDoublesError, lying_there, there
from support.subjects import opinionated
from support.words import marked_tokenizer

import exhibit_a as xa
from exhibit_a.errors import UnsupportedModelError
from exhibit_a.methods.registry import methods


@pytest.fixture
def model():
    return copy.deepcopy(opinionated().model)


def test_the_pretended_device_refuses_what_a_real_one_would(model):
    with lying_there(model, "cuda"):
        weight = next(model.parameters()) * 1
        assert weight.device == torch.device("cuda")
        assert weight.cpu().device == torch.device("cpu")
        assert there(torch.zeros(2, device=weight.device))
        for mixed in (
            lambda: weight + torch.zeros_like(weight.cpu()),
            lambda: torch.stack([weight, weight.cpu()]),
            lambda: weight.cpu()[torch.zeros(2, device="cuda").long()],
            lambda: weight.numpy(),
            lambda: torch.rand(2, device="cuda", generator=torch.Generator()),
        ):
            with pytest.raises(ForbiddenThereError):
                mixed()
        assert weight[torch.zeros(2).long()].shape[0] == 2  # an index of the host is copied
    with lying_there(model, "mps", doubles=False), pytest.raises(NoDoublesError):
        next(model.parameters()).double()


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_method_never_mixes_a_device_with_the_host(name, model):
    here = xa.load(copy.deepcopy(model), tokenizer=marked_tokenizer())
    usual = call(name, here, xa.capture(here, TEXT, keep=KEPT), OPTIONS.get(name, {}))
    with lying_there(model, "cuda"):
        subject = xa.load(model, tokenizer=marked_tokenizer())
        trace = xa.capture(subject, TEXT, keep=KEPT)
        assert there(trace.attention[0])
        found = call(name, subject, trace, OPTIONS.get(name, {}))
    assert same(found, usual)


def test_a_few_rows_are_kept_where_the_model_is(model):
    with lying_there(model, "cuda"):
        subject = xa.load(model, tokenizer=marked_tokenizer())
        trace = xa.capture(subject, TEXT, rows=[-1])
        assert there(trace.attention[0])
        xa.effective_attention(trace)


def test_a_device_without_float64_is_refused_before_anything_is_computed(model):
    with (
        lying_there(model, "mps", doubles=False),
        pytest.raises(UnsupportedModelError, match="float64"),
    ):
        xa.load(model, tokenizer=marked_tokenizer())
