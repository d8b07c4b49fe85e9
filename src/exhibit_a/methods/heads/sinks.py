"""What does a head do with a token that it looks at all the time?

Many heads give most of their weight to one token, often the first or a separator: a sink. The
weight alone does not say what it does. For the token that a head looks at most, over all rows that
may see it:

1. ``length``: its vector v W_O relative to the median of the others. A tiny one is a *no-op*: the
   head looks there in order to do nothing (Clark et al., 2019; Xiao et al., 2024).
2. ``null_share``: the part of the sink's weights that lies in the null space of the values, and so
   cannot be seen in the head's output at all (``identifiability/effective.py``). Where it is most
   of them, the weight is an artefact of the *null space*.
3. ``output_share``: the part of the head's output that the sink makes (``contribution.py``). Where
   it is most of it, the head is a *broadcast*: it adds the same vector everywhere.
4. Anything else is *mixed*, and a head that looks at no token all the time has *no sink*.

``without_sink`` gives scores of tokens with those of sinks set to 0, and says so in their checks.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.attribution.contribution import along_output
from exhibit_a.methods.custom_methods import Checks, TokenAttribution
from exhibit_a.methods.identifiability.effective import effective_attention
from exhibit_a.methods.registry import Cost, method, rows_of
from exhibit_a.results.making import build_result
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import Options, SiteHeads
from exhibit_a.trace.capture import Trace

KINDS = ("no sink", "no-op", "null space", "broadcast", "mixed")

Numbers = dict[str, Tensor]


@dataclass(frozen=True)
class SinkSettings:
    """From where on a head has a sink, and what kind it is."""

    tiny: float = 0.25  # of the usual length: a vector that adds nothing
    most: float = 0.5  # of the weights, or of the output
    often: float = 0.5  # share of the rows that must be able to see a sink


SETTINGS = SinkSettings()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SinkDiagnosis(SiteResult):
    """For every head the token that it looks at most, and what that does."""

    key: tuple[Int[Tensor, " _head"], ...]  # the position that gets most weight
    weight: tuple[SiteHeads, ...]  # mean over the rows that may see it
    length: tuple[SiteHeads, ...]  # of its vector, relative to the median of the others
    output_share: tuple[SiteHeads, ...]  # mean part of the head's output
    null_share: tuple[SiteHeads, ...]  # part of its weights that no output shows
    kind: tuple[Int[Tensor, " _head"], ...]  # a place in KINDS
    threshold: float

    def kind_of(self, site: int, head: int) -> str:
        """What a head's sink does, in words."""
        return KINDS[int(self.kind[site][head])]

    @property
    def sinks(self) -> dict[int, int]:
        """The tokens that are sinks of any head, and of how many."""
        keys = [
            key
            for site in self.sites
            if self.tokens_of(site.index)[1] == self.tokens
            for key, kind in zip(
                self.key[site.index].tolist(), self.kind[site.index].tolist(), strict=True
            )
            if kind > 0
        ]
        return dict(sorted(Counter(keys).items()))

    def without_sink(self, attribution: TokenAttribution) -> TokenAttribution:
        """The scores of tokens with those of sinks set to 0; the checks say so."""
        tokens = attribution.tokens or ()
        if tokens != self.tokens:
            raise BadRequestError("These scores are of another text than the sinks.")
        scores = attribution.scores.clone()
        dropped = {f"{place} {tokens[place]}": float(scores[place]) for place in self.sinks}
        scores[list(self.sinks)] = 0.0
        checks: Checks = {"without sinks": dropped or "there are none"}
        return replace(attribution, scores=scores, checks=attribution.checks | checks)


@method(
    question="What does a head do with a token that it always looks at?",
    needs=rows_of("attention", "values"),
    cost=Cost(forwards=1, algebra=1.2, maps=2),
    command="sinks",
)
@torch.no_grad()
def sink_diagnosis(trace: Trace, *, threshold: float = 0.3) -> SinkDiagnosis:
    """Find the sink of every head, and say whether it is a no-op, a broadcast or an artefact.

    >>> result = xa.sink_diagnosis(trace)
    >>> tuple(result.weight[0].shape), result.kind_of(site=0, head=0)
    ((12,), 'no sink')
    >>> raw = xa.companions(trace, methods="raw")["raw"]
    >>> "without sinks" in result.without_sink(raw).checks
    True

    Args:
        threshold: mean weight from which a token is a sink.
    """
    if not 0 < threshold <= 1:
        raise BadRequestError(f"A threshold of weights lies between 0 and 1, not at {threshold}.")
    kept = trace.keeping("attention", "values")
    effective = effective_attention(kept).effective
    by_site = [
        _diagnosed(kept, site.index, effective[site.index], threshold) for site in kept.sites
    ]
    return build_result(
        SinkDiagnosis,
        trace,
        "sink_diagnosis",
        settings={"threshold": threshold},
        checks={
            "a vector is tiny below": SETTINGS.tiny,
            "most is": SETTINGS.most,
        },
        threshold=threshold,
        **_columns(by_site),
    )


def _columns(by_site: Sequence[Numbers]) -> Options:
    """Every number of all sites, by its name."""
    return {name: tuple(site[name] for site in by_site) for name in by_site[0]}


def _diagnosed(
    trace: Trace, site: int, effective: Float[Tensor, "head query key"], threshold: float
) -> Numbers:
    """The numbers of one site, head by head."""
    attention, weight = trace.attention[site].float(), trace.output_weight(site)
    rows = trace.queries_of(site).real
    rows = rows if len(rows) == attention.shape[1] else torch.ones(attention.shape[1]).bool()
    seen = trace.visible[site].to(attention.device) & rows.to(attention.device).unsqueeze(-1)
    counts = seen.sum(0)
    mean = (attention * seen).sum(1) / counts.clamp_min(1)
    key = mean.masked_fill(counts < SETTINGS.often * counts.amax(), -1.0).argmax(-1)
    each = torch.arange(len(key), device=key.device)
    looking = seen[:, key].T.to(attention)  # head, query
    columns = attention[each, :, key] * looking
    hidden = (attention - effective.to(attention))[each, :, key] * looking
    # The length of the vector that each key would add.
    values = trace.values[site].float()
    projected = values if weight is None else values @ (weight.float() @ weight.float().mT)
    vectors = (projected * values).sum(-1).clamp_min(0).sqrt()
    others = vectors.masked_fill(
        torch.nn.functional.one_hot(key, vectors.shape[1]).bool(), torch.nan
    )
    along, lengths = along_output(attention, trace.values[site], weight)
    shares = along[each, :, key] / lengths.clamp_min(torch.finfo(lengths.dtype).tiny) * looking
    tiny = torch.finfo(attention.dtype).tiny
    numbers = {
        "key": key,
        "weight": mean[each, key],
        "length": vectors[each, key] / others.nanmedian(-1).values.nan_to_num(1.0).clamp_min(tiny),
        "output_share": shares.sum(-1) / looking.sum(-1).clamp_min(1),
        "null_share": (hidden.norm(dim=-1) / columns.norm(dim=-1).clamp_min(tiny)),
    }
    return {
        name: column.cpu()
        for name, column in (numbers | {"kind": _kind(numbers, threshold)}).items()
    }


def _kind(numbers: Numbers, threshold: float) -> Int[Tensor, " head"]:
    """The place in KINDS of every head: the first that fits."""
    tests = (
        numbers["weight"] < threshold,
        numbers["length"] < SETTINGS.tiny,
        numbers["null_share"] > SETTINGS.most,
        numbers["output_share"] > SETTINGS.most,
    )
    marks = torch.stack([*tests, torch.ones_like(tests[0])])
    first: Tensor = marks.to(torch.int8).argmax(0)
    return first
