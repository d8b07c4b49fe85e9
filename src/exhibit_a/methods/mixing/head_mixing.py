"""Does a head take from the tokens it looks at?

An attention row says which *hidden vectors* a head averages. In a deeper layer those vectors are
mixtures, so the row need not say which *input tokens* the head's output comes from (Pascual et al.,
EACL 2021). Here the two are compared for every head:

1. local: the attention row of query j, over keys;
2. global: ‖∂c_j/∂x_i‖ for the head's output c_j, as shares of a whole, over input tokens i;
3. they are compared row by row over the positions that either of them can reach, and averaged.

The head's output is what it averaged, or that times its rows of the output projection.

Hidden token attribution moves the same tokens in the same directions and only looks elsewhere:
where a model has one stack, ``hidden_and_heads`` reads both off the same derivatives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.mixing.hidden_attribution import (
    HiddenAttribution,
    LayerLengths,
    assembled,
    contributions,
    hidden_attribution,
)
from exhibit_a.methods.mixing.pushforward import Probing, lengths_of, push_to_all, push_to_heads
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.correlation import pearson, spearman
from exhibit_a.numerics.distances import FARTHEST, jensen_shannon, total_variation
from exhibit_a.numerics.precision import to_float64
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rules
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.shapes import SiteHeads, SiteMap
from exhibit_a.subject.anatomy import Site, key_stack, main_stack
from exhibit_a.trace.capture import Trace

HeadOutput = Literal["averaged", "projected"]

HeadMap = Float[Tensor, "head query key"]
HeadScores = dict[str, Float[Tensor, " head"]]  # by measure


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadMixing(Result):
    """Attention and input contribution of every head, and how far they agree."""

    unit_rules: ClassVar[Rules] = {"attention": "map", "contribution": "map", "sequences": "names"}
    attention: tuple[SiteMap, ...]  # the weights of the model
    contribution: tuple[SiteMap, ...]  # share of each input in what the head gives a query
    pearson: tuple[SiteHeads, ...]  # 1: the head takes from where it looks
    spearman: tuple[SiteHeads, ...]  # the same of ranks
    jensen_shannon: tuple[SiteHeads, ...]  # as a share of the most there is
    total_variation: tuple[SiteHeads, ...]  # the share of weight that lies elsewhere
    layer: tuple[int, ...]  # of each site, within its stack
    stack: tuple[str, ...]
    kind: tuple[str, ...]
    sequences: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """Queries and keys of a site may be tokens of different stacks."""
        if not {"query", "key"} <= set(leaf.dims):
            return {}
        site = int(leaf.where["site"])
        queries = self.stack[site]
        others = (stack for stack in self.sequences if stack != queries)
        keys = queries if self.kind[site] == "self" else next(others, queries)
        return {"query": self.sequences[queries], "key": self.sequences[keys]}


@method(
    question="Does a head take from the tokens it looks at?",
    needs=("attention", "hidden"),
    cost=Cost(forwards=3, algebra_per_direction=1.1, states=17),
)
def head_mixing(
    trace: Trace,
    *,
    probes: int | None = None,
    seed: int = 0,
    output: HeadOutput = "averaged",
    special: bool = True,
) -> HeadMixing:
    """Attention of every head against the shares of the input tokens in its output.

    Cross-attention is compared with the input of the other stack.

    Args:
        probes: number of random directions pushed per token; none stands for all directions,
            which is exact and takes a pass for each.
        seed: seed of the random directions.
        output: what counts as a head's output: what it averaged, or that projected by its part of
            the output projection.
        special: whether special tokens take part; padding never does.

    >>> result = xa.head_mixing(trace, probes=4)
    >>> len(result.contribution), tuple(result.contribution[0].shape)
    (6, (12, 8, 8))
    >>> bool(result.pearson[0].mean() > result.pearson[3].mean())
    True
    """
    trace = trace.keeping("attention", "hidden")
    probing = Probing(probes, seed, special)
    kept = {stack: probing.positions(trace, stack) for stack in trace.sequences}
    shares: dict[int, Tensor] = {}
    checks: dict[str, float | str] = {}
    for source in trace.sequences:
        sites = [site for site in trace.sites if key_stack(site, trace.sequences) == source]
        if sites:
            source_shares, measured = _shares(trace, source, sites, kept, probing, output)
            shares |= source_shares
            checks |= {f"{name}_{source}": value for name, value in measured.items()}
    return compared_maps(trace, shares, checks, probing, output)


def compared_maps(
    trace: Trace,
    shares: dict[int, HeadMap],
    checks: dict[str, float | str],
    probing: Probing,
    output: HeadOutput = "averaged",
) -> HeadMixing:
    """The result, from the share of every source in every head output."""
    kept = {stack: probing.positions(trace, stack) for stack in trace.sequences}
    compared = [_compared(trace, site, kept, shares[site.index]) for site in trace.sites]
    attention, contribution, scores = zip(*compared, strict=True)
    names = trace.token_names
    sequences = {stack: tuple(names[stack][i] for i in places) for stack, places in kept.items()}
    # Sinks, padding and special tokens take weight from rows; rows are rescaled to be compared.
    missing = max(float((local.sum(-1) - 1).abs().amax()) for local in attention)
    return build_result(
        HeadMixing,
        trace,
        "head_mixing",
        seed=probing.used_seed,
        settings={"probes": probing.probes, "output": output, "special": probing.special},
        tokens=sequences[main_stack(trace.sites)],
        checks=checks | probing.checks(attention_missing_from_rows=missing),
        attention=attention,
        contribution=contribution,
        layer=tuple(site.layer for site in trace.sites),
        stack=tuple(site.stack for site in trace.sites),
        kind=tuple(site.kind for site in trace.sites),
        sequences=sequences,
        layouts={stack: layout.at(kept[stack]) for stack, layout in trace.layouts.items()},
        **{measure: tuple(score[measure] for score in scores) for measure in scores[0]},
    )


def agreement(local: HeadMap, wide: HeadMap, reach: Bool[Tensor, "head query key"]) -> HeadScores:
    """How alike two distributions over keys are, averaged over the rows that can differ."""
    measures: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "pearson": pearson,
        "spearman": spearman,
        "jensen_shannon": lambda a, b, _: jensen_shannon(a, b) / FARTHEST,
        "total_variation": lambda a, b, _: total_variation(a, b),
    }
    a, b = contributions(local * reach), contributions(wide * reach)
    several = reach.sum(-1) > 1  # one reachable key leaves nothing to compare
    return {
        name: (measure(a, b, reach).masked_fill(~several, 0).sum(-1) / several.sum(-1)).float()
        for name, measure in measures.items()
    }


def _compared(
    trace: Trace, site: Site, kept: dict[str, list[int]], shares: Float[Tensor, "head query key"]
) -> tuple[SiteMap, SiteMap, HeadScores]:
    """The attention and the contributions of a site (steps 1 and 2), and their agreement."""
    rows, columns = kept[site.stack], kept[key_stack(site, trace.sequences)]
    local = trace.attention[site.index][:, rows][:, :, columns].cpu()
    visible = trace.visible[site.index][rows][:, columns].cpu()
    scores = agreement(to_float64(local), shares, visible | (shares > 0))  # step 3
    return local, shares.to(local.dtype), scores


def _shares(
    trace: Trace,
    source: str,
    sites: list[Site],
    kept: dict[str, list[int]],
    probing: Probing,
    output: HeadOutput,
) -> tuple[dict[int, HeadMap], dict[str, float | str]]:
    """The share of every source token in every head output of the sites, and how it was found."""
    push = push_to_heads(trace, source, [site.index for site in sites])
    probing.check(push.entry.shape[-1])
    changes = probing.changes(push.entry, kept[source])
    lengths = HeadLengths(trace, sites, kept, source, output)
    for run in push.chunks(len(changes)):
        tangents, places = changes.within(run, push.entry.detach())
        lengths.add(places, push(tangents))
    return lengths.shares(), push.checks


class HeadLengths:
    """‖J q‖² of every head's output, by query and source."""

    def __init__(
        self,
        trace: Trace,
        sites: Sequence[Site],
        kept: dict[str, list[int]],
        source: str,
        output: HeadOutput,
    ) -> None:
        self.sites, self.kept = sites, kept
        self.weights = [
            _projection(trace, site) if output == "projected" else None for site in sites
        ]
        self.squares = [
            torch.zeros(len(kept[source]), site.heads, len(kept[site.stack]), dtype=torch.float64)
            for site in sites
        ]

    def add(self, places: Tensor, pushed: Sequence[Tensor]) -> None:
        """Count what a run of tangents at these sources did at every head."""
        for number, moved in enumerate(pushed):  # (tangent, head, query, d_head)
            weight = self.weights[number]
            moved = moved if weight is None else moved @ weight
            lengths = lengths_of(moved)[:, :, self.kept[self.sites[number].stack]]
            self.squares[number].index_add_(0, places, to_float64(lengths).square().cpu())

    def shares(self) -> dict[int, HeadMap]:
        """The share of every source in every head output, by site."""
        return {
            site.index: contributions(square.permute(1, 2, 0).sqrt())
            for site, square in zip(self.sites, self.squares, strict=True)
        }


def _projection(trace: Trace, site: Site) -> Float[Tensor, "head d_head d_model"]:
    """The output projection of a site, which must be known."""
    weight = trace.output_weight(site.index)
    if weight is None:
        raise NotComputableError(
            f"The output projection of {site.module} is unknown: {site.projection_problem}. "
            'Use output="averaged".'
        )
    return weight


def hidden_and_heads(
    trace: Trace, *, probes: int, seed: int = 0
) -> tuple[HiddenAttribution, HeadMixing]:
    """What ``hidden_attribution`` and ``head_mixing`` give, for the cost of one of them."""
    trace = trace.keeping("attention", "hidden")
    if len(trace.sequences) > 1:
        return (
            hidden_attribution(trace, probes=probes, seed=seed),
            head_mixing(trace, probes=probes, seed=seed),
        )
    (stack,) = trace.sequences
    probing = Probing(probes, seed)
    probing.check(trace.stack_inputs[stack].shape[-1])
    places = probing.positions(trace, stack)
    push, layers = push_to_all(trace), len(trace.layers)
    changes = probing.changes(push.entry, places)
    at_layers = LayerLengths(push, changes, places, keep_directions=True, layers=layers)
    at_heads = HeadLengths(trace, trace.sites, {stack: places}, stack, "averaged")
    for run in push.chunks(len(changes)):
        tangents, sources = changes.within(run, push.entry.detach())
        pushed = push(tangents)
        at_layers.add(run, sources, pushed[:layers])
        at_heads.add(sources, pushed[layers:])
    checks = {f"{name}_{stack}": value for name, value in push.checks.items()}
    return (
        assembled(trace, push, probing, at_layers.norms(sketch=True), (stack, stack)),
        compared_maps(trace, at_heads.shares(), checks, probing),
    )
