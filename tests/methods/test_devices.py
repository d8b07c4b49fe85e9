"""On a device of its own a model is examined as on the processor: nothing mixes the two."""

import copy

import pytest
import torch
from support.every_method import OPTIONS, TEXT, call
from support.modes import KEPT
from support.other_device import ForbiddenThereError, NoDoublesError, lying_there, there
from support.subjects import opinionated
from support.words import marked_tokenizer
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.methods.registry import methods

LONG = " ".join([TEXT] * 4)  # more tokens than a head is wide


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
        with pytest.raises(ForbiddenThereError):
            weight.sum() + torch.zeros(2)
        assert (weight + torch.tensor(1.0)).device == torch.device("cuda")  # a number is copied
    with lying_there(model, "mps", doubles=False):
        weight = next(model.parameters())
        for doubled in (
            lambda: weight.double(),
            lambda: weight.to("cpu", torch.float64),
            lambda: torch.zeros(2, dtype=torch.float64).to("mps"),
            lambda: weight.sum(dtype=torch.float64),
        ):
            with pytest.raises(NoDoublesError):
                doubled()
        assert weight.cpu().double().to(torch.float32).to("mps").device == torch.device("mps")


@pytest.fixture(scope="module", params=["cuda", "mps"])
def elsewhere(request):
    """A device of its own, with float64 or without; a model that lies there, and a pass of it."""
    device, model = request.param, copy.deepcopy(opinionated().model)
    with lying_there(model, device, doubles=device == "cuda"):
        subject = xa.load(model, tokenizer=marked_tokenizer())
        return device, subject, xa.capture(subject, TEXT, keep=KEPT)


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_method_never_mixes_a_device_with_the_host(name, elsewhere):
    device, subject, trace = elsewhere
    with lying_there(subject.model, device, doubles=device == "cuda"):
        assert there(trace.attention[0])
        assert call(name, subject, trace, OPTIONS.get(name, {})) is not None


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_few_rows_are_kept_where_the_model_is(model, device):
    with lying_there(model, device, doubles=device == "cuda"):
        subject = xa.load(model, tokenizer=marked_tokenizer())
        trace = xa.capture(subject, TEXT, rows=[-1])
        assert there(trace.attention[0])
        xa.effective_attention(trace)


def test_without_float64_there_the_numbers_are_those_of_the_host(model):
    """Ranks and verdicts are the same, and all that was measured is the same but for float32."""
    here = xa.effective_attention(xa.capture(xa.load(model, tokenizer=marked_tokenizer()), LONG))
    with lying_there(model, "mps", doubles=False):
        subject = xa.load(model, tokenizer=marked_tokenizer())
        result = xa.effective_attention(xa.capture(subject, LONG))
        for name in ("effective", "rank", "verdict", "null_fraction", "pearson", "spectrum"):
            for found, expected in zip(getattr(result, name), getattr(here, name), strict=True):
                assert there(found)
                assert_close(found.cpu().to(expected.dtype), expected, rtol=1e-5, atol=1e-6)
        assert int(result.nullity[0].amax()) > 0
