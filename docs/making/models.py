"""From an average to masked heads, with code and numbers: tables of docs/models.md.

Lines of code are taken from the package, tables from docs/data, where ``studies/reference.py`` puts
them. Heat maps are drawn from the embedded models by

    python docs/making/models.py
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from page_tables import FIGURES, ROOT, paired, read, wilson

RESAMPLES = 1000
TITLES = {
    "transformer": "Transformer",
    "additive": "additive attention",
    "gru": "GRU without attention",
}
BLEU = {row["key"]: row for row in read("reference-bleu.jsonl")}
WIDTHS = read("reference-identifiable.jsonl")
HEAT_MAPS = {  # figure: the embedded model it is drawn from, and the text
    "models-additive": ("translation-additive", "two dogs run through the snow"),
    "models-cross": ("translation", "two dogs run through the snow"),
    "models-heads": ("sentiment", "a gripping , beautifully shot film"),
    "models-masked": ("stories", "Lily has a little red ball"),
}


def code(file: str, start: str) -> str:
    """The one line of a file that begins so."""
    text = (ROOT / "src/exhibit_a/models" / file).read_text("utf-8")
    (found,) = [line for line in map(str.strip, text.splitlines()) if line.startswith(start)]
    return f"```python\n# models/{file}\n{found.rstrip(',')}\n```"


def beside() -> str:
    """Are differences between translators chance?"""
    said = []
    for key, row in BLEU.items():
        if "p_value" in row:
            first, second = key.split(" and ")
            scores = zip(row["scores"], row["intervals"], strict=True)
            ends = " and ".join(f"{score:.1f} ± {half:.1f}" for score, half in scores)
            low, high = row["difference"]["interval"]
            said.append(
                f"{TITLES[first]} beside {TITLES[second]}: {ends} (95 %, bootstrap over sentences), "
                f"p = {row['p_value']:.3f}; with the same sentences drawn for both, the first is ahead "
                f"by {low:.1f} to {high:.1f}."
            )
    return "\n\n".join(said)


def error(counts: Sequence[dict[str, int]]) -> str:
    """An error rate, its 95 % interval (bootstrap over pairs), and how many pairs it is of."""
    seeded = random.Random(0)
    drawn = sorted(rate(seeded.choices(counts, k=len(counts))) for _ in range(RESAMPLES))
    low, high = drawn[round(0.025 * RESAMPLES)], drawn[round(0.975 * RESAMPLES) - 1]
    return f"{rate(counts):.2f} ({low:.2f} – {high:.2f}, {len(counts)} pairs)"


def rate(counts: Sequence[dict[str, int]]) -> float:
    """The alignment error rate over pairs (Och and Ney, 2003)."""
    total = sum(map(Counter, counts), Counter())
    return 1 - (total["sure"] + total["possible"]) / (total["found"] + total["gold"])


def share(value: float, count: int) -> str:
    """An accuracy with Wilson's interval."""
    low, high = wilson(value, count)
    return f"{value:.3f} ({low:.3f} – {high:.3f})"


def less(first: dict[str, Any], second: dict[str, Any]) -> str:
    """The accuracy of some models less that of others, paired by all else."""
    by = {(row["heads"], row["d_key"], row["seed"]): row["accuracy"] for row in WIDTHS}
    pairs = []
    for heads, width, seed in by:
        row = {"heads": heads, "d_key": width}
        other = row | second
        if row | first == row and (key := (other["heads"], other["d_key"], seed)) in by:
            pairs.append(by[heads, width, seed] - by[key])
    middle, (low, high) = paired(pairs)
    return f"{middle:+.3f} ({low:+.3f} to {high:+.3f}, 95 %, {len(pairs)} pairs of models)"


def draw() -> None:
    """Draw every picture: attention of some heads of the last cross or a middle layer."""
    import matplotlib.pyplot as plt
    from study import save

    import exhibit_a as xa

    for name, (model, text) in HEAT_MAPS.items():
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
    draw()
