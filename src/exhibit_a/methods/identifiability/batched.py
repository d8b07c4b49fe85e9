"""How are effective attention and identifiability measured on a whole corpus?

These are the batched forms of ``effective_attention`` and ``attention_identifiability``. A batch
holds texts of one length without padding, and each attention call is summarised while the model
runs, so that no map outlives its layer. For every text and head the numbers are those of the method
on that text alone, averaged over rows.

The effective attention of a call is found in two steps:

1. Heads whose values are independent beyond doubt (``ranks.surely_independent``) lose nothing:
   their effective attention is their attention. Short texts are nearly all of this kind, and cost
   no decomposition.
2. All other heads of all texts are projected together (``projection.project``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.methods.identifiability.effective import (
    DeficientHeads,
    as_projected,
    rank_deficient_projections,
    share_on,
)
from exhibit_a.methods.identifiability.freedom import degrees_of_freedom
from exhibit_a.methods.identifiability.losses import Losses
from exhibit_a.methods.identifiability.projection import Convention, project
from exhibit_a.methods.identifiability.ranks import surely_independent, tolerance_for
from exhibit_a.numerics.precision import exact_device, to_float64
from exhibit_a.shapes import Attention, Values, Visible
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap, shared_to_all

HeadNumbers = Float[Tensor, "batch _head"]


def effective_statistics(
    attention: Attention,
    values: Values,
    visible: Bool[Tensor, "query key"],
    convention: Convention,
    dtype: torch.dtype | None = None,
) -> tuple[dict[str, HeadNumbers], Attention]:
    """Numbers of every text and head, and the effective attention; no row may be padding.

    ``dtype`` is the precision the model computed the values in, where it is not their own.
    """
    precision = dtype or values.dtype
    width = values.shape[-1] + convention.simplex
    seen = visible.any(0)
    tolerance = tolerance_for(precision, width, convention.rtol)
    # A column of ones can raise the largest singular value, and with it the tolerance: with
    # ``simplex`` no head is sure.
    safe = surely_independent(values[..., seen, :], tolerance) & (not convention.simplex)
    safe = safe.to(exact_device(attention.device))
    numbers = _nothing_lost(safe.shape, visible)  # step 1
    if bool(safe.all()):
        return numbers, attention
    rest = ~safe
    losses, convention = Losses(attention[rest]), replace(convention, dtype=precision)
    projection = project(attention[rest], values[rest], visible, convention, [losses])  # step 2
    lost = losses.of(projection)
    by_row = {
        "rank": projection.rank,
        "nullity": projection.nullity,
        "null_fraction": lost.null_fraction,
        "moved": lost.moved,
        "identifiable": projection.identifiable,
        "borderline": ~projection.identifiable & ~projection.unidentifiable,
    }
    for name, rows in by_row.items():
        numbers[name][rest] = to_float64(rows).mean(-1)
    numbers["pearson"][rest] = to_float64(lost.pearson)
    effective = attention.to(projection.effective.dtype).clone()
    effective[rest] = projection.effective
    return numbers, effective


@dataclass(eq=False)
class EffectiveSummary(Tap):
    """Summarises the effective attention of every call in a pass over texts of one length."""

    special: Bool[Tensor, "batch key"]
    deficient: Sequence[DeficientHeads]  # of every site
    convention: Convention = field(default_factory=Convention)
    keep_maps: bool = False
    numbers: list[dict[str, HeadNumbers]] = field(default_factory=list)
    maps: list[Attention] = field(default_factory=list)

    def weighting(self, call: AttentionCall) -> None:
        """Summarise the call."""
        passed = as_projected(call.values, self.deficient[call.site])
        visible = seen_by_all(call)
        numbers, effective = effective_statistics(
            call.probs, passed, visible, self.convention, call.value.dtype
        )
        first = torch.zeros_like(self.special)
        first[:, 0] = True
        marks = (self.special, first)
        raw = [shares.mean(-1) for shares in share_on(call.probs, *marks)]
        kept = raw
        if effective is not call.probs:
            kept = [shares.mean(-1) for shares in share_on(effective, *marks)]
        numbers |= {"special_raw": raw[0], "first_raw": raw[1]}
        numbers |= {"special_effective": kept[0], "first_effective": kept[1]}
        self.numbers.append(numbers)
        if self.keep_maps:
            self.maps.append(effective)


@dataclass(eq=False)
class FreedomSummary(Tap):
    """Summarises in how many ways the rows of every call could have been different."""

    numbers: list[dict[str, HeadNumbers]] = field(default_factory=list)

    def weighting(self, call: AttentionCall) -> None:
        """Count the call: means over rows, and the share of rows that are unique."""
        texts_and_heads = call.probs.shape[:2]
        keys = None if call.key is None else shared_to_all(call.key, call.probs.shape[1])
        freedom = degrees_of_freedom(
            call.probs.flatten(0, 1),
            call.values.flatten(0, 1),
            None if keys is None else keys.flatten(0, 1),
            seen_by_all(call),
        )
        counts = {
            name: rows.unflatten(0, texts_and_heads)
            for name in ("same_output", "same_sum", "not_negative", "generated", "reach")
            if (rows := getattr(freedom, name)) is not None
        }
        means = {name: to_float64(rows).mean(-1) for name, rows in counts.items()}
        unique = {
            f"unique_{name}": to_float64(rows == 0).mean(-1)
            for name, rows in counts.items()
            if name != "reach"
        }
        self.numbers.append(means | unique)


def seen_by_all(call: AttentionCall) -> Visible:
    """The mask of a call whose texts all have one length and no padding."""
    rows, columns = call.probs.shape[-2:]
    if call.visible is None:
        return torch.ones(rows, columns, dtype=torch.bool, device=call.probs.device)
    return call.visible[0].any(0).expand(rows, columns)


def rank_deficient_sites(subject: Subject) -> list[DeficientHeads]:
    """The heads of every site whose output projection has not full rank, for `EffectiveSummary`."""
    weights = [subject.output_weight(site.index) for site in subject.anatomy.sites]
    return [{} if weight is None else rank_deficient_projections(weight) for weight in weights]


def _nothing_lost(shape: torch.Size, visible: Visible) -> dict[str, HeadNumbers]:
    """The numbers of heads whose effective attention is their attention."""
    place = exact_device(visible.device)
    zero = torch.zeros(shape, dtype=torch.float64, device=place)
    return {
        "rank": zero + to_float64(visible.sum(-1)).mean(),
        "nullity": zero.clone(),
        "null_fraction": zero.clone(),
        "moved": zero.clone(),
        "pearson": zero + 1,
        "identifiable": zero + 1,
        "borderline": zero,
    }
