"""Write docs/tasks.md: four tasks, as in Hao et al., and which heads and words each of them needs.

Tables come from docs/data/tasks-*.jsonl and from the ledger, where ``studies/tasks.py`` puts them;
``make map`` runs it, and a test sees that the page is what the files give. A part of the study that
has not been run is named as such.
"""

import itertools
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from scipy import stats

sys.path.append(str(Path(__file__).parent))

from told import (
    MISSING,
    NONE,
    ROOT,
    cell,
    ledger,
    lines,
    listed,
    pictures,
    ranged,
    table,
    told_apart,
    usage,
)

PAGE = ROOT / "docs/tasks.md"
TASKS = {  # what each asks, and what the ledger calls its triggers
    "SST-2": ("does a sentence of a film review praise or blame?", "sentiment"),
    "MNLI": ("does the second text follow from the first, contradict it, or neither?", "nli"),
    "RTE": ("does the second text follow from the first?", "RTE"),
    "MRPC": ("do two sentences say the same?", "MRPC"),
}
ALONE = "RTE alone"
MEASURES = ("attribution", "taylor", "ablation", "attention", "reliance")
PAPER = "attribution"
OWN = ("attribution", "attention", "random")  # orders of each example's own
TWO = 2  # heads of each layer
BASES = {"minilm": "all-MiniLM-L6-v2", "nli": "`nli`, by way of MNLI"}
CAPTIONS = {
    "tasks-effectiveness": "Accuracy when each layer loses some of its heads, in each example's own order",
    "tasks-pruning-least": "Accuracy along one ranking of all heads, the least important first",
    "tasks-pruning-most": "Accuracy along one ranking of all heads, the most important first",
    "tasks-importance": "Importance of every head by attribution, four tasks",
    "tasks-pairs": "Importance of every head in one task against another, six pairs",
}


def parts() -> dict[str, str]:
    """What stands on the page beside its words, by its marks."""
    return {
        "MODELS": models(),
        "TRIES": tries(),
        "EFFECTIVENESS": effectiveness(),
        "LOST": lost(),
        "LEAST": along("least"),
        "MOST": along("most"),
        "HALF": half(),
        "AGREE": agree(),
        "PAIRS": pairs(),
        "INHERITED": inherited(),
        "TREES": trees(),
        "TRIGGERS": triggers(),
        "CONTROLS": controls(),
        "COMMANDS": usage("tasks.py"),
        "F-EFFECTIVENESS": pictures("tasks-effectiveness", CAPTIONS),
        "F-PRUNING": pictures("tasks-pruning", CAPTIONS),
        "F-IMPORTANCE": pictures("tasks-importance", CAPTIONS),
        "F-PAIRS": pictures("tasks-pairs", CAPTIONS),
        "F-TREES": pictures("tasks-tree", {}),
        "F-OTHERS": pictures("tasks-", CAPTIONS, but=(*CAPTIONS, "tasks-tree")),
    }


def models() -> str:
    """Every classifier on its development set."""
    known, body = ledger(), []
    for task, (asks, _) in TASKS.items():
        id = f"accuracy {task}"
        if id in known:
            found = known[id]
            f1 = cell(f"F1 {task}", known) if f"F1 {task}" in known else ""
            body.append([task, asks, found.model, str(found.count), cell(id, known), f1])
        else:
            body.append([task, asks, *[NONE] * 4])
    head = ["task", "question", "classifier", "development examples", "accuracy (95 %)"]
    return table([*head, "F1 of *paraphrase* (95 %)"], body)


def tries() -> str:
    """What was trained, and what the slice chose."""
    rows, body = lines("tasks-tries.jsonl"), []
    for task in TASKS:
        mine = [row for row in rows if row["task"] == task]
        chosen = min(mine, key=best_first, default=None)
        for row in mine:
            epochs = ", ".join(f"{one:.3f}" for one in row["by_epoch"])
            sizes = [f"{row['learning_rate']:g}", str(row["train"]), str(row["aside"])]
            said = "**chosen**" if row is chosen else ""
            if said and len(mine) == 1:
                said = "the only one so far"
            body.append([task, BASES.get(row["base"], row["base"]), *sizes, epochs, said])
    head = ["task", "trained from", "learning rate", "trained on", "put aside"]
    return table([*head, "accuracy on what was put aside, epoch by epoch", ""], body)


def best_first(row: dict[str, Any]) -> tuple[float, str]:
    """As ``studies/four_tasks.py`` chooses: the most accurate; of equal ones the first by name."""
    return -row["accuracy"], f"{row['base']}-at-{row['learning_rate']:g}"


def effectiveness() -> str:
    """Accuracy without heads of each layer, by each example's own order."""
    by = {
        (row["task"], row["measure"], row["order"]): row
        for row in lines("tasks-effectiveness.jsonl")
    }
    body = []
    for task, measure in itertools.product(TASKS, OWN):
        most, least = by.get((task, measure, "most")), by.get((task, measure, "least"))
        if most is None or least is None:
            continue
        cells = [task, measure, str(most["judged"]), at(most, 0), at(most, 1), at(most, TWO)]
        cells += [at(least, len(least["accuracy"]) - 1 - TWO), ranged(*peak(least))]
        body.append([*cells, at(most, -1)])
    head = [
        "task",
        "order by",
        "examples",
        "all heads",
        "without the first",
        "without the first two",
    ]
    said = table(
        [*head, "with only the first two", "highest, last heads gone first", "without any head"],
        body,
    )
    tops = {task: by.get((task, PAPER, "most")) for task in TASKS}
    worse = [
        t for t, row in tops.items() if row and row["interval"][TWO][1] < row["interval"][-1][0]
    ]
    lefts = {task: by.get((task, PAPER, "least")) for task in TASKS}
    better = [t for t, r in lefts.items() if r and peak(r)[1][0] > r["interval"][0][1]]
    if worse:  # no head at all cannot know the right class
        said += f"\n\nOn {listed(worse)} the answers are clearly worse without the two heads that attribution names first than "
        said += "without any head."
    if better:
        rises = [
            f"{t} (from {lefts[t]['accuracy'][0]:.3f} to {peak(lefts[t])[0]:.3f})" for t in better
        ]
        said += "\n\nWhen the heads that attribution names last go first, accuracy rises clearly above that of the whole model on "
        said += f"{listed(rises)}."
    if worse or better:
        said += "\n\nA likely reason, not tested here: this order knows the right class of the very example that it is judged "
        said += "on. Taken away, what speaks for that class is gone and what speaks against it stays; left alone, it is the "
        said += "other way round. If so, these numbers overstate what the answers owe to these heads; attention and lot have "
        said += "no such help."
    return said


def peak(row: dict[str, Any]) -> tuple[float, list[float]]:
    """The highest accuracy of a curve, with its interval."""
    place = max(range(len(row["accuracy"])), key=row["accuracy"].__getitem__)
    return row["accuracy"][place], row["interval"][place]


def at(row: dict[str, Any], place: int) -> str:
    """The accuracy at one point of a curve."""
    return ranged(row["accuracy"][place], row["interval"][place])


def lost() -> str:
    """The paired differences that the claims rest on."""
    known, body = ledger(), []
    starts = {
        "lost without the first two": "accuracy lost without the two first heads of each layer, by attribution",
        "more than by attention": "accuracy lost without these heads, by attribution less by attention",
        "more than at random": "accuracy lost without these heads, by attribution less by random",
        "lost with only the first two": "accuracy lost with only the two first heads of each layer, by attribution",
    }
    for task in TASKS:
        ids = [f"{start} ({task})" for start in starts.values()]
        if any(id in known for id in ids):
            body.append([task, *(cell(id, known, signed=True) for id in ids)])
    if not body:
        return ""
    said = table(["task", *starts], body)
    for control in ("attention", "random"):
        start = f"accuracy lost without these heads, by attribution less by {control}"
        ends = {t: known[id].interval for t in TASKS if (id := f"{start} ({t})") in known}
        by_lot = "an order by lot" if control == "random" else "the order by attention"
        said += (
            f"\n\nThe two heads that attribution names first, beside the first two of {by_lot}. "
        )
        said += told_apart(
            ends,
            "Accuracy falls more without them on",
            "Accuracy falls less without them on",
            "The interval holds 0 on",
        )
    return said


def along(order: str) -> str:
    """The mean accuracy along the curve, by task and measure."""
    rows = [row for row in lines("tasks-curves.jsonl") if row["order"] == order]
    by = {(row["task"], row["measure"]): row for row in rows}
    tasks = [task for task in TASKS if any((task, measure) in by for measure in MEASURES)]
    body = []
    for measure in MEASURES:
        cells = [
            f"{mean(by[task, measure]['accuracy']):.3f}" if (task, measure) in by else NONE
            for task in tasks
        ]
        if set(cells) != {NONE}:
            body.append([measure, *cells])
    if not tasks:
        return MISSING
    head = []
    for task in tasks:
        mine = [row for row in rows if row["task"] == task]
        ranked = sorted({row["ranked"] for row in mine})
        counted = " or ".join(map(str, ranked))
        head.append(f"{task} (ranked on {counted}, judged on {mine[0]['judged']})")
    return table(["measure", *head], body)


def half() -> str:
    """Paired differences of the rankings, least important heads first."""
    known, body = ledger(), []
    columns = {
        "lost with half of the heads gone": "accuracy lost with half of the heads gone, by attribution"
    }
    others = [measure for measure in MEASURES if measure != PAPER]
    columns |= {
        f"along the curve, less {measure}": f"mean accuracy along the curve, attribution less {measure}"
        for measure in others
    }
    for task in TASKS:
        ids = [f"{start} ({task})" for start in columns.values()]
        if any(id in known for id in ids):
            body.append([task, *(cell(id, known, signed=True) for id in ids)])
    if not body:
        return MISSING
    said = table(["task", *columns], body)
    for measure in others:
        start = f"mean accuracy along the curve, attribution less {measure}"
        ends = {t: known[id].interval for t in TASKS if (id := f"{start} ({t})") in known}
        if ends:
            said += f"\n\nAttribution beside {measure}. "
            said += told_apart(ends, "Better on", "Worse on", "The interval holds 0 on")
    return said


def agree() -> str:
    """Rank correlations of the measures with attribution, within each task."""
    by = {(row["task"], row["measure"]): row for row in lines("tasks-importance.jsonl")}
    tasks = [task for task in TASKS if (task, PAPER) in by]
    body = []
    for measure in MEASURES:
        if measure == PAPER:
            continue
        cells = []
        for task in tasks:
            if (task, measure) not in by:
                cells.append(NONE)
                continue
            first, second = flat(by[task, PAPER]), flat(by[task, measure])
            alike = stats.spearmanr(first, second).statistic
            cells.append(f"{alike:.2f}".replace("-", "−"))
        if set(cells) - {NONE}:
            body.append([measure, *cells])
    heads = [f"{task} ({by[task, PAPER]['examples']} examples)" for task in tasks]
    return table(["measure", *heads], body)


def flat(row: dict[str, Any]) -> list[float]:
    """The importance of all heads in one row."""
    return list(itertools.chain.from_iterable(row["table"]))


def pairs() -> str:
    """Correlations of importance for all pairs of tasks."""
    known, body = ledger(), []
    tables = {r["task"]: flat(r) for r in lines("tasks-importance.jsonl") if r["measure"] == PAPER}
    couples = [*itertools.combinations(TASKS, 2), *((t, ALONE) for t in TASKS if t != "RTE")]
    start = "correlation of head importance, "
    for first, second in couples:
        ids = [f"{start}{first} and {second}, by {measure}" for measure in MEASURES]
        ranks = NONE
        if {first, second} <= tables.keys():
            found = stats.spearmanr(tables[first], tables[second]).statistic
            ranks = f"{found:.2f}".replace("-", "−")
        if ranks != NONE or any(id in known for id in ids):
            cells = [cell(id, known, digits=2) for id in ids]
            body.append([f"{first} and {second}", cells[0], ranks, *cells[1:]])
    if not body:
        return MISSING
    said = table(["tasks", PAPER, f"{PAPER}, by rank", *MEASURES[1:]], body)
    for like in ("RTE", ALONE):
        id = f"{start}MNLI and {like} less MNLI and SST-2, by {PAPER}"
        if id in known:
            low, high = known[id].interval
            word = "more alike" if low > 0 else "less alike" if high < 0 else "not told apart"
            said += f"\n\nMNLI and {like} less MNLI and SST-2, by {PAPER}: "
            said += f"{cell(id, known, 2, signed=True)}: {word}."
    return said


def inherited() -> str:
    """Which classifiers were trained by way of MNLI, so that heads may be inherited."""
    rows = lines("tasks-tries.jsonl")
    mine = {task: [row for row in rows if row["task"] == task] for task in TASKS}
    by_way = [
        t for t, tried in mine.items() if tried and min(tried, key=best_first)["base"] == "nli"
    ]
    if not by_way:
        return ""
    be = "classifiers" if len(by_way) > 1 else "classifier"
    return (
        f"The chosen {be} of {listed(by_way)} came by way of `nli` and may have inherited MNLI's heads. "
        "Likeness to MNLI, and among such tasks, can be that alone."
    )


def trees() -> str:
    """What the answers of the drawn examples owe to the words of their trees."""
    body = []
    for row in lines("tasks-trees.jsonl"):
        without = row["lost"]
        text = " ‖ ".join(part.replace("|", "\\|") for part in (row["text"], row["pair"]) if part)
        cells = [f"{row['task']} {row['number']}", text, str(row["label"]), str(row["edges"])]
        cells += [f"{without['words']} ({without['share']:.0%})".replace("%", " %")]
        body.append([*cells, f"{without['tree']:.2f}", f"{without['random']:.2f}"])
    head = ["tree", "text", "label", "edges", "words of the tree"]
    return table([*head, "answer lost without them", "without as many random words"], body)


def triggers() -> str:
    """A table for each task: what each pattern does to each class."""
    rows, said = lines("tasks-triggers.jsonl"), []
    for task in TASKS:
        mine = sorted((r for r in rows if r["task"] == task), key=lambda row: row["place"])
        if not mine:
            continue
        labels = list(mine[0]["before"])
        counts = mine[0]["examples"]
        head = [f"{name} ({counts[name]}), before {mine[0]['before'][name]:.3f}" for name in labels]
        body = []
        for row in mine:
            after = [ranged(row["after"][n], row["interval"][n]) for n in labels]
            drops = [
                f"{row[name]:+.3f}" for name in ("drop", "drop by attention", "drop at random")
            ]
            cells = [clean(row["pattern"]), row["pulls to"], *after]
            body.append(
                [*cells, drops[0], f"{drops[1]} ({clean(row['attention pattern'])})", drops[2]]
            )
        columns = ["pattern", "speaks for", *head, "drop", "raw attention (its words)", "random"]
        said.append(f"**{task}.**\n\n{table(columns, body)}".replace("-0.", "−0."))
    return "\n\n".join(said) or MISSING


def clean(text: str) -> str:
    """A pattern that can stand in a table."""
    return text.replace("|", "\\|").strip() or "(no words)"


def controls() -> str:
    """Patterns of attribution against their controls."""
    known, body = ledger(), []
    start = "accuracy lost to patterns of attribution less "
    for task, (_, name) in TASKS.items():
        ids = [
            f"{start}{control} ({name})" for control in ("random words", "patterns of attention")
        ]
        there = [known[id] for id in ids if id in known]
        if there:
            cells = [cell(id, known, signed=True) for id in ids]
            body.append([task, str(there[0].count), there[0].data, *cells])
    if not body:
        return MISSING
    head = ["task", "patterns", "examples", "drop less that of random words"]
    said = table([*head, "drop less that of raw attention"], body)
    for control in ("random words", "patterns of attention"):
        ends = {
            task: known[id].interval
            for task, (_, name) in TASKS.items()
            if (id := f"{start}{control} ({name})") in known
        }
        if ends:
            said += f"\n\nPatterns of attribution beside {control}. "
            said += told_apart(
                ends, "They take more on", "They take less on", "The interval holds 0 on"
            )
    return said
