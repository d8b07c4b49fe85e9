"""Was this attention the only one possible, and from which length on is it not?

``attention_identifiability`` counts the dimensions in which every row of a trace could have moved:
with the same output; and the same sum; and no negative weight; and as the model's keys could have
produced it (``freedom.py`` has the mathematics; Brunner et al., 2020; Bhardwaj et al., 2021).
``identifiability_by_length`` measures the first of these for growing beginnings of one text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.identifiability.effective import (
    PADDING,
    EffectiveAttention,
    SiteCounts,
    effective_attention,
    with_padding,
)
from exhibit_a.methods.identifiability.freedom import Freedom, degrees_of_freedom
from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.numerics.precision import to_float64
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.shapes import Options, SiteRows
from exhibit_a.subject.anatomy import NO_PRODUCT, Site
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.capture import Trace, capture

DEMANDS = ("same output", "same sum", "not negative", "own keys")
SHORTEST = 4  # tokens; below, a text is all special tokens


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AttentionIdentifiability(Result):
    """Dimensions left to every row under each demand; −1 marks rows of padding."""

    same_output: tuple[SiteCounts, ...]  # free dimensions of rows with the same output
    same_sum: tuple[SiteCounts, ...]  # of rows that also sum to one
    not_negative: tuple[SiteCounts, ...]  # of rows that are also nowhere negative
    generated: tuple[SiteCounts | None, ...]  # None where keys cannot be seen
    reach: tuple[SiteCounts | None, ...]  # dimensions in which the keys can move the row
    visibility: tuple[SiteRows | None, ...]  # least visible such move over the most visible one
    sites: tuple[Site, ...]

    def unique(self, site: int) -> Float[Tensor, " demand"]:
        """The share of rows that are the only ones possible, under each demand that was counted."""
        demands = (self.same_output, self.same_sum, self.not_negative, self.generated)
        counts = [count for demand in demands if (count := demand[site]) is not None]
        return torch.stack([to_float64(count[count >= 0] == 0).mean() for count in counts])


@method(
    question="Was this attention the only one possible?",
    needs=rows_of("attention", "values", "keys"),
    cost=Cost(forwards=2, algebra=28, maps=2),
)
def attention_identifiability(trace: Trace) -> AttentionIdentifiability:
    """Count in how many ways every attention row could have been different, under four demands.

    A text with no more tokens than a head is wide leaves no freedom. In a longer one, most rows are
    unique only if the model's own keys must be able to produce them:

    >>> [round(float(share), 2) for share in xa.attention_identifiability(trace).unique(site=0)]
    [1.0, 1.0, 1.0, 1.0]
    >>> longer = xa.capture(subject, "a gripping , beautifully shot film " * 6)
    >>> counts = xa.attention_identifiability(longer)
    >>> len(longer.tokens), int(counts.same_output[0].amax()), int(counts.same_sum[0].amax())
    (38, 6, 5)
    >>> [round(float(share), 1) for share in counts.unique(site=0)]
    [0.0, 0.0, 0.0, 1.0]
    """
    trace = trace.keeping("attention", "values", "keys")
    by_site = [_counted(trace, site) for site in trace.sites]
    without_keys = [
        site.index
        for site, counts in zip(trace.sites, by_site, strict=True)
        if counts.generated is None
    ]
    checks: dict[str, float | str] = {
        "computed in": f"float64; the model in {str(trace.values[0].dtype).removeprefix('torch.')}",
        "key-aware count": "local: about small moves of the query vector",
    }
    if without_keys:
        checks["keys"] = (
            f"not seen, or scores are no products, at sites {without_keys}; the key-aware count is "
            "missing there"
        )
    return build_result(
        AttentionIdentifiability,
        trace,
        "attention_identifiability",
        checks=checks,
        same_output=tuple(counts.same_output for counts in by_site),
        same_sum=tuple(counts.same_sum for counts in by_site),
        not_negative=tuple(counts.not_negative for counts in by_site),
        generated=tuple(counts.generated for counts in by_site),
        reach=tuple(counts.reach for counts in by_site),
        visibility=tuple(counts.visibility for counts in by_site),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IdentifiabilityByLength(Result):
    """What happens to attention as one text gets longer: means over the heads of every site."""

    lengths: tuple[int, ...]
    pearson: Float[Tensor, "length site"]  # of raw and effective weights
    null_fraction: Float[Tensor, "length site"]  # of the rows, mean
    nullity: Float[Tensor, "length site"]  # dimensions that the output cannot show, mean
    special_raw: Float[Tensor, "length site"]  # weight on special tokens
    special_effective: Float[Tensor, "length site"]  # the same of effective weights
    first_raw: Float[Tensor, "length site"]  # weight on the first token
    first_effective: Float[Tensor, "length site"]  # the same of effective weights
    d_head: tuple[int, ...]  # of every site


@method(
    question="From which length on is attention not unique?",
    needs=("text",),
    cost=Cost(forwards=12, maps=3),
)
def identifiability_by_length(
    subject: Subject, text: str, *, lengths: Sequence[int] | None = None
) -> IdentifiabilityByLength:
    """Raw against effective attention for growing beginnings of a text.

    Args:
        lengths: numbers of tokens to cut the text to; by default a dozen up to the whole text or
            the model's limit, and the two around the width of the heads, where a null space begins.

    >>> text = "a gripping , beautifully shot film " * 8
    >>> result = xa.identifiability_by_length(subject, text, lengths=[8, 32, 48])
    >>> result.lengths, result.d_head[0]
    ((8, 32, 48), 32)
    >>> result.nullity[:, 0].tolist()
    [0.0, 0.0, 16.0]
    """
    available = _available(subject, text)
    asked = _checked_lengths(subject, available, lengths)
    results = [effective_attention(_beginning(subject, text, length)) for length in asked]
    widths = tuple(site.d_head for site in results[-1].sites)
    change = "largest change of a head's output"
    checks: dict[str, float | str] = {
        change: max(result.checks[change] for result in results),
    }
    if available <= min(widths):
        checks["too short"] = f"the text has {available} tokens, the heads are {min(widths)} wide"
    means: Options = {
        name: torch.stack([_site_means(result, name) for result in results]) for name in _AVERAGED
    }
    return build_result(
        IdentifiabilityByLength,
        subject,
        "identifiability_by_length",
        settings={"lengths": list(asked)},
        tokens=results[-1].tokens,
        checks=checks,
        lengths=tuple(len(result.tokens or ()) for result in results),
        d_head=widths,
        layouts=results[-1].layouts,
        **means,
    )


_AVERAGED = (
    "pearson",
    "null_fraction",
    "nullity",
    "special_raw",
    "special_effective",
    "first_raw",
    "first_effective",
)


def _site_means(result: EffectiveAttention, name: str) -> Float[Tensor, " site"]:
    """The mean over heads, and over real rows where there are rows, of every site."""
    means = []
    for site_numbers in getattr(result, name):
        numbers = to_float64(site_numbers)
        means.append(numbers[(numbers != PADDING) & ~numbers.isnan()].mean())
    return torch.stack(means)


def _checked_lengths(subject: Subject, available: int, lengths: Sequence[int] | None) -> list[int]:
    """The lengths asked for, or those of our choice, within what the text has."""
    if available < SHORTEST:
        raise BadRequestError(
            f"The text is too short to be cut: it has {available} tokens, and beginnings have "
            f"{SHORTEST} or more. Give a longer one."
        )
    asked = _steps(subject, available) if lengths is None else sorted(set(lengths))
    beyond = [length for length in asked if not SHORTEST <= length <= available]
    if beyond or not asked:
        raise BadRequestError(
            f"The text can be cut to {SHORTEST} to {available} tokens; "
            f"{beyond[0] if beyond else 'nothing'} was asked for."
        )
    return asked


def _available(subject: Subject, text: str) -> int:
    """The number of tokens of a text, as far as the model takes them."""
    inputs = subject.encode(text, truncate=True)
    if "input_ids" not in inputs or subject.tokenizer is None:
        raise BadRequestError("Only texts can be cut to a length, and this model reads none.")
    return int(inputs["input_ids"].shape[1])


def _steps(subject: Subject, available: int) -> list[int]:
    """A dozen lengths up to that of the text, and those around the width of the heads."""
    even = torch.linspace(min(8, available), available, 12).round().long().tolist()
    widths = {site.d_head for site in subject.anatomy.sites}
    edges = {edge for width in widths for edge in (width, width + 1)}
    return sorted({length for length in {*even, *edges} if SHORTEST <= length <= available})


def _beginning(subject: Subject, text: str, length: int) -> Trace:
    """A trace of the text cut to ``length`` tokens, with the special tokens it always has."""
    cut = subject.tokenizer(
        text, return_tensors="pt", truncation=True, max_length=length, verbose=False
    )
    inputs = {name: tensor.to(subject.device) for name, tensor in cut.items()}
    return capture(subject, inputs, keep=("attention", "values"))


def _counted(trace: Trace, site: Site) -> Freedom:
    """The freedom of every row of one site; rows of padding are marked."""
    real = trace.queries_of(site.index).real.to(trace.attention[site.index].device)
    keys = None if NO_PRODUCT in site.variants else trace.keys[site.index]
    freedom = degrees_of_freedom(
        trace.attention[site.index][:, real],
        trace.values[site.index],
        keys,
        trace.visible[site.index][real],
    )
    keyed = (freedom.generated, freedom.reach, freedom.visibility)
    return Freedom(
        with_padding(freedom.same_output, real, PADDING),
        with_padding(freedom.same_sum, real, PADDING),
        with_padding(freedom.not_negative, real, PADDING),
        *(
            None if rows is None else with_padding(rows, real, filler)
            for rows, filler in zip(keyed, (PADDING, PADDING, torch.nan), strict=True)
        ),
    )
