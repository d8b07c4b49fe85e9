"""Do attributions name the words that people marked, and do the answers need those words?

    python studies/gold.py --data DATA [--texts trees] [--sentences 100] [--figures FOLDER]
    python studies/gold.py --data DATA --texts movies [--sentences 40] [--figures FOLDER]

``trees``   sentences of the Stanford Sentiment Treebank (DATA/sst-trees/dev.jsonl), where people
            gave every word a number from 0 (very bad) to 4 (very good). The gold words of a
            sentence are those that speak for its label
``movies``  reviews of films (DATA/movie-rationales/test.jsonl, from ERASER), where people marked
            the passages that decided them. A review is cut to its first 512 tokens, which is what
            the model takes; words after them are not asked for. Heads are 32 wide, so here
            effective attention is far from raw attention. Occlusion takes five words at a time and
            shares the loss out evenly, because one word at a time takes minutes for a review

Only texts that the embedded ``sentiment`` answers rightly are asked, with some gold words and some
others. For every method, for random orders and for the length of a word

plausible  average precision (AUPRC) of its word scores against the gold words, and the share of
gold words among as
           many first words (token F1 at matched size);
faithful   what the answer loses without the first fifth of the words.

A line for each text goes to docs/data/gold.jsonl or gold-movies.jsonl, so that the study can be
stopped and started again; means with intervals go into the ledger, and a scatter of plausible
against faithful, of all texts that are there, into FOLDER.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.metrics import average_precision_score
from study import (
    DOCS,
    Ledger,
    Row,
    lost_without,
    mean_and_half,
    parse,
    resumed,
    rounded,
    rows,
    save,
)

import exhibit_a as xa
from exhibit_a.report.figures.drawing import COLUMNS
from exhibit_a.report.figures.paper import PaperFigure
from exhibit_a.report.palette import GREY, PALE, SERIES

METHODS = (
    "raw",
    "mean_attention",
    "rollout",
    "effective",
    "contribution_weights",
    "attention_gradient",
)
METHODS += ("self_attribution", "reliance", "integrated_gradients", "occlusion")
RANDOM, LENGTH = "random", "length of the word"
DRAWS = 20  # random orders of a sentence
FIRST = 0.2  # of the words are taken away
NEUTRAL = 2
LONGEST = 512  # tokens of a text
MARKS = "osD^vP<>X*hd"  # one for each method, so that they can be told in grey


@dataclass(frozen=True)
class Marked:
    """A text whose words people marked, and what it says."""

    words: list[str]
    gold: list[bool]
    good: bool


@dataclass(frozen=True)
class Source:
    """Texts of one kind: where they are, what their lines and measurements are called."""

    file: str  # in the folder of data sets
    kept: str  # file of lines in docs/data
    data: str  # in words, for the ledger
    agreement: str  # how ids in the ledger begin
    beside: str  # what stands in other ids
    title: str  # of the panel
    of: str
    usual: int  # texts, unless another number is given
    together: int  # words that occlusion takes away at once


TREES = ("sst-trees/dev.jsonl", "gold.jsonl", "SST trees, dev, drawn", "agreement with people", "")
MOVIES = ("movie-rationales/test.jsonl", "gold-movies.jsonl", "movie rationales, test, drawn")
MOVIES += ("agreement with movie rationales", "movie rationales, ")
SOURCES = {
    "trees": Source(*TREES, "words of sentences (SST)", "sentences", 100, 1),
    "movies": Source(*MOVIES, "passages of reviews (movie rationales)", "reviews", 40, 5),
}


def main() -> None:
    given = {
        "data": Path,
        "texts": "trees",
        "sentences": int,
        "longest": LONGEST,
        "out": Path,
        "figures": Path,
    }
    options = parse(__doc__, need=["data"], **given)
    source, subject = SOURCES[options.texts], xa.load("sentiment")
    texts = drawn(options.data / source.file, options.texts)[: options.sentences or source.usual]
    work = [
        (
            {"number": number},
            lambda text=text: measured(subject, text, source.together, options.longest),
        )
        for number, text in enumerate(texts)
    ]
    judged = right(resumed(options.out or DOCS / source.kept, work, rounded))
    ledger = Ledger(options.ledger, "`sentiment`", f"{source.data}, first {options.longest} tokens")
    write(judged, source, ledger)
    if options.figures is not None:
        panels = {name: right(rows(DOCS / other.kept)) for name, other in SOURCES.items()} | {
            options.texts: judged
        }
        save(
            scatter({name: each for name, each in panels.items() if each}),
            options.figures / "gold-scatter.svg",
        )


def right(found: list[Row]) -> list[Row]:
    """The lines of texts that were answered rightly."""
    return [row for row in found if row["scores"]]


def drawn(file: Path, kind: str) -> list[Marked]:
    """Texts with a label, in a fixed random order."""
    found = [row for row in rows(file) if kind != "trees" or row["label"] != NEUTRAL]
    random.Random(0).shuffle(found)
    return [of_tree(row) if kind == "trees" else of_review(row) for row in found]


def of_tree(tree: Row) -> Marked:
    """A sentence; its gold words are those that speak for its label."""
    good = tree["label"] > NEUTRAL
    gold = [(int(digit) > NEUTRAL) == good and int(digit) != NEUTRAL for digit in tree["tokens"]]
    return Marked(tree["text"].split(" "), gold, good)


def of_review(review: Row) -> Marked:
    """A review; its gold words are those in the marked passages."""
    spoken = review["text"].split(" ")
    inside = {place for start, end in review["rationales"] for place in range(start, end)}
    return Marked(
        spoken, [place in inside for place in range(len(spoken))], review["label"] == "POS"
    )


def measured(subject: xa.Subject, text: Marked, together: int = 1, longest: int = LONGEST) -> Row:
    """The scores of one text; none where it is answered wrongly or all words are alike."""
    given = subject.tokenizer(
        " ".join(text.words), truncation=True, max_length=longest, return_tensors="pt"
    )
    trace = xa.capture(subject, dict(given))
    every = tokens_of_words(trace, text.words, longest)
    whole = [place for place, own in enumerate(every) if own]  # words within the length
    members, gold = [every[place] for place in whole], [text.gold[place] for place in whole]
    row: Row = {"tokens": len(trace.tokens), "words": len(gold), "scores": {}, "gold": sum(gold)}
    answer = subject.labels[int(trace.output.logits.argmax())]
    if answer != ("positive" if text.good else "negative") or not 0 < sum(gold) < len(gold):
        return row
    by_words = [name for name in METHODS if together == 1 or name != "occlusion"]
    found = xa.companions(trace, methods=by_words, erase="delete")
    scores = {name: [float(found[name].scores[own].sum()) for own in members] for name in by_words}
    if together > 1:
        scores["occlusion"] = without_runs(trace, members, together)
    scores[LENGTH] = [float(len(text.words[place])) for place in whole]
    seeded = random.Random(0)
    chance = [[seeded.random() for _ in gold] for _ in range(DRAWS)]
    count = max(1, round(FIRST * len(members)))
    losses = lost_without(
        trace, members, [in_order(each)[:count] for each in (*scores.values(), *chance)]
    )
    for (name, each), lost in zip(scores.items(), losses, strict=False):
        row["scores"][name] = [*agreement(gold, each), lost]
    by_chance = np.array([agreement(gold, each) for each in chance]).mean(0).tolist()
    row["scores"][RANDOM] = [*by_chance, float(np.mean(losses[len(scores) :]))]
    return row


def without_runs(trace: xa.Trace, members: list[list[int]], together: int) -> list[float]:
    """What the answer loses without every run of so many words, shared out among them."""
    places = range(len(members))
    runs = [places[start : start + together] for start in places[::together]]
    losses = lost_without(trace, members, runs)
    return [loss / len(run) for run, loss in zip(runs, losses, strict=True) for _ in run]


def tokens_of_words(trace: xa.Trace, spoken: list[str], longest: int = LONGEST) -> list[list[int]]:
    """The tokens of each word of a text whose words stand between single blanks."""
    encoded = trace.subject.tokenizer(
        " ".join(spoken), return_offsets_mapping=True, truncation=True, max_length=longest
    )
    word_at = [number for number, word in enumerate(spoken) for _ in range(len(word) + 1)]
    members: list[list[int]] = [[] for _ in spoken]
    for token, (start, end) in enumerate(encoded["offset_mapping"]):
        if end > start:
            members[word_at[start]].append(token)
    return members


def in_order(scores: list[float]) -> list[int]:
    """The words, the highest score first."""
    return sorted(range(len(scores)), key=lambda word: -scores[word])


def agreement(gold: list[bool], scores: list[float]) -> tuple[float, float]:
    """AUPRC, and the share of gold words among as many first ones."""
    hits = sum(gold[word] for word in in_order(scores)[: sum(gold)]) / sum(gold)
    return float(average_precision_score(gold, scores)), hits


def write(found: list[Row], source: Source, ledger: Ledger) -> None:
    """Means over texts, and the differences that claims rest on."""
    by = {
        name: np.array([row["scores"][name] for row in found]).T
        for name in (*METHODS, LENGTH, RANDOM)
    }
    start, lost = (
        source.agreement,
        f"answer lost without the first fifth of the words, {source.beside}",
    )
    for name, (plausible, matched, faithful) in by.items():
        ledger.mean(f"{start}, {name} (AUPRC)", plausible, source.of)
        ledger.mean(f"{start}, {name} (token F1)", matched, source.of)
        ledger.mean(f"{lost}{name}", faithful, source.of)
    for first, second, said in (
        ("effective", "raw", "effective less raw attention"),
        ("self_attribution", "raw", "self-attribution less raw attention"),
        ("raw", RANDOM, "raw attention less random orders"),
    ):
        ledger.mean(f"{start}, {said} (AUPRC)", by[first][0] - by[second][0], source.of)
    ledger.mean(f"{lost}effective less raw attention", by["effective"][2] - by["raw"][2], source.of)


def scatter(found: dict[str, list[Row]]) -> PaperFigure:
    """Plausible against faithful, a point with its intervals for each method, texts apart."""
    with matplotlib.rc_context({"font.size": 7, "axes.titlesize": 7}):
        figure = PaperFigure((COLUMNS["one column"], 2.0 * len(found) + 1.0))
        axes = np.atleast_1d(figure.subplots(len(found), 1))
        for panel, (kind, texts) in zip(axes, found.items(), strict=True):
            for place, name in enumerate((*METHODS, LENGTH, RANDOM)):
                plausible, _, faithful = zip(*(row["scores"][name] for row in texts), strict=True)
                (y, up), (x, across) = (
                    mean_and_half(each) if len(texts) > 1 else (each[0], 0.0)
                    for each in (plausible, faithful)
                )
                colour = GREY if name in (LENGTH, RANDOM) else SERIES[place % len(SERIES)]
                look = {
                    "fmt": MARKS[place],
                    "color": colour,
                    "ecolor": PALE,
                    "elinewidth": 0.7,
                    "markersize": 4,
                }
                panel.errorbar(x, y, xerr=across, yerr=up, label=name.replace("_", " "), **look)
            panel.set(title=f"{SOURCES[kind].title}, {len(texts)} {SOURCES[kind].of}")
            panel.set(xlabel="faithful: answer lost", ylabel="plausible: AUPRC")
        below = {"loc": "outside lower center", "ncols": 3, "frameon": False, "columnspacing": 0.6}
        below |= {"handletextpad": 0.1, "handlelength": 1.6}
        figure.legend(*axes[0].get_legend_handles_labels(), fontsize=6, **below)
    return figure


if __name__ == "__main__":
    main()
