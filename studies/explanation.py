"""The numbers and figures of docs/explanation.md: is attention explanation, in a real model?

    python studies/explanation.py --data SST-2-FOLDER --out FOLDER [--model sentiment]

Each part writes what it found into --out and is not run again when it is there already; long parts
go on where they stopped. ``report`` reads everything back, prints the tables, draws the figures
where a folder for them is given, and writes what claims rest on into the ledger.

permutation   accuracy of all development sentences under shuffled and uniform attention
adversary     the farthest attention with the answer within 0.01, sentence by sentence
keys          the poster's adversarial keys, trained on training sentences, judged on all others
faithfulness  every attribution of the package against random rankings
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import torch
import transformers
from drawing import save_in
from ledger import Ledger, add_option
from tables import FILE, keep

from exhibit_a.examples import Example, read_examples
from exhibit_a.methods.explanation.adversarial import adversarial_attention
from exhibit_a.methods.explanation.adversarial_keys import adversarial_keys
from exhibit_a.methods.explanation.faithfulness import METRICS, RANDOM, attributions, faithfulness
from exhibit_a.methods.explanation.permutation import permutation_test
from exhibit_a.numerics.distances import FARTHEST
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value
from exhibit_a.report.palette import GREY
from exhibit_a.results.store import read
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import capture

SHUFFLES = (("attention", "row", 10), ("keys", "global", 3), ("features", "head", 3))
SCOPES = {"row": "each row", "global": "one order for all", "head": "each head"}
EPSILON = 0.01
STARTS, ENOUGH = (2, 4), 0.9  # of the adversary: four where two find less than this of the bound
CHUNK = 25  # sentences of the faithfulness table that are saved together


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--data", required=True, type=Path, help="folder with train.tsv and dev.tsv")
    asked.add_argument("--out", required=True, type=Path, help="folder for results")
    asked.add_argument("--model", default="sentiment")
    asked.add_argument("--parts", nargs="+", default=list(PARTS))
    asked.add_argument("--figures", type=Path, help="draw the figures into this folder")
    asked.add_argument("--sentences", type=int, help="only so many development sentences")
    asked.add_argument("--train", type=int, default=2000, help="training sentences for the keys")
    asked.add_argument("--steps", type=int, default=60, help="of the adversary")
    asked.add_argument("--share", default="0/1", help="1/3: the second of three processes")
    asked.add_argument("--by", nargs="+", default=list(attributions()), help="attributions to judge")
    asked.add_argument("--samples", type=int, default=128, help="of LIME and SHAP, per sentence")
    asked.add_argument("--shuffles", nargs="+", default=[what for what, _, _ in SHUFFLES])
    add_option(asked)
    options = asked.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options.out.mkdir(parents=True, exist_ok=True)
    subject = load(options.model)
    dev = read_examples(options.data / "dev.tsv", labelled=True)[: options.sentences]
    for part in options.parts:
        started = time.perf_counter()
        PARTS[part](subject, dev, options)
        print(f"\n({part}: {time.perf_counter() - started:.0f} s)\n", flush=True)


def permutation(subject: Subject, dev: list[Example], options: Any) -> None:
    for what, scope, repeats in SHUFFLES:
        path = options.out / f"permutation-{what}-{scope}.safetensors"
        if not path.exists() and what in options.shuffles:
            permutation_test(subject, dev, what=what, scope=scope, repeats=repeats).save(path)


def adversary(subject: Subject, dev: list[Example], options: Any) -> None:
    mine, shares = map(int, options.share.split("/"))
    path = options.out / f"adversary-{mine}-{shares}.jsonl"
    done = len(path.read_text().splitlines()) if path.exists() else 0
    with path.open("a") as file:
        for one in dev[mine::shares][done:]:
            trace = capture(subject, one.text)
            for starts in STARTS:
                found = adversarial_attention(trace, epsilon=EPSILON, restarts=starts, steps=options.steps)
                if bool((found.divergence >= ENOUGH * found.bound).all()):
                    break
            row = {
                "tokens": len(found.tokens or ()),
                "conditions": found.conditions,
                "divergence": found.divergence.tolist(),
                "bound": found.bound.tolist(),
                "at_answer": found.at_answer.tolist(),
                "change": found.change.tolist(),
            }
            file.write(json.dumps(row) + "\n")
            file.flush()


def keys(subject: Subject, dev: list[Example], options: Any) -> None:
    path = options.out / "keys.safetensors"
    if not path.exists():
        every = read_examples(options.data / "train.tsv", labelled=True)
        order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
        some = [every[place] for place in order[: options.train].tolist()]
        adversarial_keys(subject, some, held_out=dev).save(path)


def faithful(subject: Subject, dev: list[Example], options: Any) -> None:
    mine, shares = map(int, options.share.split("/"))
    for first in range(mine * CHUNK, len(dev), shares * CHUNK):
        path = options.out / f"faithfulness-{first:04}.safetensors"
        if not path.exists():
            faithfulness(
                subject,
                dev[first : first + CHUNK],
                attribution=tuple(options.by),
                samples=options.samples,
                seed=first,
            ).save(path)


def report(subject: Subject, dev: list[Example], options: Any) -> None:  # noqa: ARG001
    asked = [part for part in options.parts if part != "report"] or list(PARTS)
    paths = [options.out / f"permutation-{what}-{scope}.safetensors" for what, scope, _ in SHUFFLES]
    results = [read(path) for path in paths if path.exists()]
    if results and "permutation" in asked:
        _report_permutation(results, options)
    if "adversary" in asked and (rows := _lines(options.out)):
        _report_adversary(rows, options)
    if (options.out / "keys.safetensors").exists() and "keys" in asked:
        _report_keys(read(options.out / "keys.safetensors"), options)
    chunks = [read(path) for path in sorted(options.out.glob("faithfulness-*.safetensors"))]
    if chunks and "faithfulness" in asked:
        _report_faithfulness(chunks, options)


def _lines(folder: Path) -> list[Any]:
    """What the adversary found, sentence by sentence."""
    files = sorted(folder.glob("adversary-*.jsonl"))
    return [json.loads(line) for path in files for line in path.open()]


def _report_permutation(results: list[Any], options: Any) -> None:
    """The losses under each way to shuffle; the first of them row by row, in full."""
    for found in results:
        ends = found.own_accuracy_interval.tolist()
        print(f"\n### {found.what}, one permutation for each {found.scope}; {_doubts(found)}")
        print(f"As trained: accuracy {_short(found.own_accuracy)} ({_span(ends)})")
        _draw(found.plot(), f"permutation-{found.what}", options)
        if found.what == "keys":
            _write_permutation(found, _ledger(options))
        if found.what == "attention":
            heading = ("shuffled", "accuracy", "95 %", "drop", "p", "answer moved by (TVD)")
            heading += ("flipped", "uniform: accuracy", "95 %")
            rows = [_shuffled_row(found, place) for place in range(len(found.conditions))]
            _keep("rows", heading, rows, options)
    names = [name.removeprefix("layer ") for name in results[0].conditions]
    rows = [(f"{found.what}, {SCOPES[found.scope]}", *map(_short, found.accuracy)) for found in results]
    _keep("shuffles", ("what, scope", *names), rows, options)


def _shuffled_row(found: Any, place: int) -> tuple[str, ...]:
    return (
        found.conditions[place],
        _short(found.accuracy[place]),
        _span(found.accuracy_interval[place]),
        _short(found.drop[place]),
        f"{found.p_value[place]:.2g}",
        _short(found.mean_change[place]),
        f"{found.flip_rate[place]:.1%}".replace("%", " %"),
        _short(found.uniform_accuracy[place]),
        _span(found.uniform_accuracy_interval[place]),
    )


def _keep(name: str, heading: Sequence[str], rows: Sequence[Sequence[str]], options: Any) -> None:
    """A table of docs/explanation.md, if all sentences were asked; else only on the screen."""
    path = FILE if options.sentences is None else options.out / "tables.jsonl"
    keep(f"explanation-{name}", heading, rows, path)


def _short(number: Any) -> str:
    """Three digits, without the zero before the point, as the pages write shares."""
    return f"{float(number):.3f}".replace("0.", ".", 1).replace("-", "−")


def _span(ends: Any) -> str:
    low, high = ends
    return f"{_short(low)}–{_short(high)}"


def _ledger(options: Any) -> Ledger:
    return Ledger(options.ledger, f"`{options.model}`", "SST-2 dev, first sentences")


def _write_permutation(found: Any, ledger: Ledger) -> None:
    """The losses of all layers together, of the first, and of the one that lost most after it."""
    later = 1 + int(found.drop[1:-1].argmax())
    for place, name in (
        (-1, "accuracy lost, keys shuffled in all layers"),
        (0, "accuracy lost, keys shuffled in the first layer"),
        (later, "largest loss of accuracy, keys shuffled in one later layer"),
    ):
        ends, count = found.drop_interval[place].tolist(), len(found.own_correct)
        ledger.write(name, float(found.drop[place]), ends, count, "sentences")


def _report_adversary(rows: list[Any], options: Any) -> None:
    names = rows[0]["conditions"]
    far, bound, read_at = (torch.tensor([row[key] for row in rows]) for key in ("divergence", "bound", "at_answer"))
    worst = max(max(row["change"]) for row in rows)
    name = "divergence of the farthest maps with the same answer, all layers"
    _ledger(options).mean(name, far[:, -1])
    print(f"\n### adversarial attention, ε = {EPSILON}, {len(rows)} sentences")
    print(f"\nLargest change of an answer in a plain run: {worst:.4f}. ln 2 = {FARTHEST:.3f}\n")
    rows_of_table = []
    for i, name in enumerate(names):
        spread = far[:, i].quantile(torch.tensor([0.1, 0.5, 0.9]))
        share = f"{float((far[:, i] / bound[:, i]).mean()):.0%}".replace("%", " %")
        cells = (far[:, i].mean(), *spread)
        rows_of_table.append((name, *map(_short, cells), share, _short(read_at[:, i].mean())))
    heading = ("changed", "JSD, mean", "10 %", "median", "90 %", "of what is possible")
    _keep("adversary", (*heading, "at the answer's row"), rows_of_table, options)
    figure = matplotlib.figure.Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    sites = [far[:, i].tolist() for i in range(len(names))]
    axes.boxplot(sites, tick_labels=names, whis=(5, 95), flierprops={"markersize": 2})
    axes.axhline(FARTHEST, color=GREY, linestyle="--", label="ln 2: nothing in common")
    axes.set(ylim=(0, 0.72), ylabel="divergence from the model's own")
    axes.legend(loc="lower right")
    _draw(figure, "adversary", options)


def _report_keys(found: Any, options: Any) -> None:
    print(f"\n### adversarial keys; {_doubts(found)}")
    rows = [
        (
            name,
            _short(found.accuracy[i]),
            _span(found.accuracy_interval[i]),
            _short(found.agreement[i]),
            f"{found.key_distance[i].mean():.3g}",
            f"{found.shift_free_distance[i].mean():.3g}",
            _short(found.divergence[i].mean()),
        )
        for i, name in enumerate(found.conditions)
    ]
    heading = ("keys", "accuracy", "95 %", "agrees with the model", "distance")
    _keep("keys", (*heading, "without the shift", "JSD of the maps"), rows, options)
    ends = {name: curve[[0, -1]].tolist() for name, curve in found.curves.items()}
    print(f"\nFirst and last step (cross-entropy, log squared distance): {ends}")
    _write_keys(found, _ledger(options))
    _draw(found.plot(), "keys", options)


def _write_keys(found: Any, ledger: Ledger) -> None:
    """Losses with other keys. Of two classes, one answer is right wherever two answers differ.

    So the variance of the difference follows from how often they do.
    """
    count = found.checks["judged on"]
    for place, sign, name in (
        (1, 1, "accuracy lost with adversarial keys"),
        (2, -1, "accuracy gained with keys trained to stay near the model's own"),
    ):
        lost = sign * float(found.accuracy[0] - found.accuracy[place])
        variance = (1 - float(found.agreement[place]) - lost**2) / count
        half = 1.96 * max(variance, 0.0) ** 0.5
        ledger.write(name, lost, (lost - half, lost + half), count, "sentences")
    name = "divergence of the maps under adversarial keys"
    ledger.mean(name, found.divergence[1], "layers")


def _report_faithfulness(chunks: list[Any], options: Any) -> None:
    names = chunks[0].attributions
    values = torch.stack([torch.cat([one.scores[name] for one in chunks]).T for name in names])
    mean, ends = values.nanmean(-1), bootstrap_interval(values, seed=0)
    p_value = sign_flip_p_value((values - values[-1:]).nan_to_num(), seed=0)
    count = values.shape[-1]
    print(f"\n### faithfulness, {count} sentences, tokens taken away by {chunks[0].erase}\n")
    if "raw" in names:
        agreed = values[names.index("raw"), METRICS.index("leave_one_out")]
        name = "Kendall's tau of raw attention with leaving words out"
        _ledger(options).mean(name, agreed)
    rows = []
    for i in mean[:, 0].argsort(descending=True).tolist():
        cells = [
            _short(mean[i, j])
            + (f" ({_span(ends[i, j])})" if j == 0 else "")
            + ("" if names[i] == RANDOM or p_value[i, j] < 0.01 else " ~")
            for j in range(len(METRICS))
        ]
        rows.append((f"*{RANDOM}*" if names[i] == RANDOM else f"`{names[i]}`", *cells))
    titles = [metric.replace("_", " ").replace("leave one out", "leave-one-out") for metric in METRICS]
    _keep("faithfulness", ("attribution", *titles), rows, options)
    print("\n~ not different from random at p < 0.01 (sign flips over sentences)")
    merged = chunks[0].__class__(
        **{name: getattr(chunks[0], name) for name in ("provenance", "attributions", "erase")},
        mean=mean,
        interval=ends,
        p_value=p_value,
        scores={name: values[i].T for i, name in enumerate(names)},
        deletion={name: torch.cat([one.deletion[name] for one in chunks]) for name in names},
        insertion={name: torch.cat([one.insertion[name] for one in chunks]) for name in names},
    )
    _draw(merged.plot(), "faithfulness", options)


def _doubts(found: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.checks.items())


def _draw(figure: Any, name: str, options: Any) -> None:
    save_in(options.figures, f"explanation-{name}", figure)


PARTS = {
    "permutation": permutation,
    "adversary": adversary,
    "keys": keys,
    "faithfulness": faithful,
    "report": report,
}


if __name__ == "__main__":
    main()
