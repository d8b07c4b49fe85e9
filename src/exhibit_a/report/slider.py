"""Where can attention move while the output of the head stays the same?

For heads that have other valid weights with the same output, the page gets the rows the model used,
the other rows, and the values both are averages of, so that the reader's browser can compute the
output and show that it does not change. In long texts only the heads and rows that carry most are
offered.
"""

from typing import Literal

import torch
from torch import Tensor

from exhibit_a.report.header import Slide, Slider
from exhibit_a.report.pack import Blocks
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import HeadVerdict

MOST = 1_200_000  # bytes, before base64
FEWEST_ROWS = 8  # of each head; where that does not fit, heads are left out
MOVED = 1e-3  # total variation from which a row is worth sliding

OVER_TOKENS = "Weights slide token by token: choose tokens at the top of the page."

Place = tuple[int, int]  # site, head
Bits = Literal[16, 32]


def slider(trial: Trial, blocks: Blocks, budget: int = MOST) -> Slider | None:
    """The heads that can slide, or None where none can."""
    ranked = sorted(trial.verdicts, key=_importance, reverse=True)
    rows_of = {(head.site, head.head): _rows(trial, head.site, head.head) for head in ranked}
    movable = {place: rows for place, rows in rows_of.items() if len(rows)}
    if not movable:
        return None
    if not trial.values:
        return {"heads": [], "note": OVER_TOKENS}
    bits, most, offered = _plan(trial, movable, budget)
    entries = [_slide(blocks, trial, place, movable[place][:most], bits) for place in offered]
    if len(offered) == len(movable) and most >= max(map(len, movable.values())):
        return {"heads": entries, "note": ""}
    note = (
        f"To keep the page small, {len(offered)} of the {len(movable)} heads that can slide are "
        f"in it, those that carry most, each with at most {most} rows and {bits}-bit values."
    )
    return {"heads": entries, "note": note}


def _plan(trial: Trial, movable: dict[Place, Tensor], budget: int) -> tuple[Bits, int, list[Place]]:
    """How fine the values are, how many rows a head gets, and which heads."""
    sizes: tuple[Bits, ...] = (32, 16)
    for bits in sizes:
        share = budget // len(movable)
        most = min(
            (share - _values_size(trial, site, bits)) // _row_size(trial, site)
            for site, _ in movable
        )
        if most >= FEWEST_ROWS:
            return bits, int(most), list(movable)
    offered, spent = list[Place](), 0
    for site, head in movable:
        cost = _values_size(trial, site, 16) + FEWEST_ROWS * _row_size(trial, site)
        if not offered or spent + cost <= budget:
            offered.append((site, head))
            spent += cost
    return 16, FEWEST_ROWS, offered


def _row_size(trial: Trial, site: int) -> int:
    return 8 * int(trial.values[site].shape[1])


def _values_size(trial: Trial, site: int, bits: int) -> int:
    return bits // 8 * int(trial.values[site][0].numel())


def _importance(head: HeadVerdict) -> tuple[float, float]:
    return abs(head.reliance or 0.0) * (head.distance or 0.0), head.distance or 0.0


def _rows(trial: Trial, site: int, head: int) -> Tensor:
    """The rows that can move: where the answer is read, then those that contributed most."""
    raw, alternative = trial.attention[site][head], trial.alternative[site][head]
    moved = (raw - alternative).abs().sum(-1) / 2
    rows = (moved > MOVED).nonzero().flatten()
    if trial.attribution is None:
        weight = moved[rows]
    else:
        weight = trial.attribution.scores[site][head].abs().sum(-1)[rows] * moved[rows]
    if trial.tree is not None and trial.tree.reader is not None:
        weight[rows == trial.tree.reader] = torch.inf
    return rows[weight.argsort(descending=True, stable=True)].cpu()


def _slide(blocks: Blocks, trial: Trial, place: Place, chosen: Tensor, bits: Bits) -> Slide:
    site, head = place
    rows = chosen.sort().values
    raw, alternative = (
        maps[site][head][rows].detach().cpu().float()
        for maps in (trial.attention, trial.alternative)
    )
    shared = trial.attention[site].shape[0] // trial.values[site].shape[0]
    values = trial.values[site][head // shared].detach().cpu().float()
    scale = float(values.abs().amax())
    if bits == 32:
        last = values.numpy().astype("<f4").tobytes()
    else:
        steps = (values / (scale or 1.0) * 32767).round()
        last = steps.numpy().astype("<i2").tobytes()
    first = torch.cat([rows.float(), raw.reshape(-1), alternative.reshape(-1)])
    return {
        "site": site,
        "head": head,
        "block": blocks.add(f"slide/{site}/{head}", first.numpy().astype("<f4").tobytes() + last),
        "rows": len(rows),
        "keys": int(values.shape[0]),
        "width": int(values.shape[1]),
        "bits": bits,
        "scale": scale,
    }
