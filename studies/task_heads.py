"""Which heads do four tasks need, by which measure, and are like tasks alike?

The parts of ``tasks.py`` that rank heads and silence them:

heads          the importance of every head by every measure; reliance takes longest, so it is a
               run of the corpus engine, which goes on where it was stopped
curves         accuracy while heads go, least and most important first, by one ranking of all heads
effectiveness  0, 1, … 12 heads of every layer go, in an order of each example's own
pairs          correlations of importance for all pairs of tasks

What takes long is kept in WORK and not made again. Tables and curves go to docs/data, what claims
rest on into the ledger.
"""

import argparse
import itertools
from pathlib import Path

import torch
from four_tasks import (
    ALONE,
    APART,
    EVERY,
    classifier,
    judged_on,
    model_name,
    put,
    ranked_on,
)
from ledger import Ledger

import exhibit_a as xa
from exhibit_a.examples import Example
from exhibit_a.methods.heads.curve import _measured
from exhibit_a.methods.heads.importance import importance_by_example
from exhibit_a.numerics.intervals import wilson
from exhibit_a.trace.batches import kept_but

IMPORTANCE = "tasks-importance.jsonl"
CURVES = "tasks-curves.jsonl"
EFFECTIVENESS = "tasks-effectiveness.jsonl"
TENTHS = tuple(tenth / 10 for tenth in range(11))
ORDERS = ("least", "most")
OWN = ("attribution", "attention", "random")  # orders of each example's own
TWO = 2  # heads of each layer, in the claim
RESAMPLES = 2000
RELIANCE = "reliance"
TIE = 1e-6  # what breaks ties is weighed by
PAPER = "attribution"  # the measure of the paper, and all that is asked of tasks that stand apart


def heads(options: argparse.Namespace) -> None:
    """The importance of every head by every measure that is not there yet."""
    for name in options.tasks:
        subject = None
        for measure in measures(name, options):
            path = kept_at(f"importance-{name}-{measure}-{options.ranked}", options)
            if not path.exists() or measure == RELIANCE:
                subject = subject or classifier(name, options.work)
                weighed(subject, name, measure, options)
            table, count = importance(name, measure, options)
            row = {"task": name, "measure": measure, "examples": count, "table": table.tolist()}
            put(options.docs / IMPORTANCE, row, "task", "measure")
            strongest = divmod(int(table.argmax()), table.shape[1])
            print(name, measure, f"{count} examples, strongest {strongest}", flush=True)


def measures(name: str, options: argparse.Namespace) -> list[str]:
    """The measures that are asked of a task."""
    return [each for each in options.measures if name not in APART or each == PAPER]


def kept_at(what: str, options: argparse.Namespace) -> Path:
    """Where a result is kept."""
    return options.work / f"{what.replace(' ', '-')}.pt"


def weighed(subject: xa.Subject, name: str, measure: str, options: argparse.Namespace) -> None:
    """Measure the heads of one task by one measure, and keep the table, or its lines."""
    examples = ranked_on(name, options)
    path = kept_at(f"importance-{name}-{measure}-{options.ranked}", options)
    if measure != RELIANCE:
        found = xa.head_importance(subject, examples, by=measure)
        broken = found.details.get("loss", torch.zeros(()))  # heads that change no answer are tied
        torch.save(found.scores + TIE * broken, path)
        return
    folder, some = relied_run(name, options), examples[: options.relied]
    if folder.exists():
        xa.corpus.resume(folder, subject=subject, examples=some)
    else:
        xa.corpus.run(subject, some, RELIANCE, folder, budget=options.points)


def relied_run(name: str, options: argparse.Namespace) -> Path:
    return options.work / f"reliance-{name}-{options.relied}".replace(" ", "-")


def importance(name: str, measure: str, options: argparse.Namespace) -> tuple[torch.Tensor, int]:
    """The table of a task by a measure, and how many examples it rests on; none where 0."""
    if measure == RELIANCE:
        if not relied_run(name, options).exists():
            return torch.empty(0), 0
        run = xa.corpus.open(relied_run(name, options))
        examples, shares = run.to_pandas(), run.to_pandas("heads")
        size = examples.set_index("example")[["margin", "even_margin"]].abs().max(axis=1)
        shares["share"] = shares["heads"].abs() / shares["example"].map(size)
        mean = shares.pivot_table("share", "site", "head")
        return torch.tensor(mean.to_numpy(), dtype=torch.float32), len(examples)
    path = kept_at(f"importance-{name}-{measure}-{options.ranked}", options)
    if not path.exists():
        return torch.empty(0), 0
    return torch.load(path), min(options.ranked, len(ranked_on(name, options)))


def curves(options: argparse.Namespace) -> None:
    """What every ranking does to accuracy, on examples that it was not made from."""
    for name in options.tasks:
        subject, others = classifier(name, options.work), judged_on(name, options)
        right: dict[tuple[str, str], torch.Tensor] = {}
        for measure in measures(name, options):
            table, count = importance(name, measure, options)
            for order in ORDERS if count else ():
                path = kept_at(f"curve-{name}-{measure}-{order}-{count}-{len(others)}", options)
                if not path.exists():
                    torch.save(pruned(subject, others, table, order), path)
                right[measure, order] = torch.load(path)
                row = {"task": name, "measure": measure, "order": order, "ranked": count}
                row |= described(right[measure, order])
                put(options.docs / CURVES, row, "task", "measure", "order")
                print(name, measure, order, row["accuracy"], flush=True)
        ledger = Ledger(options.ledger, model_name(name), data_of(name, options))
        least = {measure: each for (measure, order), each in right.items() if order == "least"}
        compared(name, least, ledger)


def data_of(name: str, options: argparse.Namespace) -> str:
    """What the ledger says of the examples that rankings are judged on."""
    ranked = f"its first {options.ranked}" if EVERY[name].embedded else "a slice of train"
    return f"{name} dev; heads ranked on {ranked}"


def described(right: torch.Tensor) -> dict[str, object]:
    """Accuracy at every point with Wilson's interval."""
    accuracy, count = right.mean(1), right.shape[1]
    ends = wilson(accuracy, count).tolist()
    return {"judged": count, "accuracy": accuracy.tolist(), "interval": ends}


def pruned(subject: xa.Subject, examples: list[Example], table: torch.Tensor, order: str) -> torch.Tensor:
    """Whether every example is right when 0, 10, … 100 % of the heads are gone: by tenth."""
    places = table.flatten().argsort(descending=order == "most").tolist()
    ranking = [divmod(place, table.shape[1]) for place in places]
    masks = [kept_but(subject, ranking[: int(share * len(ranking) + 1e-9)]) for share in TENTHS]
    return _measured(subject, examples, masks)[0]


def compared(name: str, right: dict[str, torch.Tensor], ledger: Ledger) -> None:
    """What the claims about pruning rest on, example by example."""
    if PAPER not in right:
        return
    by = right[PAPER]
    title = f"accuracy lost with half of the heads gone, by attribution ({name})"
    ledger.mean(title, by[0] - by[len(by) // 2], "examples")
    for measure in sorted(right.keys() - {PAPER}):
        less = by.mean(0) - right[measure].mean(0)
        title = f"mean accuracy along the curve, attribution less {measure} ({name})"
        ledger.mean(title, less, "examples")


def effectiveness(options: argparse.Namespace) -> None:
    """Every example loses the same number of heads of each layer, by a ranking of its own."""
    for name in options.tasks:
        examples = EVERY[name].read(options.data, "dev")[: options.ranked]
        subject, right = classifier(name, options.work), {}
        for measure in OWN:
            path = kept_at(f"own-{name}-{measure}-{len(examples)}", options)
            if not path.exists():
                table = own_importance(subject, examples, measure)
                kept = {order: silenced(subject, examples, table, order) for order in ORDERS}
                torch.save(kept, path)
            for order, each in torch.load(path).items():
                right[measure, order] = each
                row = {"task": name, "measure": measure, "order": order} | described(each)
                put(options.docs / EFFECTIVENESS, row, "task", "measure", "order")
                print(name, measure, order, row["accuracy"], flush=True)
        write_effectiveness(name, right, Ledger(options.ledger, model_name(name), f"{name} dev"))


def own_importance(subject: xa.Subject, examples: list[Example], measure: str) -> torch.Tensor:
    """The importance of every head for every example by itself; random numbers as a control."""
    if measure == "random":
        sites, seeded = subject.anatomy.sites, torch.Generator().manual_seed(0)
        most = max(site.heads for site in sites)
        return torch.rand(len(examples), len(sites), most, generator=seeded)
    tables, _ = importance_by_example(subject, examples, by=measure)
    return next(iter(tables.values()))


def silenced(subject: xa.Subject, examples: list[Example], table: torch.Tensor, order: str) -> torch.Tensor:
    """Whether every example is right without its first 0, 1, … heads of each layer."""
    place = table.argsort(-1, descending=order == "most").argsort(-1)
    masks = [(place >= count).float() for count in range(table.shape[-1] + 1)]
    return _measured(subject, examples, masks)[0]


def write_effectiveness(name: str, right: dict[tuple[str, str], torch.Tensor], ledger: Ledger) -> None:
    """What the claim about a head or two rests on, example by example."""
    lost = {measure: right[measure, "most"][0] - right[measure, "most"][TWO] for measure in OWN}
    title = f"accuracy lost without the two first heads of each layer, by attribution ({name})"
    ledger.mean(title, lost[PAPER], "examples")
    for control in ("attention", "random"):
        title = f"accuracy lost without these heads, by attribution less by {control} ({name})"
        ledger.mean(title, lost[PAPER] - lost[control], "examples")
    left = right[PAPER, "least"]
    title = f"accuracy lost with only the two first heads of each layer, by attribution ({name})"
    ledger.mean(title, left[0] - left[-1 - TWO], "examples")


def pairs(options: argparse.Namespace) -> None:
    """Correlations of importance for all pairs of tasks, resampled over heads."""
    for measure in options.measures:
        known = {name: importance(name, measure, options) for name in options.tasks}
        tables = {name: table.flatten() for name, (table, count) in known.items() if count}
        ledger = Ledger(options.ledger, "one for each task", "the examples that heads are ranked on")
        found = {}
        for first, second in itertools.combinations(tables, 2):
            if ALONE in (first, second) and "RTE" in (first, second):
                continue  # the same task twice
            found[first, second] = correlations(tables[first], tables[second])
            title = f"correlation of head importance, {first} and {second}, by {measure}"
            wrote(ledger, title, found[first, second], len(tables[first]))
        unlike = found.get(("SST-2", "MNLI"))
        for like in ("RTE", ALONE):
            if unlike is not None and ("MNLI", like) in found:
                title = "correlation of head importance, "
                title += f"MNLI and {like} less MNLI and SST-2, by {measure}"
                wrote(ledger, title, found["MNLI", like] - unlike, len(tables["MNLI"]))


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
