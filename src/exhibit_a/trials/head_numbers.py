"""What the methods say about each head, in numbers.

Before any word is drawn (``verdict.py``), the results of all methods are read head by head: how far
the answer rests on where it looks, whether its weights are the only valid ones, and whether it
points where its contribution comes from. Rows of a head count by what they contribute.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.identifiability.alternative_maps import AlternativeMaps
from exhibit_a.numerics.precision import to_float64
from exhibit_a.shapes import SiteHeads
from exhibit_a.trials.allowance import PASSES
from exhibit_a.trials.carriers import MinimalHeadSet

if TYPE_CHECKING:
    from exhibit_a.trials.examination import Examination

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class HeadNumbers:
    """What was measured about one head, before any word; None where it could not be measured."""

    site: int
    head: int
    reliance: float | None = None  # its share, in log-odds of the answer
    error: float | None = None  # standard error of the share
    one_head: float | None = None  # what the answer loses with it levelled alone; if measured
    steering: float | None = None  # what its share gains where other maps follow, if known
    steering_alone: float | None = None  # what its effect alone gains then, if it was measured
    chance: float | None = None  # p-value: a share as large with permuted rows
    pointing: float | None = None  # cosine of weights and contributions, row by row
    coherence: float | None = None  # how far its rows speak for the same side, -1 to 1
    unique: float | None = None  # share of rows with only one valid map
    distance: float | None = None  # of valid alternatives, total variation, by contribution
    own_keys: float | None = None  # share of rows that only the model's own keys make unique
    null_fraction: float | None = None  # mean over rows
    learned: bool | None = None  # whether the layer's weights differ from random numbers


def head_numbers(examined: "Examination") -> list[HeadNumbers]:
    """The answers to all questions, head by head."""
    numbers = []
    for site in examined.trace.sites:
        columns = _columns(examined, site.index)
        module = examined.trace.layers[site.call].module
        taught = None if examined.learned is None else examined.learned[module]
        numbers += [
            HeadNumbers(
                site.index,
                head,
                learned=taught,
                **{name: column[head] for name, column in columns.items()},
            )
            for head in range(site.heads)
        ]
    return numbers


def _columns(examined: "Examination", site: int) -> dict[str, list[Any]]:
    """What was measured about the heads of one site, by name."""
    columns: dict[str, list[Any]] = {}
    weights = row_weights(examined, site)
    counts = examined.identifiability
    if counts is not None:
        free = counts.same_sum[site]
        columns["unique"] = ((free == 0).sum(1) / (free >= 0).sum(1)).tolist()
        if (generated := counts.generated[site]) is not None:
            own = ((generated == 0) & (free > 0)).sum(1) / (free >= 0).sum(1)
            columns["own_keys"] = own.tolist()
    if examined.alternatives is not None:
        columns["distance"] = _distances(examined.alternatives, weights, site)
    if examined.effective is not None:
        columns["null_fraction"] = examined.effective.null_fraction[site].nanmean(1).tolist()
    if examined.reliance is not None:
        columns |= _reliance(examined.reliance, site)
    return columns


def _distances(
    others: AlternativeMaps, weights: Float[Tensor, "head query"], site: int
) -> list[float]:
    """How far the rows of every head can be from what they were, by their weight.

    Rows that could have been different and were not moved count as those that were.
    """
    free, tried = (weights * marks[site].cpu() for marks in (others.free_rows, others.tried))
    moved = (to_float64(others.distance[site]).cpu() * tried).sum(1)
    return (moved / tried.sum(1).clamp_min(TINY) * free.sum(1)).tolist()


def _reliance(reliance: Reliance, site: int) -> dict[str, list[Any]]:
    share, null = to_float64(reliance.heads[site]), to_float64(reliance.null[site])
    deviations = share.abs() / null.clamp_min(torch.finfo(torch.double).tiny)
    chance = torch.erfc(deviations / 2**0.5)
    return {
        "reliance": share.tolist(),
        "error": reliance.standard_error[site].tolist(),
        "one_head": _if_known(reliance.one_head[site]),
        "steering": _if_known(reliance.steering[site]),
        "steering_alone": _if_known(reliance.steering_alone[site]),
        "chance": chance.tolist(),
        "pointing": reliance.pointing[site].tolist(),
        "coherence": reliance.coherence[site].tolist(),
    }


def _if_known(numbers: SiteHeads) -> list[float | None]:
    return [None if math.isnan(number) else number for number in numbers.tolist()]


def row_weights(examined: "Examination", site: int) -> Float[Tensor, "head query"]:
    """How much each row of a head counts: by its share, or equally where that is not known."""
    attention = examined.trace.attention[site]
    if examined.reliance is None:
        weights = torch.ones(attention.shape[:2], dtype=torch.double)
    else:
        weights = to_float64(examined.reliance.whole_edges(site)).sum(-1).abs().cpu()
        weights = weights + TINY  # a head without any: all rows alike
    return weights / weights.sum(-1, keepdim=True)


def trial_checks(examined: "Examination") -> dict[str, object]:
    """How far the numbers behind the words can be trusted."""
    checks: dict[str, object] = {}
    if examined.passes is not None:
        checks[f"forward passes, of {PASSES} allowed"] = round(examined.passes, 1)
    if examined.reliance is not None:
        checks |= _reliance_checks(examined.reliance, examined.carriers)
    if examined.effective is not None:
        checks["largest change of a head's output, effective"] = examined.effective.checks[
            "largest change of a head's output"
        ]
    if examined.alternatives is not None:
        others = examined.alternatives
        checks |= {
            "rows with other valid attention": others.free,
            "rows searched for the farthest": others.searched,
            "largest change of a head's output, alternatives": others.residual,
            "change of the answer with all alternatives in place": others.answer_change,
            "rounding of the answer": others.allowed,
        }
    if examined.attribution is not None:
        known = examined.attribution.checks
        always = ("largest gap", "largest gap as a share of the change", "most points")
        failed = [name for name in ("incomplete sites", "completeness") if name in known]
        checks |= {f"attribution, {name}": known[name] for name in (*always, *failed)}
    if examined.hidden is not None:
        checks["mixing, probes"] = examined.hidden.checks["probes"]
        checks["mixing, largest standard error"] = examined.hidden.checks["largest_standard_error"]
    return checks


def _reliance_checks(reliance: Reliance, carriers: MinimalHeadSet | None) -> dict[str, object]:
    checks: dict[str, object] = {
        "reliance, by": reliance.way,
        "reliance, gap as a share of the whole": reliance.checks["gap as a share of the whole"],
        "reliance, points": reliance.checks["points"],
        "margin with all rows permuted": reliance.permuted_margin,
        "its standard error": reliance.permuted_error,
    }
    if reliance.reason:
        checks["reliance, undetermined"] = reliance.reason
    if carriers is not None and carriers.heads:
        checks["loss by random sets of as many heads"] = carriers.random_loss
        checks["standard error of that loss"] = carriers.random_error
    return checks
