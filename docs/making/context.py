"""Write docs/context.md, with the tables of the study (``studies/context.py``) from docs/data.

``make map`` runs it; a test sees that the page is what the files give. A part of the study that has
not been run is named as such.
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from exhibit_a.numerics.intervals import wilson

ROOT = Path(__file__).parents[2]
PAGE, DATA = ROOT / "docs/context.md", ROOT / "docs/data"
MISSING = "*Not measured yet.*"
WANTED = 100  # prompts
NAMES = {
    "leave_one_out": "leave one out (referee)",
    "regression": "regression over 32 random halves (referee)",
    "attention_gradient": "attention × gradient",
    "relevance": "relevance",
    "gradient_input": "gradient × input",
    "contribution_weights": "contribution weights",
    "mean_attention": "mean attention of all heads",
    "self_attribution": "self-attribution",
    "reliance_path": "reliance, along a path of at most 60 points",
}
DEAR = ("regression", "self_attribution", "reliance")  # run on the first of the prompts
HEADING = "| method | prompts | evidence first | 95 % interval | rank correlation with leave one out | forward | backward |"


def parts() -> dict[str, str]:
    """What stands on the page beside its words."""
    return {"PLANTED": planted(), "NEEDLESS": needless()}


def rows(name: str) -> list[dict[str, Any]]:
    """The prompts of one part of the study; none if it was not run."""
    file = DATA / f"context-{name}.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def planted() -> str:
    """How often each method puts the passage with the fact first."""
    cheap, dear = rows("planted"), [row for part in DEAR for row in rows(part)]
    if not cheap:
        return MISSING
    table = [HEADING, "|---|---|---|---|---|---|---|"]
    for name, label in NAMES.items():
        seen = [row for row in [*cheap, *dear] if name in row["first"]]
        if name == "leave_one_out":
            seen = cheap
        if not seen:
            continue
        hits = sum(row["first"][name] == row["evidence"] for row in seen)
        ranks = [row["spearman"][name] for row in seen if name in row["spearman"]]
        forward = round(mean(row["passes"][name][0] for row in seen))
        backward = round(mean(row["passes"][name][1] for row in seen))
        agreed = f"{mean(ranks):.2f}" if ranks else ""
        table.append(
            f"| {label} | {len(seen)} | {hits / len(seen):.0%} | {interval(hits, len(seen))} | "
            f"{agreed} | {forward} | {backward} |"
        )
    partial = (
        f"\n\n**{len(cheap)} of {WANTED} prompts have been run so far**; the intervals are as wide as that."
        if len(cheap) < WANTED
        else ""
    )
    return "\n".join(table) + partial


def needless() -> str:
    """How often an answer that needs no passage is said to rest on one."""
    seen = rows("needless")
    if not seen:
        return MISSING
    wrong = sum(bool(row["rests_on"]) for row in seen)
    return (
        f"Of {len(seen)} such prompts {wrong} are said to rest on a passage ({wrong / len(seen):.0%}, "
        f"95 % interval {interval(wrong, len(seen))})."
    )


def interval(hits: int, count: int) -> str:
    """Wilson's interval of a share, in per cent."""
    low, high = (float(end) for end in wilson(torch.tensor(hits / count), count))
    return f"{low:.0%} – {high:.0%}"
