"""Which source word does a translator look at for each target word, and is it the right one?

Gold links are pairs of words (German, English), sure or possible. A map gives each German word the
English word with the highest score; the alignment error rate is (Och and Ney, 2003)

    AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|),      S ⊆ P the sure and the possible links.

Maps are over pieces of words: a word's columns are added up, its rows averaged. A decoder's row i
is the one from which piece i is predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Links = set[tuple[int, int]]  # German word, English word


@dataclass(frozen=True)
class Gold:
    """A pair of sentences, in words, and how they are linked."""

    german: str
    english: str
    sure: Links
    possible: Links


def read_gold(path: Path) -> list[Gold]:
    """The pairs of a file: German, English, and links such as ``0-0 3?1``."""
    pairs = []
    for line in path.read_text("utf-8").splitlines()[1:]:
        german, english, linked = line.split("\t")
        sure, fuzzy = set(), set()
        for link in linked.split():
            mark = "?" if "?" in link else "-"
            words = tuple(map(int, link.split(mark)))
            (fuzzy if mark == "?" else sure).add(words)
        pairs.append(Gold(german, english, sure, sure | fuzzy))
    return pairs


def words_of(tokenizer: Any, text: str) -> list[int]:
    """For every token of a text the number of its word between blanks; −1 for special tokens."""
    starts = [0] + [place + 1 for place, letter in enumerate(text) if letter == " "]
    encoded = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    numbers = []
    for (low, high), special in zip(encoded["offset_mapping"], encoded["special_tokens_mask"], strict=True):
        middle = max(low, high - 1)  # a piece may begin with the blank before its word
        numbers.append(-1 if special else sum(start <= middle for start in starts) - 1)
    return numbers


def over_words(scores: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """Scores of (target piece, source piece) as scores of (target word, source word)."""
    row, column = torch.tensor(rows), torch.tensor(columns)
    table = scores.new_zeros(int(row.max()) + 1, int(column.max()) + 1)
    for target in range(len(table)):
        mean = scores[row == target].mean(0) if (row == target).any() else scores[0] * 0
        for source in range(table.shape[1]):
            table[target, source] = mean[column == source].sum()
    return table


def linked(table: Tensor) -> Links:
    """For every target word its best source word."""
    return {(target, int(source)) for target, source in enumerate(table.argmax(-1))}


def diagonal(targets: int, sources: int) -> Links:
    """What somebody would say who knows the lengths alone."""
    step = (sources - 1) / max(1, targets - 1)
    return {(target, round(target * step)) for target in range(targets)}


def counted(found: Links, gold: Gold) -> dict[str, int]:
    """The four numbers of which error rates are made; they can be added up over pairs."""
    return {
        "sure": len(found & gold.sure),
        "possible": len(found & gold.possible),
        "found": len(found),
        "gold": len(gold.sure),
    }


def error_rate(counts: Sequence[dict[str, int]]) -> float:
    """The alignment error rate over pairs."""
    total = {name: sum(count[name] for count in counts) for name in counts[0]}
    return 1 - (total["sure"] + total["possible"]) / (total["found"] + total["gold"])
