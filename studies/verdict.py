"""Are the words of the verdict true, and what do they follow?

    PYTHONPATH=tests python studies/verdict.py planted
    PYTHONPATH=tests python studies/verdict.py planted --first 0 --each 20 \\
        --name planted-calibration
    python studies/verdict.py sentences --data DATA
    PYTHONPATH=tests python studies/verdict.py passes
    python studies/verdict.py calibration [--figures docs/figures]

``planted``      models whose truth is known: seeds from 3000 for what is reported, 0 to 19 (named
                 planted-calibration) for where the lines are drawn
``sentences``    sentences of the SST-2 development set (DATA/SST-2/dev.tsv) and the embedded
                 ``sentiment``; ``--whole`` keeps the numbers of all heads, ``--part-of 0 2``
                 and ``--part-of 1 2`` are two halves
``passes``       how many forward passes a trial of ``sentiment`` takes, by length of the text
``calibration``  precision and recall of the words against each threshold, from planted models of
                 the seeds for calibration; what chance would pass, from ``sentences``; what
                 decision trees make of the words; and the figures

Each but the last appends a line to a file in docs/data for every text, so that it can be stopped
and started again. ``docs/making/verdict.py`` makes the tables of docs/verdict.md from these files.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from study import DOCS, Row, parse, read_sst, resumed, rounded, rows, save
from verdict_words import JUDGED, LIMITS, curves, examined, judged, kept, measured, trees

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame, maps_of_sites
from exhibit_a.methods.attribution.reliance import along_rows
from exhibit_a.numerics.seeds import generator
from exhibit_a.report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION
from exhibit_a.trace.targets import margin_of
from exhibit_a.trials.examination import Examination
from exhibit_a.trials.head_numbers import head_numbers
from exhibit_a.trials.trial import KEPT

RANDOMS = 56  # random-weight models at least: every family at every scale, twice
SHARES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2)  # lines for the share of a head
COSINES = tuple(round(-0.5 + 0.1 * step, 1) for step in range(16))  # lines for pointing
NULLED = 60  # sentences on which rows are permuted
POINTS = 5  # of the path, for the gradients of the null
LENGTHS = (12, 37, 128, 510)  # tokens of the texts whose passes are counted
PRAISE = "the film is slow but the acting is superb and nobody will look at a watch before the end"
Work = Iterator[tuple[Row, Callable[[], Row]]]


def main() -> None:
    studies = {
        "planted": planted_models,
        "sentences": sentences,
        "passes": passes,
    }
    given = {
        "name": str,
        "first": 3000,
        "kinds": (str,),
        "count": 200,
        "each": 17,
        "part-of": (0, 1),
        "whole": False,
    }
    given |= {"data": Path, "folder": DOCS, "figures": Path}
    options = parse(__doc__, part=[*studies, "calibration"], **given)
    if options.part == "calibration":
        calibration(options)
    else:
        file = options.folder / f"{options.name or options.part}.jsonl"
        resumed(
            file, studies[options.part](options), None if options.part == "planted" else rounded
        )


def planted_models(options: argparse.Namespace) -> Work:
    """The words for models whose truth is known."""
    from planted.kinds import KINDS, planted

    def model(kind: str, seed: int) -> Row:
        made = planted(kind, seed)
        truth: Row = {
            "expected": made.word,
            "truth": [[*head, word] for head, word in made.heads.items()],
        }
        truth["decisive"] = [list(head) for head in made.decisive]
        truth["shared"] = [list(head) for head in sorted(made.shared)]
        return truth | measured(made.subject, made.inputs)

    randoms = max(options.each, RANDOMS) // options.each + 1
    for turn in range(options.each):
        for kind in options.kinds or KINDS:
            for seed in (
                range(turn * randoms, turn * randoms + randoms) if kind == "random" else (turn,)
            ):
                at = {"kind": kind, "seed": options.first + seed}
                yield at, lambda at=at: model(**at)


def sentences(options: argparse.Namespace) -> Work:
    """The word for sentences, and what it might follow."""
    texts = [example.text for example in read_sst(options.data / "SST-2" / "dev.tsv")]
    subject, (part, parts) = xa.load("sentiment"), options.part_of
    for number, text in enumerate(random.Random(1).sample(texts, options.count)):
        if number % parts == part:
            yield (
                {"number": number},
                lambda text=text, nulled=number < NULLED: sentence(
                    subject, text, nulled=nulled, whole=options.whole
                ),
            )


def sentence(subject: xa.Subject, text: str, *, nulled: bool, whole: bool) -> Row:
    """What a trial says about one sentence, in few numbers."""
    known = examined(xa.capture(subject, text, keep=KEPT))
    word, verdicts = judged(known)
    relied, numbers = known.reliance, head_numbers(known)
    sizes = torch.tensor([abs(head.reliance) for head in numbers])
    weights = sizes / sizes.sum()
    row = {
        "word": word,
        "tokens": len(known.trace.tokens),
        "confidence": float(torch.tensor(relied.margin).sigmoid()),
        "whole": relied.whole / relied.size,
        "permuted": (relied.margin - relied.permuted_margin) / relied.size,
        "permuted error": relied.permuted_error / relied.size,
        "gap": relied.checks["gap as a share of the whole"],
        "points": relied.checks["points"],
        "determined": relied.determined,
        "distance": float(weights @ torch.tensor([head.distance for head in numbers])),
        "pointing": float(weights @ torch.tensor([head.pointing for head in numbers])),
        "set": len(known.carriers.heads),
        "loss": known.carriers.loss,
        "random loss": known.carriers.random_loss,
        "heads": dict(Counter(verdict.word for verdict in verdicts)),
        "shared": sum(verdict.shared for verdict in verdicts),
        "shares": [float((sizes >= line * relied.size).float().mean()) for line in SHARES],
    }
    row |= null(known) if nulled else {}
    return row | ({"measured": kept(known, word, verdicts)} if whole else {})


def null(known: Examination) -> dict[str, list[float]]:
    """How often heads would pass each line if their rows had been permuted.

    For shares, the normal distribution with the spread that permuted rows give; for pointing and
    coherence, the heads that carry, with rows permuted once and the same gradients, and as they
    are.
    """
    relied = known.reliance
    spread = torch.cat(relied.null) / relied.size
    game = HeadGame(known.trace, margin_of(known.target))
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    _, _, (gradients,) = game.gradients(
        ((nodes + 1) / 2).tolist(), torch.tensor(weights / 2)[None].float()
    )
    maps = maps_of_sites(gradients, game.own)
    row = {"null shares": [float(torch.erfc(line / spread / 2**0.5).mean()) for line in SHARES]}
    row |= {
        f"{name} {of}": [] for name in ("pointing", "coherence") for of in ("permuted", "carrying")
    }
    for site, own in enumerate(game.own):
        order = torch.rand(own.shape, generator=generator(0, site)).argsort(-1)
        shuffled = own.gather(-1, order)  # every key is seen by every row of this model
        carries = relied.heads[site].abs() >= LIMITS.carries * relied.size
        said = along_rows(
            shuffled, game.maps.levelled(site), maps[site], known.trace.visible[site][None]
        )
        for name in ("pointing", "coherence"):
            row[f"{name} permuted"].extend(getattr(said, name)[carries].tolist())
            row[f"{name} carrying"].extend(getattr(relied, name)[site][carries].tolist())
    return row


def passes(_: argparse.Namespace) -> Work:
    """Forward passes of a trial, counted in the layers, heat maps apart; and those of the heat
    maps."""
    from support.passes import counting

    subject = xa.load("sentiment")
    modules = [subject.model.get_submodule(layer.module) for layer in subject.anatomy.layers]

    def of_length(tokens: int) -> Row:
        text = " ".join((PRAISE.split() * tokens)[: tokens - 2])
        with counting(modules) as counted:
            trial = xa.trial(subject, text, heat_maps=False)
        return {
            "trial": round(sum(counted) / len(modules), 1),
            "left out": sorted(set(trial.skipped) - {"heat_maps"}),
            "heat_maps": xa.heat_maps(xa.capture(subject, text)).passes,
        }

    for tokens in LENGTHS:
        yield {"tokens": tokens}, lambda tokens=tokens: of_length(tokens)


def calibration(options: argparse.Namespace) -> None:
    """Where the lines could be drawn, and the figures."""
    planted, drawn = (
        rows(options.folder / f"{name}.jsonl") for name in ("planted-calibration", "sentences")
    )
    nulled = [row for row in drawn if "null shares" in row]
    nulls = {
        "carries": {"line": SHARES},
        "points": {"line": COSINES},
        "coherence": {"line": COSINES},
    }
    for kind, share, cosine in (
        ("real", "shares", "carrying"),
        ("permuted", "null shares", "permuted"),
    ):
        nulls["carries"][kind] = np.mean([row[share] for row in nulled], axis=0).tolist()
        for threshold, name in (("points", "pointing"), ("coherence", "coherence")):
            numbers = np.concatenate([row[f"{name} {cosine}"] for row in nulled])
            nulls[threshold][kind] = [float((numbers >= line).mean()) for line in COSINES]
    known = {
        "models": len(planted),
        "sentences": len(nulled),
        "curves": curves(planted),
        "nulls": nulls,
    }
    reached = {"sentences": len(drawn), "trees": trees(drawn)}
    for name, found in (("calibration", known), ("trees", reached)):
        (options.folder / f"{name}.json").write_text(json.dumps(rounded(found), indent=1) + "\n")
    if options.figures is not None:
        draw_calibration(known, options.figures / "verdict-calibration.svg")


MEANS = {
    "carries": "share of a head, of the margin",
    "whole": "what all heads take, of the margin",
    "distance": "of valid alternatives",
    "coherence": "of the rows of a head",
    "points": "cosine of weights and contributions",
}


def draw_calibration(known: Row, file: Path) -> None:
    """Precision and recall against every threshold, and what chance would pass."""
    figure, panels = plt.subplots(2, 3, figsize=(12, 6), layout="constrained")
    panels.flat[-1].set_axis_off()
    for panel, (threshold, curve) in zip(panels.flat, known["curves"].items(), strict=False):
        word = JUDGED[threshold]
        panel.plot(curve["line"], curve["precision"], "o-", color=BLUE, label=f"{word}: precision")
        panel.plot(curve["line"], curve["recall"], "s--", color=VERMILION, label=f"{word}: recall")
        panel.plot(
            curve["line"], curve["evidence recall"], ":", color=GREEN, label="evidence: recall"
        )
        if null := known["nulls"].get(threshold):
            panel.plot(
                null["line"], null["real"], color=ORANGE, label="heads of sentiment beyond it"
            )
            panel.plot(null["line"], null["permuted"], color=PURPLE, label="… with rows permuted")
        default = getattr(LIMITS, threshold)
        panel.axvline(default, color=GREY, linewidth=0.8)
        panel.set(
            title=f"{threshold} (default {default:g})", xlabel=MEANS[threshold], ylim=(-0.03, 1.03)
        )
        if threshold not in ("points", "coherence"):
            panel.set_xscale("log")
        panel.legend(fontsize=7, loc="best")
    save(figure, file)


if __name__ == "__main__":
    main()
