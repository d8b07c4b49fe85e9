"""What is left of a token in a real model? The numbers and figures of docs/mixing.md.

    python studies/mixing.py --base FOLDER --data SST-2-FOLDER [--figures FOLDER] [--parts …]

1. mixing: hidden token attribution (sketch) of development sentences: own share by layer, tokens
   that are not their own top contributor, neighbour profile, one token's story;
2. heads: attention against input contribution, on some of the same sentences;
3. tokens: token identifiability of training sentences, every map, metric and candidate set.

Numbers of each layer are kept in docs/data/mixing-MODEL.json, and what claims rest on goes into the
ledger. --maps linear leaves the rest of part 3 out.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot
import torch
import transformers
from drawing import save_in
from identifiability import DOCS, figure_name, keep, opened
from ledger import Ledger, add_option

from exhibit_a.examples import read_examples
from exhibit_a.methods.mixing.head_mixing import head_mixing
from exhibit_a.methods.mixing.hidden_attribution import by_distance, displaced, hidden_attribution
from exhibit_a.methods.mixing.token_identifiability import token_identifiability
from exhibit_a.numerics.intervals import bootstrap_interval
from exhibit_a.report.figures import Canvas
from exhibit_a.report.figures.drawing import COLUMNS, LINES, MARKERS
from exhibit_a.report.figures.paper import PaperFigure
from exhibit_a.report.palette import GREY
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import capture

MAPS = ("identity", "rotation", "linear", "mlp")
NEAR, FAR = 1, 5  # tokens away
SMALL = 7  # points, in a figure of one column
FEWEST_WORDS = 8  # many rows of the training file are phrases, not sentences


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--base", required=True, help="folder of the model, or a name")
    asked.add_argument("--data", required=True, type=Path, help="folder with train.tsv and dev.tsv")
    asked.add_argument("--figures", type=Path, help="draw the figures into this folder")
    asked.add_argument("--parts", nargs="+", default=["mixing", "heads", "tokens"])
    asked.add_argument("--sentences", type=int, default=200)
    asked.add_argument("--probes", type=int, default=16)
    asked.add_argument("--texts", type=int, default=5000)
    asked.add_argument("--epochs", type=int, default=10)
    asked.add_argument("--maps", nargs="+", default=list(MAPS))
    asked.add_argument("--docs", type=Path, default=DOCS, help="folder of the kept numbers")
    add_option(asked)
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
            save_in(options.figures, f"{figure_name(options, 'mixing')}-story", found.plot())
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
    _draw_boxes(shares, options)
    profile = _draw_neighbours(reach, counts, options)
    quartiles = shares.quantile(torch.tensor([0.25, 0.5, 0.75]), dim=1).T
    kept = {
        "sentences": len(texts),
        "tokens": shares.shape[1],
        "probes": options.probes,
        "own share, quartiles": quartiles.tolist(),
        "own share, mean of text medians": medians.mean(1).tolist(),
        "own share, interval": spans.tolist(),
        "not own top": per_text.mean(1).tolist(),
        "not own top, interval": bounds.tolist(),
        "not own top, words alone": displaced_all[:, ~special].mean(1).tolist(),
        "contribution by distance": profile.tolist(),
    }
    keep(options, "mixing", {"mixing": kept})
    _write_mixing(medians, per_text, [r / c for r, c in zip(reach, counts, strict=True)], options)


def _write_mixing(
    medians: torch.Tensor, displaced_share: torch.Tensor, near: list[torch.Tensor], options: Any
) -> None:
    """What the claims about mixing rest on: a number for each sentence."""
    ledger = opened(options, "SST-2 dev, first sentences")
    ledger.mean("own share after layer 1, median token", medians[1])
    ledger.mean("own share after the last layer, median token", medians[-1])
    ledger.mean("own share lost from layer 1 to the last, median token", medians[1] - medians[-1])
    name = "tokens that are not their own first contributor"
    ledger.mean(f"{name}, last layer", displaced_share[-1])
    ledger.mean(f"{name}, layer before it", displaced_share[-2])
    long = [part for part in near if part.shape[1] > FAR]
    ledger.mean(
        "contribution of a direct neighbour less that of one five away",
        [(part[1:, NEAR] - part[1:, FAR]).mean() for part in long],
    )
    ledger.mean(
        "contribution of a token five away, last layer less first",
        [part[-1, FAR] - part[1, FAR] for part in long],
    )


def heads(subject: Subject, options: Any) -> None:
    """Attention beside input contribution, averaged over heads and sentences."""
    texts = read_examples(options.data / "dev.tsv")[: max(2, options.sentences // 10)]
    sums: dict[str, list[Any]] = {}
    for number, text in enumerate(texts):
        found = head_mixing(capture(subject, text.text), probes=options.probes, seed=number)
        for name in ("pearson", "spearman", "jensen_shannon", "total_variation"):
            sums.setdefault(name, []).append(torch.stack(getattr(found, name)))
        if number == 0:
            save_in(options.figures, f"{figure_name(options, 'mixing')}-heads", found.plot())
    print(f"{len(texts)} sentences, {options.probes} probes\n")
    print("| layer | Pearson | Spearman | Jensen–Shannon (share of ln 2) | weight elsewhere |")
    print("|---|---|---|---|---|")
    means = {name: torch.stack(parts).mean((0, 2)) for name, parts in sums.items()}
    elsewhere = torch.stack(sums["total_variation"]).mean(2)
    kept = {"sentences": len(texts), "probes": options.probes}
    keep(options, "mixing", {"heads": kept | {n: part.tolist() for n, part in means.items()}})
    ledger = opened(options, "SST-2 dev, first sentences")
    later = elsewhere[:, 1:].mean(1)
    name = "weight that lies elsewhere than the contribution, layers after the first"
    ledger.mean(name, later)
    name = "weight that lies elsewhere, layers after the first less the first"
    ledger.mean(name, later - elsewhere[:, 0])
    for layer in range(len(means["pearson"])):
        print(
            f"| {layer + 1} | " + " | ".join(f"{part[layer]:.3f}" for part in means.values()) + " |"
        )


def tokens(subject: Subject, options: Any) -> None:
    """Rates by layer for every map, metric and set of candidates."""
    rows = read_examples(options.data / "train.tsv")
    texts = [row for row in rows if len(row.text.split()) >= FEWEST_WORDS][: options.texts]
    found = {}
    for metric in ("cosine", "l2"):
        found[metric] = token_identifiability(
            subject,
            texts,
            maps=tuple(options.maps),
            metric=metric,
            epochs=options.epochs,
        )
        name = f"{figure_name(options, 'mixing')}-tokens-{metric}"
        save_in(options.figures, name, found[metric].plot())
        _tell(found[metric], len(texts))
    keep(options, "mixing", {"tokens": {metric: _kept(one) for metric, one in found.items()}})
    ledger = opened(options, "SST-2 train, rows of 8 words or more")
    _write_tokens(found["cosine"], found["l2"], ledger)
    if tuple(options.maps) != MAPS:
        return
    for candidates in ("dataset", "vocab"):
        _tell(
            token_identifiability(
                subject, texts, maps=("identity", "linear"), candidates=candidates
            ),
            len(texts),
        )


def _write_tokens(cosine: Any, distance: Any, ledger: Ledger) -> None:
    """Rates of the linear map, with the intervals of the result; differences take both."""
    count = cosine.checks["test_words"]
    last, first = cosine.interval["linear"][-1], cosine.interval["linear"][1]
    far = distance.interval["linear"][-1]
    rate = cosine.rate["linear"]
    name = "tokens found again in the last layer, linear map, cosine"
    ledger.write(name, float(rate[-1]), last.tolist(), count, "words")
    for name, larger, smaller, ends in (
        (
            "tokens found by cosine and not by distance, last layer, linear map",
            rate[-1],
            distance.rate["linear"][-1],
            (last, far),
        ),
        (
            "tokens found again in layer 1 and not in the last, linear map, cosine",
            rate[1],
            rate[-1],
            (first, last),
        ),
    ):
        low, high = float(ends[0][0] - ends[1][1]), float(ends[0][1] - ends[1][0])
        ledger.write(name, float(larger - smaller), (low, high), count, "words")


def _kept(found: Any) -> dict[str, Any]:
    """The rates by map and layer, with their intervals, and what they are compared with."""
    return {
        "words": found.checks["test_words"],
        "chance": float(found.chance),
        "rate": {name: rate.tolist() for name, rate in found.rate.items()},
        "interval": {name: ends.tolist() for name, ends in found.interval.items()},
        "control": {name: part.tolist() for name, part in found.control.items()},
    }


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


def _draw_boxes(shares: torch.Tensor, options: Any) -> None:
    figure, axis = matplotlib.pyplot.subplots(figsize=(5.5, 3.4), layout="constrained")
    axis.boxplot(shares.T.numpy(), positions=range(len(shares)), showfliers=False, widths=0.6)
    axis.axhline(0.5, color=GREY, linewidth=0.8)
    axis.set(xlabel="layer", ylabel="contribution of the token itself", ylim=(0, 1.02))
    save_in(options.figures, f"{figure_name(options, 'mixing')}-own-share", figure)


def _draw_neighbours(
    reach: list[torch.Tensor], counts: list[torch.Tensor], options: Any, far: int = 12
) -> torch.Tensor:
    """The mean contribution of one neighbour by layer and distance."""
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
    figure = neighbours_figure(mean)
    save_in(options.figures, f"{figure_name(options, 'mixing')}-neighbours", figure)
    return mean


def neighbours_figure(mean: torch.Tensor, most: int = 6) -> PaperFigure:
    """The contribution of one neighbour by distance, for a few layers that grey can tell apart."""
    figure = PaperFigure((COLUMNS["one column"], 2.4))
    axis = figure.subplots()
    last = len(mean) - 1
    layers = sorted({round(1 + (last - 1) * step / (most - 1)) for step in range(most)})
    shades = Canvas("HiddenAttribution").shades(len(layers))
    for place, layer in enumerate(layers):
        axis.plot(
            range(1, mean.shape[1]),
            mean[layer, 1:],
            color=shades[place],
            linestyle=LINES[place % len(LINES)],
            marker=MARKERS[place % len(MARKERS)],
            markersize=2.5,
            linewidth=0.9,
            label=f"layer {layer}",
        )
    axis.set_xlabel("distance to the neighbour", fontsize=SMALL)
    axis.set_ylabel("mean contribution of one", fontsize=SMALL)
    axis.tick_params(labelsize=SMALL)
    axis.legend(fontsize=SMALL - 1, loc="upper right")
    return figure


if __name__ == "__main__":
    main()
