"""How is a head written into an ordinary model by hand?

The residual stream is divided into orthonormal directions, each with a meaning (this key, that
class, the answer) and none with a mean, so that layer norms scale and do nothing else. A ``Job``
says what a head reads and writes in these directions. It is added to the small noise that fills all
weights, in a basis of the head's own, so that no coordinate of any head means anything by itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

NOISE = 0.01  # the spread of every weight that nothing was written to
CALM = 0.1  # of the noise, what is left in the projections of a head that has a job
Head = tuple[int, int]  # site, head


@dataclass(frozen=True)
class Shape:
    """The size of a planted model."""

    layers: int
    heads: int
    head_width: int

    @property
    def width(self) -> int:
        return self.heads * self.head_width


@dataclass(frozen=True)
class Projections:
    """Views of the weights of one attention site, each (out, in)."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    query_bias: Tensor
    key_bias: Tensor
    value_bias: Tensor


@dataclass(frozen=True)
class Job:
    """What a head does: rows of ``query``, ``key`` and ``value`` read directions.

    ``output`` has a column for each coordinate of the values. Fewer rows than the head is wide
    leave the others to the noise; ``turned`` heads do their work in a random basis.
    """

    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    output: Tensor | None = None
    query_bias: Tensor | None = None
    turned: bool = True


def chooser(random: torch.Generator, *choices: int) -> int:
    """One of the choices."""
    return choices[int(torch.randint(len(choices), (), generator=random))]


def between(random: torch.Generator, low: float, high: float) -> float:
    """A number from an interval."""
    return low + (high - low) * float(torch.rand((), generator=random))


def directions(width: int, random: torch.Generator) -> Iterator[Tensor]:
    """Orthonormal directions of mean zero, in no order."""
    square = torch.randn(width, width, generator=random, dtype=torch.float64)
    square[:, 0] = 1  # the first is the mean itself, which is left out
    yield from torch.linalg.qr(square)[0].T[1:].float()


def take(supply: Iterator[Tensor], count: int) -> Tensor:
    """The next few directions, (count, width)."""
    return torch.stack([next(supply) for _ in range(count)])


def rotation(size: int, random: torch.Generator) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(size, size, generator=random))[0]


@torch.no_grad()
def fill_with_noise(model: nn.Module, random: torch.Generator, spread: float = NOISE) -> None:
    """Small random numbers everywhere; norms stay near the identity."""
    for name, weight in model.named_parameters():
        is_gain = weight.ndim == 1 and name.endswith("weight")
        weight.copy_(torch.randn(weight.shape, generator=random) * spread + is_gain)


def bert_sites(model: nn.Module) -> list[Projections]:
    return [
        _linear(
            layer.attention.self.query,
            layer.attention.self.key,
            layer.attention.self.value,
            layer.attention.output.dense,
        )
        for layer in model.bert.encoder.layer
    ]


def gpt2_sites(model: nn.Module) -> list[Projections]:
    return [
        Projections(
            *layer.attn.c_attn.weight.T.chunk(3),
            layer.attn.c_proj.weight.T,
            *layer.attn.c_attn.bias.chunk(3),
        )
        for layer in model.transformer.h
    ]


def bart_halves(layers: int, heads: int, inner: int) -> dict[str, int]:
    """Sizes of an encoder and a decoder that are alike."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": inner}
    return {f"{half}_{name}": sizes[name] for half in ("encoder", "decoder") for name in sizes}


def bart_sites(model: nn.Module) -> list[Projections]:
    """Those of the encoder, then two for each layer of the decoder: self and cross."""
    encoder, decoder = model.model.encoder.layers, model.model.decoder.layers
    attentions = [layer.self_attn for layer in encoder]
    for layer in decoder:
        attentions += [layer.self_attn, layer.encoder_attn]
    return [_linear(a.q_proj, a.k_proj, a.v_proj, a.out_proj) for a in attentions]


@torch.no_grad()
def write(site: Projections, rows: slice, job: Job, random: torch.Generator) -> None:
    """Add a job to the rows that belong to one head."""
    size = rows.stop - rows.start
    identity = torch.eye(size)
    match = rotation(size, random) if job.turned else identity
    carry = rotation(size, random) if job.turned else identity
    for noise in (
        site.query,
        site.key,
        site.value,
        site.query_bias,
        site.key_bias,
        site.value_bias,
    ):
        noise[rows] *= CALM
    for weight, job_rows, basis in (
        (site.query, job.query, match),
        (site.key, job.key, match),
        (site.value, job.value, carry),
    ):
        if job_rows is not None:
            weight[rows] += basis[:, : len(job_rows)] @ job_rows
    if job.output is not None:
        site.output[:, rows] += job.output @ carry[:, : job.output.shape[1]].T
    if job.query_bias is not None:
        site.query_bias[rows] += match[:, : len(job.query_bias)] @ job.query_bias


@torch.no_grad()
def make_restless(site: Projections, rows: slice, random: torch.Generator, spread: float) -> None:
    """Let a head look somewhere: random queries and keys of some size."""
    for weight in (site.query, site.key):
        weight[rows] = torch.randn(weight[rows].shape, generator=random) * spread


def rows_of(shape: Shape, head: int) -> slice:
    """The rows of a projection that belong to a head."""
    return slice(head * shape.head_width, (head + 1) * shape.head_width)


def sharpness(peak: float, keys: int) -> float:
    """By how much a score must exceed the others for its softmax to be ``peak`` of ``keys``."""
    return math.log(peak / (1 - peak) * (keys - 1))


def _linear(query: nn.Linear, key: nn.Linear, value: nn.Linear, output: nn.Linear) -> Projections:
    return Projections(
        query.weight,
        key.weight,
        value.weight,
        output.weight,
        query.bias,
        key.bias,
        value.bias,
    )
