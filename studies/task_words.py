"""How do words reach the answers of four tasks, and do the strongest ones turn other texts?

The parts of ``tasks.py`` about words:

trees     attribution trees of three development examples of each task: short ones that are
          answered rightly, of different labels where there are. Beside each tree stands what the
          answer loses without its words, and without as many random words
triggers  patterns of training examples, put into development examples, beside random words and the
          patterns of the largest raw attention

What takes long is kept in WORK. Lines go to docs/data, drawings of the trees where figures go, and
what claims rest on into the ledger.
"""

import argparse
from collections import Counter
from typing import cast

from attribution import write_triggers
from edges import without_words
from four_tasks import EVERY, classifier, model_name, put, slices
from ledger import Ledger

import exhibit_a as xa
from exhibit_a.examples import Example
from exhibit_a.methods.triggers.triggers import Attack, Triggers, attack, find_triggers
from exhibit_a.results.store import read
from exhibit_a.trace.capture import Trace

TREES, TRIGGERS = "tasks-trees.jsonl", "tasks-triggers.jsonl"
SHOWN = 3
SHORT = (8, 32)  # tokens of an example whose tree can be read in a column


def trees(options: argparse.Namespace) -> None:
    """Three trees of each task, with what the answer owes to their words."""
    for name in options.tasks:
        subject = classifier(name, options.work)
        dev = EVERY[name].read(options.data, "dev")
        for number, (example, trace) in enumerate(shown(subject, dev), start=1):
            found = xa.self_attribution(trace)
            tree = xa.attribution_tree(found)
            row = {"task": name, "number": number, "text": example.text, "pair": example.pair}
            row |= {
                "label": example.label,
                "tree": tree.text(),
                "edges": len(tree.edges),
                "of exact": float(tree.checks["greedy share of exact"]),
                "gap": float(found.gap.abs().max()),
                "lost": without_words(trace, found),
            }
            put(options.docs / TREES, row, "task", "number")
            print(f"\n{name}: {example.text} | {example.pair}\n{tree.text()}", flush=True)
            if options.figures is not None:
                options.figures.mkdir(parents=True, exist_ok=True)
                drawn = options.figures / f"tasks-tree-{name}-{number}.svg".replace(" ", "-")
                drawn.write_text(tree.svg(), encoding="utf-8")


def shown(subject: xa.Subject, dev: list[Example]) -> list[tuple[Example, Trace]]:
    """The first short examples that are answered rightly, no label more often than it must."""
    each = -(-SHOWN // len(subject.labels))
    chosen: list[tuple[Example, Trace]] = []
    counts: Counter[str | None] = Counter()
    for example in dev:
        tokens = len(subject.tokenizer(example.text, example.pair)["input_ids"])
        if not SHORT[0] <= tokens <= SHORT[1] or counts[example.label] == each:
            continue
        trace = xa.capture(subject, example.text, pair=example.pair)
        if subject.labels[int(trace.output.logits.argmax())] == example.label:
            chosen.append((example, trace))
            counts[example.label] += 1
        if len(chosen) == SHOWN:
            break
    return chosen


def triggers(options: argparse.Namespace) -> None:
    """Patterns of each task's training examples, put into its development examples."""
    for name in options.tasks:
        subject, task = classifier(name, options.work), EVERY[name]
        learn = task.read(options.data, "train") if task.embedded else slices(name, options.data)[0]
        dev = task.read(options.data, "dev")[: options.attacked]
        label = name.replace(" ", "-")
        path = options.work / f"triggers-{label}-{options.patterns}.safetensors"
        if not path.exists():
            find_triggers(subject, learn[: options.patterns]).save(path)
        done = options.work / f"attack-{label}-{options.patterns}-{len(dev)}.safetensors"
        if not done.exists():
            attack(subject, dev, cast(Triggers, read(path))).save(done)
        result = cast(Attack, read(done))
        for row in rows_of(name, result):
            put(options.docs / TRIGGERS, row, "task", "place")
            print(row, flush=True)
        data = f"{name}: {options.patterns} of train, {len(dev)} of dev"
        title = task.embedded or name
        write_triggers(result, Ledger(options.ledger, model_name(name), data), title)


def rows_of(name: str, result: Attack) -> list[dict[str, object]]:
    """A line for every pattern: its words, and accuracy of each class before and after."""
    rows = []
    for place, pattern in enumerate(result.patterns):
        row: dict[str, object] = {"task": name, "place": place, "pattern": pattern.text}
        row |= {
            "pulls to": result.labels[pattern.predicted],
            "score": sum(pattern.scores),
            "attention pattern": result.attention_patterns[place].text,
            "examples": dict(zip(result.labels, result.counts.tolist(), strict=True)),
            "before": dict(zip(result.labels, result.before.tolist(), strict=True)),
            "after": dict(zip(result.labels, result.after[place].tolist(), strict=True)),
            "interval": dict(zip(result.labels, result.interval[place].tolist(), strict=True)),
            "drop": result.drop(place),
            "drop by attention": result.drop(place, result.attention),
            "drop at random": result.drop(place, result.random),
        }
        rows.append(row)
    return rows
