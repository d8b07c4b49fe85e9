"""How much of an attention map can reach the output, and how much is only for show?

For every site and head of a trace: the effective attention (``projection.py`` has the mathematics),
the dimensions in which each row could have moved without moving the output, and how the projection
changes what people look at, such as the weight on special tokens and on the first token.

What a head passes on is T = V·W_O. Where a head's W_O has full rank, T and V span the same space,
and V is used; where it has not, V is replaced by V·U·S from W_O = U·S·Wᵀ, which has the singular
values and the column space of T and is no wider than V.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, overload
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.identifiability.projection import Convention, Measured, Projection, project
from exhibit_a.methods.identifiability.ranks import (
    Tolerance,
    singular_values,
    surely_independent,
    tolerance_for,
)
from exhibit_a.methods.registry import Cost, method, rows_of, token_method
from exhibit_a.numerics.parallel import one_thread
from exhibit_a.numerics.precision import exact_device, returned, to_float64
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import SharedValues, SiteHeads, SiteMap, SiteRows
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.guard import frozen_eval, here_only, hooked
from exhibit_a.subject.tap import Tap, shared_to_all
from exhibit_a.subject.weights import Stamp
from exhibit_a.trace.answer_rows import one_stack, readout_rows
from exhibit_a.trace.batches import alike
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target

VERDICTS = ("identifiable", "borderline", "not identifiable")
PADDING = -1  # in place of a rank or verdict, for rows of padding

ValueBias = Literal["include", "exclude"]
SiteCounts = Int[Tensor, "_head _query"]
DeficientHeads = dict[int, Float[Tensor, "_d_head _direction"]]  # U·S of the W_O of those heads

_Examined = tuple[tuple[Stamp, tuple[Site, ...]], list[DeficientHeads]]  # weights, and what of them
_known_deficient: "WeakKeyDictionary[nn.Module, _Examined]" = WeakKeyDictionary()

HeadBias = Float[Tensor, "_head _d_head"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EffectiveAttention(SiteResult):
    """Raw and effective attention of every site, and how much of each row the output determines.

    Shares of weight are of absolute weight, because effective attention has negative entries.
    """

    unit_rules: ClassVar[dict[str, Rule]] = {
        "raw": "map",
        "effective": "map",
        "rank": "smallest",
        "nullity": "largest",
        "verdict": "largest",
        "null_fraction": "mean",
        "moved": "mean",
        "rtol": "largest",
        "sequences": "names",
    }
    raw: tuple[SiteMap, ...]  # the weights of the model
    effective: tuple[SiteMap, ...]  # their part that can reach the output
    rank: tuple[SiteCounts, ...]  # of the values that the row can see
    nullity: tuple[SiteCounts, ...]  # dimensions that the output cannot show
    verdict: tuple[SiteCounts, ...]  # 0 identifiable, 1 borderline, 2 not
    null_fraction: tuple[SiteRows, ...]  # length of the null part over the length of the row
    moved: tuple[SiteRows, ...]  # half the sum of |raw − effective|
    pearson: tuple[SiteHeads, ...]  # of raw and effective weights
    special_raw: tuple[SiteHeads, ...]  # share of weight on special tokens, mean over rows
    special_effective: tuple[SiteHeads, ...]  # the same of effective weights
    first_raw: tuple[SiteHeads, ...]  # share of weight on the first token
    first_effective: tuple[SiteHeads, ...]  # the same of effective weights
    spectrum: tuple[Float[Tensor, "_head _direction"], ...]  # of the values the widest row sees
    rtol: tuple[Float[Tensor, " _query"], ...]  # of each row, over its largest singular value

    def verdict_of(self, site: int, head: int, query: int) -> str:
        """The verdict on one row, in words."""
        code = int(self.verdict[site][head, query])
        return "padding" if code == PADDING else VERDICTS[code]


@token_method(
    "effective",
    "Where does the last layer look, as far as its output shows?",
    Cost(forwards=1, algebra=1, maps=2),
    "attention",
    "values",
    "target",
    rows=True,
)
def effective_tokens(trace: Trace, target: Target) -> Float[Tensor, " token"]:
    """Effective attention of the last layer, signs dropped, in the rows the answer is read from."""
    one_stack(trace)
    last: Tensor = effective_attention(trace).effective[-1].abs().mean(0)
    return readout_rows(trace, target).to(last.dtype) @ last


@overload
def effective_attention(
    trace: Trace,
    *,
    value_bias: ValueBias = ...,
    simplex: bool = ...,
    rtol: float | None = ...,
) -> EffectiveAttention: ...


@overload
def effective_attention(
    trace: Sequence[Trace],
    *,
    value_bias: ValueBias = ...,
    simplex: bool = ...,
    rtol: float | None = ...,
) -> list[EffectiveAttention]: ...


@method(
    question="How much of attention can reach the output?",
    needs=rows_of("attention", "values"),
    cost=Cost(forwards=1, algebra=1, maps=2),
    command="effective",
)
def effective_attention(
    trace: Trace | Sequence[Trace],
    *,
    value_bias: ValueBias = "include",
    simplex: bool = False,
    rtol: float | None = None,
) -> EffectiveAttention | list[EffectiveAttention]:
    """The part of every attention map that the head's output can show.

    Several traces have a result each; those of one length share their decompositions.

    Args:
        value_bias: whether the values are used with the bias of their projection (include) or
            without it (exclude, as in the paper).
        simplex: rows must also keep their sum, which makes the bias irrelevant.
        rtol: tolerance of the rank, relative to the largest singular value; by default it follows
            from the precision of the model.

    With no more tokens than a head is wide, all of attention reaches the output:

    >>> result = xa.effective_attention(trace)
    >>> len(trace.tokens), trace.sites[0].d_head, int(result.nullity[0].amax())
    (8, 32, 0)
    >>> result.verdict_of(site=0, head=0, query=0)
    'identifiable'
    >>> longer = xa.capture(subject, "a gripping , beautifully shot film " * 8)
    >>> result = xa.effective_attention(longer)
    >>> len(longer.tokens), int(result.nullity[0].amax())
    (50, 18)
    >>> result.verdict_of(site=0, head=0, query=0)
    'not identifiable'
    """
    if rtol is not None and not 0 <= rtol < 1:
        raise BadRequestError(f"A relative tolerance lies between 0 and 1, not at {rtol}.")
    if isinstance(trace, Trace):
        return _of_several([trace], value_bias, Convention(simplex, rtol))[0]
    traces = list(trace)
    groups = [traces] if alike(traces) else [[each] for each in traces]
    convention = Convention(simplex, rtol)
    return [result for group in groups for result in _of_several(group, value_bias, convention)]


def _of_several(
    traces: Sequence[Trace], value_bias: str, convention: Convention
) -> list[EffectiveAttention]:
    """The result of one trace, or of each of several that are alike."""
    traces = [trace.keeping("attention", "values") for trace in traces]
    first = traces[0]
    biases = [observed_bias(trace) for trace in traces] if value_bias == "exclude" else []
    by_site, deficient = [], []
    for site, deficient_heads in zip(first.sites, _deficient_heads(first), strict=True):
        by_text = [trace.values[site.index] for trace in traces]
        if biases:
            by_text = [
                v - bias[site.index][:, None] for v, bias in zip(by_text, biases, strict=True)
            ]
        values = _stacked(by_text)
        passed = as_projected(values, deficient_heads)
        deficient += [(site.index, head) for head in sorted(deficient_heads)]
        by_site.append(_site_numbers(traces, site, passed, convention))
    results = []
    for place, trace in enumerate(traces):
        of_text = [sites[place] for sites in by_site]
        numbers: dict[str, Any] = {
            name: tuple(site[name] for site in of_text) for name in of_text[0]
        }
        changes = [float(change.amax()) for change in numbers.pop("change") if change.numel()]
        checks = _checks(trace, [site["rtol"] for site in of_text], deficient)
        results.append(
            build_result(
                EffectiveAttention,
                trace,
                "effective_attention",
                settings={
                    "value_bias": value_bias,
                    "simplex": convention.simplex,
                    "rtol": convention.rtol,
                },
                checks=checks | {"largest change of a head's output": max(changes, default=0.0)},
                raw=tuple(trace.attention),
                **numbers,
            )
        )
    return results


def _deficient_heads(trace: Trace) -> list[DeficientHeads]:
    """The heads of every site that W_O loses something of; weights are looked at once."""
    stamp = trace.weights, trace.sites  # a text without a picture has fewer sites
    known = _known_deficient.get(trace.model)
    if known is not None and known[0] == stamp:
        return known[1]
    weights = trace.output_weights()
    heads = [{} if weight is None else rank_deficient_projections(weight) for weight in weights]
    _known_deficient[trace.model] = (stamp, heads)
    return heads


def rank_deficient_projections(weight: Float[Tensor, "head d_head d_model"]) -> DeficientHeads:
    """The heads whose output projection has not full rank, each with its U·S."""
    exact_weight = to_float64(weight)
    finest = tolerance_for(weight.dtype, weight.shape[-1]).of(weight.shape[-2])
    with one_thread():
        full = surely_independent(exact_weight, Tolerance(0.0, weight.shape[-1], finest))
        if not bool(full.all()):
            strength = singular_values(exact_weight, finest)
            full = (strength > finest * strength[:, :1]).sum(-1) == weight.shape[1]
    deficient = {}
    for head in (~full).nonzero().flatten().tolist():
        left, strength_of_head, _ = torch.linalg.svd(exact_weight[head], full_matrices=False)
        kept = strength_of_head > finest * strength_of_head[0]
        deficient[head] = left * torch.where(kept, strength_of_head, 0)
    return deficient


def as_projected(
    values: Float[Tensor, "*batch head key d_head"], deficient: DeficientHeads
) -> Float[Tensor, "*batch head key d_head"]:
    """Values with those of the deficient heads as their output projection lets them through."""
    if not deficient:
        return values
    passed = to_float64(values)
    for head, directions in deficient.items():
        squeezed = passed[..., head, :, :] @ directions
        missing = values.shape[-1] - squeezed.shape[-1]
        passed[..., head, :, :] = torch.nn.functional.pad(squeezed, (0, missing))
    return passed


def with_padding(numbers: Tensor, real: Bool[Tensor, " query"], filler: float) -> Tensor:
    """Numbers of the real rows in their places among all rows, and ``filler`` in the others."""
    if bool(real.all()):
        return numbers
    padded = numbers.new_full((*numbers.shape[:-1], len(real)), filler)
    padded[..., real] = numbers
    return padded


def share_on(
    maps: Float[Tensor, "head query key"], *marked: Bool[Tensor, "head key"]
) -> list[Float[Tensor, "head query"]]:
    """The share of the absolute weight of every row that lies on the keys of each mark."""
    size = maps.abs()
    total = size.sum(-1).clamp_min(torch.finfo(maps.dtype).tiny)
    shares = []
    for keys in marked:
        somewhere = keys.any(0).nonzero().flatten()
        on_keys = size[..., somewhere] * keys[:, None, somewhere]
        shares.append(on_keys.sum(-1) / total)
    return shares


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of several texts as one; that of a single one is not copied."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


class _Shares:
    """What is measured of the rows of a site as they are projected, head by head."""

    def __init__(self, values: Tensor, marked: dict[str, Bool[Tensor, "head key"]]) -> None:
        self.values, self.marked = values, marked
        self.sums = {
            f"{mark}_{name}": values.new_zeros(len(values), dtype=torch.float32)
            for mark in marked
            for name in ("raw", "effective")
        }
        self.change = values.new_zeros(len(values))

    def __call__(self, rows: Measured) -> None:
        """Add the shares of some rows; note by how much their output changes."""
        marks = [keys[rows.heads, rows.span] for keys in self.marked.values()]
        for name, maps in (("raw", rows.raw), ("effective", rows.kept)):
            for mark, shares in zip(self.marked, share_on(maps, *marks), strict=True):
                self.sums[f"{mark}_{name}"][rows.heads] += shares.sum(-1)
        moved = rows.null @ self.values[rows.heads, rows.span]
        if moved.numel():
            known = self.change[rows.heads]
            torch.maximum(known, moved.abs_().amax((1, 2)), out=known)


def _site_numbers(
    traces: Sequence[Trace], site: Site, values: Tensor, convention: Convention
) -> list[dict[str, Tensor]]:
    """Everything about one site of each text; rows of padding are left as they are and marked."""
    trace, count = traces[0], len(traces)
    attention = _stacked([each.attention[site.index] for each in traces])
    visible, heads = trace.visible[site.index], attention.shape[1]
    real = trace.queries_of(site.index).real.to(attention.device)
    no_padding = bool(real.all())
    raw = attention if no_padding else attention[:, :, real]
    special = torch.stack([each.keys_of(site.index).special for each in traces])
    special = special[:, : attention.shape[-1]].to(attention.device)
    first = torch.zeros_like(special)
    first[:, int(trace.keys_of(site.index).real.long().argmax())] = True
    by_head = {
        name: keys.repeat_interleave(heads, 0)
        for name, keys in (("special", special), ("first", first))
    }
    precision = torch.promote_types(attention.dtype, torch.float32)
    losses = Losses(raw)
    seen_values = values.to(precision).to(attention.device)
    measured = _Shares(seen_values.flatten(0, 1), by_head)
    projection = project(
        raw,
        values,
        visible if no_padding else visible[real],
        replace(convention, dtype=trace.values[site.index].dtype),
        (losses, measured),
    )
    effective, lost = projection.effective, losses.of(projection)
    if not no_padding:
        effective = attention.to(projection.effective.dtype).clone()
        effective[:, :, real] = projection.effective
    doubtful = torch.where(projection.unidentifiable, 2, 1)
    verdict = torch.where(projection.identifiable, 0, doubtful)
    largest = seen_values.abs().flatten(1).amax(1).clamp_min(torch.finfo(precision).tiny)
    numbers = {
        "effective": effective,
        "rank": with_padding(projection.rank, real, PADDING),
        "nullity": with_padding(projection.nullity, real, PADDING),
        "verdict": with_padding(verdict, real, PADDING),
        "null_fraction": with_padding(lost.null_fraction, real, torch.nan),
        "moved": with_padding(lost.moved, real, torch.nan),
        "pearson": lost.pearson,
        **{name: sums.view(count, heads) / raw.shape[2] for name, sums in measured.sums.items()},
        "spectrum": projection.spectrum,
        # should be zero; in units of the values
        "change": measured.change.view(count, heads) / largest[:, None],
    }
    rtol = with_padding(returned(projection.rtol, attention.device), real, torch.nan)
    return [
        {name: number[place] for name, number in numbers.items()} | {"rtol": rtol}
        for place in range(count)
    ]


def _checks(
    trace: Trace, rtols: list[Tensor], deficient: list[tuple[int, int]]
) -> dict[str, float | str]:
    """What was assumed, and the largest tolerance with which ranks were counted."""
    tolerances = torch.cat(rtols)
    model = str(trace.values[0].dtype).removeprefix("torch.")
    products = "" if model == "float64" else ", products that allow it in float32"
    checks: dict[str, float | str] = {
        "computed in": f"float64{products}; the model in {model}",
        "tolerance of the rank": float(tolerances[~tolerances.isnan()].amax()),
    }
    unknown = [site.index for site in trace.sites if site.projection is None]
    if unknown:
        checks["output projection"] = f"not found at sites {unknown}; V stands for V·W_O there"
    if deficient:
        checks["rank-deficient W_O"] = f"V·W_O used at (site, head) {deficient}"
    return checks


@dataclass(frozen=True, eq=False)
class Lost:
    """What a projection took from its maps; heads in which no row is free lose nothing."""

    null_fraction: Float[Tensor, "*site head query"]  # length of the null part over the whole
    moved: Float[Tensor, "*site head query"]  # half the sum of |raw − effective|
    pearson: Float[Tensor, "*site head"]  # over the pairs that can see each other


class Losses:
    """A measure for ``project``: what the maps lose, from five numbers of each row.

    They are the sum and the length of the raw row a, the sum of the effective row e, and the length
    and the absolute sum of a − e, taken while the rows are in the cache.
    """

    def __init__(self, attention: Float[Tensor, "*site head query key"]) -> None:
        rows = attention.flatten(0, -3).shape[:2]
        place = exact_device(attention.device)
        self._numbers = torch.zeros(5, *rows, dtype=torch.float64, device=place)

    def __call__(self, part: Measured) -> None:
        """Note the five numbers of some rows."""
        raw, kept, null = part.raw, part.kept, part.null
        numbers = (
            raw.sum(-1),
            torch.linalg.vector_norm(raw, dim=-1),
            kept.sum(-1),
            torch.linalg.vector_norm(null, dim=-1),
            null.abs().sum(-1),
        )
        for rows, number in zip(self._numbers, numbers, strict=True):
            rows[part.heads, part.rows] = to_float64(number)

    def of(self, projection: Projection) -> Lost:
        """What the projection took, once it is done."""
        shape, place = projection.rank.shape, projection.rank.device
        raw_sum, length, kept_sum, null_length, null_sum = self._numbers.reshape(5, *shape)
        # A row times its projection is ‖row‖² − ‖null part‖², the projection's own square.
        raw, kept = length.square().sum(-1), (length.square() - null_length.square()).sum(-1)
        raw_total, kept_total = raw_sum.sum(-1), kept_sum.sum(-1)
        pairs = int(projection.keys_seen.sum())  # that can see each other
        covariance = kept - raw_total * kept_total / pairs
        variances = (raw - raw_total**2 / pairs) * (kept - kept_total**2 / pairs)
        pearson = covariance / variances.clamp_min(0).sqrt()
        free = (projection.nullity > 0).any(-1).to(pearson.device)
        return Lost(
            returned(null_length / torch.where(length > 0, length, 1.0), place),
            returned(null_sum / 2, place),
            returned(torch.where(free, pearson, 1.0), place),
        )


@torch.no_grad()
def observed_bias(trace: Trace) -> tuple[HeadBias, ...]:
    """The part of the values of every site and head that does not depend on the input.

    Values are usually a linear map of the hidden states plus a bias, but where that map is differs:
    a Linear of its own, a third of a fused one, every third slice of another. So it is observed:
    when every Linear returns what it would for an input of zeros, the values are the bias.
    """
    recorder, model = _ValueRecorder(trace), trace.model
    linear = [module for module in model.modules() if isinstance(module, nn.Linear | Conv1D)]
    with (
        frozen_eval(model),
        hooked([module.register_forward_hook(here_only(_bias_only)) for module in linear]),
        trace.subject.tapping(recorder, fused=trace.fused),
    ):
        model(**trace.inputs)
    return tuple(recorder.biases)


class _ValueRecorder(Tap):
    """Keeps the values of every site, which must be the same for every key."""

    def __init__(self, trace: Trace) -> None:
        self.sites = trace.sites
        self.biases: list[Tensor] = []

    def values(self, site: int, value: SharedValues) -> None:
        """Keep the values of the first key, if all keys agree."""
        first = value[:, :, :1]
        if not torch.allclose(
            value, first.expand_as(value), rtol=0, atol=1e-6 + 1e-4 * float(first.abs().amax())
        ):
            raise NotComputableError(
                f"The values of site {site} are not a linear map plus a bias, so there is no bias "
                'to leave out; use value_bias="include".'
            )
        self.biases.append(shared_to_all(first, self.sites[site].heads)[0, :, 0].clone())


def _bias_only(module: nn.Module, _: tuple[object, ...], output: Tensor) -> Tensor:
    """A hook that puts the output for an input of zeros in place of the output."""
    if module.bias is None:
        return torch.zeros_like(output)
    return module.bias.to(output.dtype).expand_as(output)  # type: ignore[operator]
