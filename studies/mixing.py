"""What is left of a token in a real model? The numbers and figures of docs/mixing.md.

    python studies/mixing.py --base FOLDER --data SST-2-FOLDER [--figures docs/figures]

1. mixing: hidden token attribution (sketch) of development sentences: own share by layer, tokens
   that are not their own top contributor, neighbour profile, one token's story;
2. heads: attention against input contribution, on some of the same sentences;
3. tokens: token identifiability of training sentences, every map, metric and candidate set.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot
import torch
import transformers
from drawing import save

from exhibit_a.examples import read_examples
from exhibit_a.methods.mixing.head_mixing import head_mixing
from exhibit_a.methods.mixing.hidden_attribution import by_distance, displaced, hidden_attribution
from exhibit_a.methods.mixing.token_identifiability import token_identifiability
from exhibit_a.numerics.intervals import bootstrap_interval
from exhibit_a.report.figures import Canvas
from exhibit_a.report.palette import GREY
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import capture

FEWEST_WORDS = 8  # many rows of the training file are phrases, not sentences


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--base", required=True, help="folder of the model")
    asked.add_argument("--data", required=True, type=Path, help="folder with train.tsv and dev.tsv")
    asked.add_argument("--figures", type=Path, default=Path("docs/figures"))
    asked.add_argument("--parts", nargs="+", default=["mixing", "heads", "tokens"])
    asked.add_argument("--sentences", type=int, default=200)
    asked.add_argument("--probes", type=int, default=16)
    asked.add_argument("--texts", type=int, default=5000)
    asked.add_argument("--epochs", type=int, default=10)
    options = asked.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    subject = load(options.base)
    for part in options.parts:
        started = time.perf_counter()
        {"mixing": mixing, "heads": heads, "tokens": tokens}[part](subject, options)
        print(f"\n({part}: {time.perf_counter() - started:.0f} s)\n", flush=True)


def mixing(subject: Subject, options: Any) -> None:
    """Own shares, displaced tokens and neighbours, pooled over sentences."""
    texts = read_examples(options.data / "dev.tsv")[: options.sentences]
    own, lost, reach, counts, words = [], [], [], [], []
    for number, text in enumerate(texts):
        found = hidden_attribution(capture(subject, text.text), probes=options.probes, seed=number)
        own.append(found.self_contribution)
        lost.append(displaced(found.contribution).float())
        words.append(~found.special)
        total, pairs = by_distance(found.contribution)
        reach.append(total)
        counts.append(pairs)
        if number == 0:
            save(found.plot(), options.figures / "mixing-story.svg")
    shares, special = torch.cat(own, 1), ~torch.cat(words)
    per_text = torch.stack([part.mean(1) for part in lost], 1)
    bounds = bootstrap_interval(per_text, seed=0)
    medians = torch.stack([part.median(1).values for part in own], 1)
    spans = bootstrap_interval(medians, seed=0)
    print(f"{len(texts)} sentences, {shares.shape[1]} tokens, {options.probes} probes\n")
    print("| layer | median own share | quartiles | mean of text medians | not own top | words |")
    print("|---|---|---|---|---|---|")
    displaced_all = torch.cat(lost, 1)
    for layer, row in enumerate(shares):
        low, middle, high = row.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
        a, b = spans[layer].tolist()
        c, d = bounds[layer].tolist()
        of_words = displaced_all[layer][~special].mean()
        top = f"{per_text[layer].mean():.1%} ({c:.1%} – {d:.1%})"
        print(
            f"| {layer} | {middle:.3f} | {low:.3f} – {high:.3f} | {medians[layer].mean():.3f} "
            f"({a:.3f} – {b:.3f}) | {top} | {of_words:.1%} |"
        )
    _draw_boxes(shares, options.figures / "mixing-own-share.svg")
    _draw_neighbours(reach, counts, options.figures / "mixing-neighbours.svg")


def heads(subject: Subject, options: Any) -> None:
    """Attention beside input contribution, averaged over heads and sentences."""
    texts = read_examples(options.data / "dev.tsv")[: max(1, options.sentences // 10)]
    sums: dict[str, list[Any]] = {}
    for number, text in enumerate(texts):
        found = head_mixing(capture(subject, text.text), probes=options.probes, seed=number)
        for name in ("pearson", "spearman", "jensen_shannon", "total_variation"):
            sums.setdefault(name, []).append(torch.stack(getattr(found, name)))
        if number == 0:
            save(found.plot(), options.figures / "mixing-heads.svg")
    print(f"{len(texts)} sentences, {options.probes} probes\n")
    print("| layer | Pearson | Spearman | Jensen–Shannon (share of ln 2) | weight elsewhere |")
    print("|---|---|---|---|---|")
    means = {name: torch.stack(parts).mean((0, 2)) for name, parts in sums.items()}
    for layer in range(len(means["pearson"])):
        print(
            f"| {layer + 1} | " + " | ".join(f"{part[layer]:.3f}" for part in means.values()) + " |"
        )


def tokens(subject: Subject, options: Any) -> None:
    """Rates by layer for every map, metric and set of candidates."""
    rows = read_examples(options.data / "train.tsv")
    texts = [row for row in rows if len(row.text.split()) >= FEWEST_WORDS][: options.texts]
    for metric in ("cosine", "l2"):
        found = token_identifiability(
            subject,
            texts,
            maps=("identity", "rotation", "linear", "mlp"),
            metric=metric,
            epochs=options.epochs,
        )
        save(found.plot(), options.figures / f"mixing-tokens-{metric}.svg")
        _tell(found, len(texts))
    for candidates in ("dataset", "vocab"):
        _tell(
            token_identifiability(
                subject, texts, maps=("identity", "linear"), candidates=candidates
            ),
            len(texts),
        )


def _tell(found: Any, count: int) -> None:
    print(
        f"\n**{found.metric}, candidates: {found.candidates}** ({count} texts; chance "
        f"{found.chance:.4f}; {found.checks['test_words']} test words)\n"
    )
    print("| layer | " + " | ".join(found.rate) + " | MRR (last map) | bits | special | control |")
    print("|---" * (len(found.rate) + 5) + "|")
    last = list(found.rate)[-1]
    for layer in range(len(found.rate[last])):
        rates = []
        for name, rate in found.rate.items():
            low, high = found.interval[name][layer].tolist()
            rates.append(f"{rate[layer]:.3f} ({low:.3f} – {high:.3f})")
        control = ", ".join(f"{part[layer]:.3f}" for part in found.control.values())
        print(
            f"| {layer} | {' | '.join(rates)} | {found.mrr[last][layer]:.3f} | "
            f"{found.bits[last][layer]:.2f} | {found.special_only[last][layer]:.3f} | {control} |"
        )
    print(f"\nchecks: {found.checks}", flush=True)


def _draw_boxes(shares: torch.Tensor, path: Path) -> None:
    figure, axis = matplotlib.pyplot.subplots(figsize=(5.5, 3.4), layout="constrained")
    axis.boxplot(shares.T.numpy(), positions=range(len(shares)), showfliers=False, widths=0.6)
    axis.axhline(0.5, color=GREY, linewidth=0.8)
    axis.set(xlabel="layer", ylabel="contribution of the token itself", ylim=(0, 1.02))
    save(figure, path)


def _draw_neighbours(
    reach: list[torch.Tensor], counts: list[torch.Tensor], path: Path, far: int = 12
) -> None:
    longest = max(part.shape[1] for part in reach)
    total, pairs = torch.zeros(len(reach[0]), longest), torch.zeros(longest)
    for part, count in zip(reach, counts, strict=True):
        total[:, : part.shape[1]] += part
        pairs[: len(count)] += count
    mean = (total / pairs)[:, :far]
    print("\n| layer | " + " | ".join(f"distance {i}" for i in range(6)) + " |")
    print("|---" * 7 + "|")
    for layer, row in enumerate(mean):
        print(f"| {layer} | " + " | ".join(f"{value:.4f}" for value in row[:6]) + " |")
    figure, axis = matplotlib.pyplot.subplots(figsize=(5.5, 3.4), layout="constrained")
    shades = Canvas("HiddenAttribution").shades(len(mean))
    for layer, row in enumerate(mean[1:], start=1):
        axis.plot(range(1, far), row[1:], color=shades[layer], label=f"layer {layer}")
    axis.set(xlabel="distance to the neighbour", ylabel="mean contribution of one neighbour")
    axis.legend(fontsize="small", loc="upper right")
    save(figure, path)


if __name__ == "__main__":
    main()
