"""Counts the ways in which every attention row could have been different.

The more we know about where a row comes from, the fewer rows are left that give the same output.
For a row a over the keys S it sees, with values V and keys K, the dimension of what is left is
counted under one demand after the other (Brunner et al., 2020; Bhardwaj et al., 2021):

1. the output is the same, a′V = aV:                                   |S| − rank V
2. and the weights keep their sum:                                     |S| − rank [V, 1]
3. and none is negative: as before, because softmax weights are positive. Weights that are exactly
   zero are held at zero; the count is that of the face on which the row lies.
4. and the model's own keys can produce them, a′ = softmax(Kq′). What is left, close to a, is what
   moves of q do to the row and not to its output (``key_moves.py``).

The last demand is counted for small moves; rows far away that meet it too are not counted.
Dimensions do not say how far a row can go: on request, ``movable.py`` measures for some rows how
much of the weight that they show could lie on other keys.
``identifiability_by_length`` measures the first of these for growing beginnings of one text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.identifiability.effective import (
    PADDING,
    EffectiveAttention,
    SiteCounts,
    effective_attention,
    with_padding,
)
from exhibit_a.methods.identifiability.key_moves import key_moves
from exhibit_a.methods.identifiability.movable import MovableWeight, movable_weight
from exhibit_a.methods.identifiability.ranks import (
    Counts,
    HeadMaps,
    HeadValues,
    KeySets,
    Tolerance,
    key_sets,
    ranks,
    tolerance_for,
    with_ones,
)
from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.numerics.parallel import chunk_slices, parallel_map
from exhibit_a.numerics.precision import exact_device, returned, to_float64
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.shapes import Options, SiteRows
from exhibit_a.subject.anatomy import NO_PRODUCT, Site
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.capture import Trace, capture

DEMANDS = ("same output", "same sum", "not negative", "own keys")
SHORTEST = 4  # tokens; below, a text is all special tokens

WORKSPACE = 2**23  # bytes of float64 that a thread works on at a time, if more than one row


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AttentionIdentifiability(Result):
    """Dimensions left to every row under each demand; −1 marks rows of padding."""

    same_output: tuple[SiteCounts, ...]  # free dimensions of rows with the same output
    same_sum: tuple[SiteCounts, ...]  # of rows that also sum to one
    not_negative: tuple[SiteCounts, ...]  # of rows that are also nowhere negative
    generated: tuple[SiteCounts | None, ...]  # None where keys cannot be seen
    reach: tuple[SiteCounts | None, ...]  # dimensions in which the keys can move the row
    visibility: tuple[SiteRows | None, ...]  # least visible such move over the most visible one
    movable: tuple[SiteRows | None, ...]  # weight that could lie elsewhere; NaN if not computed
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
def attention_identifiability(trace: Trace, *, movable: int = 0) -> AttentionIdentifiability:
    """Count in how many ways every attention row could have been different, under four demands.

    Args:
        movable: number of rows of every head, evenly spaced and the last one among them, for which
            to compute how much of the weight on the fewest keys that hold half of it could lie on
            other keys; 0 for none. It takes a linear program for each row.

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

    Of the weight that the last row of a head shows, some could lie on other keys:

    >>> counts = xa.attention_identifiability(longer, movable=1)
    >>> counts.movable[0].shape, 0 < float(counts.movable[0][0, -1]) < 0.5
    (torch.Size([12, 38]), True)
    """
    if isinstance(movable, bool) or movable < 0:
        raise BadRequestError(
            f"Movable weight is computed for a number of rows of every head, not for {movable}."
        )
    trace = trace.keeping("attention", "values", "keys")
    by_site = [_counted(trace, site) for site in trace.sites]
    without_keys = [
        site.index
        for site, counts in zip(trace.sites, by_site, strict=True)
        if counts.generated is None
    ]
    counted: Options = {name: tuple(vars(c)[name] for c in by_site) for name in vars(by_site[0])}
    checks: dict[str, float | str] = {
        "computed in": f"float64; the model in {str(trace.values[0].dtype).removeprefix('torch.')}",
        "key-aware count": "local: about small moves of the query vector",
    }
    if without_keys:
        checks["keys"] = (
            f"not seen, or scores are no products, at sites {without_keys}; the key-aware count is "
            "missing there"
        )
    moves = [_movable(trace, site.index, movable) for site in trace.sites] if movable else []
    if moves:
        checks["rows with movable weight"] = sum(site.rows for site in moves)
        checks["linear programs"] = sum(site.programs for site in moves)
        checks["programs without certificate"] = sum(site.failed for site in moves)
        checks["largest disagreement of program and certificate"] = max(
            site.disagreement for site in moves
        )
    return build_result(
        AttentionIdentifiability,
        trace,
        "attention_identifiability",
        settings={"movable": movable},
        checks=checks,
        movable=tuple(site.movable for site in moves) or (None,) * len(trace.sites),
        **counted,
    )


def _movable(trace: Trace, site: int, count: int) -> MovableWeight:
    """The movable weight of some rows of every head of a site, none of which is padding."""
    attention, real = trace.attention[site], trace.queries_of(site).real.cpu()
    queries = real.nonzero().flatten()
    count = min(count, len(queries))
    ends = [(place + 1) * len(queries) // count - 1 for place in range(count)]
    marks = torch.zeros(attention.shape[:2], dtype=torch.bool)
    marks[:, queries[ends]] = True
    return movable_weight(attention, trace.values[site], trace.visible[site], marks)


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
    inputs = subject.encode(text, truncate=True)
    if "input_ids" not in inputs or subject.tokenizer is None:
        raise BadRequestError("Only texts can be cut to a length, and this model reads none.")
    available = int(inputs["input_ids"].shape[1])
    if available < SHORTEST:
        raise BadRequestError(
            f"The text is too short to be cut: it has {available} tokens, and beginnings have "
            f"{SHORTEST} or more. Give a longer one."
        )
    requested = _steps(subject, available) if lengths is None else sorted(set(lengths))
    beyond = [length for length in requested if not SHORTEST <= length <= available]
    if beyond or not requested:
        raise BadRequestError(
            f"The text can be cut to {SHORTEST} to {available} tokens; "
            f"{beyond[0] if beyond else 'nothing'} was requested."
        )
    results = [effective_attention(_beginning(subject, text, length)) for length in requested]
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
        settings={"lengths": list(requested)},
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


def _steps(subject: Subject, available: int) -> list[int]:
    """A dozen lengths up to that of the text, and those around the width of the heads."""
    spaced = torch.linspace(min(8, available), available, 12).round().long().tolist()
    widths = {site.d_head for site in subject.anatomy.sites}
    edges = {edge for width in widths for edge in (width, width + 1)}
    return sorted({length for length in {*spaced, *edges} if SHORTEST <= length <= available})


def _beginning(subject: Subject, text: str, length: int) -> Trace:
    """A trace of the text cut to ``length`` tokens, with the special tokens it always has."""
    cut = subject.tokenizer(
        text, return_tensors="pt", truncation=True, max_length=length, verbose=False
    )
    inputs = {name: tensor.to(subject.device) for name, tensor in cut.items()}
    return capture(subject, inputs, keep=("attention", "values"))


def _counted(trace: Trace, site: Site) -> "Freedom":
    """The freedom of every row of one site; rows of padding are marked."""
    real = trace.queries_of(site.index).real.to(trace.attention[site.index].device)
    freedom = degrees_of_freedom(
        trace.attention[site.index][:, real],
        trace.values[site.index],
        None if NO_PRODUCT in site.variants else trace.keys[site.index],
        trace.visible[site.index][real],
    )
    fillers = {name: torch.nan if name == "visibility" else PADDING for name in vars(freedom)}
    padded: Options = {
        name: None if rows is None else with_padding(rows, real, fillers[name])
        for name, rows in vars(freedom).items()
    }
    return Freedom(**padded)


@dataclass(frozen=True, eq=False)
class Freedom:
    """Dimensions left to every row under each demand, from the weakest to the strongest."""

    same_output: Counts
    same_sum: Counts
    not_negative: Counts
    generated: Counts | None  # None without keys, as the next two
    reach: Counts | None  # dimensions in which the keys can move the row
    visibility: Float[Tensor, "head query"] | None  # least visible such move over the most visible


def degrees_of_freedom(
    attention: HeadMaps,
    values: Float[Tensor, "head key d_head"],
    keys: Float[Tensor, "head key d_query"] | None,
    visible: Bool[Tensor, "query key"],
    *,
    rtol: float | None = None,
    dtype: torch.dtype | None = None,
) -> Freedom:
    """Count, for every row of every head, the dimensions in which it could have been different.

    ``dtype`` is the precision the model computed in, where it is not that of ``values``.
    """
    device, precision = attention.device, dtype or values.dtype
    place = exact_device(device)
    attention, values, visible = attention.to(place), values.to(place), visible.to(place)
    sets = key_sets(visible)
    if not len(visible):
        none = torch.zeros(len(attention), 0, dtype=torch.long, device=device)
        no_rows = returned(to_float64(none), device)
        keyed = (none, none, no_rows) if keys is not None else (None, None, None)
        return Freedom(none, none, none, *keyed)

    def count_heads(heads: slice) -> list[Tensor]:
        weights = to_float64(attention[heads]).masked_fill(~visible, 0)
        exact_values = to_float64(values[heads])
        summed = with_ones(exact_values, sets)
        plain = tolerance_for(precision, values.shape[-1], rtol)
        wider = tolerance_for(precision, summed.shape[-1], rtol)
        same_output = _nullity(exact_values, sets, plain)  # step 1
        same_sum = _nullity(summed, sets, wider)  # step 2
        used, not_negative = weights > 0, same_sum.clone()  # step 3: over the keys with any weight
        has_zeros = (used != sets.member[sets.of_row]).any(-1).any(-1)
        for head in has_zeros.nonzero().flatten().tolist():
            used_sets = key_sets(used[head])
            not_negative[head] = _nullity(summed[head : head + 1], used_sets, wider)[0]
        if keys is None:
            return [same_output, same_sum, not_negative]
        line = tolerance_for(precision, max(values.shape[-1], keys.shape[-1]), rtol)
        exact_keys = to_float64(keys[heads])
        at_a_time = max(1, WORKSPACE // (len(weights) * _bytes_of_moves(values, keys)))
        row_runs = zip(
            torch.split(weights, at_a_time, dim=1), torch.split(visible, at_a_time), strict=True
        )
        moves = [  # step 4
            key_moves(rows, seen, exact_values, exact_keys, line) for rows, seen in row_runs
        ]
        generated, reach, visibility = (torch.cat(runs, 1) for runs in zip(*moves, strict=True))
        return [same_output, same_sum, not_negative, generated, reach, visibility]

    bytes_per_head = 8 * attention[0].numel()
    if keys is not None:
        bytes_per_head += values.shape[1] * _bytes_of_moves(values, keys)
    head_runs = chunk_slices(len(attention), max(1, WORKSPACE // bytes_per_head), place)
    by_run = parallel_map(count_heads, head_runs, place)
    counts = [returned(torch.cat(runs), device) for runs in zip(*by_run, strict=True)]
    return Freedom(*counts, *[None] * (6 - len(counts)))


def _bytes_of_moves(values: Tensor, keys: Tensor) -> int:
    """What kkᵀ and vkᵀ of one key, or of one row, take in float64."""
    return 8 * keys.shape[-1] * (keys.shape[-1] + values.shape[-1])


def _nullity(values: HeadValues, sets: KeySets, tolerance: Tolerance) -> Counts:
    """The number of keys that a row sees, without the rank of their values."""
    return (sets.size - ranks(values, sets, tolerance).rank)[:, sets.of_row]
