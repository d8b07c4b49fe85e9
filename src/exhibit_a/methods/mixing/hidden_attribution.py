"""How much of a token is left in its hidden vector, and which other tokens are in there?

Hidden token attribution (Brunner et al., ICLR 2020, §5) measures how strongly the hidden vector
e_j of layer l reacts to the input vector x_i, as a share of its reactions to all inputs:

    norm_ji = ‖∂e_j/∂x_i‖          contribution_ji = norm_ji / Σ_k norm_jk

x is the input of layer 0. The norm is taken of the whole d×d Jacobian block. (The popular shortcut,
the gradient of the *sum* of e_j, measures nothing: a layer norm makes that sum a constant.)

1. A unit change q at one token is pushed through the model once, and ‖J q‖² is measured at every
   layer and token.
2. Exact: all d directions of every token. Sketch: m random orthonormal directions for each of
   them; (d/m) Σ ‖J q‖² is an unbiased estimate of ‖J‖²_F, and exact at m = d.
3. The standard error is the jackknife over directions, times √(1 − m/d) because they are drawn
   without replacement from a basis, times Student's factor for a spread estimated from m numbers:
   so that two standard errors mean what they mean for a normal distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from scipy.special import ndtr, stdtrit
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError, NotComputableError
from exhibit_a.methods.mixing.pushforward import (
    Changes,
    Probing,
    Pushed,
    Pushforward,
    lengths_of,
    push_to_layers,
)
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.precision import exact_device, to_float64
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.subject.anatomy import main_stack
from exhibit_a.trace.answer_rows import one_stack, readout
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target

Norm = Literal["frobenius", "spectral", "times_input"]

Mixing = Float[Tensor, "layer target source"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HiddenAttribution(Result):
    """What every input token contributes to every hidden vector; layer 0 is the input itself."""

    unit_rules: ClassVar[dict[str, Rule]] = {
        "norms": "map",
        "contribution": "map",
        "standard_error": "map",  # of a sum at most the sum of theirs
        "special": "all",
        "source_tokens": "names",
    }
    norms: Mixing  # of the Jacobian of the target's vector by the source's input
    contribution: Mixing  # the same as shares that sum to one
    standard_error: Mixing  # of the contribution; zero in exact mode
    special: Bool[Tensor, " target"]  # tokens that the tokenizer added
    stack: str
    source: str
    source_tokens: tuple[str, ...]

    @property
    def self_contribution(self) -> Float[Tensor, "layer token"]:
        """What each token contributes to its own hidden vector."""
        self._same_positions()
        return self.contribution.diagonal(dim1=1, dim2=2)

    @property
    def not_own_top(self) -> Float[Tensor, " layer"]:
        """The share of tokens to whose hidden vector another token contributes most."""
        return displaced(self.contribution).to(self.contribution.dtype).mean(-1)

    @property
    def neighbours(self) -> Float[Tensor, "layer distance"]:
        """What a token at distance 0, 1, 2 … contributes on average, as shares of a whole."""
        self._same_positions()
        total, pairs = by_distance(self.contribution)
        mean = total / pairs
        return mean / mean.sum(-1, keepdim=True)

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """Sources may be the tokens of another stack."""
        named = super().tokens_along(leaf)
        return named | {"source": self.source_tokens} if "source" in leaf.dims else named

    def _same_positions(self) -> None:
        if self.stack != self.source:
            raise NotComputableError(
                f"The sources are the tokens of the {self.source} and the targets those of the "
                f"{self.stack}; no token stands in both. Ask with source={self.stack!r}."
            )


def token_scores(trace: Trace, target: Target) -> Float[Tensor, " token"]:
    """How much of each token is in the states that the answer is read from, by a sketch."""
    one_stack(trace)
    last: Tensor = hidden_attribution(trace, probes=8).contribution[-1]
    return readout(trace, target) @ last


@method(
    question="What is left of a token in its hidden vector?",
    needs=("hidden",),
    cost=Cost(forwards=3, algebra_per_direction=1.1, states=17),
    command="mixing",
    tokens=token_scores,
    defaults={"probes": 16},
)
def hidden_attribution(
    trace: Trace,
    *,
    probes: int | None = None,
    norm: Norm = "frobenius",
    seed: int = 0,
    stack: str | None = None,
    source: str | None = None,
    special: bool = True,
) -> HiddenAttribution:
    """Contributions of the input tokens to every hidden vector of a stack, at every layer.

    Args:
        probes: number of random directions pushed per token; none stands for all directions,
            which is exact and takes a pass for each.
        norm: how a Jacobian is measured: its frobenius or spectral norm (the latter without
            probes only), or times_input, which multiplies every input component by its value.
        seed: seed of the random directions.
        stack: stack whose hidden vectors are explained; by default the one that reads the input.
        source: stack whose tokens explain them; by default the same.
        special: whether special tokens take part; padding never does.

    >>> sketch = xa.hidden_attribution(trace, probes=4)
    >>> tuple(sketch.contribution.shape), sketch.checks["probes"]
    ((7, 8, 8), 4)
    >>> torch.equal(sketch.contribution[0], torch.eye(8))
    True
    """
    stack = _known_stack(trace, stack)
    source = _known_stack(trace, source or stack)
    trace = trace.keeping("hidden")
    probing = Probing(probes, seed, special)
    probing.check(trace.stack_inputs[source].shape[-1])
    if norm == "spectral" and probes is not None:
        raise BadRequestError(
            "The largest singular value cannot be estimated from a few probes without bias; "
            "use probes=None with the spectral norm."
        )
    targets, sources = (probing.positions(trace, name) for name in (stack, source))
    push = push_to_layers(trace, source, stack, many=probing.exact)
    measured = _measured(push, probing, sources, targets, norm)
    return assembled(trace, push, probing, measured, (stack, source), norm=norm)


def assembled(
    trace: Trace,
    push: Pushforward,
    probing: Probing,
    measured: tuple[Mixing, Mixing],
    stacks: tuple[str, str],
    *,
    norm: Norm = "frobenius",
) -> HiddenAttribution:
    """The result, from the norms at the output of every layer and the error of contributions.

    ``stacks`` are the one that is looked into and the one whose tokens are looked for.
    """
    (norms, error), (stack, source) = measured, stacks
    targets, sources = (probing.positions(trace, name) for name in (stack, source))
    inputs = push.entry[0, sources].detach() if stack == source else None
    # Layer 0 in front: its Jacobian is the identity; zero where it is the input of another stack.
    if inputs is None:
        norms = torch.cat([torch.zeros_like(norms[:1]), norms])
    else:
        if norm == "times_input":
            first = lengths_of(to_float64(inputs))
        else:
            size = inputs.shape[1] ** 0.5 if norm == "frobenius" else 1
            first = inputs.new_full((len(inputs),), size)
        norms = torch.cat([torch.diag(to_float64(first).to(norms)).unsqueeze(0), norms])
    error = torch.cat([torch.zeros_like(error[:1]), error])
    if not bool(norms.isfinite().all()):
        raise BrokenInvariantError(
            f"A derivative of {type(trace.subject.model).__name__} is NaN or infinite; no numbers "
            "are given. Load the model in a wider dtype."
        )
    dtype = torch.promote_types(push.entry.dtype, torch.float32)
    names = trace.token_names
    return build_result(
        HiddenAttribution,
        trace,
        "hidden_attribution",
        seed=probing.used_seed,
        settings={
            "probes": probing.probes,
            "norm": norm,
            "stack": stack,
            "source": source,
            "special": probing.special,
        },
        tokens=tuple(names[stack][place] for place in targets),
        checks=push.checks
        | probing.checks(
            mean_standard_error=float(error[1:].mean()), largest_standard_error=float(error.amax())
        ),
        norms=norms.to(dtype),
        contribution=contributions(norms).to(dtype),
        standard_error=error.to(dtype),
        special=trace.sequences[stack].special[targets],
        stack=stack,
        source=source,
        source_tokens=tuple(names[source][place] for place in sources),
        layouts={
            name: layout.at(places)
            for name, places in ((stack, targets), (source, sources))
            if (layout := trace.sequences[name].layout) is not None
        },
    )


def contributions(norms: Float[Tensor, "*any source"]) -> Float[Tensor, "*any source"]:
    """Each norm as a share of all norms of its target; a target that nothing reaches has zeros."""
    total = norms.sum(-1, keepdim=True)
    return norms / torch.where(total > 0, total, 1)


def displaced(contribution: Float[Tensor, "*any token token"]) -> Bool[Tensor, "*any token"]:
    """Whether another token contributes more to a token's hidden vector than it does itself."""
    return contribution.amax(-1) > contribution.diagonal(dim1=-2, dim2=-1)


def by_distance(
    contribution: Float[Tensor, "layer token token"],
) -> tuple[Float[Tensor, "layer token"], Float[Tensor, " token"]]:
    """The contribution from every distance, summed over pairs, and the number of such pairs.

    Sums and counts of several texts can be added up.
    """
    count = contribution.shape[-1]
    places = torch.arange(count, device=contribution.device)
    distance = (places.unsqueeze(0) - places.unsqueeze(1)).abs().flatten()
    total = contribution.new_zeros(len(contribution), count)
    total.index_add_(1, distance, contribution.flatten(1))
    return total, torch.bincount(distance, minlength=count).to(contribution.dtype)


class LayerLengths:
    """‖J q‖² of every layer, target and source: for every direction, or summed over all of them."""

    def __init__(
        self,
        push: Pushforward,
        changes: Changes,
        targets: Sequence[int],
        *,
        keep_directions: bool,
        layers: int | None = None,
    ) -> None:
        self.changes, self.targets, self.keep = changes, targets, keep_directions
        self.width = push.entry.shape[-1]
        self.kept = changes.directions.shape[1] if keep_directions else 1
        self.shape = (layers or len(push.stand_ins), len(targets))
        rows = len(changes.sources) * self.kept
        self.table = torch.zeros(rows, *self.shape, dtype=torch.float64)

    def add(self, run: slice, source: Tensor, pushed: Sequence[Pushed]) -> None:
        """Count what a run of tangents did at every layer (step 1)."""
        rows = torch.arange(run.start, run.stop) if self.keep else source
        lengths = [lengths_of(states)[..., self.targets] for states in pushed]
        self.table.index_add_(0, rows, to_float64(torch.stack(lengths, 1)).square().cpu())

    def norms(self, *, sketch: bool) -> tuple[Mixing, Mixing]:
        """‖J‖ of every layer, target and source, and the standard error of the contributions."""
        squares = self.table.reshape(-1, self.kept, *self.shape).permute(1, 2, 3, 0)
        norms = (squares.sum(0) * self.width / self.changes.directions.shape[1]).sqrt()  # step 2
        return norms, jackknife(squares, self.width) if sketch else torch.zeros_like(norms)


def jackknife(
    squares: Float[Tensor, "direction *any target source"], width: int
) -> Float[Tensor, "*any target source"]:
    """The standard error of the contributions, by leaving every direction out once (step 3)."""
    count, total = len(squares), squares.sum(0)
    mean, scatter = torch.zeros_like(total), torch.zeros_like(total)
    for number, square in enumerate(squares, start=1):  # Welford: one copy in memory, not m
        without = contributions((total - square).clamp_min(0).sqrt())
        step = without - mean
        mean += step / number
        scatter += step * (without - mean)
    few = float(stdtrit(count - 1, ndtr(2.0))) / 2
    return (scatter * (count - 1) / count * (1 - count / width)).sqrt() * few


def _measured(
    push: Pushforward,
    probing: Probing,
    sources: Sequence[int],
    targets: Sequence[int],
    norm: Norm,
) -> tuple[Mixing, Mixing]:
    """The norms at the output of every layer, and the standard error of the contributions."""
    if norm == "spectral":
        # The largest singular value of every Jacobian block, one source token at a time.
        width, by_source = push.entry.shape[-1], []
        for place in sources:
            changes = Probing(None).changes(push.entry, [place])
            runs = []
            for run in push.chunks(width):
                tangents, _ = changes.within(run, push.entry.detach())
                runs.append(torch.stack([pushed[:, targets] for pushed in push(tangents)]))
            block = torch.cat(runs, 1).permute(0, 2, 1, 3)  # layer, target, d_model in and out
            squared = (block @ block.mT).to(exact_device(block.device))
            by_source.append(torch.linalg.eigvalsh(squared)[..., -1].clamp_min(0).sqrt())
        norms = to_float64(torch.stack(by_source, -1)).cpu()
        return norms, torch.zeros_like(norms)
    changes = probing.changes(push.entry, sources)
    if norm == "times_input":
        changes = changes.scaled(push.entry[0, sources].detach())
    lengths = LayerLengths(push, changes, targets, keep_directions=not probing.exact)
    for run in push.chunks(len(changes)):
        tangents, source = changes.within(run, push.entry.detach())
        lengths.add(run, source, push(tangents))
    return lengths.norms(sketch=not probing.exact)


def _known_stack(trace: Trace, stack: str | None) -> str:
    """The stack requested, or the one that reads the input."""
    stack = stack or main_stack(trace.sites)
    if stack not in trace.sequences:
        raise BadRequestError(f"There is no stack {stack!r}; found {', '.join(trace.sequences)}.")
    return stack
