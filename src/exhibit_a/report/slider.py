"""Where can attention slide without anyone noticing?

For heads that have other valid weights with the same output, the page gets the rows the model used,
the other rows, and the values both are averages of, so that the reader's own browser can compute
the output and see that it stays put. Long texts offer it for the heads and rows that carry most.
"""

from typing import Any

import torch
from torch import Tensor

from exhibit_a.report.pack import Blocks
from exhibit_a.trial import Trial
from exhibit_a.verdict import HeadVerdict

BUDGET = 700_000  # bytes, before base64
FEW_ROWS = 8  # of each head, where not all fit
MOVED = 1e-3  # total variation from which a row is worth sliding


def slider(blocks: Blocks, trial: Trial) -> dict[str, Any] | None:
    """The heads that can slide, or None where none can."""
    movable = {
        (one.site, one.head): rows
        for one in sorted(trial.verdicts, key=_importance, reverse=True)
        if len(rows := _rows(trial, one.site, one.head))
    }
    if not movable:
        return None
    whole = sum(_cost(trial, place, len(rows), 4) for place, rows in movable.items())
    if whole <= BUDGET:
        entries = [_slide(blocks, trial, *place, rows, 32) for place, rows in movable.items()]
        return {"heads": entries, "note": ""}
    entries, spent = [], 0
    for place, rows in movable.items():
        few = rows[:FEW_ROWS].sort().values
        cost = _cost(trial, place, len(few), 2)
        if entries and spent + cost > BUDGET:
            continue
        spent += cost
        entries.append(_slide(blocks, trial, *place, few, 16))
    note = (
        f"Long text: of {len(movable)} heads that can slide, the {len(entries)} that carry most "
        f"are in this page, each with at most {FEW_ROWS} rows and values in 16-bit steps."
    )
    return {"heads": entries, "note": note}


def _importance(one: HeadVerdict) -> tuple[float, float]:
    return (one.share or 0.0) * (one.distance or 0.0), one.distance or 0.0


def _rows(trial: Trial, site: int, head: int) -> Tensor:
    """The rows that can move, those that contributed most first."""
    own, other = trial.attention[site][head], trial.alternative[site][head]
    moved = (own - other).abs().sum(-1) / 2
    rows = (moved > MOVED).nonzero().flatten()
    if trial.attribution is None:
        weight = moved[rows]
    else:
        weight = trial.attribution.scores[site][head].abs().sum(-1)[rows] * moved[rows]
    return rows[weight.argsort(descending=True, stable=True)].cpu()


def _cost(trial: Trial, place: tuple[int, int], rows: int, size: int) -> int:
    site, _ = place
    _, keys, width = trial.values[site].shape
    return 8 * rows * keys + size * keys * width


def _slide(
    blocks: Blocks, trial: Trial, site: int, head: int, rows: Tensor, bits: int
) -> dict[str, Any]:
    rows = rows.sort().values
    own, other = (
        part[site][head][rows].detach().cpu().float() for part in (trial.attention, trial.alternative)
    )
    shared = trial.attention[site].shape[0] // trial.values[site].shape[0]
    values = trial.values[site][head // shared].detach().cpu().float()
    scale = float(values.abs().amax())
    if bits == 32:
        last = values.numpy().astype("<f4").tobytes()
    else:
        steps = (values / (scale or 1.0) * 32767).round()
        last = steps.numpy().astype("<i2").tobytes()
    first = torch.cat([rows.float(), own.reshape(-1), other.reshape(-1)])
    return {
        "site": site,
        "head": head,
        "block": blocks.add(
            f"slide/{site}/{head}", first.numpy().astype("<f4").tobytes() + last
        ),
        "rows": len(rows),
        "keys": int(values.shape[0]),
        "width": int(values.shape[1]),
        "bits": bits,
        "scale": scale,
    }
