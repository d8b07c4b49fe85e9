"""Which tasks, which examples, which classifiers? What all parts of ``tasks.py`` share.

SST-2 and MNLI-subset have the embedded ``sentiment`` and ``nli``. RTE and MRPC are trained from
all-MiniLM-L6-v2 or from ``nli``; ``training.json`` in each folder says how well it did on a slice
of the training data, and by that alone the best is taken.

Heads are ranked on examples that no classifier was trained on, and judged on others. Where the
development set is small (RTE has 277 examples), the slice of the training data ranks and the whole
development set judges; elsewhere the first development examples rank, and those after them judge.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import words
from make_models import read_pairs, read_sst

import exhibit_a as xa
from exhibit_a.embedded.weights import load_embedded
from exhibit_a.examples import Example, read_examples
from exhibit_a.training.data import split

DATA = Path(__file__).parents[1] / "docs/data"
MEASURES = ("attribution", "taylor", "ablation", "attention", "reliance")
ASIDE = 0.1  # of the training data, to choose by
NLI = "nli"
ENTAILMENT, OTHERWISE = "entailment", "not_entailment"  # the labels of RTE


@dataclass(frozen=True)
class Task:
    """Where the examples of a task are, and how its classifier is had."""

    read: Callable[[Path, str], list[Example]]
    embedded: str = ""  # the name of the model, where it comes with the package
    epochs: int = 0  # of training, at most
    positive: str = ""  # the class of F1, where it is usual
    of: str = ""  # the task whose examples and trained models it shares
    only_from: str = "*"  # the bases that its classifier may come from


def read_rte(data: Path, part: str) -> list[Example]:
    """Pairs of texts: does the second follow from the first?"""
    return read_examples(data / "RTE" / f"{part}.tsv", labelled=True)


def read_mrpc(data: Path, part: str) -> list[Example]:
    """Pairs of sentences: do they say the same?"""
    named = {"text": "#1 String", "pair": "#2 String", "label": "Quality"}
    names = {"0": "different", "1": "paraphrase"}
    examples = read_examples(data / "MRPC" / f"{part}.tsv", **named, labelled=True)
    return [replace(example, label=names[str(example.label)]) for example in examples]


TASKS = {
    "SST-2": Task(lambda data, part: read_sst(data / "SST-2" / f"{part}.tsv"), "sentiment"),
    "MNLI": Task(lambda data, part: read_pairs(data, "MNLI", part), NLI),
    "RTE": Task(read_rte, epochs=5),
    "MRPC": Task(read_mrpc, epochs=5, positive="paraphrase"),
}
# Heads that two tasks share may be inherited: RTE by way of MNLI keeps some of MNLI's heads. So it
# is compared without that way too, as in the paper.
ALONE = "RTE alone"
APART = {ALONE: replace(TASKS["RTE"], of="RTE", only_from="minilm")}
EVERY = TASKS | APART


def ranked_on(name: str, options: argparse.Namespace) -> list[Example]:
    """The examples that heads are ranked on."""
    task = EVERY[name]
    if task.embedded:
        return task.read(options.data, "dev")[: options.ranked]
    return slices(name, options.data)[1][: options.ranked]


def judged_on(name: str, options: argparse.Namespace) -> list[Example]:
    """Other examples, for the curves."""
    task, first = EVERY[name], options.ranked if EVERY[name].embedded else 0
    return task.read(options.data, "dev")[first:][: options.judged]


def slices(name: str, data: Path) -> tuple[list[Example], list[Example]]:
    """The training examples to learn from, and the slice that is put aside to choose by."""
    return split(EVERY[name].read(data, "train"), ASIDE, seed=0)


def classifier(name: str, work: Path) -> xa.Subject:
    """The model of a task: embedded, or the best of the trained ones."""
    if EVERY[name].embedded:
        return xa.load(EVERY[name].embedded)
    return xa.load(best(name, work))


def best(name: str, work: Path) -> Path:
    """The folder of the trained model that did best on the slice; of equal ones the first."""
    task = EVERY[name]
    tried = sorted(work.glob(f"{task.of or name}-from-{task.only_from}-at-*/training.json"))
    if not tried:
        raise SystemExit(f"error: no model of {name} in {work}; run train first")
    return max(tried, key=lambda file: aside_accuracy(file.parent)).parent


def aside_accuracy(folder: Path) -> float:
    """The best accuracy on what was put aside."""
    return float(json.loads((folder / "training.json").read_text())["dev_accuracy"])


def model_name(name: str) -> str:
    """What the ledger calls the model of a task."""
    task = EVERY[name]
    return f"`{task.embedded}`" if task.embedded else f"MiniLM-L6 tuned on {task.of or name}"


def intermediate(name: str, work: Path) -> Path:
    """The embedded ``nli``, as a folder to train from.

    For RTE it keeps its head: what is not entailment is the mean of the two other classes, with
    the weight of both, so that it starts with what it knows.
    """
    keeps_head = name == "RTE"
    folder = work / ("nli-for-rte" if keeps_head else NLI)
    if folder.is_dir():
        return folder
    model, tokenizer = load_embedded(NLI)
    if keeps_head:
        numbers = {label: int(place) for label, place in model.config.label2id.items()}
        others = [place for label, place in numbers.items() if label != ENTAILMENT]
        head = model.classifier
        pooled = torch.nn.Linear(head.in_features, 2)
        with torch.no_grad():
            for mine, theirs in ((pooled.weight, head.weight), (pooled.bias, head.bias)):
                mine[0] = theirs[numbers[ENTAILMENT]]
                mine[1] = theirs[others].mean(0)
            pooled.bias[1] += torch.tensor(float(len(others))).log()
        model.classifier = pooled
        model.num_labels = 2
        model.config.id2label = {0: ENTAILMENT, 1: OTHERWISE}
        model.config.label2id = {ENTAILMENT: 0, OTHERWISE: 1}
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def put(path: Path, row: dict[str, object], *by: str) -> None:
    """A line of a data file; one that has the same values of these keys makes room for it."""
    same = [row[key] for key in by]
    others = [other for other in words.rows(path) if [other[key] for key in by] != same]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(each, separators=(",", ":")) for each in (*others, words.rounded(row))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
