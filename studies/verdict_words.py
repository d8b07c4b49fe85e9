"""The words of a verdict, from a few kept numbers: give them, give them again, count how true they
are.

The words need only some of a trial's stages. These are run here as ``xa.trial`` runs them, and what
they measured is kept as a row of rounded numbers: enough to draw the words again with other
thresholds, without the model.

``outcomes``   the right word and the given one, for heads or texts of planted models
``precision``  and recall of a word, with Wilson's intervals
``curves``     the same against a threshold, from numbers that were measured once
``best_tree``  the share of words that the best small decision tree gets right: all trees with the
               given depth and splits are tried, so none is better
``held_out``   the share that such trees get right on sentences they have not seen
``trees``      both, for what the word might follow
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from study import Row, digits
from study import rows as rows  # for the page that shows them

import exhibit_a as xa
from exhibit_a.methods.identifiability.counts import attention_identifiability
from exhibit_a.numerics.intervals import wilson
from exhibit_a.trace.targets import chosen_target
from exhibit_a.trials import examination
from exhibit_a.trials.allowance import allowance
from exhibit_a.trials.head_numbers import HeadNumbers, head_numbers
from exhibit_a.trials.trained_weights import weights_look_trained
from exhibit_a.trials.trial import KEPT
from exhibit_a.trials.verdict import WORDS, HeadVerdict, Thresholds, judge, judge_text

COLUMNS = (
    "reliance",
    "error",
    "one_head",
    "steering",
    "distance",
    "pointing",
    "coherence",
    "chance",
)
SHARE = 5 + COLUMNS.index("reliance")  # among the numbers of a head, behind its names
LIMITS = Thresholds()
Outcomes = Counter[tuple[str, str]]  # (right, given): how often


# Measure and keep


def examined(trace: xa.Trace, limits: Thresholds = LIMITS) -> examination.Examination:
    """The stages of a trial that the words rest on; the others are left out."""
    target = chosen_target(trace, None)
    relied = xa.reliance(trace, target=target, rows=examination._rows(trace))
    how = examination.TrialOptions(2, 0, limits.carries, heat_maps=False)
    with allowance(trace) as allowed:
        carriers = examination._carriers(target, relied, how, allowed)
    counts = attention_identifiability(trace)
    unasked = dict.fromkeys(("effective", "attribution", "tree", "hidden", "mixing", "heat_maps"))
    return examination.Examination(
        trace=trace,
        target=target,
        identifiability=counts,
        alternatives=examination._alternatives(trace, counts, relied, limits.carries),
        reliance=relied,
        carriers=carriers,
        learned=weights_look_trained(trace.subject),
        **unasked,
    )


def judged(known: examination.Examination) -> tuple[str, tuple[HeadVerdict, ...]]:
    """The word for a text, and those for its heads."""
    verdicts = judge(head_numbers(known), known.reliance, LIMITS)
    return judge_text(verdicts, known.reliance, LIMITS)[0], verdicts


def measured(subject: xa.Subject, text: Any) -> Row:
    """The words for a text and its heads, and the numbers they come from."""
    known = examined(xa.capture(subject, text, keep=KEPT))
    return kept(known, *judged(known))


def kept(known: examination.Examination, word: str, verdicts: Sequence[HeadVerdict]) -> Row:
    """What is kept of a text: enough to draw its words again."""
    relied, carriers = known.reliance, known.carriers
    return {
        "word": word,
        "by": relied.way,
        "gap": digits(relied.checks["gap as a share of the whole"]),
        "points": relied.checks["points"],
        "margin": digits(relied.margin),
        "even": digits(relied.baseline_margin),
        "permuted": digits(relied.permuted_margin),
        "permuted error": digits(relied.permuted_error),
        "reason": relied.reason,
        "set": [list(head) for head in carriers.heads],
        "loss": digits(carriers.loss),
        "random loss": digits(carriers.random_loss),
        "heads": [
            [
                v.site,
                v.head,
                v.word,
                v.shared,
                v.learned,
                *(digits(getattr(v, name)) for name in COLUMNS),
            ]
            for v in verdicts
        ],
    }


class Kept(xa.Reliance):
    """What the words need of a reliance, from a row."""

    def __init__(self, row: Row) -> None:
        heads = torch.tensor([head[SHARE] or 0.0 for head in row["heads"]])
        names = {
            "margin": "margin",
            "baseline_margin": "even",
            "permuted_margin": "permuted",
            "reason": "reason",
        }
        values = {
            name: row[key] for name, key in (names | {"permuted_error": "permuted error"}).items()
        }
        for name, value in (
            values
            | {
                "block_worth": 0.0,
                "block_layers": (),
                "sites": (),
                "determined": not row["reason"],
                "target": "",
                "heads": [heads],
            }
        ).items():
            object.__setattr__(self, name, value)  # a result is frozen


def judged_again(row: Row, limits: Thresholds) -> tuple[str, tuple[HeadVerdict, ...]]:
    """The word for a text and those for its heads, with these thresholds."""
    numbers = [
        HeadNumbers(site, head, learned=taught, **dict(zip(COLUMNS, columns, strict=True)))
        for site, head, _, _, taught, *columns in row["heads"]
    ]
    verdicts = judge(numbers, Kept(row), limits)
    return judge_text(verdicts, Kept(row), limits)[0], verdicts


# Precision and recall


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


def of_heads(known: Sequence[Row]) -> Outcomes:
    """Right and given words of all heads whose word is known."""
    outcomes: Outcomes = Counter()
    for row in known:
        given = {(head[0], head[1]): head[2] for head in row["heads"]}
        outcomes.update((right, given[site, head]) for site, head, right in row["truth"])
    return outcomes


def of_texts(known: Sequence[Row]) -> Outcomes:
    """Right and given words of the texts whose word is known."""
    return Counter((row["expected"], row["word"]) for row in known if row["expected"] in WORDS)


def precision(outcomes: Outcomes, word: str) -> Share:
    """How many of those that were given a word deserve it."""
    return Share(
        outcomes[word, word], sum(count for (_, said), count in outcomes.items() if said == word)
    )


def recall(outcomes: Outcomes, word: str) -> Share:
    """How many of those that deserve a word were given it."""
    return Share(
        outcomes[word, word], sum(count for (right, _), count in outcomes.items() if right == word)
    )


def decisive_without_effect(known: Sequence[Row]) -> Share:
    """How many decisive heads were called without effect."""
    decisive = [head for row in known for head in row["heads"] if head[:2] in row["decisive"]]
    return Share(sum(head[2] == "no effect" for head in decisive), len(decisive))


def shared_heads(known: Sequence[Row]) -> Share:
    """How many heads that stand in for each other were said to be shared."""
    called = [head[3] for row in known for head in row["heads"] if head[:2] in row["shared"]]
    return Share(sum(called), len(called))


# Thresholds

JUDGED = {  # the word that a threshold decides
    "carries": "no effect",
    "whole": "no effect",
    "distance": "contested",
    "coherence": "evidence",
    "points": "misleading",
}
COSINES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
GRIDS = {
    "carries": (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3),
    "whole": (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7),
    "distance": (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    "coherence": COSINES,
    "points": COSINES,
}


def with_threshold(known: Sequence[Row], threshold: str, line: float) -> list[Row]:
    """The rows as they would be with another threshold."""
    again = []
    for row in known:
        word, verdicts = judged_again(row, replace(LIMITS, **{threshold: line}))
        pairs = zip(row["heads"], verdicts, strict=True)
        again.append(
            row | {"word": word, "heads": [[*h[:2], verdict.word, *h[3:]] for h, verdict in pairs]}
        )
    return again


def curves(known: Sequence[Row]) -> dict[str, dict[str, list[float]]]:
    """For each threshold: precision and recall of the word it decides, line by line."""
    drawn = {}
    for threshold, grid in GRIDS.items():
        table = of_texts if threshold == "whole" else of_heads
        tables = [table(with_threshold(known, threshold, line)) for line in grid]
        drawn[threshold] = {"line": list(grid)} | {
            f"{start}{measure.__name__}": [measure(outcomes, word).value for outcomes in tables]
            for start, word in (("", JUDGED[threshold]), ("evidence ", "evidence"))
            for measure in (precision, recall)
        }
    return drawn


def plateau(curve: dict[str, list[float]], default: float, wanted: float) -> tuple[float, float]:
    """The lines around the default for which all four numbers reach what is wanted."""
    numbers = zip(*(each for name, each in curve.items() if name != "line"), strict=True)
    good = [min(each) >= wanted for each in numbers]
    low = high = curve["line"].index(default)
    if not good[low]:
        return default, default
    while low > 0 and good[low - 1]:
        low -= 1
    while high + 1 < len(good) and good[high + 1]:
        high += 1
    return curve["line"][low], curve["line"][high]


# What a word might follow

FEATURES = (
    ("confidence", "tokens"),
    ("whole",),
    ("distance",),
    ("pointing",),
    ("whole", "distance", "pointing"),
)
SPLITS = 40  # quantiles at which a feature may be split
Tree = int | tuple[int, "Tree", "Tree"]  # a class; or a split, the tree below it and that above


def best_tree(features: Sequence[Sequence[float]], labels: Sequence[str], depth: int = 3) -> float:
    """The share of labels that the best tree on these features gets right."""
    columns = np.array(features, dtype=float)
    return _grown(np.unique(_below(columns, columns), axis=0), _one_hot(labels), depth)[0] / len(
        labels
    )


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


def trees(known: Sequence[Row]) -> dict[str, list[float]]:
    """What part of the words the best trees reproduce, feature by feature: in sample, held out.

    With words dealt to the sentences at random (mean of three times) the same search says what is
    luck.
    """
    labels = [row["word"] for row in known]
    reached = {}
    for names in FEATURES:
        features = [[row[name] for row in known] for name in names]
        reached[", ".join(names)] = [best_tree(features, labels), held_out(features, labels)]
    asked = [[row[name] for row in known] for name in FEATURES[0]]
    dealt = [np.random.default_rng(seed).permutation(labels).tolist() for seed in range(3)]
    luck = np.mean([[best_tree(asked, each), held_out(asked, each)] for each in dealt], axis=0)
    return reached | {f"{', '.join(FEATURES[0])}, words dealt at random": luck.tolist()}


def _one_hot(labels: Sequence[str]) -> np.ndarray:
    return (np.array(labels)[:, None] == np.unique(labels)).astype(float)


def _below(seen: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Which rows lie below each split: quantiles of what was seen, a row for every split."""
    splits = np.quantile(seen, np.linspace(0, 1, SPLITS + 2)[1:-1], axis=1).T
    return (columns[:, None] <= splits[..., None]).reshape(-1, columns.shape[1])


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
