"""Do attributions name the words that people call good or bad, and do the answers need those words?

    python studies/gold.py --data DATA [--sentences 100] [--figures FOLDER]

Sentences of the Stanford Sentiment Treebank (DATA/sst-trees/dev.jsonl), where people gave every
word a number from 0 (very bad) to 4 (very good). The gold words of a sentence are those that speak
for its label. Only sentences that the embedded ``sentiment`` answers rightly are asked, with some
gold words and some others. For every method

plausible  average precision (AUPRC) of its word scores against the gold words, and the share of
           gold words among as many first words (token F1 at matched size);
faithful   what the answer loses without the first fifth of the words.

Beside the methods stand random orders and the length of a word. A line for each sentence goes to
docs/data/gold.jsonl, so that the study can be stopped and started again; means with intervals go
into the ledger, and a scatter of plausible against faithful into FOLDER.
"""

import json
import random
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib.figure
import torch
import transformers
import words
from deleting import lost_without
from drawing import save_in
from ledger import Ledger, of_sentences
from sklearn.metrics import average_precision_score

import exhibit_a as xa
from exhibit_a.report.palette import GREY
from exhibit_a.trace.capture import Trace

KEPT_IN = Path(__file__).parents[1] / "docs/data/gold.jsonl"
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


def main() -> None:
    asked = of_sentences(__doc__, "sst-trees", 100, KEPT_IN)
    asked.add_argument("--figures", type=Path, help="draw the scatter into this folder")
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    subject = xa.load("sentiment")
    trees = drawn(options.data / "sst-trees" / "dev.jsonl")
    done = {row["number"] for row in words.rows(options.out)}
    for number, tree in enumerate(trees[: options.sentences]):
        if number not in done:
            row = {"number": number} | measured(subject, tree)
            words.append(options.out, words.rounded(row))
            print(number, row["tokens"], flush=True)
    rows = [row for row in words.rows(options.out) if row["number"] < options.sentences]
    judged = [row for row in rows if row["scores"]]
    write(judged, Ledger(options.ledger, "`sentiment`", "SST trees, dev, drawn"))
    save_in(options.figures, "gold-scatter", scatter(judged))


def drawn(file: Path) -> list[dict[str, Any]]:
    """Sentences with a label, in a fixed random order."""
    trees = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    labelled = [tree for tree in trees if tree["label"] != NEUTRAL]
    random.Random(0).shuffle(labelled)
    return labelled


def measured(subject: xa.Subject, tree: dict[str, Any]) -> dict[str, Any]:
    """The scores of one sentence; none where it is answered wrongly or all words are alike."""
    trace = xa.capture(subject, tree["text"])
    good = tree["label"] > NEUTRAL
    gold = [(int(digit) > NEUTRAL) == good and int(digit) != NEUTRAL for digit in tree["tokens"]]
    row: dict[str, Any] = {"tokens": len(trace.tokens), "words": len(gold), "scores": {}}
    answer = subject.labels[int(trace.output.logits.argmax())]
    if answer != ("positive" if good else "negative") or not 0 < sum(gold) < len(gold):
        return row
    members = tokens_of_words(trace, tree["text"].split(" "))
    found = xa.companions(trace, methods=METHODS)
    scores = {name: [float(found[name].scores[own].sum()) for own in members] for name in METHODS}
    scores[LENGTH] = [float(len(word)) for word in tree["text"].split(" ")]
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


def tokens_of_words(trace: Trace, spoken: list[str]) -> list[list[int]]:
    """The tokens of each word of a text whose words stand between single blanks."""
    encoded = trace.subject.tokenizer(" ".join(spoken), return_offsets_mapping=True)
    ends, position = [], 0
    for word in spoken:
        position += len(word) + 1
        ends.append(position)
    members: list[list[int]] = [[] for _ in spoken]
    for token, (start, end) in enumerate(encoded["offset_mapping"]):
        if end > start:
            members[next(n for n, last in enumerate(ends) if start < last)].append(token)
    return members


def in_order(scores: list[float]) -> list[int]:
    """The words, the highest score first."""
    return sorted(range(len(scores)), key=lambda word: -scores[word])


def agreement(gold: list[bool], scores: list[float]) -> tuple[float, float]:
    """AUPRC, and the share of gold words among as many first ones."""
    count = sum(gold)
    hits = sum(gold[word] for word in in_order(scores)[:count]) / count
    return float(average_precision_score(gold, scores)), hits


def write(rows: list[dict[str, Any]], ledger: Ledger) -> None:
    """Means over sentences, and the differences that claims rest on."""
    for name in (*METHODS, LENGTH, RANDOM):
        plausible, matched, faithful = zip(*(row["scores"][name] for row in rows), strict=True)
        ledger.mean(f"agreement with people, {name} (AUPRC)", plausible)
        ledger.mean(f"agreement with people, {name} (token F1)", matched)
        ledger.mean(f"answer lost without the first fifth of the words, {name}", faithful)
    apart = [row["scores"]["effective"][0] - row["scores"]["raw"][0] for row in rows]
    ledger.mean("agreement with people, effective less raw attention (AUPRC)", apart)
    best = [row["scores"]["self_attribution"][0] - row["scores"]["raw"][0] for row in rows]
    ledger.mean("agreement with people, self-attribution less raw attention (AUPRC)", best)


def scatter(rows: list[dict[str, Any]]) -> matplotlib.figure.Figure:
    """Plausible against faithful, a point for each method."""
    figure = matplotlib.figure.Figure(figsize=(3.4, 3.0), layout="constrained")
    axes = figure.subplots()
    for name in (*METHODS, LENGTH, RANDOM):
        across = mean(row["scores"][name][2] for row in rows)
        up = mean(row["scores"][name][0] for row in rows)
        axes.plot(across, up, "o", color=GREY if name in (LENGTH, RANDOM) else "black", ms=3)
        axes.annotate(
            name.replace("_", " "), (across, up), (3, 2), textcoords="offset points", size=6
        )
    axes.set(xlabel="faithful: answer lost", ylabel="plausible: AUPRC with people")
    return figure


if __name__ == "__main__":
    main()
