"""Which words trials give, and whether they are true: tables and numbers of docs/verdict.md."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from statistics import median
from typing import Any

import verdict_words
from page_tables import read
from verdict_words import COLUMNS

from exhibit_a.trials.verdict import EVIDENCE, MISLEADING

PLANTED = read("planted.jsonl")
KNOWN = [row for row in PLANTED if row["kind"] != "random"]
RANDOM = [row for row in PLANTED if row["kind"] == "random"]
SENTENCES = read("sentences.jsonl")
HEAT_MAPS = read("heat-maps.json")

models, texts = len(PLANTED), len(SENTENCES)
idle, together = verdict_words.decisive_without_effect(KNOWN), verdict_words.shared_heads(KNOWN)
lucky = sum(row["word"] == EVIDENCE for row in RANDOM)
lucky_heads = sum(head[2] == EVIDENCE for row in RANDOM for head in row["heads"])
untaught = len(RANDOM)


def at() -> dict[str, dict[str, str]]:
    """The share of heads beyond a line, as they are and with permuted rows."""
    lines, nulls = (
        {"carries": 0.05, "points": 0.5, "coherence": 0.5},
        read("calibration.json")["nulls"],
    )
    return {
        name: {kind: f"{nulls[name][kind][place]:.0%}" for kind in ("real", "permuted")}
        for name, line in lines.items()
        for place in [nulls[name]["line"].index(line)]
    }


def apart() -> str:
    """How far the cosines of planted evidence and of planted misleading heads lie apart."""
    found: dict[str, list[float]] = {EVIDENCE: [], MISLEADING: []}
    for row in read("planted-calibration.jsonl"):
        numbers = {(head[0], head[1]): head[5 + COLUMNS.index("pointing")] for head in row["heads"]}
        for site, head, word in row["truth"]:
            found.get(word, []).append(numbers[site, head])
    return (
        f"{len(found[MISLEADING])} misleading heads is at most {max(found[MISLEADING]):.2f}, that of "
        f"{len(found[EVIDENCE])} heads that are evidence at least {min(found[EVIDENCE]):.2f}"
    )


@cache
def sentences() -> dict[str, Any]:
    """What the words of sentences are, and what they follow."""
    given = Counter(row["word"] for row in SENTENCES)
    heads = sum((Counter(row["heads"]) for row in SENTENCES), Counter[str]())
    named = [row for row in SENTENCES if row["set"]]
    (common, count), trees = given.most_common(1)[0], read("trees.json")["trees"]
    allowed, (reached, unseen) = max(0.7, count / texts + 0.1), trees["confidence, tokens"]
    return {
        "given": ", ".join(f"{word} {n}" for word, n in given.most_common()),
        "heads": ", ".join(f"{word} {n / heads.total():.0%}" for word, n in heads.most_common()),
        "sets": len(named),
        "set": median(row["set"] for row in named),
        "random": median(row["random loss"] / row["loss"] for row in named),
        "common": f"*{common}* ({count / texts:.0%})",
        "allowed": allowed,
        "reached": f"{reached:.0%}{'' if reached <= allowed else ', **which is too much**'}",
        "unseen": unseen,
    }


def following() -> dict[str, str]:
    """What following the advice gains."""
    found = HEAT_MAPS["following"]
    return {name: with_ends(each) for name, each in found.items() if isinstance(each, dict)}


def with_ends(entry: Mapping[str, Any]) -> str:
    """A mean with its interval."""
    low, high = entry["interval"]
    return f"{entry['mean']:.3f} [{low:.3f}, {high:.3f}]"
