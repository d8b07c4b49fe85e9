"""Which heads and words four tasks need, as Hao et al. ask: tables of docs/tasks.md.

From docs/data/tasks-*.jsonl and from the ledger, where ``studies/tasks.py`` puts them.
"""

import itertools
from collections.abc import Mapping
from statistics import mean
from typing import Any

from page_tables import cell, ledger, listed, ranged, read, table, told_apart
from scipy import stats

TASKS = {  # what each asks, and what the ledger calls its triggers
    "SST-2": ("does a sentence of a film review praise or blame?", "sentiment"),
    "MNLI": ("does the second text follow from the first, contradict it, or neither?", "nli"),
    "RTE": ("does the second text follow from the first?", "RTE"),
    "MRPC": ("do two sentences say the same?", "MRPC"),
}
ALONE = "RTE alone"
MEASURES = ("attribution", "taylor", "ablation", "attention", "reliance")
OWN = ("attribution", "attention", "random")  # orders of each example's own
TWO = 2  # heads of each layer
BASES = {"minilm": "all-MiniLM-L6-v2", "nli": "`nli`, by way of MNLI"}
CORRELATION = "correlation of head importance, "


def models() -> str:
    """Every classifier on its development set."""
    body = []
    for task, (asks, _) in TASKS.items():
        found = ledger()[f"accuracy {task}"]
        f1 = cell(f"F1 {task}") if f"F1 {task}" in ledger() else ""
        body.append([task, asks, found.model, found.count, cell(f"accuracy {task}"), f1])
    head = ["task", "question", "classifier", "development examples", "accuracy (95 %)"]
    return table([*head, "F1 of *paraphrase* (95 %)"], body)


def chosen() -> dict[str, dict[str, Any]]:
    """As ``studies/four_tasks.py`` chooses: the most accurate; of equal ones the first by name."""
    best: dict[str, dict[str, Any]] = {}
    rank = lambda row: (-row["accuracy"], f"{row['base']}-at-{row['learning_rate']:g}")  # noqa: E731
    for row in sorted(read("tasks-tries.jsonl"), key=rank):
        best.setdefault(row["task"], row)
    return best


def tries() -> str:
    """What was trained, and what the slice chose."""
    body = []
    for row in sorted(read("tasks-tries.jsonl"), key=lambda row: [*TASKS].index(row["task"])):
        sizes = [f"{row['learning_rate']:g}", row["train"], row["aside"]]
        epochs = ", ".join(f"{one:.3f}" for one in row["by_epoch"])
        said = "**chosen**" if row is chosen()[row["task"]] else ""
        body.append([row["task"], BASES.get(row["base"], row["base"]), *sizes, epochs, said])
    head = ["task", "trained from", "learning rate", "trained on", "put aside"]
    return table([*head, "accuracy on what was put aside, epoch by epoch", ""], body)


def inherited() -> str:
    """The tasks whose classifiers were trained by way of MNLI."""
    return listed(task for task in TASKS if chosen().get(task, {}).get("base") == "nli")


Curves = dict[tuple[str, ...], dict[str, Any]]


def curves() -> Curves:
    """Accuracy without heads of each layer, by task, measure and order."""
    rows = read("tasks-effectiveness.jsonl")
    return {(row["task"], row["measure"], row["order"]): row for row in rows}


def peak(row: dict[str, Any]) -> tuple[float, list[float]]:
    """The highest accuracy of a curve, with its interval."""
    place = max(range(len(row["accuracy"])), key=row["accuracy"].__getitem__)
    return row["accuracy"][place], row["interval"][place]


def effectiveness() -> str:
    """Accuracy without heads of each layer, by each example's own order."""
    body, at = [], lambda row, place: ranged(row["accuracy"][place], row["interval"][place])
    for task, measure in itertools.product(TASKS, OWN):
        most, least = (curves()[task, measure, order] for order in ("most", "least"))
        cells = [most["judged"], *(at(most, place) for place in (0, 1, TWO)), at(least, -1 - TWO)]
        body.append([task, measure, *cells, ranged(*peak(least)), at(most, -1)])
    head = ["task", "order by", "examples", "all heads", "without the first"]
    head += ["without the first two", "with only the first two"]
    return table([*head, "highest, last heads gone first", "without any head"], body)


def worse() -> str:
    """Tasks that do better without any head than without the two that attribution names first."""
    tops = {task: curves()[task, "attribution", "most"]["interval"] for task in TASKS}
    return listed(task for task, ends in tops.items() if ends[TWO][1] < ends[-1][0])


def rises() -> str:
    """Tasks that do better than the whole model without the last heads."""
    lasts = {task: curves()[task, "attribution", "least"] for task in TASKS}
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
    names = {task: name if triggers else task for task, (_, name) in TASKS.items()}
    ends = {task: ledger()[f"{start} ({name})"].interval for task, name in names.items()}
    return told_apart(ends, *said, "The interval holds 0 on")


def along(order: str) -> str:
    """The mean accuracy along the curve, by task and measure."""
    rows = [row for row in read("tasks-curves.jsonl") if row["order"] == order]
    by = {(row["task"], row["measure"]): row for row in rows}
    body = [[m, *(f"{mean(by[task, m]['accuracy']):.3f}" for task in TASKS)] for m in MEASURES]
    head = []
    for task in TASKS:
        ranked = sorted({by[task, measure]["ranked"] for measure in MEASURES})
        judged = by[task, MEASURES[0]]["judged"]
        head.append(f"{task} (ranked on {' or '.join(map(str, ranked))}, judged on {judged})")
    return table(["measure", *head], body)


def alike(first: tuple[str, str], second: tuple[str, str]) -> str:
    """The rank correlation of the importance of heads, each by a task and a measure."""
    by = {
        (row["task"], row["measure"]): [*itertools.chain(*row["table"])]
        for row in read("tasks-importance.jsonl")
    }
    return f"{stats.spearmanr(by[first], by[second]).statistic:.2f}".replace("-", "−")


def agree() -> str:
    """Rank correlations of the measures with attribution, within each task."""
    body = [[m, *(alike((task, "attribution"), (task, m)) for task in TASKS)] for m in MEASURES[1:]]
    rows = {row["task"]: row for row in read("tasks-importance.jsonl")}
    return table(["measure", *(f"{t} ({rows[t]['examples']} examples)" for t in TASKS)], body)


def pairs() -> str:
    """Correlations of importance for all pairs of tasks."""
    body = []
    couples = [*itertools.combinations(TASKS, 2), *((t, ALONE) for t in TASKS if t != "RTE")]
    for first, second in couples:
        start = f"{CORRELATION}{first} and {second}, by"
        cells = [cell(f"{start} {measure}", digits=2) for measure in MEASURES]
        ranks = alike((first, "attribution"), (second, "attribution"))
        body.append([f"{first} and {second}", cells[0], ranks, *cells[1:]])
    head = ["tasks", "attribution", "attribution, by rank", *MEASURES[1:]]
    return table(head, body)


def likeness(like: str) -> str:
    """Whether MNLI and another task are more alike than MNLI and SST-2."""
    id = f"{CORRELATION}MNLI and {like} less MNLI and SST-2, by attribution"
    low, high = ledger()[id].interval
    word = "more alike" if low > 0 else "less alike" if high < 0 else "not told apart"
    return f"{id.removeprefix(CORRELATION)}: {cell(id, 2, signed=True)}: {word}."


def trees() -> str:
    """What the answers of the drawn examples owe to the words of their trees."""
    body = []
    for row in read("tasks-trees.jsonl"):
        lost = row["lost"]
        text = " ‖ ".join(part.replace("|", "\\|") for part in (row["text"], row["pair"]) if part)
        words = f"{lost['words']} ({lost['share']:.0%})".replace("%", " %")
        cells = [row["label"], row["edges"], words, f"{lost['tree']:.2f}", f"{lost['random']:.2f}"]
        body.append([f"{row['task']} {row['number']}", text, *cells])
    head = ["tree", "text", "label", "edges", "words of the tree"]
    return table([*head, "answer lost without them", "without as many random words"], body)


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


def controls() -> str:
    """Patterns of attribution against their controls."""
    body, start = [], "accuracy lost to patterns of attribution less"
    for task, (_, name) in TASKS.items():
        ids = [f"{start} {one} ({name})" for one in ("random words", "patterns of attention")]
        first = ledger()[ids[0]]
        body.append([task, first.count, first.data, *(cell(id, signed=True) for id in ids)])
    head = ["task", "patterns", "examples", "drop less that of random words"]
    return table([*head, "drop less that of raw attention"], body)
