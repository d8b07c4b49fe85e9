"""How much of an attention map can reach the output, and how much is only for show?

For every site and head of a trace: the effective attention (``projection.py`` has the mathematics),
the dimensions in which each row could have moved unseen, and what the projection does to the
pictures people look at, such as the weight on special tokens and on the first token.

What a head passes on is T = V·W_O. Where a head's W_O has full rank, T and V span the same space,
and V is used; where it has not, V is replaced by V·U·S from W_O = U·S·Wᵀ, which has the singular
values and the column space of T and is no wider than V.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.explanation.flow import readout, require_one_stack
from exhibit_a.methods.identifiability.projection import project
from exhibit_a.methods.identifiability.ranks import singular_values
from exhibit_a.methods.identifiability.value_bias import value_bias as observed_bias
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.parallel import one_thread
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf
from exhibit_a.shapes import SiteHeads, SiteMap, SiteRows
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.provenance import provenance
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target

VERDICTS = ("identifiable", "borderline", "not identifiable")
PADDING = -1  # in place of a rank or verdict, for rows that are no text

SiteCounts = Int[Tensor, "_head _query"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EffectiveAttention(Result):
    """Raw and effective attention of every site, row by row how much the output can tell.

    Shares of weight are of absolute weight, because effective attention has negative entries.
    """

    raw: tuple[SiteMap, ...]
    effective: tuple[SiteMap, ...]
    rank: tuple[SiteCounts, ...]
    nullity: tuple[SiteCounts, ...]
    verdict: tuple[SiteCounts, ...]  # 0 identifiable, 1 borderline, 2 not
    null_fraction: tuple[SiteRows, ...]  # length of the null part over the length of the row
    moved: tuple[SiteRows, ...]  # half the sum of |raw − effective|
    pearson: tuple[SiteHeads, ...]
    special_raw: tuple[SiteHeads, ...]  # share of weight on special tokens, mean over rows
    special_effective: tuple[SiteHeads, ...]
    first_raw: tuple[SiteHeads, ...]  # share of weight on the first token
    first_effective: tuple[SiteHeads, ...]
    spectrum: tuple[Float[Tensor, "_head _direction"], ...]  # of the values the widest row sees
    rtol: tuple[Float[Tensor, " _query"], ...]  # of each row, relative to its largest value
    sites: tuple[Site, ...]
    sequences: dict[str, tuple[str, ...]]

    def verdict_of(self, site: int, head: int, query: int) -> str:
        """The verdict on one row, in words."""
        code = int(self.verdict[site][head, query])
        return "padding" if code == PADDING else VERDICTS[code]

    def tokens_of(self, site: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tokens along the queries and along the keys of a site."""
        here = self.sites[site]
        other = next((name for name in self.sequences if name != here.stack), here.stack)
        return self.sequences[here.stack], self.sequences[
            here.stack if here.kind == "self" else other
        ]

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """The tokens along the axes of one site."""
        queries, keys = self.tokens_of(leaf.where["site"])
        named = {"query": queries, "key": keys}
        return {axis: named[axis] for axis in leaf.dims if axis in named}


ValueBias = Literal["include", "exclude"]


@method(
    name="effective",
    gives="tokens",
    question="Where does the last layer look, as far as its output shows?",
    room="identifiability",
    needs=("attention", "values", "target"),
    cost=Cost(forwards=3, algebra=1, maps=3),
)
def effective_tokens(trace: Trace, target: Target) -> Float[Tensor, " token"]:
    """Effective attention of the last layer, signs dropped, in the rows the answer is read from."""
    require_one_stack(trace)
    last: Tensor = effective_attention(trace).effective[-1].abs().mean(0)
    return readout(trace, target) @ last


@method(
    question="How much of attention can reach the output?",
    room="identifiability",
    needs=("attention", "values"),
    cost=Cost(forwards=1, algebra=1, maps=3),
    command="effective",
)
def effective_attention(
    trace: Trace,
    *,
    value_bias: ValueBias = "include",
    simplex: bool = False,
    rtol: float | None = None,
) -> EffectiveAttention:
    """The part of every attention map that the head's output can show.

    ``value_bias="exclude"`` takes the bias out of the values first (the paper's T = E·W_V·H);
    ``simplex=True`` also demands that rows keep their sum, which makes the bias irrelevant.
    ``rtol`` replaces the tolerance of the rank, relative to the largest singular value.
    """
    if rtol is not None and not 0 <= rtol < 1:
        raise BadRequestError(f"A relative tolerance lies between 0 and 1, not at {rtol}.")
    trace = trace.keeping("attention", "values")
    biases = observed_bias(trace) if value_bias == "exclude" else None
    found, deficient, changes = [], [], []
    for site in trace.sites:
        values = trace.values[site.index]
        if biases is not None:
            values = values - biases[site.index].unsqueeze(1)
        passed, lacking = passed_on(values, trace.output_weight(site.index))
        deficient += [(site.index, head) for head in lacking]
        found.append(_examined(trace, site, passed, simplex, rtol))
        changes.append(_change(trace.attention[site.index], found[-1]["effective"], passed))
    subject = trace.subject
    return EffectiveAttention(
        tokens=trace.tokens,
        provenance=provenance(
            subject.name,
            "effective_attention",
            subject.revision,
            value_bias=value_bias,
            simplex=simplex,
            rtol=rtol,
        ),
        checks=_checks(trace, found, deficient)
        | {"largest change of a head's output": max(changes)},
        raw=trace.attention,
        sites=trace.sites,
        sequences={name: sequence.tokens for name, sequence in trace.sequences.items()},
        **{name: tuple(one[name] for one in found) for name in found[0]},
    )


def passed_on(
    values: Float[Tensor, "head key d_head"], weight: Float[Tensor, "head d_head d_model"] | None
) -> tuple[Float[Tensor, "head key d_head"], list[int]]:
    """Values as the output projection lets them through, and the heads where it does not all."""
    if weight is None:
        return values, []
    narrow = rank_deficient_projections(weight)
    return as_projected(values, narrow), sorted(narrow)


def rank_deficient_projections(
    weight: Float[Tensor, "head d_head d_model"],
) -> dict[int, Float[Tensor, "d_head _direction"]]:
    """U·S of the output projection of every head whose projection has not full rank."""
    exact, finest = weight.double(), max(weight.shape[-2:]) * torch.finfo(weight.dtype).eps
    with one_thread():
        strength = singular_values(exact, finest)
    full = (strength > finest * strength[:, :1]).sum(-1) == weight.shape[1]
    found = {}
    for head in (~full).nonzero().flatten().tolist():
        left, strong, _ = torch.linalg.svd(exact[head], full_matrices=False)
        found[head] = left * torch.where(strong > finest * strong[0], strong, 0)
    return found


def as_projected(
    values: Float[Tensor, "*batch head key d_head"], narrow: dict[int, Tensor]
) -> Float[Tensor, "*batch head key d_head"]:
    """Values with those of some heads as their output projection lets them through."""
    if not narrow:
        return values
    passed = values.double()
    for head, shown in narrow.items():
        squeezed = passed[..., head, :, :] @ shown
        missing = values.shape[-1] - squeezed.shape[-1]
        passed[..., head, :, :] = torch.nn.functional.pad(squeezed, (0, missing))
    return passed


def _examined(
    trace: Trace, site: Site, values: Tensor, simplex: bool, rtol: float | None
) -> dict[str, Tensor]:
    """Everything about one site; rows of padding are left as they are and marked."""
    attention, visible = trace.attention[site.index], trace.visible[site.index]
    queries, keys = trace.queries_of(site.index), trace.keys_of(site.index)
    rows = queries.real.to(attention.device)
    whole = bool(rows.all())
    raw = attention if whole else attention[:, rows]
    shown = project(
        raw,
        values,
        visible if whole else visible[rows],
        simplex=simplex,
        rtol=rtol,
        dtype=trace.values[site.index].dtype,
    )
    effective = shown.effective
    if not whole:
        effective = attention.to(shown.effective.dtype).clone()
        effective[:, rows] = shown.effective
    doubtful = torch.where(shown.unidentifiable, 2, 1)
    verdict = torch.where(shown.identifiable, 0, doubtful)
    special = keys.special[: attention.shape[-1]].to(attention.device)
    first = torch.zeros_like(special)
    first[int(keys.real.long().argmax())] = True
    return {
        "effective": effective,
        "rank": _placed(shown.rank, rows, PADDING),
        "nullity": _placed(shown.nullity, rows, PADDING),
        "verdict": _placed(verdict, rows, PADDING),
        "null_fraction": _placed(shown.null_fraction, rows, torch.nan),
        "moved": _placed(shown.moved, rows, torch.nan),
        "pearson": shown.pearson,
        **{
            f"{kind}_{name}": share_on(marked, maps)
            for name, maps in (("raw", raw), ("effective", shown.effective))
            for kind, marked in (("special", special), ("first", first))
        },
        "spectrum": shown.spectrum,
        "rtol": _placed(shown.rtol.to(attention.device), rows, torch.nan),
    }


def _placed(part: Tensor, rows: Bool[Tensor, " query"], filler: float) -> Tensor:
    """Numbers of real rows in their places among all rows."""
    if bool(rows.all()):
        return part
    spread = part.new_full((*part.shape[:-1], len(rows)), filler)
    spread[..., rows] = part
    return spread


def share_on(
    marked: Bool[Tensor, "*batch key"], maps: Float[Tensor, "*batch head query key"]
) -> Float[Tensor, "*batch head"]:
    """The mean over rows of the share of absolute weight on the marked keys."""
    size = maps.abs()
    total = size.sum(-1).clamp_min(torch.finfo(maps.dtype).tiny)
    there = (size @ marked.to(maps.dtype)[..., None, :, None]).squeeze(-1)
    return (there / total).mean(-1)


def _change(raw: Tensor, effective: Tensor, values: Tensor) -> float:
    """How far the promise is broken that the output does not change, in units of the values."""
    values = values.to(effective.dtype)
    moved = (effective - raw) @ values
    return float(moved.abs().amax() / values.abs().amax().clamp_min(torch.finfo(values.dtype).tiny))


def _checks(
    trace: Trace, found: list[dict[str, Tensor]], deficient: list[tuple[int, int]]
) -> dict[str, Any]:
    """What was assumed, and how finely ranks were told apart."""
    rtols = torch.cat([one["rtol"] for one in found])
    checks: dict[str, Any] = {
        "parity": trace.subject.anatomy.parity,
        "computed in": f"float64; the model in {str(trace.values[0].dtype).removeprefix('torch.')}",
        "tolerance of the rank": float(rtols[~rtols.isnan()].amax()),
    }
    lost = [site.index for site in trace.sites if site.projection is None]
    if lost:
        checks["output projection"] = f"not found at sites {lost}; V stands for V·W_O there"
    if deficient:
        checks["rank-deficient W_O"] = f"V·W_O used at (site, head) {deficient}"
    return checks
