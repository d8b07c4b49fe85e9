"""Tangents have the value and the first derivative of their kernel, and no second derivative."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from exhibit_a.methods.mixing.folding import FirstOrder

law = settings(max_examples=20, deadline=None)
WIDTH = 5


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


WEIGHT, BIAS = drawn(WIDTH, seed=11), drawn(WIDTH, seed=12)
ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu, named": lambda x: F.gelu(input=x),
    "silu": F.silu,
    "torch.tanh": torch.tanh,
    "Tensor.tanh": lambda x: x.tanh(),
}
SOFTMAX = {
    "F.softmax": lambda x: F.softmax(x, dim=-1),
    "F.softmax, place": lambda x: F.softmax(x, -1),
    "F.softmax, first axis": lambda x: F.softmax(x, dim=0),
    "torch.softmax": lambda x: torch.softmax(x, -1),
    "torch.softmax, middle axis": lambda x: torch.softmax(x, dim=1),
    "Tensor.softmax": lambda x: x.softmax(-1),
    "Tensor.softmax, named": lambda x: x.softmax(dim=1),
    "with its dtype": lambda x: F.softmax(x, dim=-1, dtype=torch.float64),
}
NORMS = {
    "plain": lambda x: F.layer_norm(x, (WIDTH,)),
    "weight": lambda x: F.layer_norm(x, (WIDTH,), WEIGHT),
    "weight and bias": lambda x: F.layer_norm(x, (WIDTH,), WEIGHT, BIAS),
    "named": lambda x: F.layer_norm(x, normalized_shape=[WIDTH], weight=WEIGHT, bias=BIAS),
    "large eps": lambda x: F.layer_norm(x, (WIDTH,), WEIGHT, BIAS, 0.5),
    "module": torch.nn.LayerNorm(WIDTH, dtype=torch.float64).requires_grad_(False),
}
CURVED = {
    f"{family} {name}": kernel
    for family, kernels in (("activation", ACTIVATIONS), ("softmax", SOFTMAX), ("norm", NORMS))
    for name, kernel in kernels.items()
}
UNLISTED = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "norm of two axes": lambda x: F.layer_norm(x, x.shape[-2:]),
    "rms norm": lambda x: F.rms_norm(x, (WIDTH,), WEIGHT),
}
kernels = pytest.mark.parametrize("name", [*CURVED, *UNLISTED])


def kernel_of(name):
    return (CURVED | UNLISTED)[name]


def tangent_of(kernel, point):
    """The kernel as FirstOrder has it, with its graph; and the point it starts from."""
    entry = point.clone().requires_grad_()
    with FirstOrder():
        return kernel(entry), entry


def pushed(output, entry, direction):
    """J·direction, by transposing twice, as ``pushforward`` does it."""
    stand_in = torch.zeros_like(output).requires_grad_()
    (transposed,) = torch.autograd.grad(output, entry, stand_in, create_graph=True)
    return torch.autograd.grad(transposed, stand_in, direction, retain_graph=True)[0]


@kernels
@law
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 4), size=st.floats(0.1, 4))
def test_value_and_derivative_are_those_of_the_kernel(name, seed, rows, size):
    kernel = kernel_of(name)
    point, direction = size * drawn(3, rows, WIDTH, seed=seed), drawn(3, rows, WIDTH, seed=seed + 1)
    value, derivative = torch.func.jvp(kernel, (point,), (direction,))
    output, entry = tangent_of(kernel, point)
    assert_close(output.detach(), value, rtol=0, atol=0)
    assert_close(pushed(output, entry, direction), derivative, rtol=1e-9, atol=1e-11)


@kernels
def test_gradients_are_those_of_the_kernel(name):
    kernel = kernel_of(name)
    point, cotangent = drawn(3, 2, WIDTH, seed=3), drawn(3, 2, WIDTH, seed=4)
    _, pull = torch.func.vjp(kernel, point)
    output, entry = tangent_of(kernel, point)
    (gradient,) = torch.autograd.grad(output, entry, cotangent)
    assert_close(gradient, pull(cotangent)[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", CURVED)
def test_a_tangent_has_no_second_derivative(name):
    """So the kernel was replaced indeed, and its slow second derivative is never computed."""
    point, cotangent = drawn(2, 3, WIDTH, seed=5), drawn(2, 3, WIDTH, seed=6)

    def second(output, entry):
        (gradient,) = torch.autograd.grad(output, entry, cotangent, create_graph=True)
        if not gradient.requires_grad:
            return torch.zeros_like(entry)
        return torch.autograd.grad(
            gradient.square().sum(), entry, allow_unused=True, materialize_grads=True
        )[0]

    entry = point.clone().requires_grad_()
    assert second(kernel_of(name)(entry), entry).abs().amax() > 1e-3
    assert not second(*tangent_of(kernel_of(name), point)).any()


def test_masked_scores_get_no_weight_and_no_derivative():
    scores, direction = drawn(2, 4, 4, seed=8), drawn(2, 4, 4, seed=9)
    masked = scores.masked_fill(~torch.ones(4, 4).bool().tril(), -torch.inf)
    value, derivative = torch.func.jvp(lambda x: torch.softmax(x, -1), (masked,), (direction,))
    output, entry = tangent_of(lambda x: torch.softmax(x, -1), masked)
    change = pushed(output, entry, direction)
    assert torch.equal(output.detach(), value)
    assert_close(change, derivative, rtol=1e-9, atol=1e-12)
    assert not change.triu(1).any()


@pytest.mark.parametrize("name", [*ACTIVATIONS])
def test_gradients_are_those_of_finite_differences(name):
    kernel, step = ACTIVATIONS[name], 1e-6
    point = drawn(40, seed=7) * 3
    gradient = (kernel(point + step) - kernel(point - step)) / (2 * step)
    output, entry = tangent_of(kernel, point)
    assert_close(pushed(output, entry, torch.ones(40).double()), gradient, rtol=1e-6, atol=1e-8)
