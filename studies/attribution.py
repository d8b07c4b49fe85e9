"""What do attribution, pruning, trees and triggers say about the two embedded models?

    python studies/attribution.py --data FOLDER [--figures FOLDER] [--only heads trees]

FOLDER holds SST-2, MNLI-subset and SNLI-subset. Everything printed here is what the documents
quote; figures go to --figures, and what claims rest on into the ledger.
"""

import argparse
import time
from pathlib import Path

import torch
import transformers
from drawing import save_in
from ledger import Ledger, add_option

from exhibit_a.examples import Example, read_examples
from exhibit_a.methods.attribution.self_attribution import self_attribution
from exhibit_a.methods.attribution.tree import attribution_tree
from exhibit_a.methods.heads.curve import (
    PruningCurve,
    effectiveness,
    measure_pruning,
    pruning_curve,
)
from exhibit_a.methods.heads.importance import HeadImportance, head_importance, head_similarity
from exhibit_a.methods.heads.removal import prune
from exhibit_a.methods.triggers.triggers import Attack, attack, find_triggers
from exhibit_a.report.figures import plot_curves
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import capture

RANKED_ON = 200
MEASURES = ("attribution", "taylor", "ablation", "attention")
SENTENCES: dict[str, list[tuple[str, str | None]]] = {
    "sentiment": [
        ("a charming and often affecting journey .", None),
        ("the plot is thin but the acting saves it .", None),
        ("it takes a strange kind of laziness to waste these talents .", None),
    ],
    "nli": [
        ("a man is playing a guitar on stage .", "nobody is making music ."),
        ("two children run across the beach .", "kids are outside ."),
        ("the committee met on friday .", "the committee was unhappy ."),
    ],
}


def files(data: Path) -> dict[str, tuple[Path, Path]]:
    """For each model: where it was trained, and what it is judged on."""
    return {
        "sentiment": (data / "SST-2" / "train.tsv", data / "SST-2" / "dev.tsv"),
        "nli": (data / "MNLI-subset" / "train_subset.tsv", data / "MNLI-subset" / "dev_subset.tsv"),
    }


def heads_study(subject: Subject, dev: list[Example], figures: Path | None) -> None:
    """Rank by four measures, prune by each ranking, and remove heads for good."""
    found: dict[str, HeadImportance] = {}
    for by in MEASURES:
        start = time.perf_counter()
        found[by] = head_importance(subject, dev, by=by, limit=RANKED_ON)
        seconds = time.perf_counter() - start
        print(f"\nimportance by {by}: {seconds:.1f} s, {RANKED_ON / seconds:.1f} sentences/s")
        print(f"  checks {found[by].checks}")
        best = found[by].ranking[-3:][::-1]
        print(f"  most important (site, head): {best}")
    save_in(figures, f"heads-{subject.name}-importance", found["attribution"].plot())
    curves: list[PruningCurve] = []
    for order in ("least", "most"):
        print(f"\naccuracy, {order} important first, on {len(dev) - RANKED_ON} other examples")
        for by in MEASURES:
            curves.append(pruning_curve(subject, dev, found[by], order=order))
            numbers = " ".join(f"{value:.3f}" for value in curves[-1].accuracy)
            print(f"  {by:12} {numbers}   mean {curves[-1].area:.3f}")
    low, high = curves[0].interval[0].tolist()
    print(f"  whole model: {float(curves[0].accuracy[0]):.3f}, 95 % interval {low:.3f} to {high:.3f}")
    save_in(figures, f"heads-{subject.name}-least", plot_curves(curves[:4]))
    save_in(figures, f"heads-{subject.name}-most", plot_curves(curves[4:]))
    print("\neffectiveness (each example its own order, 0 … 12 heads of every layer)")
    for order in ("most", "least"):
        for by in ("attribution", "attention"):
            curve = effectiveness(subject, dev, by=by, order=order, limit=RANKED_ON)
            print(f"  {by:12} {order:6}" + " ".join(f"{value:.3f}" for value in curve.accuracy))
    removal_study(subject, dev, found["attribution"])


def removal_study(subject: Subject, dev: list[Example], importance: HeadImportance) -> None:
    """Take the least important heads out of the model and measure."""
    for share in (0.3, 0.5, 0.7):
        gone = importance.ranking[: int(share * len(importance.ranking))]
        measured = measure_pruning(subject, prune(subject, gone), gone, dev[:RANKED_ON])
        before, after = measured.parameters
        print(
            f"  {share:.0%} of heads removed: {before:,} → {after:,} parameters, "
            f"{measured.speed_up:.2f} times faster, answers differ by {measured.difference:.1e}"
        )


def similarity_study(data: Path, figures: Path | None) -> None:
    """The same heads on kindred and on different tasks."""
    ranked = {}
    for name, model, file in (
        ("SST-2", "sentiment", data / "SST-2" / "dev.tsv"),
        ("MNLI", "nli", data / "MNLI-subset" / "dev_subset.tsv"),
        ("SNLI", "nli", data / "SNLI-subset" / "dev_subset.tsv"),
    ):
        ranked[name] = head_importance(load(model), read_examples(file), limit=RANKED_ON)
    for first, second, kind in (("MNLI", "SNLI", "kindred"), ("MNLI", "SST-2", "different")):
        found = head_similarity(ranked[first], ranked[second], names=(first, second))
        low, high = found.interval
        print(
            f"\n{first} and {second} ({kind}): Pearson {found.pearson:.2f} "
            f"({low:.2f} to {high:.2f}), Spearman {found.spearman:.2f}"
        )
        save_in(figures, f"heads-similarity-{kind}", found.plot())


def trees_study(subject: Subject, figures: Path | None) -> None:
    """Three trees, greedy and exact."""
    for number, (text, pair) in enumerate(SENTENCES[subject.name]):
        found = self_attribution(capture(subject, text, pair=pair))
        tree = attribution_tree(found)
        share = tree.checks["greedy share of exact"]
        print(f"\n{text} {'| ' + pair if pair else ''}")
        print(f"points {found.points.tolist()}, largest gap {float(found.gap.max()):.1e}")
        print(f"{tree.text()}\n  greedy reaches {share:.3f} of the exact objective")
        if figures is not None:
            (figures / f"trees-{subject.name}-{number + 1}.svg").write_text(tree.svg())
        if number == 0:
            save_in(figures, f"attribution-{subject.name}", found.plot(site=-1, head="all"))


def triggers_study(subject: Subject, train: list[Example], dev: list[Example], figures: Path | None) -> Attack:
    """Patterns from training examples, put into the development set."""
    start = time.perf_counter()
    found = find_triggers(subject, train)
    print(f"\n{len(found.patterns)} patterns in {time.perf_counter() - start:.0f} s, {found.checks}")
    result = attack(subject, dev, found)
    before = " ".join(f"{n} {v:.3f}" for n, v in zip(result.labels, result.before, strict=True))
    print(f"before: {before} (examples of each class: {result.counts.tolist()})")
    for place, one in enumerate(result.patterns):
        cells = [
            f"{name} {float(result.after[place, label]):.3f} "
            f"[{float(result.interval[place, label, 0]):.3f}, "
            f"{float(result.interval[place, label, 1]):.3f}]"
            for label, name in enumerate(result.labels)
        ]
        print(
            f"  {one.text!r} → {result.labels[one.predicted]} ({sum(one.scores):.2f}): "
            f"{', '.join(cells)}; drop {result.drop(place):+.3f}, "
            f"attention {result.drop(place, result.attention):+.3f}, "
            f"random {result.drop(place, result.random):+.3f}"
        )
    save_in(figures, f"triggers-{subject.name}", result.plot())
    return result


def write_triggers(result: Attack, ledger: Ledger, name: str) -> None:
    """What patterns of attribution take more than their controls, pattern by pattern."""
    every = range(len(result.patterns))
    for control, said in (
        (result.random, "random words"),
        (result.attention, "patterns of attention"),
    ):
        more = [result.drop(place) - result.drop(place, control) for place in every]
        title = f"accuracy lost to patterns of attribution less {said} ({name})"
        ledger.mean(title, more, "patterns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--figures", type=Path, help="draw the figures into this folder")
    parser.add_argument("--models", nargs="+", default=["sentiment", "nli"])
    parser.add_argument("--only", nargs="+", default=["trees", "heads", "triggers", "similarity"])
    parser.add_argument("--patterns", type=int, default=500, help="training texts for triggers")
    parser.add_argument("--attacked", type=int, help="only so many texts for triggers")
    add_option(parser)
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    if given.figures is not None:
        given.figures.mkdir(parents=True, exist_ok=True)
    for name in given.models:
        train, held_out = files(given.data)[name]
        subject, dev = load(name), read_examples(held_out)
        print(f"\n=== {name}: {len(dev)} development examples, labels {subject.labels}")
        if "trees" in given.only:
            trees_study(subject, given.figures)
        if "heads" in given.only:
            heads_study(subject, dev, given.figures)
        if "triggers" in given.only:
            learn = read_examples(train)[: given.patterns]
            result = triggers_study(subject, learn, dev[: given.attacked], given.figures)
            data = f"{held_out.parent.name} train and dev"
            write_triggers(result, Ledger(given.ledger, f"`{name}`", data), name)
    if "similarity" in given.only:
        similarity_study(given.data, given.figures)


if __name__ == "__main__":
    main()
