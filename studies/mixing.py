"""What is left of a token in a real model? The numbers and figures of docs/mixing.md and
docs/sizes.md.

    python studies/mixing.py --base FOLDER --data SST-2-FOLDER [--figures FOLDER] [--parts …]

mixing  hidden token attribution (sketch) of development sentences: own share by layer, tokens that
are not their own
        top contributor, neighbour profile, one token's story
heads   attention against input contribution, on a tenth of these sentences
tokens  token identifiability of training sentences, every map and metric

Numbers of each layer are kept in docs/data/mixing-MODEL.json, and what claims rest on goes into the
ledger.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import torch
from study import DOCS, figure_name, keep, ledger_of, parse, save_in

import exhibit_a as xa
from exhibit_a.examples import read_examples
from exhibit_a.methods.mixing.hidden_attribution import by_distance, displaced
from exhibit_a.numerics.intervals import bootstrap_interval
from exhibit_a.report.figures import Canvas
from exhibit_a.report.figures.drawing import COLUMNS, LINES, MARKERS
from exhibit_a.report.figures.paper import PaperFigure
from exhibit_a.report.palette import GREY

NEAR, FAR, FARTHEST = 1, 5, 12  # tokens away
SMALL = 7  # points, in a figure of one column
FEWEST_WORDS = 8  # many rows of the training file are phrases, not sentences


def main() -> None:
    parts = {"mixing": mixing, "heads": heads, "tokens": tokens}
    given = {"base": str, "data": Path, "sentences": 200, "probes": 16, "texts": 5000, "epochs": 10}
    given |= {"maps": ("identity", "rotation", "linear", "mlp"), "figures": Path, "docs": DOCS}
    options = parse(__doc__, need=["base", "data"], parts=tuple(parts), **given)
    subject = xa.load(options.base)
    for part in options.parts:
        parts[part](subject, options)


def draw(figure: object, name: str, options: argparse.Namespace) -> None:
    save_in(options.figures, f"{figure_name(options, 'mixing')}-{name}", figure)


def mixing(subject: xa.Subject, options: argparse.Namespace) -> None:
    """Own shares, displaced tokens and neighbours, pooled over sentences."""
    texts = read_examples(options.data / "dev.tsv")[: options.sentences]
    own, lost, reach, counts, words = [], [], [], [], []
    for number, text in enumerate(texts):
        found = xa.hidden_attribution(
            xa.capture(subject, text.text), probes=options.probes, seed=number
        )
        own.append(found.self_contribution)
        lost.append(displaced(found.contribution).float())
        words.append(~found.special)
        total, pairs = by_distance(found.contribution)
        reach.append(total)
        counts.append(pairs)
        if number == 0:
            draw(found.plot(), "story", options)
    shares, moved, inner = torch.cat(own, 1), torch.cat(lost, 1), torch.cat(words)
    per_text = torch.stack([part.mean(1) for part in lost], 1)
    medians = torch.stack([part.median(1).values for part in own], 1)
    profile = neighbours(reach, counts)
    draw(own_share_figure(shares), "own-share", options)
    draw(neighbours_figure(profile), "neighbours", options)
    kept = {"sentences": len(texts), "tokens": shares.shape[1], "probes": options.probes} | {
        "own share, quartiles": shares.quantile(torch.tensor([0.25, 0.5, 0.75]), dim=1).T.tolist(),
        "own share, mean of text medians": medians.mean(1).tolist(),
        "own share, interval": bootstrap_interval(medians, seed=0).tolist(),
        "not own top": per_text.mean(1).tolist(),
        "not own top, interval": bootstrap_interval(per_text, seed=0).tolist(),
        "not own top, words alone": moved[:, inner].mean(1).tolist(),
        "contribution by distance": profile.tolist(),
    }
    keep(options, "mixing", {"mixing": kept})
    near = [
        total / pairs for total, pairs in zip(reach, counts, strict=True) if total.shape[1] > FAR
    ]
    ledger, name = (
        ledger_of(options, "SST-2 dev, first sentences"),
        "tokens that are not their own first contributor",
    )
    for title, values in {
        "own share after layer 1, median token": medians[1],
        "own share after the last layer, median token": medians[-1],
        "own share lost from layer 1 to the last, median token": medians[1] - medians[-1],
        f"{name}, last layer": per_text[-1],
        f"{name}, layer before it": per_text[-2],
        "contribution of a direct neighbour less that of one five away": [
            (part[1:, NEAR] - part[1:, FAR]).mean() for part in near
        ],
        "contribution of a token five away, last layer less first": [
            part[-1, FAR] - part[1, FAR] for part in near
        ],
    }.items():
        ledger.mean(title, values)


def neighbours(reach: list[torch.Tensor], counts: list[torch.Tensor]) -> torch.Tensor:
    """The mean contribution of one neighbour by layer and distance."""
    longest = max(part.shape[1] for part in reach)
    total, pairs = torch.zeros(len(reach[0]), longest), torch.zeros(longest)
    for part, count in zip(reach, counts, strict=True):
        total[:, : part.shape[1]] += part
        pairs[: len(count)] += count
    return (total / pairs)[:, :FARTHEST]


def own_share_figure(shares: torch.Tensor) -> matplotlib.figure.Figure:
    figure, axis = matplotlib.pyplot.subplots(figsize=(5.5, 3.4), layout="constrained")
    axis.boxplot(shares.T.numpy(), positions=range(len(shares)), showfliers=False, widths=0.6)
    axis.axhline(0.5, color=GREY, linewidth=0.8)
    axis.set(xlabel="layer", ylabel="contribution of the token itself", ylim=(0, 1.02))
    return figure


def neighbours_figure(mean: torch.Tensor, most: int = 6) -> PaperFigure:
    """The contribution of one neighbour by distance, for a few layers that grey can tell apart."""
    figure = PaperFigure((COLUMNS["one column"], 2.4))
    axis = figure.subplots()
    last = len(mean) - 1
    layers = sorted({round(1 + (last - 1) * step / (most - 1)) for step in range(most)})
    shades = Canvas("HiddenAttribution").shades(len(layers))
    for place, layer in enumerate(layers):
        look = {"color": shades[place], "linestyle": LINES[place % len(LINES)], "linewidth": 0.9}
        look |= {
            "marker": MARKERS[place % len(MARKERS)],
            "markersize": 2.5,
            "label": f"layer {layer}",
        }
        axis.plot(range(1, mean.shape[1]), mean[layer, 1:], **look)
    axis.set_xlabel("distance to the neighbour", fontsize=SMALL)
    axis.set_ylabel("mean contribution of one", fontsize=SMALL)
    axis.tick_params(labelsize=SMALL)
    axis.legend(fontsize=SMALL - 1, loc="upper right")
    return figure


def heads(subject: xa.Subject, options: argparse.Namespace) -> None:
    """Attention beside input contribution, averaged over heads and sentences."""
    texts = read_examples(options.data / "dev.tsv")[: max(2, options.sentences // 10)]
    found = [
        xa.head_mixing(xa.capture(subject, text.text), probes=options.probes, seed=number)
        for number, text in enumerate(texts)
    ]
    draw(found[0].plot(), "heads", options)
    names = ("pearson", "spearman", "jensen_shannon", "total_variation")
    every = {
        name: torch.stack([torch.stack(getattr(one, name)) for one in found]) for name in names
    }
    means = {name: each.mean((0, 2)).tolist() for name, each in every.items()}
    keep(options, "mixing", {"heads": {"sentences": len(texts), "probes": options.probes} | means})
    elsewhere = every["total_variation"].mean(2)
    later, ledger = elsewhere[:, 1:].mean(1), ledger_of(options, "SST-2 dev, first sentences")
    ledger.mean("weight that lies elsewhere than the contribution, layers after the first", later)
    ledger.mean(
        "weight that lies elsewhere, layers after the first less the first", later - elsewhere[:, 0]
    )


def tokens(subject: xa.Subject, options: argparse.Namespace) -> None:
    """Rates by layer for every map and metric; differences of rates take the intervals of both."""
    rows = read_examples(options.data / "train.tsv")
    texts = [row for row in rows if len(row.text.split()) >= FEWEST_WORDS][: options.texts]
    found, kept = {}, {}
    for metric in ("cosine", "l2"):
        settings = {"maps": tuple(options.maps), "metric": metric, "epochs": options.epochs}
        found[metric] = one = xa.token_identifiability(subject, texts, **settings)
        draw(one.plot(), f"tokens-{metric}", options)
        kept[metric] = {"words": one.checks["test_words"], "chance": float(one.chance)}
        for name in ("rate", "interval", "control"):
            kept[metric][name] = {kind: each.tolist() for kind, each in getattr(one, name).items()}
    keep(options, "mixing", {"tokens": kept})
    count, ledger = (
        kept["cosine"]["words"],
        ledger_of(options, "SST-2 train, rows of 8 words or more"),
    )
    rate, ends = (
        {m: getattr(one, n)["linear"] for m, one in found.items()} for n in ("rate", "interval")
    )
    near, far = (rate["cosine"][-1], ends["cosine"][-1]), (rate["l2"][-1], ends["l2"][-1])
    name = "tokens found again in the last layer, linear map, cosine"
    ledger.write(name, float(near[0]), near[1].tolist(), count, "words")
    first = rate["cosine"][1], ends["cosine"][1]
    for name, (larger, more), (smaller, less) in (
        ("tokens found by cosine and not by distance, last layer, linear map", near, far),
        ("tokens found again in layer 1 and not in the last, linear map, cosine", first, near),
    ):
        widest = float(more[0] - less[1]), float(more[1] - less[0])
        ledger.write(name, float(larger - smaller), widest, count, "words")


if __name__ == "__main__":
    main()
