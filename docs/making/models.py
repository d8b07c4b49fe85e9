"""Write docs/models.md: from an average to masked multi-head attention, with code and numbers.

Lines of code are taken from the package; tables from docs/data, where ``studies/reference.py`` puts
them. ``make map`` runs it; a test sees that the page is what the files give. A part of the study
that has not been run is named as such. Pictures are drawn from the embedded models by

    python docs/making/models.py --figures
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
from scipy import stats
from told import MISSING, table

from exhibit_a.numerics.intervals import wilson

ROOT = Path(__file__).parents[2]
PAGE, DATA, FIGURES = ROOT / "docs/models.md", ROOT / "docs/data", ROOT / "docs/figures"
MODELS = ROOT / "src/exhibit_a/models"
RESAMPLES = 1000
PICTURES = {  # figure: the embedded model it is drawn from, the text, what it shows
    "models-additive": ("translation-additive", "two dogs run through the snow"),
    "models-cross": ("translation", "two dogs run through the snow"),
    "models-heads": ("sentiment", "a gripping , beautifully shot film"),
    "models-masked": ("stories", "Lily has a little red ball"),
}


def parts() -> dict[str, str]:
    """What stands on the page beside its words: tables, pictures and lines of code."""
    lines = [
        ("sublayers.py", "context = weights @ value"),
        ("additive_attention.py", "scores = self.energy("),
        ("additive_attention.py", "scores = module.energy("),
        ("sublayers.py", "return attended(query @ key.mT"),
        ("sublayers.py", "return states.view(*states.shape"),
        ("sublayers.py", "return self.output(context.flatten"),
        ("transformer.py", "create_causal_mask(self.config"),
        ("sublayers.py", "scores = scores + attention_mask"),
        ("sublayers.py", "normed: Tensor = self.norm("),
        ("transformer.py", "angle = positions[:, None]"),
    ]
    return {
        "BLEU": bleu(),
        "LENGTHS": lengths(),
        "CURVES": curves(),
        "ALIGNMENTS": alignments(),
        "IDENTIFIABLE": identifiable(),
        "JAIN": jain_wallace(),
        "POSTER": poster(),
        "COMPLEXITY": complexity(),
        **{name: picture(name) for name in PICTURES},
        **{f"{file}: {start}": code(file, start) for file, start in lines},
    }


def code(file: str, start: str) -> str:
    """The one line of a file that begins so."""
    lines = [line.strip() for line in (MODELS / file).read_text("utf-8").splitlines()]
    (found,) = [line for line in lines if line.startswith(start)]
    return f"```python\n# models/{file}\n{found.rstrip(',')}\n```"


def picture(name: str) -> str:
    """A picture, or why there is none."""
    model, text = PICTURES[name]
    if not (FIGURES / f"{name}.svg").exists():
        return f"*No picture yet: `{model}` is not in the package.*"
    return f"![Attention of {model} on “{text}”](figures/{name}.svg)"


def rows(part: str) -> dict[str, dict[str, Any]]:
    """The lines of one part of the study by their keys; none if it was not run."""
    file = DATA / f"reference-{part}.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}


TITLES = {
    "transformer": "Transformer",
    "additive": "additive attention",
    "gru": "GRU without attention",
}


def bleu() -> str:
    """Three translators side by side, and whether their differences are chance."""
    lines = rows("bleu")
    body = []
    for name, title in TITLES.items():
        if name in lines:
            row = lines[name]
            sizes = f"{row['bleu']:.1f}", f"{row['parameters'] / 1e6:.1f}"
            body.append([title, *sizes, f"{row['processor_hours']:.1f}", str(len(row["epochs"]))])
    said = table(["translator", "BLEU", "million weights", "processor hours", "epochs"], body)
    if {"transformer", "additive"} <= lines.keys():
        first, second = lines["transformer"], lines["additive"]
        times = {name: first[name] / second[name] for name in ("parameters", "processor_hours")}
        said += (
            f"\n\nThe Transformer beside additive attention: {first['bleu'] - second['bleu']:+.1f} BLEU, "
            f"{times['parameters']:.1f} times the weights, {times['processor_hours']:.1f} times the "
            "processor hours of training."
        )
    for key, row in lines.items():
        if "p_value" in row:
            ends = [
                f"{s:.1f} ± {c:.1f}" for s, c in zip(row["scores"], row["intervals"], strict=True)
            ]
            first, second = key.split(" and ")
            low, high = row["difference"]["interval"]
            said += (
                f"\n\n{TITLES[first]} beside {TITLES[second]}: {ends[0]} and {ends[1]} (95 %, "
                f"bootstrap over sentences), p = {row['p_value']:.3f}; with the same sentences drawn "
                f"for both, the first is ahead by {low:.1f} to {high:.1f}."
            )
    return said


def lengths() -> str:
    """BLEU by the length of the source."""
    lines = rows("bleu")
    there = [name for name in TITLES if name in lines]
    if not there:
        return MISSING
    body = []
    for place, bucket in enumerate(lines[there[0]]["buckets"]):
        words = (
            f"{bucket['from']} – {bucket['to']}" if bucket["to"] < 1000 else f"{bucket['from']} +"
        )
        scores = [f"{lines[name]['buckets'][place]['bleu']:.1f}" for name in there]
        body.append([words, str(bucket["count"]), *scores])
    return table(["words of the source", "sentences", *(TITLES[n] for n in there)], body)


def curves() -> str:
    """BLEU on val, greedily, epoch by epoch where it was measured."""
    lines = rows("bleu")
    body = []
    for name, title in TITLES.items():
        if name in lines:
            epochs = enumerate(lines[name]["epochs"], 1)
            seen = [f"{n}: {e['bleu']:.1f}" for n, e in epochs if e["bleu"] is not None]
            body.append([title, ", ".join(seen)])
    return table(["translator", "BLEU on val after each epoch"], body)


def alignments() -> str:
    """Error rates of every map, beside the diagonal."""
    lines = rows("alignments")
    body = []
    for model in ("transformer", "additive"):
        for file in sorted({key.split()[1] for key in lines}):
            part = [row for key, row in lines.items() if key.split()[:2] == [model, file]]
            if len(part) < 2:
                continue
            body.append([TITLES[model], file, "diagonal", "", error([r["diagonal"] for r in part])])
            for way in part[0]["counts"]:
                sites = range(len(part[0]["counts"][way]))
                choose, judge = part[0::2], part[1::2]
                best = min(sites, key=lambda s: rate([r["counts"][way][s] for r in choose]))
                layer = f"layer {best} (of 0 to {len(sites) - 1})"
                scores = [row["counts"][way][best] for row in judge]
                body.append([TITLES[model], file, way, layer, error(scores)])
    return table(
        ["translator", "text", "map", "chosen on the other half", "error rate (95 %)"], body
    )


def error(counts: Sequence[dict[str, int]]) -> str:
    """An error rate, its 95 % interval (bootstrap over pairs), and how many pairs it is of."""
    seeded = random.Random(0)
    drawn = sorted(rate(seeded.choices(counts, k=len(counts))) for _ in range(RESAMPLES))
    low, high = drawn[round(0.025 * RESAMPLES)], drawn[round(0.975 * RESAMPLES) - 1]
    return f"{rate(counts):.2f} ({low:.2f} – {high:.2f}, {len(counts)} pairs)"


def rate(counts: Sequence[dict[str, int]]) -> float:
    """The alignment error rate over pairs (Och and Ney, 2003)."""
    total = {name: sum(count[name] for count in counts) for name in counts[0]}
    return 1 - (total["sure"] + total["possible"]) / (total["found"] + total["gold"])


def identifiable() -> str:
    """Accuracy, ranks and unique rows by width of the keys."""
    lines = rows("identifiable").values()
    body = []
    for heads in ("con", "add"):
        for width in sorted({row["d_key"] for row in lines}):
            part = [r for r in lines if (r["heads"], r["d_key"]) == (heads, width)]
            if not part:
                continue
            count = part[0]["examples"]  # the same sentences for every seed
            share = mean(row["accuracy"] for row in part)
            low, high = wilson(torch.tensor(share), count).tolist()
            unique = [mean(row["unique"][place] for row in part) for place in (0, -1)]
            cells = [heads, str(width), str(len(part)), f"{share:.3f} ({low:.3f} – {high:.3f})"]
            cells.append(f"{mean(row['ranks_as_predicted'] for row in part):.0%}")
            words = Counter(word for row in part for word in row["verdicts"])
            verdicts = ", ".join(f"{count} {word}" for word, count in words.most_common())
            body.append([*cells, *(f"{alone:.0%}" for alone in unique), verdicts])
    head = ["heads", "d_k", "seeds", "accuracy (95 %)", "ranks as predicted"]
    head += ["unique rows, same output", "unique rows, made by the keys", "verdicts of three texts"]
    return table(head, body) + differences(lines)


def differences(lines: Iterable[dict[str, Any]]) -> str:
    """Are heads that are added as good, and narrow keys? Paired by width and seed."""
    by = {(row["heads"], row["d_key"], row["seed"]): row["accuracy"] for row in lines}
    pairs = {
        "Heads that are added less heads side by side": [
            (by["add", width, seed], by["con", width, seed])
            for way, width, seed in by
            if way == "con" and ("add", width, seed) in by
        ],
        "Keys of width 4 less keys of width 64": [
            (by[way, 4, seed], by[way, 64, seed])
            for way, width, seed in by
            if width == 64 and (way, 4, seed) in by
        ],
    }
    said = ""
    for title, both in pairs.items():
        if len(both) > 1:
            less = [first - second for first, second in both]
            half = stats.t.ppf(0.975, len(less) - 1) * stdev(less) / len(less) ** 0.5
            said += (
                f"\n\n{title}: accuracy {mean(less):+.3f} ({mean(less) - half:+.3f} to "
                f"{mean(less) + half:+.3f}, 95 %, {len(less)} pairs of models)."
            )
    return said


def jain_wallace() -> str:
    """The recurrent classifier beside the embedded Transformer."""
    lines = rows("jain-wallace")
    body = []
    for model in ("recurrent", "sentiment"):
        part = [r for k, r in lines.items() if k.split()[0] == model and "gradient" in r]
        right = lines.get(f"{model} accuracy")
        if len(part) < 2 or right is None:
            continue
        cells = [f"`{model}`" if model == "sentiment" else "BiLSTM", str(len(part))]
        low, high = wilson(torch.tensor(right["accuracy"]), right["examples"]).tolist()
        cells.append(f"{right['accuracy']:.3f} ({low:.3f} – {high:.3f})")
        for name in ("gradient", "leave_one_out"):
            scores = [row[name][0] for row in part if row[name][0] == row[name][0]]
            significant = mean(row[name][1] for row in part)
            cells.append(
                f"{mean(scores):.2f} ± {stdev(scores):.2f} ({significant:.0%} significant)"
            )
        cells.append(f"{median(row['permuted'] for row in part):.3f}")
        cells.append(f"{mean(row['farthest'] for row in part):.3f}")
        cells.append(f"{mean(row['exact'] for row in part):.0%}")
        body.append(cells)
    head = ["model", "sentences", "accuracy (95 %)", "τ with gradients", "τ with leave-one-out"]
    return table([*head, "median change when shuffled", "farthest JSD", "exact"], body)


REPORTED = {  # the poster's report, on IMDB: softmax, 1.5-entmax
    "original": ("86.5 %", "85.1 %"),
    "other activation": ("79.2 %", "69.5 %"),
    "shuffled: all": ("79.4 %", "58.3 %"),
    "keys: adversary": ("83.5 %", "81.9 %"),
    "keys: opposite": ("82.1 %", "82.5 %"),
    "keys: random": ("74.9 %", "53.6 %"),
}


def poster() -> str:
    """Accuracy after each disturbance, for both normalisers, beside the poster's report."""
    lines = {name: row for name, row in rows("poster").items() if "losses" not in row}
    columns = {name: disturbed(row) for name, row in lines.items()}
    body = []
    for what in next(iter(columns.values()), {}):
        cells = [columns[name].get(what, "") for name in ("softmax", "entmax") if name in columns]
        reported = "shuffled: all" if what.startswith("shuffled: all") else what
        said = REPORTED.get(reported, ("", ""))
        body.append([what, *cells, *said])
    head = ["what was done", *(f"{name}, here (95 %)" for name in columns)]
    return table([*head, "softmax, the report", "entmax, the report"], body)


def disturbed(row: dict[str, Any]) -> dict[str, str]:
    """The accuracies of one classifier by what was done to it, with Wilson's intervals."""
    parts = {"original": row["original"], "other activation": row["other activation"]}
    parts |= {f"shuffled: {name}": share for name, share in row["shuffled"].items()}
    parts |= {f"keys: {name}": share for name, share in row["keys"].items() if name != "own"}
    told = {}
    for name, share in parts.items():
        low, high = wilson(torch.tensor(share), row["examples"]).tolist()
        told[name] = f"{share:.1%} ({low:.1%} – {high:.1%})".replace("%", " %")
    return told


def complexity() -> str:
    """Where the work of one layer goes."""
    body = []
    for row in rows("complexity").values():
        looking, projecting = row["looking"], row["projecting"]
        work = looking["operations"] / projecting["operations"]
        time = looking["seconds"] / projecting["seconds"]
        counts = [f"{part['operations'] / 1e6:.1f}" for part in (looking, projecting)]
        body.append([str(row["tokens"]), *counts, f"{work:.2f}", f"{time:.2f}"])
    head = ["tokens n", "n²d (million)", "nd² (million)", "ratio of operations"]
    return table([*head, "ratio of processor time"], body)


def draw() -> None:
    """Draw every picture whose model is in the package."""
    sys.path.insert(0, str(ROOT / "studies"))
    import matplotlib.pyplot as plt
    from study import save

    import exhibit_a as xa
    from exhibit_a.embedded.weights import embedded_names

    for name, (model, text) in PICTURES.items():
        if model not in embedded_names():
            continue
        subject = xa.load(model)
        trace = xa.capture(subject, text)
        cross = [n for n, site in enumerate(trace.sites) if site.kind == "cross"]
        site = cross[-1] if cross else len(trace.sites) // 2
        heads = trace.attention[site][:4]
        rows, columns = trace.queries_of(site).tokens, trace.keys_of(site).tokens
        if cross:  # a row of a translator is named by the word that it is about to write
            rows = [*rows[1:], subject.tokenizer.eos_token]
        spell = subject.tokenizer.convert_tokens_to_string
        names = [[spell([token]).strip() or token for token in each] for each in (rows, columns)]
        figure, axes = plt.subplots(1, len(heads), figsize=(3.2 * len(heads), 3), squeeze=False)
        for axis, weights in zip(axes[0], heads, strict=True):
            axis.imshow(weights, cmap="Greys", vmin=0)
            axis.set_xticks(range(len(names[1])), names[1], rotation=90, fontsize=7)
            axis.set_yticks(range(len(names[0])), names[0], fontsize=7)
        figure.tight_layout()
        save(figure, FIGURES / f"{name}.svg")


if __name__ == "__main__":
    if "--figures" in sys.argv[1:]:
        draw()
