"""The numbers and figures of docs/explanation.md: is attention explanation, in a real model?

    python studies/explanation.py --data SST-2-FOLDER --out FOLDER [--model sentiment] [--figures
    FOLDER]

Each part writes what it found into --out and is not run again when it is there already; long parts
go on where they stopped, and ``--share 1/3`` is the second of three processes. ``report`` reads
everything back, prints the tables, draws the figures where a folder for them is given, and writes
what claims rest on into the ledger.

permutation   accuracy of all development sentences under shuffled and uniform attention
adversary     the farthest attention with the answer within 0.01, sentence by sentence, in so many
``--steps`` keys          the poster's adversarial keys, trained on ``--train`` training sentences,
            judged on all others
faithfulness  every attribution of the package (or those of ``--by``) against random rankings
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.figure
import torch
from study import TABLES, Ledger, Row, keep_table, parse, resumed, rows, save_in

import exhibit_a as xa
from exhibit_a.examples import Example, read_examples
from exhibit_a.methods.explanation.faithfulness import METRICS, RANDOM, attributions
from exhibit_a.numerics.distances import FARTHEST
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value
from exhibit_a.report.palette import GREY
from exhibit_a.results.store import read

SHUFFLES = (("attention", "row", 10), ("keys", "global", 3), ("features", "head", 3))
SCOPES = {"row": "each row", "global": "one order for all", "head": "each head"}
EPSILON = 0.01
STARTS, ENOUGH = (2, 4), 0.9  # of the adversary: four where two find less than this of the bound
CHUNK = 25  # sentences of the faithfulness table that are saved together


def main() -> None:
    given = {
        "data": Path,
        "out": Path,
        "model": "sentiment",
        "figures": Path,
        "sentences": int,
        "train": 2000,
    }
    given |= {
        "steps": 60,
        "samples": 128,
        "share": "0/1",
        "shuffles": tuple(what for what, _, _ in SHUFFLES),
    }
    options = parse(__doc__, ["data", "out"], parts=tuple(PARTS), by=tuple(attributions()), **given)
    options.out.mkdir(parents=True, exist_ok=True)
    subject = xa.load(options.model)
    dev = read_examples(options.data / "dev.tsv", labelled=True)[: options.sentences]
    for part in options.parts:
        PARTS[part](subject, dev, options)


def permutation(subject: xa.Subject, dev: list[Example], options: Namespace) -> None:
    for what, scope, repeats in SHUFFLES:
        path = options.out / f"permutation-{what}-{scope}.safetensors"
        if not path.exists() and what in options.shuffles:
            xa.permutation_test(subject, dev, what=what, scope=scope, repeats=repeats).save(path)


def adversary(subject: xa.Subject, dev: list[Example], options: Namespace) -> None:
    mine, shares = map(int, options.share.split("/"))

    def farthest(text: str) -> Row:
        trace = xa.capture(subject, text)
        for starts in STARTS:
            found = xa.adversarial_attention(
                trace, epsilon=EPSILON, restarts=starts, steps=options.steps
            )
            if bool((found.divergence >= ENOUGH * found.bound).all()):
                break
        numbers = {
            name: getattr(found, name).tolist()
            for name in ("divergence", "bound", "at_answer", "change")
        }
        return {"tokens": len(found.tokens or ()), "conditions": found.conditions} | numbers

    texts = [
        (number, example.text) for number, example in enumerate(dev) if number % shares == mine
    ]
    work = [({"number": number}, lambda text=text: farthest(text)) for number, text in texts]
    resumed(options.out / f"adversary-{mine}-{shares}.jsonl", work)


def keys(subject: xa.Subject, dev: list[Example], options: Namespace) -> None:
    path = options.out / "keys.safetensors"
    if not path.exists():
        every = read_examples(options.data / "train.tsv", labelled=True)
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
        some = [every[place] for place in order[: options.train].tolist()]
        xa.adversarial_keys(subject, some, held_out=dev).save(path)


def faithful(subject: xa.Subject, dev: list[Example], options: Namespace) -> None:
    mine, shares = map(int, options.share.split("/"))
    for first in range(mine * CHUNK, len(dev), shares * CHUNK):
        path = options.out / f"faithfulness-{first:04}.safetensors"
        if not path.exists():
            settings = {"attribution": tuple(options.by), "samples": options.samples, "seed": first}
            chunk = dev[first : first + CHUNK]
            xa.faithfulness(subject, chunk, erase="delete", **settings).save(path)


# The report


def report(subject: xa.Subject, dev: list[Example], options: Namespace) -> None:  # noqa: ARG001
    asked = [part for part in options.parts if part != "report"] or list(PARTS)
    ledger = Ledger(options.ledger, f"`{options.model}`", "SST-2 dev, first sentences")
    shuffled = [
        options.out / f"permutation-{what}-{scope}.safetensors" for what, scope, _ in SHUFFLES
    ]
    found: dict[str, list[Any]] = {
        "permutation": [read(path) for path in shuffled if path.exists()],
        "adversary": [
            row for path in sorted(options.out.glob("adversary-*.jsonl")) for row in rows(path)
        ],
        "keys": [read(path) for path in options.out.glob("keys.safetensors")],
        "faithfulness": [
            read(path) for path in sorted(options.out.glob("faithfulness-*.safetensors"))
        ],
    }
    reports = {
        "permutation": of_permutation,
        "adversary": of_adversary,
        "keys": of_keys,
        "faithfulness": of_faithful,
    }
    for part, tell in reports.items():
        if part in asked and found[part]:
            tell(found[part], options, ledger)


def of_permutation(results: list[Any], options: Namespace, ledger: Ledger) -> None:
    """The losses for each kind of shuffling; the first of them row by row, in full."""
    for found in results:
        draw(found.plot(), f"permutation-{found.what}", options)
        if found.what == "keys":
            write_permutation(found, ledger)
        if found.what == "attention":
            numbers = (
                found.accuracy,
                found.accuracy_interval,
                found.drop,
                found.p_value,
                found.mean_change,
                found.flip_rate,
                found.uniform_accuracy,
                found.uniform_accuracy_interval,
            )
            form = (short, span, short, "{:.2g}".format, short, percent, short, span)
            heading = (
                "shuffled",
                "accuracy",
                "95 %",
                "drop",
                "p",
                "answer moved by (TVD)",
                "flipped",
            )
            heading += ("uniform: accuracy", "95 %")
            body = [
                (name, *(tell(number[place]) for tell, number in zip(form, numbers, strict=True)))
                for place, name in enumerate(found.conditions)
            ]
            show("rows", heading, body, options)
    names = [name.removeprefix("layer ") for name in results[0].conditions]
    body = [
        (f"{found.what}, {SCOPES[found.scope]}", *map(short, found.accuracy)) for found in results
    ]
    show("shuffles", ("what, scope", *names), body, options)


def write_permutation(found: Any, ledger: Ledger) -> None:
    """The losses of all layers together, of the first, and of the one that lost most after it."""
    later = 1 + int(found.drop[1:-1].argmax())
    for place, name in (
        (-1, "accuracy lost, keys shuffled in all layers"),
        (0, "accuracy lost, keys shuffled in the first layer"),
        (later, "largest loss of accuracy, keys shuffled in one later layer"),
    ):
        ends, count = found.drop_interval[place].tolist(), len(found.own_correct)
        ledger.write(name, float(found.drop[place]), ends, count, "sentences")


def of_adversary(found: list[Row], options: Namespace, ledger: Ledger) -> None:
    """How far the maps with the same answer are, by layer."""
    names = found[0]["conditions"]
    far, bound, at_answer = (
        torch.tensor([row[key] for row in found]) for key in ("divergence", "bound", "at_answer")
    )
    ledger.mean("divergence of the farthest maps with the same answer, all layers", far[:, -1])
    print(
        "Largest change of an answer in a plain run: "
        f"{max(max(row['change']) for row in found):.4f}."
    )
    spread = far.quantile(torch.tensor([0.1, 0.5, 0.9]), dim=0).T
    body = []
    for place, name in enumerate(names):
        cells = map(short, (far[:, place].mean(), *spread[place]))
        share = percent((far[:, place] / bound[:, place]).mean(), 0)
        body.append((name, *cells, share, short(at_answer[:, place].mean())))
    heading = (
        "changed",
        "JSD, mean",
        "10 %",
        "median",
        "90 %",
        "of what is possible",
        "at the answer's row",
    )
    show("adversary", heading, body, options)
    figure = matplotlib.figure.Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.boxplot(far.T.tolist(), tick_labels=names, whis=(5, 95), flierprops={"markersize": 2})
    axes.axhline(FARTHEST, color=GREY, linestyle="--", label="ln 2: nothing in common")
    axes.set(ylim=(0, 0.72), ylabel="divergence from the model's own")
    axes.legend(loc="lower right")
    draw(figure, "adversary", options)


def of_keys(results: list[Any], options: Namespace, ledger: Ledger) -> None:
    """Accuracy and distance with other keys.

    Of two classes, one answer is right wherever two answers differ, so the variance of a difference
    of accuracies follows from how often they do.
    """
    (found,) = results
    body = []
    for i, name in enumerate(found.conditions):
        cells = (
            short(found.accuracy[i]),
            span(found.accuracy_interval[i]),
            short(found.agreement[i]),
        )
        cells += tuple(
            f"{each[i].mean():.3g}" for each in (found.key_distance, found.shift_free_distance)
        )
        body.append((name, *cells, short(found.divergence[i].mean())))
    heading = ("keys", "accuracy", "95 %", "agrees with the model", "distance", "without the shift")
    show("keys", (*heading, "JSD of the maps"), body, options)
    draw(found.plot(), "keys", options)
    count = found.checks["judged on"]
    for place, sign, name in (
        (1, 1, "accuracy lost with adversarial keys"),
        (2, -1, "accuracy gained with keys trained to stay near the model's own"),
    ):
        lost = sign * float(found.accuracy[0] - found.accuracy[place])
        variance = (1 - float(found.agreement[place]) - lost**2) / count
        half = 1.96 * max(variance, 0.0) ** 0.5
        ledger.write(name, lost, (lost - half, lost + half), count, "sentences")
    ledger.mean("divergence of the maps under adversarial keys", found.divergence[1], "layers")


def of_faithful(chunks: list[Any], options: Namespace, ledger: Ledger) -> None:
    """Every attribution by every metric, the best first; ~ marks what is not different from random
    at p < 0.01."""
    names = chunks[0].attributions
    values = torch.stack([torch.cat([one.scores[name] for one in chunks]).T for name in names])
    mean, ends = values.nanmean(-1), bootstrap_interval(values, seed=0)
    p_value = sign_flip_p_value((values - values[-1:]).nan_to_num(), seed=0)
    if "raw" in names:
        agreed = values[names.index("raw"), METRICS.index("leave_one_out")]
        ledger.mean("Kendall's tau of raw attention with leaving words out", agreed)
    body = []
    for i in mean[:, 0].argsort(descending=True).tolist():
        cells = [short(number) for number in mean[i]]
        cells[0] += f" ({span(ends[i, 0])})"
        unclear = [names[i] != RANDOM and not p < 0.01 for p in p_value[i]]
        cells = [cell + (" ~" if mark else "") for cell, mark in zip(cells, unclear, strict=True)]
        body.append((f"*{RANDOM}*" if names[i] == RANDOM else f"`{names[i]}`", *cells))
    titles = [
        metric.replace("_", " ").replace("leave one out", "leave-one-out") for metric in METRICS
    ]
    show("faithfulness", ("attribution", *titles), body, options)
    merged = chunks[0].__class__(
        **{name: getattr(chunks[0], name) for name in ("provenance", "attributions", "erase")},
        mean=mean,
        interval=ends,
        p_value=p_value,
        scores={name: values[i].T for i, name in enumerate(names)},
        deletion={name: torch.cat([one.deletion[name] for one in chunks]) for name in names},
        insertion={name: torch.cat([one.insertion[name] for one in chunks]) for name in names},
    )
    draw(merged.plot(), "faithfulness", options)


def show(
    name: str, heading: Sequence[str], body: Sequence[Sequence[str]], options: Namespace
) -> None:
    """A table of docs/explanation.md, if all sentences were asked; else only beside the results."""
    path = TABLES if options.sentences is None else options.out / "tables.jsonl"
    keep_table(f"explanation-{name}", heading, body, path)


def draw(figure: Any, name: str, options: Namespace) -> None:
    save_in(options.figures, f"explanation-{name}", figure)


def short(number: Any) -> str:
    """Three digits, without the zero before the point, as the pages write shares."""
    return f"{float(number):.3f}".replace("0.", ".", 1).replace("-", "−")


def span(ends: Any) -> str:
    low, high = ends
    return f"{short(low)}–{short(high)}"


def percent(share: Any, digits: int = 1) -> str:
    return f"{100 * float(share):.{digits}f} %"


PARTS = {
    "permutation": permutation,
    "adversary": adversary,
    "keys": keys,
    "faithfulness": faithful,
    "report": report,
}

if __name__ == "__main__":
    main()
