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
    fill,
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


def page() -> str:
    """The whole page."""
    known = ledger()
    parts = {"COMMANDS": usage("gold.py"), "SCATTER": pictures("gold-", CAPTIONS)}
    for name, source in (("TREES", TREES), ("MOVIES", MOVIES)):
        parts |= {
            f"{name}-TEXTS": texts(source, known),
            f"{name}-TABLE": methods(source, known),
            f"{name}-LENGTH": beyond_length(source, known),
            f"{name}-EFFECTIVE": effective(source, known),
            f"{name}-BOTH": both(source, known),
        }
    return fill(TEXT, parts)


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


TEXT = """# Do explanations agree with people?

*Written by `make map` from docs/data/gold.jsonl, gold-movies.jsonl and claims.jsonl, which `studies/gold.py` writes; do not edit
it by hand.*

An explanation that names the words a person would name is *plausible*. One that names the words the answer needs is
*faithful*. These are two questions, and a good answer to the first is often taken for one to the second (Jacovi and Goldberg,
2020). Here both are asked of the same methods, the same texts and the same model, the embedded `sentiment`. Sun and Marasović
(2021) asked of effective attention whether it reads better than raw attention; that is asked here of people's own marks.

## What is gold

**Words of sentences.** In the Stanford Sentiment Treebank people gave every word by itself a number from 0 (very bad) to 4 (very
good). The gold words of a sentence are those that speak for the sentence's own label: good words in a good sentence, bad ones
in a bad sentence. Neutral sentences are left out.

**Passages of reviews.** In the movie rationales of ERASER people marked the passages of a review that decided it. Every word of
a marked passage is gold. A review is cut to what the model takes, 512 tokens; words after that are not asked for.

Only texts that the model answers rightly are asked, with some gold words and some others: where the answer is wrong, people
and the model speak of different things.

## What is measured

* **AUPRC**: the words in the order of their scores against the gold words, as average precision. 1 where all gold words come
  first. Chance is not one half: it is near the share of gold words in a long text, and above it in a short one. The row
  *random* says how high.
* **Token F1 at matched size**: as many first words as there are gold ones, and how many of them are gold. Precision and
  recall are the same number then.
* **Answer lost**: how far the probability of the answer falls when the first fifth of the words is deleted. This is the
  faithful side, and no person takes part in it.

The score of a word is the sum over its tokens. Two baselines know nothing of the model: *random* orders, and the *length* of a
word, since words that carry a meaning are longer than others. What a method says beyond that is what it adds. Intervals
are 95 %, over texts.

## Words of sentences

{TREES-TEXTS}

{TREES-TABLE}

{TREES-LENGTH}

## Passages of reviews

{MOVIES-TEXTS}

{MOVIES-TABLE}

{MOVIES-LENGTH}

Here occlusion takes five words at a time and shares the loss out evenly.

## Is effective attention closer to people?

Effective less raw attention, text by text. Heads of `sentiment` are 32 wide. Up to 32 tokens a head's output leaves only one
attention possible ([identifiability](identifiability.md)), so the two are the same by construction and can differ by rounding
alone. Only longer texts ask the question.

Sentences:

{TREES-EFFECTIVE}

Reviews:

{MOVIES-EFFECTIVE}

## Plausible against faithful

{SCATTER}

Sentences. {TREES-BOTH}

Reviews. {MOVIES-BOTH}

A method high up and to the left pleases people and misses the answer; one down to the right finds what the answer needs in
words that people did not mark.

## Run it

{COMMANDS}

Each text is a line in docs/data, so that the study can be stopped and started again.

## Limits

* A word's own number is not its part in the sentence. *not* is neutral by itself, and *good* in *not good* counts against
  the gold of a bad sentence. Marked passages have the opposite fault: every *the* in them is gold.
* Deleting words makes texts that the model was not trained on. Occlusion is scored by nearly what it computes.
* The scores of attention have no sign. A word that speaks against the label is named as well as one that speaks for it.
* One model, of one task. Texts that it answers wrongly are not asked.
* The methods are compared on the same texts, so intervals that overlap in the tables can still belong to methods that differ;
  the sentences below the tables compare text by text. They are many comparisons, and nothing is corrected for that.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
