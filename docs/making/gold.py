"""Do methods name the words that people marked, and do answers need them? Shared by docs/gold.md.

From the ledger and from docs/data/gold.jsonl and gold-movies.jsonl, where ``studies/gold.py`` puts
them.
"""

from typing import Any

from page_tables import ledger, listed, paired, read, told_apart
from scipy import stats

RANDOM, LENGTH = "random", "length of the word"
METHODS = [name for name in read("gold.jsonl")[0]["scores"] if name not in (RANDOM, LENGTH)]
SOURCES = {  # the file, how ids in the ledger begin, and what stands in other ids
    "trees": ("gold.jsonl", "agreement with people", ""),
    "movies": ("gold-movies.jsonl", "agreement with movie rationales", "movie rationales, "),
}


def judged(source: str) -> list[dict[str, Any]]:
    """The texts that the ledger's means are of: answered rightly, with gold words."""
    file, start, _ = SOURCES[source]
    rows = sorted(read(file), key=lambda row: row["number"])
    return [row for row in rows if row["scores"]][: ledger()[f"{start}, raw (AUPRC)"].count]


def ids(source: str, name: str) -> tuple[str, str, str]:
    """A method's measurements: two of agreement, and what the answer loses."""
    _, start, beside = SOURCES[source]
    lost = f"answer lost without the first fifth of the words, {beside}{name}"
    return f"{start}, {name} (AUPRC)", f"{start}, {name} (token F1)", lost


def less(source: str, first: str, second: str, score: int = 0) -> list[float]:
    """A score of one method less that of another, text by text."""
    return [row["scores"][first][score] - row["scores"][second][score] for row in judged(source)]


def beyond_length(source: str) -> str:
    """Whether a method says more than that long words matter."""
    ends = {name.replace("_", " "): paired(less(source, name, LENGTH))[1] for name in METHODS}
    said = told_apart(ends, "Closer to people", "Farther from people", "The interval holds 0")
    return f"Beside the length of a word, text by text (AUPRC). {said}"


def both(source: str) -> str:
    """Whether plausible methods are the faithful ones, and which cannot be told from the first."""
    scores = [[ledger()[ids(source, n)[place]].value for n in METHODS] for place in (0, 2)]
    found = stats.spearmanr(*scores)
    first, faithful = (METHODS[each.index(max(each))] for each in scores)
    others = [name for name in METHODS if name != first]
    close = [name for name in others if paired(less(source, first, name))[1][0] <= 0]
    ties = "No other method agrees with people as well, text by text."
    if close:
        ties = f"Text by text, {first} cannot be told from {listed(close)} (AUPRC)."
    said = (
        f"Rank correlation of the two over the {len(METHODS)} methods: {found.statistic:.2f} "
        f"(p = {found.pvalue:.3f}). First with people: {first}; first by what the answer loses: "
        f"{faithful}. {ties}"
    )
    return said.replace("-0.", "−0.").replace("_", " ")
