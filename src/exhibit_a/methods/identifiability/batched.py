"""What is left to say of effective attention when only its summary is wanted, for many texts?

Texts of one length share a batch, and each attention call is summed up while the model runs, so
that no map outlives its layer. For every text and head the numbers are those of
``effective_attention``, averaged over rows:

1. Heads whose values are independent beyond doubt (``ranks.surely_independent``) lose nothing:
   their effective attention is their attention. Short texts are nearly all of this kind, and cost
   no decomposition.
2. All other heads of all texts are projected together (``projection.project``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.methods.identifiability.effective import (
    as_projected,
    rank_deficient_projections,
    share_on,
)
from exhibit_a.methods.identifiability.freedom import degrees_of_freedom
from exhibit_a.methods.identifiability.projection import project
from exhibit_a.methods.identifiability.ranks import surely_independent, tolerance_for
from exhibit_a.shapes import Attention, Values, Visible
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap, shared_to_all

HeadNumbers = Float[Tensor, "batch _head"]


@dataclass(frozen=True)
class Convention:
    """What counts as the values, and how small is zero; as for ``effective_attention``."""

    simplex: bool = False
    rtol: float | None = None


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
    # A column of ones only adds to the singular values that are not the largest; the spectrum is
    # looked at instead of guessed.
    safe = surely_independent(values[..., seen, :], tolerance) & (not convention.simplex)
    keys = visible.sum(-1).to(torch.float64).mean()
    numbers = {
        "rank": keys.expand(safe.shape),
        "nullity": torch.zeros(safe.shape, dtype=torch.float64),
        "null_fraction": torch.zeros(safe.shape, dtype=torch.float64),
        "moved": torch.zeros(safe.shape, dtype=torch.float64),
        "pearson": torch.ones(safe.shape, dtype=torch.float64),
        "identifiable": torch.ones(safe.shape, dtype=torch.float64),
        "borderline": torch.zeros(safe.shape, dtype=torch.float64),
    }
    numbers = {name: part.to(attention.device, copy=True) for name, part in numbers.items()}
    if bool(safe.all()):
        return numbers, attention
    rest = ~safe
    shown = project(
        attention[rest],
        values[rest],
        visible,
        simplex=convention.simplex,
        rtol=convention.rtol,
        dtype=precision,
    )
    sure, doubtful = shown.identifiable, ~shown.identifiable & ~shown.unidentifiable
    found = {
        "rank": shown.rank,
        "nullity": shown.nullity,
        "null_fraction": shown.null_fraction,
        "moved": shown.moved,
        "identifiable": sure,
        "borderline": doubtful,
    }
    for name, part in found.items():
        numbers[name][rest] = part.to(torch.float64).mean(-1)
    numbers["pearson"][rest] = shown.pearson
    effective = attention.to(shown.effective.dtype).clone()
    effective[rest] = shown.effective
    return numbers, effective


@dataclass(eq=False)
class EffectiveSummary(Tap):
    """Sums up every attention call of a pass over texts of one length."""

    special: Bool[Tensor, "batch key"]
    narrow: Sequence[Mapping[int, Tensor]]  # of every site
    convention: Convention = field(default_factory=Convention)
    keep_maps: bool = False
    numbers: list[dict[str, HeadNumbers]] = field(default_factory=list)
    maps: list[Attention] = field(default_factory=list)

    def weighting(self, call: AttentionCall) -> None:
        """Sum the call up."""
        passed = as_projected(call.values, dict(self.narrow[call.site]))
        visible = seen_by_all(call)
        found, effective = effective_statistics(
            call.probs, passed, visible, self.convention, call.value.dtype
        )
        marks = {"special": self.special, "first": torch.zeros_like(self.special)}
        marks["first"][:, 0] = True
        for kind, marked in marks.items():
            found[f"{kind}_raw"] = share_on(marked, call.probs)
            same = effective is call.probs
            found[f"{kind}_effective"] = (
                found[f"{kind}_raw"] if same else share_on(marked, effective)
            )
        self.numbers.append(found)
        if self.keep_maps:
            self.maps.append(effective)


@dataclass(eq=False)
class FreedomSummary(Tap):
    """Counts, for every attention call, in how many ways its rows could have been different."""

    numbers: list[dict[str, HeadNumbers]] = field(default_factory=list)

    def weighting(self, call: AttentionCall) -> None:
        """Count the call: means over rows, and the share of rows that are the only ones."""
        heads = call.probs.shape[1]
        keys = None if call.key is None else shared_to_all(call.key, heads).flatten(0, 1)
        found = degrees_of_freedom(
            call.probs.flatten(0, 1), call.values.flatten(0, 1), keys, seen_by_all(call)
        )
        counts = {
            name: part.double().mean(-1).unflatten(0, call.probs.shape[:2])
            for name in ("same_output", "same_sum", "not_negative", "generated", "reach")
            if (part := getattr(found, name)) is not None
        }
        unique = {
            f"unique_{name}": (getattr(found, name) == 0)
            .double()
            .mean(-1)
            .unflatten(0, call.probs.shape[:2])
            for name in counts
            if name != "reach"
        }
        self.numbers.append(counts | unique)


def seen_by_all(call: AttentionCall) -> Visible:
    """The mask of a call whose texts all have one length and no padding."""
    rows, columns = call.probs.shape[-2:]
    if call.visible is None:
        return torch.ones(rows, columns, dtype=torch.bool, device=call.probs.device)
    return call.visible[0].any(0).expand(rows, columns)


def rank_deficient_sites(subject: Subject) -> list[dict[int, Tensor]]:
    """The heads of every site whose output projection loses something, and what it keeps."""
    weights = [subject.output_weight(site.index) for site in subject.anatomy.sites]
    return [{} if weight is None else rank_deficient_projections(weight) for weight in weights]
