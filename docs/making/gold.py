"""Write docs/gold.md: do methods name the words that people marked, and do the answers need them?

Tables come from the ledger and from docs/data/gold.jsonl and gold-movies.jsonl, where
``studies/gold.py`` puts them; ``make map`` runs it, and a test sees that the page is what the files
give. Texts that have not been asked yet are named as such.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from scipy import stats

sys.path.append(str(Path(__file__).parent))

from told import (
    MISSING,
    ROOT,
    Known,
    Rows,
    cell,
    ledger,
    lines,
    listed,
    paired,
    pictures,
    ranged,
    share,
    table,
    told_apart,
    usage,
)

PAGE = ROOT / "docs/gold.md"
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
RANDOM, LENGTH = "random", "length of the word"
BASELINES = {LENGTH: "number of letters", RANDOM: "orders by lot, mean of twenty"}
WIDTH = 32  # of a head of ``sentiment``: up to so many tokens effective attention is raw attention
PLAUSIBLE, MATCHED, FAITHFUL = range(3)  # the scores of a text, in the order of its line


@dataclass(frozen=True)
class Source:
    """Texts of one kind, as ``studies/gold.py`` names them."""

    file: str
    agreement: str  # how ids in the ledger begin
    beside: str  # what stands in other ids

    @property
    def lost(self) -> str:
        """How ids about what the answer loses begin."""
        return f"answer lost without the first fifth of the words, {self.beside}"

    def judged(self, known: Known) -> Rows:
        """The texts that the ledger's means are of: answered rightly, with gold words."""
        rows = sorted(lines(self.file), key=lambda row: row["number"])
        first = f"{self.agreement}, raw (AUPRC)"
        count = known[first].count if first in known else 0
        return [row for row in rows if row["scores"]][:count]


TREES = Source("gold.jsonl", "agreement with people", "")
MOVIES = Source("gold-movies.jsonl", "agreement with movie rationales", "movie rationales, ")


def parts() -> dict[str, str]:
    """What stands on the page beside its words, by its marks."""
    known = ledger()
    made = {"COMMANDS": usage("gold.py"), "SCATTER": pictures("gold-", CAPTIONS)}
    for name, source in (("TREES", TREES), ("MOVIES", MOVIES)):
        made |= {
            f"{name}-TEXTS": texts(source, known),
            f"{name}-TABLE": methods(source, known),
            f"{name}-LENGTH": beyond_length(source, known),
            f"{name}-EFFECTIVE": effective(source, known),
            f"{name}-BOTH": both(source, known),
        }
    return made


CAPTIONS = {
    "gold-scatter": "Plausible (AUPRC with people) against faithful (answer lost), a point for each method"
}


def texts(source: Source, known: Known) -> str:
    """How many texts there are, how long, and how much of them is gold."""
    rows = source.judged(known)
    if not rows:
        return MISSING
    first = known[f"{source.agreement}, raw (AUPRC)"]
    gold = [row["gold"] / row["words"] for row in rows]
    longer = sum(row["tokens"] > WIDTH for row in rows)
    return (
        f"{first.count} {first.of} ({first.data}) that {first.model} answers rightly. Half of them have {round(median(row['words'] for row in rows))} words "
        f"or more; on average {share(mean(gold))} of the words are gold. {longer} of them have more than {WIDTH} tokens, the width of "
        f"a head. Measured by `{first.command}`."
    )


def methods(source: Source, known: Known) -> str:
    """Every method, the most plausible first, and the baselines below."""
    start, body = source.agreement, []
    there = [name for name in METHODS if f"{start}, {name} (AUPRC)" in known]
    there.sort(key=lambda name: -known[f"{start}, {name} (AUPRC)"].value)
    for name in (*there, *BASELINES) if there else ():
        said = f"{name.replace('_', ' ')}: {(METHODS | BASELINES)[name]}"
        ids = f"{start}, {name} (AUPRC)", f"{start}, {name} (token F1)", f"{source.lost}{name}"
        body.append([f"*{said}*" if name in BASELINES else said, *(cell(id, known) for id in ids)])
    head = ["method", "AUPRC", "token F1 at matched size", "answer lost without the first fifth"]
    return table(head, body)


def beyond_length(source: Source, known: Known) -> str:
    """Whether a method says more than that long words matter."""
    rows = source.judged(known)
    if len(rows) < 2:
        return ""
    ends = {
        name.replace("_", " "): paired(
            [row["scores"][name][PLAUSIBLE] - row["scores"][LENGTH][PLAUSIBLE] for row in rows]
        )[1]
        for name in METHODS
    }
    return "Beside the length of a word, text by text (AUPRC). " + told_apart(
        ends, "Closer to people", "Farther from people", "The interval holds 0"
    )


def effective(source: Source, known: Known) -> str:
    """Effective less raw attention, over all texts and over those where the two can differ."""
    rows = source.judged(known)
    if len(rows) < 2:
        return MISSING
    long = [row for row in rows if row["tokens"] > WIDTH]
    body, of = [], known[f"{source.agreement}, raw (AUPRC)"].of
    kinds = {"all": rows, f"up to {WIDTH} tokens": [r for r in rows if r["tokens"] <= WIDTH]}
    kinds[f"more than {WIDTH} tokens"] = long
    for said, part in kinds.items():
        if len(part) < 2:
            continue
        less = [
            [row["scores"]["effective"][n] - row["scores"]["raw"][n] for row in part]
            for n in (PLAUSIBLE, MATCHED, FAITHFUL)
        ]
        cells = [ranged(*paired(each), signed=True) for each in less]
        same = sum(not any(each) for each in zip(*less, strict=True))
        body.append([said, str(len(part)), f"{same}", *cells])
    head = [of, "how many", "the same by every score", "AUPRC", "token F1", "answer lost"]
    closer = known.get(f"{source.agreement}, effective less raw attention (AUPRC)")
    return table(head, body) + ("\n\n" + sentence(closer.interval) if closer else "")


def sentence(ends: tuple[float, float]) -> str:
    """The answer to the question of Sun and Marasović, from the interval of all texts."""
    if ends[0] > 0:
        return "Over all texts effective attention is closer to people than raw attention."
    if ends[1] < 0:
        return "Over all texts effective attention is farther from people than raw attention."
    return "Over all texts the interval holds 0: whether effective attention is closer to people than raw attention cannot be told from these."


def both(source: Source, known: Known) -> str:
    """Whether plausible methods are the faithful ones."""
    start = source.agreement
    there = [name for name in METHODS if f"{start}, {name} (AUPRC)" in known]
    if len(there) < 3:
        return MISSING
    plausible = [known[f"{start}, {name} (AUPRC)"].value for name in there]
    faithful = [known[f"{source.lost}{name}"].value for name in there]
    found = stats.spearmanr(plausible, faithful)
    first = [there[values.index(max(values))].replace("_", " ") for values in (plausible, faithful)]
    return (
        f"Rank correlation of the two over the {len(there)} methods: {found.statistic:.2f} (p = {found.pvalue:.3f}). "
        f"First with people: {first[0]}; first by what the answer loses: {first[1]}. "
        + ties(source, known, there)
    ).replace("-0.", "−0.")


def ties(source: Source, known: Known, there: list[str]) -> str:
    """Which methods cannot be told from the first with people, text by text."""
    rows = source.judged(known)
    if len(rows) < 2:
        return ""
    best = max(there, key=lambda name: known[f"{source.agreement}, {name} (AUPRC)"].value)
    close = []
    for name in there:
        if name != best:
            less = [row["scores"][best][0] - row["scores"][name][0] for row in rows]
            if paired(less)[1][0] <= 0:
                close.append(name.replace("_", " "))
    if not close:
        return "No other method agrees with people as well, text by text."
    return f"Text by text, {best.replace('_', ' ')} cannot be told from {listed(close)} (AUPRC)."
