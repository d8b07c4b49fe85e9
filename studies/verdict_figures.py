"""The figures of docs/verdict.md: thresholds and what they decide, estimators and their passes."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
from drawing import save
from tally import JUDGED
from words import LIMITS

from exhibit_a.report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION

FIGURES = Path("docs/figures")
MEANS = {
    "carries": "share of a head, of the margin",
    "whole": "what all heads take, of the margin",
    "distance": "of valid alternatives",
    "coherence": "of the rows of a head",
    "points": "cosine of weights and contributions",
}


def draw_calibration(known: dict[str, Any]) -> None:
    """Precision and recall against every threshold, and what chance would pass."""
    figure, panels = plt.subplots(2, 3, figsize=(12, 6), layout="constrained")
    panels.flat[-1].set_axis_off()
    for panel, (threshold, curve) in zip(panels.flat, known["curves"].items(), strict=False):
        word = JUDGED[threshold]
        panel.plot(curve["line"], curve["precision"], "o-", color=BLUE, label=f"{word}: precision")
        panel.plot(curve["line"], curve["recall"], "s--", color=VERMILION, label=f"{word}: recall")
        panel.plot(
            curve["line"], curve["evidence recall"], ":", color=GREEN, label="evidence: recall"
        )
        if threshold in known["nulls"]:
            null = known["nulls"][threshold]
            panel.plot(
                null["line"], null["real"], color=ORANGE, label="heads of sentiment beyond it"
            )
            panel.plot(null["line"], null["permuted"], color=PURPLE, label="… with rows permuted")
        default = getattr(LIMITS, threshold)
        panel.axvline(default, color=GREY, linewidth=0.8)
        panel.set(
            title=f"{threshold} (default {default:g})", xlabel=MEANS[threshold], ylim=(-0.03, 1.03)
        )
        if threshold not in ("points", "coherence"):
            panel.set_xscale("log")
        panel.legend(fontsize=7, loc="best")
    save(figure, FIGURES / "verdict-calibration.svg")


def draw_estimators(rows: Sequence[dict[str, Any]]) -> None:
    """The error of every estimator against the passes it takes."""
    figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
    series = {"path": BLUE, "orders": VERMILION, "kernel": GREEN, "svarm": PURPLE}
    for name, colour in series.items():
        budgets = sorted(
            {key for row in rows for key in row if key.split()[0] == name},
            key=lambda key: int(key.split()[-1]) if " " in key else 0,
        )
        points = [[row[key] for row in rows if key in row] for key in budgets]
        passes = [median(each["passes"] for each in point) for point in points]
        errors = [median(each["error"] for each in point) for point in points]
        panel.plot(passes, errors, "o-", color=colour, label=name)
    noise = median(row["noise of the truth"] for row in rows)
    panel.axhline(noise, color=GREY, linewidth=0.8, label="standard error of the truth")
    panel.set(
        xscale="log", yscale="log", xlabel="forward passes", ylabel="mean error, of the margin"
    )
    panel.legend(fontsize=8)
    save(figure, FIGURES / "reliance-estimators.svg")
