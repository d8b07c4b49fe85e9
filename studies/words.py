"""What words does a trial give, and from which numbers?

The words need only some of a trial's stages. These are run here, as ``xa.trial`` runs them, and
what they measured is kept as a row of rounded numbers: enough to draw the words again with other
thresholds, without the model.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import exhibit_a as xa
from exhibit_a.methods.attribution.reliance import Reliance, reliance
from exhibit_a.methods.identifiability.counts import attention_identifiability
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import chosen_target
from exhibit_a.trials import examination
from exhibit_a.trials.allowance import allowance
from exhibit_a.trials.head_numbers import HeadNumbers, head_numbers
from exhibit_a.trials.trained_weights import weights_look_trained
from exhibit_a.trials.trial import KEPT
from exhibit_a.trials.verdict import HeadVerdict, Thresholds, judge, judge_text

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
DIGITS = 4  # that are kept of every number
LIMITS = Thresholds()


class Kept(Reliance):
    """What the words need of a reliance, from a row."""

    def __init__(self, row: dict[str, Any]) -> None:
        kept = {
            "margin": row["margin"],
            "even_margin": row["even"],
            "permuted_margin": row["permuted"],
            "permuted_error": row["permuted error"],
            "determined": not row["reason"],
            "reason": row["reason"],
            "target": "",
            "heads": [torch.tensor([head[SHARE] or 0.0 for head in row["heads"]])],
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)  # a result is frozen


def examined(trace: Trace, limits: Thresholds = LIMITS) -> examination.Examination:
    """The stages of a trial that the words rest on; the others are left out."""
    target = chosen_target(trace, None)
    relied = reliance(trace, target=target)
    how = examination.TrialOptions(2, 0, limits.carries, pictures=False)
    with allowance(trace) as allowed:
        carriers, steering = examination._heads(target, relied, how, allowed)
    counts = attention_identifiability(trace)
    unasked = dict.fromkeys(("effective", "attribution", "tree", "hidden", "mixing", "pictures"))
    return examination.Examination(
        trace=trace,
        target=target,
        identifiability=counts,
        alternatives=examination._alternatives(trace, counts, relied, limits.carries),
        reliance=relied,
        carriers=carriers,
        steering=steering,
        learned=weights_look_trained(trace.subject),
        **unasked,
    )


def measured(subject: xa.Subject, text: Any) -> dict[str, Any]:
    """The words for a text and its heads, and the numbers they come from."""
    known = examined(xa.capture(subject, text, keep=KEPT))
    relied = known.reliance
    verdicts = judge(head_numbers(known), relied, LIMITS)
    word, _ = judge_text(verdicts, relied, LIMITS)
    return kept(known, verdicts, word)


def kept(known: examination.Examination, verdicts: Sequence[HeadVerdict], word: str) -> dict[str, Any]:
    """What is kept of a text: enough to draw its words again."""
    relied = known.reliance
    return {
        "word": word,
        "by": relied.way,
        "gap": digits(relied.checks["gap as a share of the whole"]),
        "points": relied.checks["points"],
        "margin": digits(relied.margin),
        "even": digits(relied.even_margin),
        "permuted": digits(relied.permuted_margin),
        "permuted error": digits(relied.permuted_error),
        "reason": relied.reason,
        "set": [list(head) for head in known.carriers.heads],
        "loss": digits(known.carriers.loss),
        "random loss": digits(known.carriers.random_loss),
        "heads": [
            [v.site, v.head, v.word, v.shared, v.learned] + [digits(getattr(v, name)) for name in COLUMNS]
            for v in verdicts
        ],
    }


def numbers_of(row: dict[str, Any]) -> list[HeadNumbers]:
    """The numbers of every head of a row."""
    return [
        HeadNumbers(site, head, learned=taught, **dict(zip(COLUMNS, columns, strict=True)))
        for site, head, _, _, taught, *columns in row["heads"]
    ]


def judged_again(row: dict[str, Any], limits: Thresholds) -> tuple[str, tuple[HeadVerdict, ...]]:
    """The word for a text and those for its heads, with these thresholds."""
    kept = Kept(row)
    verdicts = judge(numbers_of(row), kept, limits)
    word, _ = judge_text(verdicts, kept, limits)
    return word, verdicts


def digits(number: float | None) -> float | None:
    """A number with as many digits as are kept."""
    return None if number is None else float(f"{number:.{DIGITS}g}")


def rounded(row: Any) -> Any:
    """The same with as many digits as are kept, however deep."""
    if isinstance(row, dict):
        return {name: rounded(value) for name, value in row.items()}
    if isinstance(row, list):
        return [rounded(value) for value in row]
    return digits(row) if isinstance(row, float) else row


def rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of rows; none where there is no file yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def append(path: Path, row: dict[str, Any]) -> None:
    """One more line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row, separators=(",", ":")) + "\n")
