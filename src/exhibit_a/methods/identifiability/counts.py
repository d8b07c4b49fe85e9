"""Was this attention the only one possible, and from which length on is it not?

``attention_identifiability`` counts the dimensions in which every row of a trace could have moved:
with the same output; and the same sum; and no negative weight; and as the model's own keys could
have produced it (``freedom.py`` has the mathematics; Brunner et al., 2020; Bhardwaj et al., 2021).
``identifiability_by_length`` asks the first question for growing prefixes of one text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.identifiability.effective import (
    PADDING,
    EffectiveAttention,
    effective_attention,
)
from exhibit_a.methods.identifiability.freedom import Freedom, degrees_of_freedom
from exhibit_a.methods.registry import Cost, method
from exhibit_a.results.result import Result
from exhibit_a.shapes import SiteRows
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.capture import Trace, capture

if TYPE_CHECKING:
    pass

DEMANDS = ("same output", "same sum", "not negative", "own keys")
SHORTEST = 4  # tokens; below, a text is all special tokens

SiteCounts = Int[Tensor, "_head _query"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AttentionIdentifiability(Result):
    """Dimensions left to every row under each demand; −1 marks rows of padding."""

    same_output: tuple[SiteCounts, ...]
    same_sum: tuple[SiteCounts, ...]
    not_negative: tuple[SiteCounts, ...]
    generated: tuple[SiteCounts | None, ...]  # None where keys cannot be seen
    reach: tuple[SiteCounts | None, ...]  # dimensions in which the keys can move the row
    visibility: tuple[SiteRows | None, ...]  # least visible such move over the most visible one
    sites: tuple[Site, ...]

    def unique(self, site: int) -> Float[Tensor, " demand"]:
        """The share of rows that are the only ones possible, under each demand that was counted."""
        demands = (self.same_output, self.same_sum, self.not_negative, self.generated)
        counted = [part for demand in demands if (part := demand[site]) is not None]
        return torch.stack([(part[part >= 0] == 0).double().mean() for part in counted])


@method(
    question="Was this attention the only one possible?",
    room="identifiability",
    needs=("attention", "values", "keys"),
    cost=Cost(forwards=1, algebra=29, maps=2),
)
def attention_identifiability(trace: Trace) -> AttentionIdentifiability:
    """Count in how many ways every attention row could have been different, under four demands."""
    trace = trace.keeping("attention", "values", "keys")
    found = [_counted(trace, site) for site in trace.sites]
    blind = [site.index for site, one in zip(trace.sites, found, strict=True) if not one.keyed]
    checks: dict[str, Any] = {
        "parity": trace.subject.anatomy.parity,
        "computed in": f"float64; the model in {str(trace.values[0].dtype).removeprefix('torch.')}",
        "key-aware count": "local: about small moves of the query vector",
    }
    if blind:
        checks["keys"] = f"not seen at sites {blind}; the key-aware count is missing there"
    subject = trace.subject
    counts: dict[str, Any] = {
        name: tuple(one.rows(name) for one in found) for name in Freedom.__dataclass_fields__
    }
    return AttentionIdentifiability(
        tokens=trace.tokens,
        provenance=provenance(subject.name, "attention_identifiability", subject.revision),
        checks=checks,
        sites=trace.sites,
        **counts,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IdentifiabilityByLength(Result):
    """What happens to attention as one text gets longer: means over the heads of every site."""

    lengths: tuple[int, ...]
    pearson: Float[Tensor, "length site"]
    null_fraction: Float[Tensor, "length site"]
    nullity: Float[Tensor, "length site"]
    special_raw: Float[Tensor, "length site"]
    special_effective: Float[Tensor, "length site"]
    first_raw: Float[Tensor, "length site"]
    first_effective: Float[Tensor, "length site"]
    d_head: tuple[int, ...]  # of every site


@method(
    question="From which length on is it not?",
    room="identifiability",
    needs=("text",),
    cost=Cost(forwards=24, maps=3),
)
def identifiability_by_length(
    subject: Subject, text: str, *, lengths: Sequence[int] | None = None
) -> IdentifiabilityByLength:
    """Raw against effective attention for growing beginnings of ``text``.

    Without ``lengths``: steps up to the whole text or the model's limit, and the two lengths around
    the width of the heads, where the null space begins.
    """
    available = _available(subject, text)
    if available < SHORTEST:
        raise BadRequestError(
            f"The text is too short to be cut: it has {available} tokens, and beginnings have "
            f"{SHORTEST} or more. Give a longer one."
        )
    asked = _steps(subject, available) if lengths is None else sorted(set(lengths))
    beyond = [n for n in asked if not SHORTEST <= n <= available]
    if beyond or not asked:
        raise BadRequestError(
            f"The text can be cut to {SHORTEST} to {available} tokens; "
            f"{beyond[0] if beyond else 'nothing'} was asked for."
        )
    found = [effective_attention(_beginning(subject, text, n)) for n in asked]
    widths = tuple(site.d_head for site in found[-1].sites)
    checks: dict[str, Any] = {
        "parity": subject.anatomy.parity,
        "largest change of a head's output": max(
            one.checks["largest change of a head's output"] for one in found
        ),
    }
    if available <= min(widths):
        checks["too short"] = f"the text has {available} tokens, the heads are {min(widths)} wide"
    return IdentifiabilityByLength(
        tokens=found[-1].tokens,
        provenance=provenance(
            subject.name, "identifiability_by_length", subject.revision, lengths=list(asked)
        ),
        checks=checks,
        lengths=tuple(len(one.tokens or ()) for one in found),
        d_head=widths,
        **{name: torch.stack([_by_site(one, name) for one in found]) for name in _SHOWN},
    )


_SHOWN = (
    "pearson",
    "null_fraction",
    "nullity",
    "special_raw",
    "special_effective",
    "first_raw",
    "first_effective",
)


def _by_site(result: EffectiveAttention, name: str) -> Float[Tensor, " site"]:
    """The mean over heads, and over real rows where there are rows, of every site."""
    means = []
    for part in getattr(result, name):
        numbers = part.double()
        means.append(numbers[(numbers != PADDING) & ~numbers.isnan()].mean())
    return torch.stack(means)


def _available(subject: Subject, text: str) -> int:
    inputs = subject.encode(text, truncate=True)
    if "input_ids" not in inputs or subject.tokenizer is None:
        raise BadRequestError("Lengths are of texts, and this model takes something else.")
    return int(inputs["input_ids"].shape[1])


def _steps(subject: Subject, available: int) -> list[int]:
    """A dozen lengths up to what there is, and those around the width of the heads."""
    even = torch.linspace(min(8, available), available, 12).round().long().tolist()
    widths = {site.d_head for site in subject.anatomy.sites}
    edges = {edge for width in widths for edge in (width, width + 1)}
    return sorted({n for n in {*even, *edges} if SHORTEST <= n <= available})


def _beginning(subject: Subject, text: str, length: int) -> Trace:
    """A trace of the text cut to ``length`` tokens, with the special tokens it always has."""
    cut = subject.tokenizer(
        text, return_tensors="pt", truncation=True, max_length=length, verbose=False
    )
    inputs = {name: part.to(subject.device) for name, part in cut.items()}
    return capture(subject, inputs, keep=("attention", "values"))


@dataclass(frozen=True, eq=False)
class _Counted:
    """What was counted at one site, and which of its rows are text."""

    freedom: Freedom
    real: Tensor

    @property
    def keyed(self) -> bool:
        return self.freedom.generated is not None

    def rows(self, name: str) -> Tensor | None:
        part: Tensor | None = getattr(self.freedom, name)
        if part is None or bool(self.real.all()):
            return part
        filler = torch.nan if part.is_floating_point() else PADDING
        whole = part.new_full((part.shape[0], len(self.real)), filler)
        whole[:, self.real] = part
        return whole


def _counted(trace: Trace, site: Site) -> _Counted:
    real = trace.queries_of(site.index).real.to(trace.attention[site.index].device)
    found = degrees_of_freedom(
        trace.attention[site.index][:, real],
        trace.values[site.index],
        trace.keys[site.index],
        trace.visible[site.index][real],
    )
    return _Counted(found, real)
