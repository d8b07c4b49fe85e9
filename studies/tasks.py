"""Four tasks, as in Hao et al.: do the same heads matter, and to which measure?

    python studies/tasks.py train --data DATA --work WORK [--tasks RTE MRPC] [--base FOLDER]
    python studies/tasks.py heads --data DATA --work WORK [--tasks …] [--measures …]
    python studies/tasks.py curves --data DATA --work WORK [--tasks …]
    python studies/tasks.py effectiveness --data DATA --work WORK [--tasks …]
    python studies/tasks.py pairs --data DATA --work WORK
    python studies/tasks.py trees --data DATA --work WORK [--figures FOLDER]
    python studies/tasks.py triggers --data DATA --work WORK [--tasks …]
    python studies/tasks.py figures --figures FOLDER

``train``   classifiers from all-MiniLM-L6-v2 for MRPC and RTE, by ``xa.train``, from the encoder
            itself and from the embedded ``nli`` as intermediate task, at several learning rates; a
            tenth of the training data says which is kept. SST-2 and MNLI-subset are the embedded
            ``sentiment`` and ``nli`` (``make models`` is their recipe). Every try goes to
            docs/data/tasks-tries.jsonl; accuracy on the development set, with Wilson's interval,
            and F1 for MRPC, into the ledger
``heads``, ``curves``, ``effectiveness``, ``pairs``
            which heads matter, by which measure, and are like tasks alike (``task_heads.py``)
``trees``, ``triggers``
            how the words reach the answers, and do they turn other texts (``task_words.py``)
``figures`` the figures of all of it, from docs/data alone (``task_figures.py``)

WORK keeps models and results; what is there already is not made again.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers
import words
from bases import MINILM
from four_tasks import (
    DATA,
    EVERY,
    MEASURES,
    NLI,
    TASKS,
    aside_accuracy,
    classifier,
    intermediate,
    model_name,
    put,
    slices,
)
from ledger import Ledger, add_option
from sklearn.metrics import f1_score
from task_figures import figures
from task_heads import curves, effectiveness, heads, pairs
from task_words import trees, triggers

import exhibit_a as xa
from exhibit_a.examples import Example
from exhibit_a.training.data import encode, label_numbers
from exhibit_a.training.train import answers

TRIES = "tasks-tries.jsonl"
LENGTH = 128
BATCH = 32  # the data sets are small, so steps are few
RATES = {"minilm": (1.5e-4,), NLI: (5e-5,)}  # of learning, from each base


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("part", choices=PARTS)
    asked.add_argument("--data", type=Path, help="SST-2, MNLI-subset, RTE, MRPC")
    asked.add_argument("--work", type=Path, help="folder of models and results")
    asked.add_argument("--tasks", nargs="+", choices=list(EVERY), help="usually all")
    asked.add_argument("--docs", type=Path, default=DATA, help="folder of what pages are made of")
    asked.add_argument("--figures", type=Path, help="draw figures into this folder")
    training = asked.add_argument_group("train")
    training.add_argument("--base", type=Path, help="all-MiniLM-L6-v2, if it is here already")
    training.add_argument("--epochs", type=int, help="instead of the usual number")
    training.add_argument("--rates", type=float, nargs="+", help="of learning, from every base")
    training.add_argument("--examples", type=int, help="only so many, to try it out")
    ranking = asked.add_argument_group("heads, curves, effectiveness, pairs")
    ranking.add_argument("--measures", nargs="+", choices=MEASURES, default=list(MEASURES))
    ranking.add_argument("--ranked", type=int, default=200, help="examples to rank heads on")
    ranking.add_argument("--relied", type=int, default=200, help="of them, for reliance")
    ranking.add_argument("--points", type=int, help="of the path of reliance, at most")
    ranking.add_argument("--judged", type=int, default=400, help="other examples, for the curves")
    inserting = asked.add_argument_group("triggers")
    inserting.add_argument("--patterns", type=int, default=500, help="training examples")
    inserting.add_argument("--attacked", type=int, default=400, help="development examples")
    add_option(asked)
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if options.part != "figures":
        if options.data is None or options.work is None:
            asked.error("give --data and --work")
        options.work.mkdir(parents=True, exist_ok=True)
    if options.tasks is None:  # what stands apart is only ranked and compared
        options.tasks = list(EVERY if options.part in ("heads", "pairs") else TASKS)
    PARTS[options.part](options)


def train(options: argparse.Namespace) -> None:
    """Train what is not there yet, and measure every task on its development set."""
    for name in (name for name in options.tasks if name in TASKS):
        task = TASKS[name]
        if not task.embedded:
            try_all(name, options)
        subject = classifier(name, options.work)
        dev = task.read(options.data, "dev")
        measured(name, subject, dev, Ledger(options.ledger, model_name(name), f"{name} dev"))


def try_all(name: str, options: argparse.Namespace) -> None:
    """The same task from each base at each rate; the slice of the training data will choose."""
    learn, aside = (part[: options.examples] for part in slices(name, options.data))
    bases = {
        "minilm": MINILM.folder(options.base, options.work),
        NLI: intermediate(name, options.work),
    }
    for base, folder in bases.items():
        for rate in options.rates or RATES[base]:
            out = options.work / f"{name}-from-{base}-at-{rate:g}"
            if not out.is_dir():
                xa.train(
                    folder,
                    learn,
                    dev=aside,
                    out=out,
                    epochs=options.epochs or TASKS[name].epochs,
                    batch_size=BATCH,
                    learning_rate=rate,
                    patience=2,
                    label_smoothing=0.1,
                    progress=False,
                )
            write_try(name, base, out, options.docs / TRIES)


def write_try(name: str, base: str, folder: Path, file: Path) -> None:
    """One line for a trained model, unless it is there: what was asked, how well it did."""
    record = json.loads((folder / "training.json").read_text())
    settings = ("learning_rate", "epochs", "batch_size", "label_smoothing", "patience")
    row = {"task": name, "base": base} | {each: record[each] for each in settings}
    row |= {
        "train": record["train_examples"],
        "aside": record["dev_examples"],
        "accuracy": words.digits(record["dev_accuracy"]),
        "by_epoch": [words.digits(each) for each in record["dev_accuracy_by_epoch"]],
    }
    put(file, row, "task", "base", "learning_rate", "epochs", "train")
    print(name, base, f"{aside_accuracy(folder):.4f} of {row['aside']} put aside", flush=True)


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


PARTS = {
    "train": train,
    "heads": heads,
    "curves": curves,
    "effectiveness": effectiveness,
    "pairs": pairs,
    "trees": trees,
    "triggers": triggers,
    "figures": figures,
}

if __name__ == "__main__":
    main()
