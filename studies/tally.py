"""What do the rows of the study of the verdict add up to?

``outcomes``      the right word and the given one, for heads or texts of planted models
``precision``     and recall of a word, with Wilson's intervals
``curves``        the same against a threshold, from numbers that were measured once
``best_tree``     the share of words that the best small decision tree gets right: all trees with
                  the given depth and splits are tried, so none is better
``held_out``      the share that such trees get right on sentences they have not seen
``trees``         both, for what the word might follow
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import words

from exhibit_a.numerics.intervals import wilson
from exhibit_a.trials.verdict import WORDS

Row = dict[str, Any]
Outcomes = Counter[tuple[str, str]]  # (right, given): how often

GRIDS = {
    "carries": (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3),
    "whole": (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7),
    "distance": (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "coherence": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
    "points": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
}
JUDGED = {
    "carries": "no effect",
    "whole": "no effect",
    "distance": "contested",
    "coherence": "evidence",
    "points": "misleading",
}
FEATURES = (
    ("confidence", "tokens"),
    ("whole",),
    ("distance",),
    ("pointing",),
    ("whole", "distance", "pointing"),
)
SPLITS = 40  # quantiles at which a feature may be split


@dataclass(frozen=True)
class Share:
    """So many of so many, and Wilson's 95 % interval."""

    right: int
    count: int

    @property
    def value(self) -> float:
        return self.right / self.count if self.count else float("nan")

    def __str__(self) -> str:
        if not self.count:
            return "–"
        low, high = wilson(torch.tensor(self.value), self.count).tolist()
        return f"{self.value:.3f} [{low:.2f}, {high:.2f}] of {self.count}"


def of_heads(rows: Sequence[Row]) -> Outcomes:
    """Right and given words of all heads whose word is known."""
    outcomes: Outcomes = Counter()
    for row in rows:
        given = {(head[0], head[1]): head[2] for head in row["heads"]}
        outcomes.update((right, given[site, head]) for site, head, right in row["truth"])
    return outcomes


def of_texts(rows: Sequence[Row]) -> Outcomes:
    """Right and given words of the texts whose word is known."""
    return Counter((r["expected"], r["word"]) for r in rows if r["expected"] in WORDS)


def precision(outcomes: Outcomes, word: str) -> Share:
    """How many of those that were given a word deserve it."""
    given = sum(count for (_, said), count in outcomes.items() if said == word)
    return Share(outcomes[word, word], given)


def recall(outcomes: Outcomes, word: str) -> Share:
    """How many of those that deserve a word were given it."""
    deserved = sum(count for (right, _), count in outcomes.items() if right == word)
    return Share(outcomes[word, word], deserved)


def decisive_without_effect(rows: Sequence[Row]) -> Share:
    """How many decisive heads were called without effect."""
    called = [
        head[2] == "no effect"
        for row in rows
        for head in row["heads"]
        if [head[0], head[1]] in row["decisive"]
    ]
    return Share(sum(called), len(called))


def shared_heads(rows: Sequence[Row]) -> Share:
    """How many heads that stand in for each other were said to be shared."""
    called = [head[3] for row in rows for head in row["heads"] if head[:2] in row["shared"]]
    return Share(sum(called), len(called))


def judged(rows: Sequence[Row], threshold: str, line: float) -> list[Row]:
    """The rows as they would be with another threshold."""
    limits = replace(words.LIMITS, **{threshold: line})
    again = []
    for row in rows:
        word, verdicts = words.judged_again(row, limits)
        pairs = zip(row["heads"], verdicts, strict=True)
        heads = [[*head[:2], verdict.word, *head[3:]] for head, verdict in pairs]
        again.append(row | {"word": word, "heads": heads})
    return again


def curves(rows: Sequence[Row]) -> dict[str, dict[str, list[float]]]:
    """For each threshold: precision and recall of the word it decides, line by line."""
    drawn = {}
    for threshold, grid in GRIDS.items():
        word, table = JUDGED[threshold], of_texts if threshold == "whole" else of_heads
        tables = [table(judged(rows, threshold, line)) for line in grid]
        drawn[threshold] = {
            "line": list(grid),
            "precision": [precision(outcomes, word).value for outcomes in tables],
            "recall": [recall(outcomes, word).value for outcomes in tables],
            "evidence precision": [precision(outcomes, "evidence").value for outcomes in tables],
            "evidence recall": [recall(outcomes, "evidence").value for outcomes in tables],
        }
    return drawn


def plateau(curve: dict[str, list[float]], default: float, wanted: float) -> tuple[float, float]:
    """The lines around the default for which all four numbers reach what is wanted."""
    names = [name for name in curve if name != "line"]
    good = [
        min(numbers) >= wanted for numbers in zip(*(curve[name] for name in names), strict=True)
    ]
    place = curve["line"].index(default)
    if not good[place]:
        return default, default
    low = high = place
    while low > 0 and good[low - 1]:
        low -= 1
    while high + 1 < len(good) and good[high + 1]:
        high += 1
    return curve["line"][low], curve["line"][high]


def best_tree(features: Sequence[Sequence[float]], labels: Sequence[str], depth: int = 3) -> float:
    """The share of labels that the best tree on these features gets right."""
    columns, known = np.array(features, dtype=float), _one_hot(labels)
    right, _ = _grown(np.unique(_below(columns, columns), axis=0), known, depth)
    return right / len(labels)


def held_out(
    features: Sequence[Sequence[float]], labels: Sequence[str], depth: int = 3, folds: int = 10
) -> float:
    """The share of labels that the best tree of the other folds gets right."""
    columns, known = np.array(features, dtype=float), _one_hot(labels)
    fold = np.random.default_rng(0).permutation(len(labels)) % folds
    right = 0
    for number in range(folds):
        seen = fold != number
        below = _below(columns[:, seen], columns)
        _, tree = _grown(below[:, seen], known[seen], depth)
        right += int(known[~seen, _told(tree, below[:, ~seen])].sum())
    return right / len(labels)


def trees(rows: Sequence[Row]) -> dict[str, list[float]]:
    """What part of the words the best trees reproduce, feature by feature: in sample, held out.

    With words dealt to the sentences at random (mean of three times) the same search says what is
    luck.
    """
    labels = [row["word"] for row in rows]
    reached = {}
    for names in FEATURES:
        features = [[row[name] for row in rows] for name in names]
        reached[", ".join(names)] = [best_tree(features, labels), held_out(features, labels)]
    asked = [[row[name] for row in rows] for name in FEATURES[0]]
    dealt = [np.random.default_rng(seed).permutation(labels).tolist() for seed in range(3)]
    luck = [[best_tree(asked, each), held_out(asked, each)] for each in dealt]
    named = f"{', '.join(FEATURES[0])}, words dealt at random"
    return reached | {named: np.mean(luck, axis=0).tolist()}


def _one_hot(labels: Sequence[str]) -> np.ndarray:
    classes = sorted(set(labels))
    return np.array([[label == each for each in classes] for label in labels], dtype=float)


def _below(seen: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Which rows lie below each split: quantiles of what was seen, a row for every split."""
    quantiles = np.linspace(0, 1, SPLITS + 2)[1:-1]
    pairs = zip(seen, columns, strict=True)
    splits = [column[None] <= np.quantile(known, quantiles)[:, None] for known, column in pairs]
    return np.concatenate(splits)


Tree = int | tuple[int, "Tree", "Tree"]  # a class; or a split, the tree below it and that above


def _grown(below: np.ndarray, labels: np.ndarray, depth: int) -> tuple[float, Tree]:
    """How many labels the best tree of a depth gets right, and the tree."""
    total = labels.sum(0)
    best: tuple[float, Tree] = float(total.max()), int(total.argmax())
    if depth == 0 or total.max() == total.sum():
        return best
    if depth == 1:
        left = below @ labels
        right = left.max(1) + (total - left).max(1)
        split = int(right.argmax())
        leaves = int(left[split].argmax()), int((total - left[split]).argmax())
        return max(best, (float(right[split]), (split, *leaves)), key=lambda grown: grown[0])
    for split, row in enumerate(below):
        low, lower = _grown(below[:, row], labels[row], depth - 1)
        high, upper = _grown(below[:, ~row], labels[~row], depth - 1)
        if low + high > best[0]:
            best = low + high, (split, lower, upper)
    return best


def _told(tree: Tree, below: np.ndarray) -> np.ndarray:
    """The class that a tree gives each row."""
    if isinstance(tree, int):
        return np.full(below.shape[1], tree)
    split, lower, upper = tree
    return np.where(below[split], _told(lower, below), _told(upper, below))
