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
others. For every method

plausible  average precision (AUPRC) of its word scores against the gold words, and the share of
           gold words among as many first words (token F1 at matched size);
faithful   what the answer loses without the first fifth of the words.

Beside the methods stand random orders and the length of a word. A line for each text goes to
docs/data/gold.jsonl or docs/data/gold-movies.jsonl, so that the study can be stopped and started
again; means with intervals go into the ledger, and a scatter of plausible against faithful, of all
texts that are there, into FOLDER.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import numpy as np
import torch
import transformers
import words
from deleting import lost_without
from drawing import save
from ledger import Ledger, of_sentences
from scipy import stats
from sklearn.metrics import average_precision_score

import exhibit_a as xa
from exhibit_a.report.figures.drawing import COLUMNS
from exhibit_a.report.figures.paper import PaperFigure
from exhibit_a.report.palette import GREY, PALE, SERIES
from exhibit_a.trace.capture import Trace

DOCS = Path(__file__).parents[1] / "docs/data"
METHODS = (
    "raw",
    "mean_attention",
    "rollout",
    "effective",
    "contribution_weights",
    "attention_gradient",
    "self_attribution",
    "reliance",
    "integrated_gradients",
    "occlusion",
)
RANDOM, LENGTH = "random", "length of the word"
DRAWS = 20  # random orders of a sentence
FIRST = 0.2  # of the words are taken away
NEUTRAL = 2
RUN = 5  # words that occlusion takes together where texts are long
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
    data: str  # in words, for the ledger
    kept: str  # file of lines in docs/data
    agreement: str  # how ids in the ledger begin
    beside: str  # what stands in other ids
    title: str  # of the panel
    of: str
    together: int  # words that occlusion takes away at once


SOURCES = {
    "trees": Source(
        "sst-trees/dev.jsonl",
        "SST trees, dev, drawn",
        "gold.jsonl",
        "agreement with people",
        "",
        "words of sentences (SST)",
        "sentences",
        1,
    ),
    "movies": Source(
        "movie-rationales/test.jsonl",
        "movie rationales, test, drawn",
        "gold-movies.jsonl",
        "agreement with movie rationales",
        "movie rationales, ",
        "passages of reviews (movie rationales)",
        "reviews",
        RUN,
    ),
}


def main() -> None:
    asked = of_sentences(__doc__, "sst-trees or movie-rationales", 0, DOCS)
    asked.add_argument("--texts", choices=list(SOURCES), default="trees")
    asked.add_argument("--longest", type=int, default=LONGEST, help="tokens of a text")
    asked.add_argument("--figures", type=Path, help="draw the scatter into this folder")
    asked.set_defaults(out=None)
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    source, subject = SOURCES[options.texts], xa.load("sentiment")
    out = options.out or DOCS / source.kept
    count = options.sentences or (100 if options.texts == "trees" else 40)
    texts = drawn(options.data / source.file, options.texts)
    done = {row["number"] for row in words.rows(out)}
    for number, text in enumerate(texts[:count]):
        if number not in done:
            row = {"number": number} | measured(subject, text, source.together, options.longest)
            words.append(out, words.rounded(row))
            print(number, row["tokens"], flush=True)
    judged = judged_rows(out, count)
    data = f"{source.data}, first {options.longest} tokens"
    write(judged, source, Ledger(options.ledger, "`sentiment`", data))
    if options.figures is not None:
        panels = {options.texts: judged}
        for name, other in SOURCES.items():
            panels.setdefault(name, judged_rows(DOCS / other.kept))
        drawn_rows = {name: panels[name] for name in SOURCES if panels[name]}
        save(scatter(drawn_rows), options.figures / "gold-scatter.svg")


def judged_rows(file: Path, count: int | None = None) -> list[dict[str, Any]]:
    """The lines of texts that were answered rightly; of the first so many texts."""
    rows = [row for row in words.rows(file) if count is None or row["number"] < count]
    return [row for row in rows if row["scores"]]


def drawn(file: Path, kind: str) -> list[Marked]:
    """Texts with a label, in a fixed random order."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    if kind == "trees":
        rows = [row for row in rows if row["label"] != NEUTRAL]
    random.Random(0).shuffle(rows)
    return [of_tree(row) if kind == "trees" else of_review(row) for row in rows]


def of_tree(tree: dict[str, Any]) -> Marked:
    """A sentence; its gold words are those that speak for its label."""
    good = tree["label"] > NEUTRAL
    gold = [(int(digit) > NEUTRAL) == good and int(digit) != NEUTRAL for digit in tree["tokens"]]
    return Marked(tree["text"].split(" "), gold, good)


def of_review(review: dict[str, Any]) -> Marked:
    """A review; its gold words are those in the marked passages."""
    spoken = review["text"].split(" ")
    inside = {place for start, end in review["rationales"] for place in range(start, end)}
    return Marked(
        spoken, [place in inside for place in range(len(spoken))], review["label"] == "POS"
    )


def measured(
    subject: xa.Subject, text: Marked, together: int = 1, longest: int = LONGEST
) -> dict[str, Any]:
    """The scores of one text; none where it is answered wrongly or all words are alike."""
    encoded = subject.tokenizer(
        " ".join(text.words), truncation=True, max_length=longest, return_tensors="pt"
    )
    trace = xa.capture(subject, dict(encoded))
    members = tokens_of_words(trace, text.words, longest)
    whole = [place for place, own in enumerate(members) if own]  # words within the length
    members, gold = [members[place] for place in whole], [text.gold[place] for place in whole]
    row: dict[str, Any] = {"tokens": len(trace.tokens), "words": len(gold), "scores": {}}
    row["gold"] = sum(gold)
    answer = subject.labels[int(trace.output.logits.argmax())]
    if answer != ("positive" if text.good else "negative") or not 0 < sum(gold) < len(gold):
        return row
    by_words = [name for name in METHODS if together == 1 or name != "occlusion"]
    found = xa.companions(trace, methods=by_words)
    scores = {name: [float(found[name].scores[own].sum()) for own in members] for name in by_words}
    if together > 1:
        scores["occlusion"] = without_runs(trace, members, together)
    scores[LENGTH] = [float(len(text.words[place])) for place in whole]
    seeded = random.Random(0)
    chance = [[seeded.random() for _ in gold] for _ in range(DRAWS)]
    count = max(1, round(FIRST * len(members)))
    first = [in_order(each)[:count] for each in (*scores.values(), *chance)]
    losses = lost_without(trace, members, first)
    for place, (name, each) in enumerate(scores.items()):
        row["scores"][name] = [*agreement(gold, each), losses[place]]
    by_chance = [[*agreement(gold, each)] for each in chance]
    row["scores"][RANDOM] = [
        mean(one[0] for one in by_chance),
        mean(one[1] for one in by_chance),
        mean(losses[len(scores) :]),
    ]
    return row


def without_runs(trace: Trace, members: list[list[int]], together: int) -> list[float]:
    """What the answer loses without every run of so many words, shared out among them."""
    runs = [
        list(range(start, min(start + together, len(members))))
        for start in range(0, len(members), together)
    ]
    losses = lost_without(trace, members, runs)
    return [loss / len(run) for run, loss in zip(runs, losses, strict=True) for _ in run]


def tokens_of_words(trace: Trace, spoken: list[str], longest: int = LONGEST) -> list[list[int]]:
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
    count = sum(gold)
    hits = sum(gold[word] for word in in_order(scores)[:count]) / count
    return float(average_precision_score(gold, scores)), hits


def write(rows: list[dict[str, Any]], source: Source, ledger: Ledger) -> None:
    """Means over texts, and the differences that claims rest on."""
    start, of = source.agreement, source.of
    lost = f"answer lost without the first fifth of the words, {source.beside}"
    for name in (*METHODS, LENGTH, RANDOM):
        plausible, matched, faithful = zip(*(row["scores"][name] for row in rows), strict=True)
        ledger.mean(f"{start}, {name} (AUPRC)", plausible, of)
        ledger.mean(f"{start}, {name} (token F1)", matched, of)
        ledger.mean(f"{lost}{name}", faithful, of)
    for name, told in (("effective", "effective"), ("self_attribution", "self-attribution")):
        more = [row["scores"][name][0] - row["scores"]["raw"][0] for row in rows]
        ledger.mean(f"{start}, {told} less raw attention (AUPRC)", more, of)
    more = [row["scores"]["raw"][0] - row["scores"][RANDOM][0] for row in rows]
    ledger.mean(f"{start}, raw attention less random orders (AUPRC)", more, of)
    more = [row["scores"]["effective"][2] - row["scores"]["raw"][2] for row in rows]
    ledger.mean(f"{lost}effective less raw attention", more, of)


def scatter(rows: dict[str, list[dict[str, Any]]]) -> PaperFigure:
    """Plausible against faithful, a point with its intervals for each method, texts apart."""
    names = (*METHODS, LENGTH, RANDOM)
    with matplotlib.rc_context({"font.size": 7, "axes.titlesize": 7}):
        figure = PaperFigure((COLUMNS["one column"], 2.0 * len(rows) + 1.0))
        axes = np.atleast_1d(figure.subplots(len(rows), 1))
        for panel, (kind, texts) in zip(axes, rows.items(), strict=True):
            for place, name in enumerate(names):
                scores = np.array([row["scores"][name] for row in texts])
                middle, half = scores.mean(0), half_width(scores)
                panel.errorbar(
                    middle[2],
                    middle[0],
                    xerr=half[2],
                    yerr=half[0],
                    fmt=MARKS[place],
                    color=GREY if name in (LENGTH, RANDOM) else SERIES[place % len(SERIES)],
                    ecolor=PALE,
                    elinewidth=0.7,
                    markersize=4,
                    label=name.replace("_", " "),
                )
            panel.set(title=f"{SOURCES[kind].title}, {len(texts)} {SOURCES[kind].of}")
            panel.set(xlabel="faithful: answer lost", ylabel="plausible: AUPRC")
        handles, told = axes[0].get_legend_handles_labels()
        place_below = {"loc": "outside lower center", "ncols": 3, "frameon": False}
        place_below |= {"columnspacing": 0.6, "handletextpad": 0.1, "handlelength": 1.6}
        figure.legend(handles, told, fontsize=6, **place_below)
    return figure


def half_width(scores: np.ndarray) -> np.ndarray:
    """Half of a 95 % interval of the mean of each column."""
    count = len(scores)
    if count < 2:
        return np.zeros(scores.shape[1])
    return stats.t.ppf(0.975, count - 1) * scores.std(0, ddof=1) / count**0.5


if __name__ == "__main__":
    main()
