"""Four tasks, as in Hao et al.: do the same heads matter, and to which measure?

    python studies/tasks.py train --data DATA --work WORK [--tasks RTE MRPC] [--base FOLDER]
    python studies/tasks.py heads --data DATA --work WORK [--tasks …] [--ranked 200]
    python studies/tasks.py curves --data DATA --work WORK [--tasks …] [--judged 400]
    python studies/tasks.py pairs --data DATA --work WORK

``train``   classifiers from all-MiniLM-L6-v2 for MRPC and RTE, by ``xa.train``, from the encoder
            itself and from the embedded ``nli`` as intermediate task, at several learning rates; a
            tenth of the training data says which is kept. SST-2 and MNLI-subset are the embedded
            ``sentiment`` and ``nli`` (``make models`` is their recipe). Every try goes to
            docs/data/tasks-tries.jsonl; accuracy on the development set, with Wilson's interval,
            and F1 for MRPC, into the ledger
``heads``   the importance of every head by every measure, on the first development examples;
            reliance takes longest and is kept example by example
``curves``  accuracy while heads go, least and most important first, on other examples; and without
            two heads of each layer that every example chooses by itself (effectiveness)
``pairs``   are like tasks alike? Correlations of importance for all pairs of tasks

WORK keeps models and results; what is there already is not made again. Curves go to
docs/data/tasks.jsonl, what claims rest on into the ledger.
"""

import argparse
import itertools
import json
from pathlib import Path

import torch
import transformers
import words
from bases import MINILM
from four_tasks import (
    DATA,
    MEASURES,
    NLI,
    TASKS,
    aside_accuracy,
    classifier,
    intermediate,
    model_name,
    slices,
)
from ledger import Ledger, add_option
from sklearn.metrics import f1_score

import exhibit_a as xa
from exhibit_a.examples import Example
from exhibit_a.methods.heads.curve import _measured
from exhibit_a.methods.heads.importance import importance_by_example
from exhibit_a.trace.batches import kept_but
from exhibit_a.training.fit import answers
from exhibit_a.training.train import encode, label_numbers

TENTHS = tuple(tenth / 10 for tenth in range(11))
CURVES = DATA / "tasks.jsonl"
TRIES = DATA / "tasks-tries.jsonl"
RESAMPLES = 2000
LENGTH = 128
BATCH = 32  # the data sets are small, so steps are few
RATES = {"minilm": (1.5e-4,), NLI: (5e-5, 1.5e-4)}  # of learning, from each base


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("part", choices=("train", "heads", "curves", "pairs"))
    asked.add_argument("--data", type=Path, required=True, help="SST-2, MNLI-subset, RTE, MRPC")
    asked.add_argument("--work", type=Path, required=True, help="folder of models and results")
    asked.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    asked.add_argument("--base", type=Path, help="all-MiniLM-L6-v2, if it is here already")
    asked.add_argument("--epochs", type=int, help="of training, instead of the usual ones")
    asked.add_argument("--rates", type=float, nargs="+", help="of learning, from every base")
    asked.add_argument("--examples", type=int, help="only so many, to try training out")
    asked.add_argument("--tries", type=Path, default=TRIES, help="file of what was trained")
    asked.add_argument("--ranked", type=int, default=200, help="examples that heads are ranked on")
    asked.add_argument("--judged", type=int, default=400, help="other examples, for the curves")
    asked.add_argument("--measures", nargs="+", choices=MEASURES, default=list(MEASURES))
    add_option(asked)
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options.work.mkdir(parents=True, exist_ok=True)
    {"train": train, "heads": heads, "curves": curves, "pairs": pairs}[options.part](options)


def train(options: argparse.Namespace) -> None:
    """Train what is not there yet, and measure every task on its development set."""
    for name in options.tasks:
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
            write_try(name, base, out, options.tries)


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
    if row not in words.rows(file):
        words.append(file, row)
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
        ends = torch.tensor(scores, dtype=torch.float64).quantile(
            torch.tensor([0.025, 0.975]).double()
        )
        whole = float(f1_score(gold == place, given == place))
        ledger.write(f"F1 {name}", whole, ends.tolist(), len(dev), "examples")


def heads(options: argparse.Namespace) -> None:
    """The importance of every head by every measure that is not there yet."""
    for name in options.tasks:
        subject = classifier(name, options.work)
        dev = TASKS[name].read(options.data, "dev")[: options.ranked]
        for measure in options.measures:
            path = table_of(name, measure, options)
            if path.exists():
                continue
            if measure == "reliance":
                table = relied(subject, dev, path.with_suffix(".jsonl"))
            else:
                table = xa.head_importance(subject, dev, by=measure).scores
            torch.save(table, path)
            print(
                name,
                measure,
                f"strongest (site, head) {divmod(int(table.argmax()), table.shape[1])}",
                flush=True,
            )


def table_of(name: str, measure: str, options: argparse.Namespace) -> Path:
    return options.work / f"importance-{name}-{measure}-{options.ranked}.pt"


def relied(subject: xa.Subject, dev: list[Example], kept: Path) -> torch.Tensor:
    """The mean size of every head's share of reliance; texts that are done are not done again."""
    done = len(words.rows(kept))
    for example in dev[done:]:
        found = xa.reliance(xa.capture(subject, example.text, pair=example.pair))
        shares = [(site / found.size).abs().tolist() for site in found.heads]
        words.append(kept, words.rounded({"shares": shares}))
    return torch.tensor([row["shares"] for row in words.rows(kept)]).mean(0)


def curves(options: argparse.Namespace) -> None:
    """What every ranking does to accuracy, on examples that it was not made from."""
    for name in options.tasks:
        subject = classifier(name, options.work)
        dev = TASKS[name].read(options.data, "dev")
        others = dev[options.ranked : options.ranked + options.judged]
        tables = {
            measure: torch.load(path)
            for measure in options.measures
            if (path := table_of(name, measure, options)).exists()
        }
        right = {
            (measure, order): pruned(subject, others, table, order)
            for measure, table in tables.items()
            for order in ("least", "most")
        }
        for (measure, order), each in right.items():
            row = {"task": name, "measure": measure, "order": order, "ranked": options.ranked}
            row |= {"judged": len(others), "accuracy": each.mean(1).tolist()}
            words.append(CURVES, words.rounded(row))
        ledger = Ledger(options.ledger, model_name(name), f"{name} dev")
        compared(name, {m: right[m, "least"] for m in tables}, ledger)
        by_themselves(name, subject, dev[: options.ranked], ledger)


def pruned(
    subject: xa.Subject, examples: list[Example], table: torch.Tensor, order: str
) -> torch.Tensor:
    """Whether every example is right when 0, 10, … 100 % of the heads are gone: by tenth."""
    places = table.flatten().argsort(descending=order == "most").tolist()
    ranking = [divmod(place, table.shape[1]) for place in places]
    masks = [kept_but(subject, ranking[: int(share * len(ranking) + 1e-9)]) for share in TENTHS]
    return _measured(subject, examples, masks)[0]


def compared(name: str, right: dict[str, torch.Tensor], ledger: Ledger) -> None:
    """What the claims about pruning rest on, example by example."""
    by = right["attribution"]
    half = by[0] - by[5]
    ledger.mean(
        f"accuracy lost with half of the heads gone, by attribution ({name})", half, "examples"
    )
    for measure in right.keys() - {"attribution"}:
        less = by.mean(0) - right[measure].mean(0)
        title = f"mean accuracy along the curve, attribution less {measure} ({name})"
        ledger.mean(title, less, "examples")


def by_themselves(name: str, subject: xa.Subject, dev: list[Example], ledger: Ledger) -> None:
    """Effectiveness: every example loses two heads of each layer, by a ranking of its own."""
    right = {}
    for measure in ("attribution", "attention"):
        tables, _ = importance_by_example(subject, dev, by=measure)
        table = next(iter(tables.values()))
        place = table.argsort(-1, descending=True).argsort(-1)
        masks = [torch.ones_like(table), (place >= 2).float()]
        right[measure] = _measured(subject, dev, masks)[0]
    lost = {measure: each[0] - each[1] for measure, each in right.items()}
    title = f"accuracy lost without the two first heads of each layer, by attribution ({name})"
    ledger.mean(title, lost["attribution"], "examples")
    title = f"accuracy lost without these heads, by attribution less by attention ({name})"
    ledger.mean(title, lost["attribution"] - lost["attention"], "examples")


def pairs(options: argparse.Namespace) -> None:
    """Correlations of importance for all pairs of tasks, resampled over heads."""
    for measure in options.measures:
        paths = {name: table_of(name, measure, options) for name in options.tasks}
        tables = {name: torch.load(p).flatten() for name, p in paths.items() if p.exists()}
        ledger = Ledger(options.ledger, "one for each task", f"dev, first {options.ranked}")
        found = {}
        for first, second in itertools.combinations(tables, 2):
            found[first, second] = correlations(tables[first], tables[second])
            title = f"correlation of head importance, {first} and {second}, by {measure}"
            wrote(ledger, title, found[first, second], len(tables[first]))
        like, unlike = found.get(("MNLI", "RTE")), found.get(("SST-2", "MNLI"))
        if like is not None and unlike is not None:
            title = (
                f"correlation of head importance, MNLI and RTE less MNLI and SST-2, by {measure}"
            )
            wrote(ledger, title, like - unlike, len(tables["MNLI"]))


def correlations(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Pearson of two rankings: as it is, then with heads drawn again, the same heads for all."""
    seeded = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(first), (RESAMPLES, len(first)), generator=seeded)
    rows = torch.cat([torch.arange(len(first))[None], drawn])
    a, b = (each[rows] - each[rows].mean(1, keepdim=True) for each in (first, second))
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))


def wrote(ledger: Ledger, title: str, values: torch.Tensor, heads: int) -> None:
    """The first of the values, with the interval that the others give it."""
    ends = values[1:].double().quantile(torch.tensor([0.025, 0.975]).double()).tolist()
    ledger.write(title, float(values[0]), ends, heads, "heads")


if __name__ == "__main__":
    main()
