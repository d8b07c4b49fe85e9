"""The parts of ``tasks.py``: classifiers of four tasks, the heads they need, and the words that
turn them.

SST-2 and MNLI-subset have the embedded ``sentiment`` and ``nli``. RTE and MRPC are trained from
all-MiniLM-L6-v2 or from ``nli``; ``training.json`` in each folder says how well it did on a slice
of the training data, and by that alone the best is taken.

Heads are ranked on examples that no classifier was trained on, and judged on others. Where the
development set is small (RTE has 277 examples), the slice of the training data ranks and the whole
development set judges; elsewhere the first development examples rank, and those after them judge.

What takes long is kept in WORK and not made again. Lines go to docs/data, drawings of the trees
where figures go, and what claims rest on into the ledger.
"""

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from edges import without_words
from make_models import MINILM
from sklearn.metrics import f1_score
from study import Ledger, Row, digits, put, read_nli, read_sst

import exhibit_a as xa
from exhibit_a.embedded.weights import load_embedded
from exhibit_a.examples import Example, read_examples
from exhibit_a.methods.heads.curve import TENTHS, _measured
from exhibit_a.methods.heads.importance import importance_by_example
from exhibit_a.methods.triggers.triggers import Attack, attack, find_triggers
from exhibit_a.numerics.intervals import wilson
from exhibit_a.results.store import read
from exhibit_a.trace.batches import kept_but
from exhibit_a.training.data import encode, label_numbers, split
from exhibit_a.training.train import answers

TRIES, IMPORTANCE, CURVES = "tasks-tries.jsonl", "tasks-importance.jsonl", "tasks-curves.jsonl"
EFFECTIVENESS, TREES, TRIGGERS = (
    "tasks-effectiveness.jsonl",
    "tasks-trees.jsonl",
    "tasks-triggers.jsonl",
)
MEASURES = ("attribution", "taylor", "ablation", "attention", "reliance")
PAPER = "attribution"  # the measure of the paper, and all that is asked of tasks that stand apart
RELIANCE = "reliance"
OWN = ("attribution", "attention", "random")  # orders of each example's own
ORDERS = ("least", "most")
ASIDE = 0.1  # of the training data, to choose by
NLI = "nli"
ENTAILMENT, OTHERWISE = "entailment", "not_entailment"  # the labels of RTE
RATES = {"minilm": (1.5e-4,), NLI: (5e-5,)}  # of learning, from each base
LENGTH, BATCH = 128, 32  # the data sets are small, so steps are few
TWO = 2  # heads of each layer, in the claim
RESAMPLES = 2000
TIE = 1e-6  # what breaks ties is weighed by
SHOWN, SHORT = (
    3,
    (8, 32),
)  # trees of a task, and tokens of an example whose tree can be read in a column
ENDS = torch.tensor([0.025, 0.975], dtype=torch.float64)
Options = argparse.Namespace


# Tasks and their examples


@dataclass(frozen=True)
class Task:
    """Where the examples of a task are, and how its classifier is had."""

    read: Callable[[Path, str], list[Example]]
    embedded: str = ""  # the name of the model, where it comes with the package
    epochs: int = 0  # of training, at most
    positive: str = ""  # the class of F1, where it is usual
    of: str = ""  # the task whose examples and trained models it shares
    only_from: str = "*"  # the bases that its classifier may come from


def read_mrpc(data: Path, part: str) -> list[Example]:
    """Pairs of sentences: do they say the same?"""
    named = {"text": "#1 String", "pair": "#2 String", "label": "Quality"}
    names = {"0": "different", "1": "paraphrase"}
    examples = read_examples(data / "MRPC" / f"{part}.tsv", **named, labelled=True)
    return [replace(example, label=names[str(example.label)]) for example in examples]


TASKS = {
    "SST-2": Task(lambda data, part: read_sst(data / "SST-2" / f"{part}.tsv"), "sentiment"),
    "MNLI": Task(lambda data, part: read_nli(data, "MNLI", part), NLI),
    "RTE": Task(
        lambda data, part: read_examples(data / "RTE" / f"{part}.tsv", labelled=True), epochs=5
    ),
    "MRPC": Task(read_mrpc, epochs=5, positive="paraphrase"),
}
# Heads that two tasks share may be inherited: RTE by way of MNLI keeps some of MNLI's heads. So it
# is compared without that way too, as in the paper.
ALONE = "RTE alone"
APART = {ALONE: replace(TASKS["RTE"], of="RTE", only_from="minilm")}
EVERY = TASKS | APART


def ranked_on(name: str, options: Options) -> list[Example]:
    """The examples that heads are ranked on."""
    task = EVERY[name]
    return (task.read(options.data, "dev") if task.embedded else slices(name, options.data)[1])[
        : options.ranked
    ]


def judged_on(name: str, options: Options) -> list[Example]:
    """Other examples, for the curves."""
    first = options.ranked if EVERY[name].embedded else 0
    return EVERY[name].read(options.data, "dev")[first:][: options.judged]


def slices(name: str, data: Path) -> tuple[list[Example], list[Example]]:
    """The training examples to learn from, and the slice that is put aside to choose by."""
    return split(EVERY[name].read(data, "train"), ASIDE, seed=0)


def kept_at(options: Options, *what: object, end: str = ".pt") -> Path:
    """Where a result is kept."""
    return options.work / ("-".join(map(str, what)).replace(" ", "-") + end)


# Classifiers


def train(options: Options) -> None:
    """Train what is not there yet, and measure every task on its development set."""
    for name in (name for name in options.tasks if name in TASKS):
        if not TASKS[name].embedded:
            try_all(name, options)
        measure(name, TASKS[name].read(options.data, "dev"), options)


def try_all(name: str, options: Options) -> None:
    """The same task from each base at each rate; the slice of the training data will choose."""
    learn, aside = (part[: options.examples] for part in slices(name, options.data))
    settings = {"epochs": options.epochs or TASKS[name].epochs, "batch_size": BATCH, "patience": 2}
    settings |= {"label_smoothing": 0.1, "progress": False}
    bases = {
        "minilm": MINILM.folder(options.base, options.work),
        NLI: intermediate(name, options.work),
    }
    for base, folder in bases.items():
        for rate in options.rates or RATES[base]:
            out = options.work / f"{name}-from-{base}-at-{rate:g}"
            if not out.is_dir():
                xa.train(folder, learn, dev=aside, out=out, learning_rate=rate, **settings)
            record = json.loads((out / "training.json").read_text())
            same = ("learning_rate", "epochs", "batch_size", "label_smoothing", "patience")
            row = {"task": name, "base": base} | {each: record[each] for each in same}
            row |= {"train": record["train_examples"], "aside": record["dev_examples"]}
            row["accuracy"] = digits(record["dev_accuracy"])
            row["by_epoch"] = [digits(each) for each in record["dev_accuracy_by_epoch"]]
            put(options.docs / TRIES, row, "task", "base", "learning_rate", "epochs", "train")


def measure(name: str, dev: list[Example], options: Options) -> None:
    """Accuracy, and F1 where it is usual."""
    subject, ledger = (
        classifier(name, options.work),
        Ledger(options.ledger, model_name(name), f"{name} dev"),
    )
    numbers = label_numbers(subject.model)
    given = answers(subject.model, encode(subject.model, subject.tokenizer, dev, LENGTH)).argmax(-1)
    gold = torch.tensor([numbers[example.label] for example in dev])
    ledger.share(f"accuracy {name}", int((given == gold).sum()), len(dev), "examples")
    if positive := TASKS[name].positive:
        right, said = gold == numbers[positive], given == numbers[positive]
        seeded = torch.Generator().manual_seed(0)
        drawn = [torch.randint(len(dev), (len(dev),), generator=seeded) for _ in range(1000)]
        scores = torch.tensor(
            [f1_score(right[some], said[some]) for some in drawn], dtype=torch.float64
        )
        ledger.write(
            f"F1 {name}",
            float(f1_score(right, said)),
            scores.quantile(ENDS).tolist(),
            len(dev),
            "examples",
        )


def classifier(name: str, work: Path) -> xa.Subject:
    """The model of a task: embedded, or the best of the trained ones."""
    return xa.load(EVERY[name].embedded or best(name, work))


def best(name: str, work: Path) -> Path:
    """The folder of the trained model that did best on the slice; of equal ones the first."""
    task = EVERY[name]
    tried = sorted(work.glob(f"{task.of or name}-from-{task.only_from}-at-*/training.json"))
    if not tried:
        raise SystemExit(f"error: no model of {name} in {work}; run train first")
    return max(tried, key=lambda file: float(json.loads(file.read_text())["dev_accuracy"])).parent


def model_name(name: str) -> str:
    """What the ledger calls the model of a task."""
    task = EVERY[name]
    return f"`{task.embedded}`" if task.embedded else f"MiniLM-L6 tuned on {task.of or name}"


def intermediate(name: str, work: Path) -> Path:
    """The embedded ``nli``, as a folder to train from.

    For RTE it keeps its head: what is not entailment is the mean of the two other classes, with the
    weight of both, so that it starts with what it knows.
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
        model.classifier, model.num_labels = pooled, 2
        model.config.id2label = {0: ENTAILMENT, 1: OTHERWISE}
        model.config.label2id = {ENTAILMENT: 0, OTHERWISE: 1}
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# Heads


def heads(options: Options) -> None:
    """The importance of every head by every measure; reliance is a run of the corpus engine, as it
    takes longest."""
    for name, measure in asked(options):
        path, folder = (
            kept_at(options, "importance", name, measure, options.ranked),
            relied_run(name, options),
        )
        if measure == RELIANCE:
            some, subject = (
                ranked_on(name, options)[: options.relied],
                classifier(name, options.work),
            )
            if folder.exists():
                xa.corpus.resume(folder, subject=subject, examples=some)
            else:
                xa.corpus.run(subject, some, RELIANCE, folder, budget=options.points)
        elif not path.exists():
            found = xa.head_importance(
                classifier(name, options.work), ranked_on(name, options), by=measure
            )
            broken = found.details.get(
                "loss", torch.zeros(())
            )  # heads that change no answer are tied
            torch.save(found.scores + TIE * broken, path)
        table, count = importance(name, measure, options)
        row = {"task": name, "measure": measure, "examples": count, "table": table.tolist()}
        put(options.docs / IMPORTANCE, row, "task", "measure")


def asked(options: Options) -> Iterator[tuple[str, str]]:
    """Tasks and the measures that are asked of them."""
    for name in options.tasks:
        for measure in options.measures:
            if name not in APART or measure == PAPER:
                yield name, measure


def relied_run(name: str, options: Options) -> Path:
    return kept_at(options, "reliance", name, options.relied, end="")


def importance(name: str, measure: str, options: Options) -> tuple[torch.Tensor, int]:
    """The table of a task by a measure, and how many examples it rests on; none where 0."""
    path, folder = (
        kept_at(options, "importance", name, measure, options.ranked),
        relied_run(name, options),
    )
    if measure != RELIANCE and path.exists():
        return torch.load(path), min(options.ranked, len(ranked_on(name, options)))
    if measure != RELIANCE or not folder.exists():
        return torch.empty(0), 0
    run = xa.corpus.open(folder)
    examples, shares = run.to_pandas(), run.to_pandas("heads")
    size = examples.set_index("example")[["margin", "baseline_margin"]].abs().max(axis=1)
    shares["share"] = shares["heads"].abs() / shares["example"].map(size)
    mean = shares.pivot_table("share", "site", "head")
    return torch.tensor(mean.to_numpy(), dtype=torch.float32), len(examples)


def curves(options: Options) -> None:
    """What every ranking does to accuracy, on examples that it was not made from."""
    for name in options.tasks:
        subject, others = classifier(name, options.work), judged_on(name, options)
        least: dict[str, torch.Tensor] = {}
        for _, measure in asked(Options(tasks=[name], measures=options.measures)):
            table, count = importance(name, measure, options)
            for order in ORDERS if count else ():
                path = kept_at(options, "curve", name, measure, order, count, len(others))
                if not path.exists():
                    torch.save(pruned(subject, others, table, order), path)
                right = torch.load(path)
                row = {
                    "task": name,
                    "measure": measure,
                    "order": order,
                    "ranked": count,
                } | described(right)
                put(options.docs / CURVES, row, "task", "measure", "order")
                least |= {measure: right} if order == "least" else {}
        ranked = f"its first {options.ranked}" if EVERY[name].embedded else "a slice of train"
        if PAPER in least:
            data = f"{name} dev; heads ranked on {ranked}"
            compared(name, least, Ledger(options.ledger, model_name(name), data))


def described(right: torch.Tensor) -> Row:
    """Accuracy at every point with Wilson's interval."""
    accuracy, count = right.mean(1), right.shape[1]
    return {
        "judged": count,
        "accuracy": accuracy.tolist(),
        "interval": wilson(accuracy, count).tolist(),
    }


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
    by = right[PAPER]
    title = f"accuracy lost with half of the heads gone, by attribution ({name})"
    ledger.mean(title, by[0] - by[len(by) // 2], "examples")
    for measure in sorted(right.keys() - {PAPER}):
        title = f"mean accuracy along the curve, attribution less {measure} ({name})"
        ledger.mean(title, by.mean(0) - right[measure].mean(0), "examples")


def effectiveness(options: Options) -> None:
    """Every example loses 0, 1, … heads of each layer, by a ranking of its own."""
    for name in options.tasks:
        examples = EVERY[name].read(options.data, "dev")[: options.ranked]
        subject, right = classifier(name, options.work), {}
        for measure in OWN:
            path = kept_at(options, "own", name, measure, len(examples))
            if not path.exists():
                table = own_importance(subject, examples, measure)
                torch.save(
                    {order: silenced(subject, examples, table, order) for order in ORDERS}, path
                )
            for order, each in torch.load(path).items():
                right[measure, order] = each
                row = {"task": name, "measure": measure, "order": order} | described(each)
                put(options.docs / EFFECTIVENESS, row, "task", "measure", "order")
        ledger = Ledger(options.ledger, model_name(name), f"{name} dev")
        lost = {measure: right[measure, "most"][0] - right[measure, "most"][TWO] for measure in OWN}
        title = f"accuracy lost without the two first heads of each layer, by attribution ({name})"
        ledger.mean(title, lost[PAPER], "examples")
        for control in OWN[1:]:
            title = f"accuracy lost without these heads, by attribution less by {control} ({name})"
            ledger.mean(title, lost[PAPER] - lost[control], "examples")
        left = right[PAPER, "least"]
        title = (
            f"accuracy lost with only the two first heads of each layer, by attribution ({name})"
        )
        ledger.mean(title, left[0] - left[-1 - TWO], "examples")


def own_importance(subject: xa.Subject, examples: list[Example], measure: str) -> torch.Tensor:
    """The importance of every head for every example by itself; random numbers as a control."""
    if measure == "random":
        sites, seeded = subject.anatomy.sites, torch.Generator().manual_seed(0)
        return torch.rand(
            len(examples), len(sites), max(site.heads for site in sites), generator=seeded
        )
    tables, _ = importance_by_example(subject, examples, by=measure)
    return next(iter(tables.values()))


def silenced(
    subject: xa.Subject, examples: list[Example], table: torch.Tensor, order: str
) -> torch.Tensor:
    """Whether every example is right without its first 0, 1, … heads of each layer."""
    place = table.argsort(-1, descending=order == "most").argsort(-1)
    masks = [(place >= count).float() for count in range(table.shape[-1] + 1)]
    return _measured(subject, examples, masks)[0]


def pairs(options: Options) -> None:
    """Correlations of importance for all pairs of tasks, resampled over heads."""
    ledger = Ledger(options.ledger, "one for each task", "the examples that heads are ranked on")
    start = "correlation of head importance,"
    for measure in options.measures:
        known = {name: importance(name, measure, options) for name in options.tasks}
        tables = {name: table.flatten() for name, (table, count) in known.items() if count}
        found: dict[tuple[str, str], torch.Tensor] = {}
        titles: dict[str, torch.Tensor] = {}
        for first, second in itertools.combinations(tables, 2):
            if (first, second) != ("RTE", ALONE):  # the same task twice
                found[first, second] = correlations(tables[first], tables[second])
                titles[f"{start} {first} and {second}, by {measure}"] = found[first, second]
        for like in ("RTE", ALONE):
            if ("SST-2", "MNLI") in found and ("MNLI", like) in found:
                more = found["MNLI", like] - found["SST-2", "MNLI"]
                titles[f"{start} MNLI and {like} less MNLI and SST-2, by {measure}"] = more
        for title, (value, *again) in titles.items():
            ends = torch.tensor(again, dtype=torch.float64).quantile(ENDS).tolist()
            ledger.write(title, float(value), ends, len(next(iter(tables.values()))), "heads")


def correlations(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Pearson of two rankings: as it is, then with heads drawn again, the same heads for all."""
    seeded = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(first), (RESAMPLES, len(first)), generator=seeded)
    rows = torch.cat([torch.arange(len(first))[None], drawn])
    a, b = (each[rows] - each[rows].mean(1, keepdim=True) for each in (first, second))
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))


# Words


def trees(options: Options) -> None:
    """Three attribution trees of each task, with what the answer owes to their words, and to as
    many at random."""
    for name in options.tasks:
        subject = classifier(name, options.work)
        for number, (example, trace) in enumerate(
            shown(subject, EVERY[name].read(options.data, "dev")), start=1
        ):
            found = xa.self_attribution(trace)
            tree = xa.attribution_tree(found)
            row: Row = {"task": name, "number": number, "text": example.text, "pair": example.pair}
            row |= {"label": example.label, "tree": tree.text(), "edges": len(tree.edges)}
            row |= {
                "of exact": float(tree.checks["greedy share of exact"]),
                "gap": float(found.gap.abs().max()),
            }
            put(options.docs / TREES, row | {"lost": without_words(trace, found)}, "task", "number")
            if options.figures is not None:
                options.figures.mkdir(parents=True, exist_ok=True)
                drawn = options.figures / f"tasks-tree-{name}-{number}.svg".replace(" ", "-")
                drawn.write_text(tree.svg(), encoding="utf-8")


def shown(subject: xa.Subject, dev: list[Example]) -> list[tuple[Example, xa.Trace]]:
    """The first short examples that are answered rightly, no label more often than it must."""
    each = -(-SHOWN // len(subject.labels))
    chosen: list[tuple[Example, xa.Trace]] = []
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


def triggers(options: Options) -> None:
    """Patterns of each task's training examples, put into its development examples."""
    for name in options.tasks:
        subject, task = classifier(name, options.work), EVERY[name]
        learn = task.read(options.data, "train") if task.embedded else slices(name, options.data)[0]
        dev = task.read(options.data, "dev")[: options.attacked]
        path = kept_at(options, "triggers", name, options.patterns, end=".safetensors")
        if not path.exists():
            find_triggers(subject, learn[: options.patterns]).save(path)
        done = kept_at(options, "attack", name, options.patterns, len(dev), end=".safetensors")
        if not done.exists():
            attack(subject, dev, read(path)).save(done)
        result: Any = read(done)
        found = [row_of(name, result, place) for place in range(len(result.patterns))]
        for row in found:
            put(options.docs / TRIGGERS, row, "task", "place")
        ledger = Ledger(
            options.ledger,
            model_name(name),
            f"{name}: {options.patterns} of train, {len(dev)} of dev",
        )
        for control, said in (
            ("at random", "random words"),
            ("by attention", "patterns of attention"),
        ):
            title = (
                f"accuracy lost to patterns of attribution less {said} ({task.embedded or name})"
            )
            ledger.mean(title, [row["drop"] - row[f"drop {control}"] for row in found], "patterns")


def row_of(name: str, result: Attack, place: int) -> Row:
    """A pattern: its words, and accuracy of each class before and after, beside the two
    controls."""
    pattern = result.patterns[place]
    row: Row = {"task": name, "place": place, "pattern": pattern.text}
    row |= {"pulls to": result.labels[pattern.predicted], "score": sum(pattern.scores)}
    row["attention pattern"] = result.attention_patterns[place].text
    by_class = {"examples": result.counts, "before": result.before}
    by_class |= {"after": result.after[place], "interval": result.interval[place]}
    row |= {
        what: dict(zip(result.labels, each.tolist(), strict=True))
        for what, each in by_class.items()
    }
    row |= {"drop": result.drop(place), "drop by attention": result.drop(place, result.attention)}
    return row | {"drop at random": result.drop(place, result.random)}
