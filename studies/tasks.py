"""Four tasks, as in Hao et al.: do the same heads matter, and to which measure?

    python studies/tasks.py train --data DATA --work WORK [--tasks RTE MRPC]
    python studies/tasks.py heads --data DATA --work WORK [--tasks …] [--ranked 200]
    python studies/tasks.py curves --data DATA --work WORK [--tasks …]
    python studies/tasks.py pairs --data DATA --work WORK

``train``   classifiers from all-MiniLM-L6-v2 for MRPC and RTE, by ``xa.train``, each from the
            encoder itself and from the embedded ``nli`` as intermediate task; a tenth of the
            training data says which is kept. SST-2 and MNLI-subset are the embedded ``sentiment``
            and ``nli`` (``make models`` is their recipe). Accuracy on the development set, with
            Wilson's interval, and F1 for MRPC, go into the ledger
``heads``   the importance of every head by every measure, on the first development examples;
            reliance through the corpus engine, so that a stopped run goes on
``curves``  accuracy while heads go, least and most important first, on the other examples
``pairs``   are like tasks alike? Correlations of importance for all pairs of tasks

WORK keeps models and results; what is there already is not made again.
"""

import argparse
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers
from bases import MINILM
from ledger import Ledger, add_option
from make_models import read_pairs, read_sst
from sklearn.metrics import f1_score

import exhibit_a as xa
from exhibit_a.embedded.weights import load_embedded
from exhibit_a.examples import Example, read_examples
from exhibit_a.numerics.intervals import bootstrap_interval
from exhibit_a.training.fit import answers
from exhibit_a.training.train import encode, label_numbers, split

ASIDE = 0.1  # of the training data, to choose by
LENGTH = 128


@dataclass(frozen=True)
class Task:
    """Where the examples of a task are, and how its classifier is had."""

    read: Callable[[Path, str], list[Example]]
    embedded: str = ""  # the name of the model, where it comes with the package
    epochs: int = 6
    positive: str = ""  # the class of F1, where it is usual


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("part", choices=("train", "heads", "curves", "pairs"))
    asked.add_argument("--data", type=Path, required=True, help="SST-2, MNLI-subset, RTE, MRPC")
    asked.add_argument("--work", type=Path, required=True, help="folder of models and results")
    asked.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    asked.add_argument("--ranked", type=int, default=200, help="examples that heads are ranked on")
    asked.add_argument("--measures", nargs="+", default=["attribution", "taylor", "attention"])
    add_option(asked)
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options.work.mkdir(parents=True, exist_ok=True)
    {"train": train}[options.part](options)


def train(options: argparse.Namespace) -> None:
    """Train what is not there yet, and measure every task on its development set."""
    for name in options.tasks:
        task = TASKS[name]
        if not task.embedded:
            make(name, options)
        subject = classifier(name, options)
        dev = task.read(options.data, "dev")
        measured(name, subject, dev, Ledger(options.ledger, told(name), f"{name} dev"))


def make(name: str, options: argparse.Namespace) -> None:
    """The same task from each base; the slice of the training data says which is better."""
    learn, aside = split(TASKS[name].read(options.data, "train"), ASIDE, seed=0)
    bases = {"minilm": MINILM.folder(None, options.work), "nli": intermediate(options.work)}
    for base, folder in bases.items():
        out = options.work / f"{name}-from-{base}"
        if not out.is_dir():
            xa.train(
                folder,
                learn,
                dev=aside,
                out=out,
                epochs=TASKS[name].epochs,
                patience=3,
                label_smoothing=0.1,
                progress=False,
            )
        print(name, base, f"{aside_accuracy(out):.4f} of {len(aside)} put aside", flush=True)


def intermediate(work: Path) -> Path:
    """The embedded ``nli``, as a folder to train from."""
    folder = work / "nli"
    if not folder.is_dir():
        model, tokenizer = load_embedded("nli")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def aside_accuracy(folder: Path) -> float:
    """The best accuracy on what was put aside."""
    return json.loads((folder / "training.json").read_text())["dev_accuracy"]


def classifier(name: str, options: argparse.Namespace) -> xa.Subject:
    """The model of a task: embedded, or the better of the trained ones."""
    if TASKS[name].embedded:
        return xa.load(TASKS[name].embedded)
    trained = sorted(options.work.glob(f"{name}-from-*/"))
    return xa.load(max(trained, key=aside_accuracy))


def told(name: str) -> str:
    """What the ledger calls the model of a task."""
    return f"`{TASKS[name].embedded}`" if TASKS[name].embedded else f"MiniLM-L6 tuned on {name}"


def measured(name: str, subject: xa.Subject, dev: list[Example], ledger: Ledger) -> None:
    """Accuracy, and F1 where it is usual."""
    numbers = label_numbers(subject.model)
    given = answers(subject.model, encode(subject.model, subject.tokenizer, dev, LENGTH)).argmax(-1)
    gold = torch.tensor([numbers[example.label] for example in dev])
    ledger.share(f"accuracy {name}", int((given == gold).sum()), len(dev), "examples")
    if positive := TASKS[name].positive:
        place = numbers[positive]
        seeded = torch.Generator().manual_seed(0)
        drawn = [torch.randint(len(dev), (len(dev),), generator=seeded) for _ in range(1000)]
        scores = [f1_score(gold[some] == place, given[some] == place) for some in drawn]
        ends = torch.tensor(scores, dtype=torch.float64).quantile(torch.tensor([0.025, 0.975]).double())
        whole = float(f1_score(gold == place, given == place))
        ledger.write(f"F1 {name}", whole, ends.tolist(), len(dev), "examples")


def read_rte(data: Path, part: str) -> list[Example]:
    return read_examples(data / "RTE" / f"{part}.tsv", labelled=True)


def read_mrpc(data: Path, part: str) -> list[Example]:
    named = {"text": "#1 String", "pair": "#2 String", "label": "Quality"}
    names = {"0": "different", "1": "paraphrase"}
    examples = read_examples(data / "MRPC" / f"{part}.tsv", **named, labelled=True)
    return [replace(example, label=names[str(example.label)]) for example in examples]


TASKS = {
    "SST-2": Task(lambda data, part: read_sst(data / "SST-2" / f"{part}.tsv"), "sentiment"),
    "MNLI": Task(lambda data, part: read_pairs(data, "MNLI", part), "nli"),
    "RTE": Task(read_rte),
    "MRPC": Task(read_mrpc, positive="paraphrase"),
}

if __name__ == "__main__":
    main()
