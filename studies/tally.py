"""What do the rows of the study of the verdict add up to?

``outcomes``      the right word and the given one, for heads or texts of planted models
``precision``     and recall of a word, with Wilson's intervals
``curves``        the same against a threshold, from numbers that were measured once
``best_tree``     the share of words that the best small decision tree gets right: all trees with
                  the given depth and splits are tried, so none is better
``trees``         that, for what the word might follow
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
    "points": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
}
JUDGED = {
    "carries": "no effect",
    "whole": "no effect",
    "distance": "contested",
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
    columns = np.array(features, dtype=float)
    quantiles = np.linspace(0, 1, SPLITS + 2)[1:-1]
    below = np.concatenate(
        [column[None] <= np.quantile(column, quantiles)[:, None] for column in columns]
    )
    classes = sorted(set(labels))
    one_hot = np.array([[label == each for each in classes] for label in labels], dtype=float)
    return _right(np.unique(below, axis=0), one_hot, depth) / len(labels)


def trees(rows: Sequence[Row]) -> dict[str, float]:
    """What part of the words of sentences the best trees reproduce, feature by feature.

    With words dealt to the sentences at random (mean of three times) the same search says what is
    luck.
    """
    labels = [row["word"] for row in rows]
    reached = {
        ", ".join(names): best_tree([[row[name] for row in rows] for name in names], labels)
        for names in FEATURES
    }
    asked = [[row[name] for row in rows] for name in FEATURES[0]]
    dealt = [np.random.default_rng(seed).permutation(labels).tolist() for seed in range(3)]
    luck = [best_tree(asked, each) for each in dealt]
    return reached | {f"{', '.join(FEATURES[0])}, words dealt at random": sum(luck) / len(luck)}


def _right(below: np.ndarray, labels: np.ndarray, depth: int) -> float:
    """How many labels the best tree of a depth gets right; ``below`` has a row for each split."""
    total = labels.sum(0)
    if depth == 1 or total.max() == total.sum():
        left = below @ labels
        return float(max((left.max(1) + (total - left).max(1)).max(initial=0), total.max()))
    return max(
        _right(below[:, split], labels[split], depth - 1)
        + _right(below[:, ~split], labels[~split], depth - 1)
        for split in below
    )
