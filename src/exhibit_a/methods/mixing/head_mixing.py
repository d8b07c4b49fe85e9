"""Does a head take from the tokens it looks at?

An attention row says which *hidden vectors* a head averages. By the time they reach a deeper layer
those vectors are mixtures, so the row need not say which *input tokens* the head's output comes
from (Pascual et al., EACL 2021). Here the two are put side by side for every head:

1. local: the attention row of query j, over keys;
2. global: ‖∂c_j/∂x_i‖ for the head's output c_j, as shares of a whole, over input tokens i;
3. they are compared row by row over the positions that either of them can reach, and averaged.

The head's output is what it averaged, or what its rows of the output projection make of that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.mixing.hidden_attribution import contributions
from exhibit_a.methods.mixing.pushforward import (
    Changes,
    check_probes,
    lengths_of,
    positions,
    push_to_heads,
)
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.correlation import pearson, spearman
from exhibit_a.numerics.distances import FARTHEST, jensen_shannon, total_variation
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.shapes import SiteHeads, SiteMap
from exhibit_a.subject.anatomy import Site, key_stack
from exhibit_a.subject.provenance import provenance
from exhibit_a.trace.capture import Trace

if TYPE_CHECKING:
    pass

HeadOutput = Literal["averaged", "projected"]

Rows = Float[Tensor, "*any key"]
Reach = Bool[Tensor, "*any key"]
RowScores = Float[Tensor, "*any"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadMixing(Result):
    """Attention and input contribution of every head, and how far they agree."""

    attention: tuple[SiteMap, ...]
    contribution: tuple[SiteMap, ...]
    pearson: tuple[SiteHeads, ...]  # 1: the head takes from where it looks
    spearman: tuple[SiteHeads, ...]
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
        site = leaf.where["site"]
        own = self.stack[site]
        others = (stack for stack in self.sequences if stack != own)
        keys = own if self.kind[site] == "self" else next(others, own)
        return {"query": self.sequences[own], "key": self.sequences[keys]}


@method(
    question="Does a head take from the tokens it looks at?",
    room="mixing",
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
    """Attention of every head against what its output owes to the input tokens.

    ``output="projected"`` measures the head's output after its part of the output projection.
    Cross-attention is compared with the input of the other stack. Padding is left out; so are
    special tokens with ``special=False``.
    """
    trace = trace.keeping("attention", "hidden")
    kept = {name: positions(trace, name, special) for name in trace.sequences}
    found: dict[int, Tensor] = {}
    checks: dict[str, float | str | int] = {}
    for source in trace.sequences:
        sites = [s for s in trace.sites if key_stack(s, trace.sequences) == source]
        if sites:
            maps, measured = _contributions(trace, source, sites, kept, (probes, seed, output))
            found |= maps
            checks |= {f"{name}_{source}": value for name, value in measured.items()}
    attention, contribution, scores = [], [], []
    for index, site in enumerate(trace.sites):
        rows, columns = kept[site.stack], kept[key_stack(site, trace.sequences)]
        local = trace.attention[index][:, rows][:, :, columns].cpu()
        visible = trace.visible[index][rows][:, columns].cpu()
        scores.append(agreement(local.double(), found[index], visible | (found[index] > 0)))
        attention.append(local)
        contribution.append(found[index].to(local.dtype))
    sums = max(float((part.sum(-1) - 1).abs().amax()) for part in attention)
    names = {
        name: tuple(part.tokens[i] for i in kept[name]) for name, part in trace.sequences.items()
    }
    return HeadMixing(
        tokens=names[trace.sites[0].stack],
        provenance=provenance(
            trace.subject.name,
            "head_mixing",
            trace.subject.revision,
            None if probes is None else seed,
            probes=probes,
            output=output,
            special=special,
        ),
        checks=checks
        | {
            "probes": "all" if probes is None else probes,
            "attention_missing_from_rows": sums,  # sinks, padding or special tokens: rows rescaled
            "padding": "excluded",
            "special_tokens": "kept" if special else "excluded",
        },
        attention=tuple(attention),
        contribution=tuple(contribution),
        pearson=tuple(part["pearson"] for part in scores),
        spearman=tuple(part["spearman"] for part in scores),
        jensen_shannon=tuple(part["jensen_shannon"] for part in scores),
        total_variation=tuple(part["total_variation"] for part in scores),
        layer=tuple(site.layer for site in trace.sites),
        stack=tuple(site.stack for site in trace.sites),
        kind=tuple(site.kind for site in trace.sites),
        sequences=names,
    )


def agreement(
    local: Float[Tensor, "head query key"],
    wide: Float[Tensor, "head query key"],
    reach: Bool[Tensor, "head query key"],
) -> dict[str, Float[Tensor, " head"]]:
    """How alike two distributions over keys are, averaged over the rows that can differ."""
    measures: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "pearson": pearson,
        "spearman": spearman,
        "jensen_shannon": lambda a, b, _: jensen_shannon(a, b) / FARTHEST,
        "total_variation": lambda a, b, _: total_variation(a, b),
    }
    a, b = contributions(local * reach), contributions(wide * reach)
    telling = reach.sum(-1) > 1  # one reachable key leaves nothing to compare
    return {
        name: (measure(a, b, reach).masked_fill(~telling, 0).sum(-1) / telling.sum(-1)).float()
        for name, measure in measures.items()
    }


def _contributions(
    trace: Trace,
    source: str,
    sites: list[Site],
    kept: dict[str, list[int]],
    how: tuple[int | None, int, str],
) -> tuple[dict[int, Tensor], dict[str, float | str]]:
    """The share of every source token in every head output of the sites, in one sweep."""
    probes, seed, output = how
    push = push_to_heads(trace, source, [site.index for site in sites])
    check_probes(probes, push.entry.shape[-1])
    changes = Changes.unit(push.entry, kept[source], probes, seed)
    weights = [_projection(trace, site) if output == "projected" else None for site in sites]
    squares = [
        torch.zeros(len(kept[source]), site.heads, len(kept[site.stack]), dtype=torch.float64)
        for site in sites
    ]
    for run in push.chunks(len(changes)):
        tangents, places = changes.within(run, push.entry.detach())
        for number, part in enumerate(push(tangents)):  # (tangent, head, query, d_head)
            weight = weights[number]
            moved = part if weight is None else part @ weight
            lengths = lengths_of(moved)[:, :, kept[sites[number].stack]]
            squares[number].index_add_(0, places, lengths.double().square().cpu())
    shares = {
        site.index: contributions(square.permute(1, 2, 0).sqrt())
        for site, square in zip(sites, squares, strict=True)
    }
    return shares, push.checks


def _projection(trace: Trace, site: Site) -> Tensor:
    weight = trace.output_weight(site.index)
    if weight is None:
        raise NotComputableError(
            f"The output projection of {site.module} is unknown: {site.projection_problem}. "
            'Use output="averaged".'
        )
    return weight
