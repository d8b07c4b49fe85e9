"""Which heads and words four tasks need, as Hao et al. ask: what blocks of docs/tasks.md share.

From docs/data/tasks-*.jsonl and from the ledger, where ``studies/tasks.py`` puts them.
"""

import itertools
from collections.abc import Mapping
from typing import Any

from page_tables import cell, ledger, listed, ranged, read, table, told_apart
from scipy import stats

TRIGGERS = {"SST-2": "sentiment", "MNLI": "nli", "RTE": "RTE", "MRPC": "MRPC"}  # in the ledger
TASKS = tuple(TRIGGERS)
MEASURES = ("attribution", "taylor", "ablation", "attention", "reliance")
TWO = 2  # heads of each layer
CURVES = {(r["task"], r["measure"], r["order"]): r for r in read("tasks-effectiveness.jsonl")}


def chosen() -> dict[str, dict[str, Any]]:
    """As ``studies/four_tasks.py`` chooses: the most accurate; of equal ones the first by name."""
    best: dict[str, dict[str, Any]] = {}
    rank = lambda row: (-row["accuracy"], f"{row['base']}-at-{row['learning_rate']:g}")  # noqa: E731
    for row in sorted(read("tasks-tries.jsonl"), key=rank):
        best.setdefault(row["task"], row)
    return best


def inherited() -> str:
    """The tasks whose classifiers were trained by way of MNLI."""
    return listed(task for task in TASKS if chosen().get(task, {}).get("base") == "nli")


def peak(row: dict[str, Any]) -> tuple[float, list[float]]:
    """The highest accuracy of a curve, with its interval."""
    place = max(range(len(row["accuracy"])), key=row["accuracy"].__getitem__)
    return row["accuracy"][place], row["interval"][place]


def worse() -> str:
    """Tasks that do better without any head than without the two that attribution names first."""
    tops = {task: CURVES[task, "attribution", "most"]["interval"] for task in TASKS}
    return listed(task for task, ends in tops.items() if ends[TWO][1] < ends[-1][0])


def rises() -> str:
    """Tasks that do better than the whole model without the last heads."""
    lasts = {task: CURVES[task, "attribution", "least"] for task in TASKS}
    return listed(
        f"{task} (from {row['accuracy'][0]:.3f} to {peak(row)[0]:.3f})"
        for task, row in lasts.items()
        if peak(row)[1][0] > row["interval"][0][1]
    )


def differences(shown: Mapping[str, str]) -> str:
    """Paired differences of the ledger for every task, by column."""
    body = [[t, *(cell(f"{s} ({t})", signed=True) for s in shown.values())] for t in TASKS]
    return table(["task", *shown], body)


def apart(start: str, *said: str, triggers: bool = False) -> str:
    """On which tasks a difference of the ledger lies above 0, below it, or neither."""
    names = {task: name if triggers else task for task, name in TRIGGERS.items()}
    ends = {task: ledger()[f"{start} ({name})"].interval for task, name in names.items()}
    return told_apart(ends, *said, "The interval holds 0 on")


def alike(first: tuple[str, str], second: tuple[str, str]) -> str:
    """The rank correlation of the importance of heads, each by a task and a measure."""
    rows = read("tasks-importance.jsonl")
    by = {(row["task"], row["measure"]): [*itertools.chain(*row["table"])] for row in rows}
    return f"{stats.spearmanr(by[first], by[second]).statistic:.2f}".replace("-", "−")


def triggers(task: str) -> str:
    """What each pattern of a task does to each class."""
    rows = [row for row in read("tasks-triggers.jsonl") if row["task"] == task]
    rows.sort(key=lambda row: row["place"])
    labels, counts = rows[0]["before"], rows[0]["examples"]
    head = [f"{name} ({counts[name]}), before {before:.3f}" for name, before in labels.items()]
    clean = lambda text: text.replace("|", "\\|").strip() or "(no words)"  # noqa: E731
    body = []
    for row in rows:
        after = [ranged(row["after"][name], row["interval"][name]) for name in labels]
        drops = [f"{row[n]:+.3f}" for n in ("drop", "drop by attention", "drop at random")]
        drops[1] += f" ({clean(row['attention pattern'])})"
        body.append([clean(row["pattern"]), row["pulls to"], *after, *drops])
    columns = ["pattern", "speaks for", *head, "drop", "raw attention (its words)", "random"]
    return table(columns, body).replace("-0.", "−0.")
