"""Do methods name the words that people marked, and do the answers need them? For docs/gold.md.

From the ledger and from docs/data/gold.jsonl and gold-movies.jsonl, where ``studies/gold.py`` puts
them.
"""

from statistics import mean, median
from typing import Any

from page_tables import cell, ledger, listed, paired, ranged, read, share, table, told_apart
from scipy import stats

METHODS = {  # as the study calls them, and what they are
    "raw": "weights of the last layer",
    "mean_attention": "weights, mean of all layers",
    "rollout": "weights multiplied through the layers, half of each step the residual",
    "effective": "weights of the last layer, without what no output shows, signs dropped",
    "contribution_weights": "weight × length × direction of what each token adds",
    "attention_gradient": "weights times their gradients",
    "self_attribution": "gradients of the weights along the way from none to all",
    "reliance": "what the answer loses when heads look evenly, shared out",
    "integrated_gradients": "gradients along the way from masks to the text",
    "occlusion": "what the answer loses without the word",
}
LENGTH = "length of the word"
BASELINES = {LENGTH: "number of letters", "random": "orders by lot, mean of twenty"}
WIDTH = 32  # of a head of ``sentiment``: up to so many tokens effective attention is raw attention
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


def texts(source: str) -> str:
    """How many texts there are, how long, and how much of them is gold."""
    rows, first = judged(source), ledger()[ids(source, "raw")[0]]
    words = round(median(row["words"] for row in rows))
    gold = share(mean(row["gold"] / row["words"] for row in rows))
    longer = sum(row["tokens"] > WIDTH for row in rows)
    return (
        f"{first.count} {first.of} ({first.data}) that {first.model} answers rightly. Half of them have "
        f"{words} words or more; on average {gold} of the words are gold. {longer} of them have more "
        f"than {WIDTH} tokens, the width of a head. Measured by `{first.command}`."
    )


def methods(source: str) -> str:
    """Every method, the most plausible first, and the baselines below."""
    ranked = sorted(METHODS, key=lambda name: -ledger()[ids(source, name)[0]].value)
    body = []
    for name in (*ranked, *BASELINES):
        said = f"{name.replace('_', ' ')}: {(METHODS | BASELINES)[name]}"
        body.append([f"*{said}*" if name in BASELINES else said, *map(cell, ids(source, name))])
    head = ["method", "AUPRC", "token F1 at matched size", "answer lost without the first fifth"]
    return table(head, body)


def beyond_length(source: str) -> str:
    """Whether a method says more than that long words matter."""
    ends = {name.replace("_", " "): paired(less(source, name, LENGTH))[1] for name in METHODS}
    said = told_apart(ends, "Closer to people", "Farther from people", "The interval holds 0")
    return f"Beside the length of a word, text by text (AUPRC). {said}"


def effective(source: str) -> str:
    """Effective less raw attention, over all texts and over those where the two can differ."""
    body, tokens = [], [row["tokens"] for row in judged(source)]
    scores = list(
        zip(*(less(source, "effective", "raw", score) for score in range(3)), strict=True)
    )
    parts = {
        "all": scores,
        f"up to {WIDTH} tokens": [s for s, n in zip(scores, tokens, strict=True) if n <= WIDTH],
        f"more than {WIDTH} tokens": [s for s, n in zip(scores, tokens, strict=True) if n > WIDTH],
    }
    for said, part in parts.items():
        if part:
            cells = [ranged(*paired(each), signed=True) for each in zip(*part, strict=True)]
            body.append([said, len(part), sum(not any(each) for each in part), *cells])
    of = ledger()[ids(source, "raw")[0]].of
    head = [of, "how many", "the same by every score", "AUPRC", "token F1", "answer lost"]
    return table(head, body)


def closer(source: str) -> str:
    """The answer to the question of Sun and Marasović, from the interval of all texts."""
    low, high = ledger()[f"{SOURCES[source][1]}, effective less raw attention (AUPRC)"].interval
    if low <= 0 <= high:
        return (
            "Over all texts the interval holds 0: whether effective attention is closer to people than "
            "raw attention cannot be told from these."
        )
    said = "closer to" if low > 0 else "farther from"
    return f"Over all texts effective attention is {said} people than raw attention."


def both(source: str) -> str:
    """Whether plausible methods are the faithful ones, and which cannot be told from the first."""
    scores = [[ledger()[ids(source, n)[place]].value for n in METHODS] for place in (0, 2)]
    found = stats.spearmanr(*scores)
    first, faithful = ([*METHODS][each.index(max(each))] for each in scores)
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
