"""What do the numbers that other studies keep in docs/data say about the claims?

    python studies/stored.py

Nothing is measured here. The pictures of 872 sentences (``pictures.py``), the reliance of 200
(``verdict.py``), the work of one layer and the translators (``reference.py``) are read, and what
claims rest on goes into the ledger with the command that measured it. Where a file keeps means with
intervals but not the sentences, a difference gets the widest interval that the two allow. A file
that is not there yet is passed over.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import words
from ledger import Ledger, add_option

DATA = Path(__file__).parents[1] / "docs/data"
PICTURES = "python studies/pictures.py --data DATA/SST-2 --out docs/data"
SENTENCES = "python studies/verdict.py sentences --data DATA"
REFERENCE = "python studies/reference.py"
SENTIMENT = "`sentiment`"
NARROW, WIDE = 4, 64  # keys


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_option(asked)
    ledger = asked.parse_args().ledger
    pictures(DATA / "pictures.json", ledger)
    sentences(DATA / "sentences.jsonl", ledger)
    complexity(DATA / "reference-complexity.jsonl", ledger)
    translators(DATA / "reference-bleu.jsonl", ledger)
    keys_and_heads(DATA / "reference-identifiable.jsonl", ledger)
    first_layer(DATA / "reference-poster.jsonl", ledger)


def pictures(file: Path, path: Path) -> None:
    """Do words that a picture names take more of the answer with them?"""
    if not file.exists():
        return
    known = json.loads(file.read_text("utf-8"))
    count, ledger = known["sentences"], Ledger(path, SENTIMENT, "SST-2 dev", PICTURES)
    lost = {name: entry["lost"] for name, entry in known["pictures"].items()}
    lost["random"] = known["following"]["random orders"]
    for first, second, said in (
        ("self_attribution", "raw", "self-attribution less raw attention"),
        ("effective", "raw", "effective less raw attention"),
        ("raw", "random", "raw attention less random orders"),
        ("reliance", "raw", "reliance less raw attention"),
    ):
        value, ends = difference(lost[first], lost[second])
        title = f"answer lost without the words that are named first, {said}"
        ledger.write(title, value, ends, count, "sentences")
    shown = known["pictures"]["raw"]["advice"]["show"]
    title = "texts on which the picture of last-layer attention clearly beats chance"
    ledger.write(title, shown["share"], shown["interval"], count, "sentences")


def difference(first: dict[str, Any], second: dict[str, Any]) -> tuple[float, tuple[float, float]]:
    """Of two means, with the widest interval that theirs allow."""
    low, high = (
        first["interval"][0] - second["interval"][1],
        first["interval"][1] - second["interval"][0],
    )
    return first["mean"] - second["mean"], (low, high)


def sentences(file: Path, path: Path) -> None:
    """What is left of an answer when no head looks where it did."""
    rows = words.rows(file)
    if not rows:
        return
    ledger = Ledger(path, SENTIMENT, "SST-2 dev, drawn", SENTENCES)
    turned = sum(row["permuted"] > 1 for row in rows)  # of the margin: more than all of it
    title = "answers that turn when every row of every head is shuffled"
    ledger.share(title, turned, len(rows))
    title = "part of the margin that is lost when every head looks evenly"
    ledger.mean(title, (row["whole"] for row in rows))


def complexity(file: Path, path: Path) -> None:
    """Operations and processor time of looking and projecting, as texts become longer."""
    rows = {row["tokens"]: row for row in words.rows(file)}
    if not rows:
        return
    ledger = Ledger(path, "one layer, random weights", "none", f"{REFERENCE} complexity")
    for name in ("looking", "projecting"):
        growth = rows[512][name]["operations"] / rows[256][name]["operations"]
        title = f"growth of {name} when the text doubles, operations"
        ledger.exact(title, growth, 512, "tokens")
    for tokens, said in (
        (64, "text half as long as the width"),
        (1024, "text eight times the width"),
    ):
        spent = {name: rows[tokens][name]["seconds"] for name in ("looking", "projecting")}
        title = f"looking over projecting, processor time, {said}"
        ledger.exact(title, spent["looking"] / spent["projecting"], tokens, "tokens")


def translators(file: Path, path: Path) -> None:
    """Is the Transformer ahead of the recurrent translator? Paired bootstrap over sentences."""
    rows = {row["key"]: row for row in words.rows(file)}
    if "transformer and additive" not in rows:
        return
    row, command = rows["transformer and additive"], f"{REFERENCE} bleu --data DATA --work WORK"
    ledger = Ledger(path, "both trained on Multi30k", "Multi30k test 2016", command)
    transformer, additive = row["scores"]
    title = "BLEU of the Transformer less that of the recurrent translator, Multi30k"
    count = len(rows["transformer"]["translations"])
    ledger.write(title, transformer - additive, row["difference"]["interval"], count, "sentences")


def keys_and_heads(file: Path, path: Path) -> None:
    """Accuracy of heads added or side by side, and of narrow keys, over seeds."""
    by = {(row["heads"], row["d_key"], row["seed"]): row["accuracy"] for row in words.rows(file)}
    command = f"{REFERENCE} identifiable --data DATA --work WORK"
    ledger = Ledger(path, "encoders from nothing", "SST-2", command)
    added = [
        by["add", key, seed] - right
        for (way, key, seed), right in by.items()
        if way == "con" and ("add", key, seed) in by
    ]
    narrow = [
        by[way, NARROW, seed] - right
        for (way, key, seed), right in by.items()
        if key == WIDE and (way, NARROW, seed) in by
    ]
    if len(added) > 1:
        ledger.mean("accuracy of added less concatenated heads", added, "models")
    if len(narrow) > 1:
        ledger.mean("accuracy of keys of width 4 less width 64", narrow, "models")


def first_layer(file: Path, path: Path) -> None:
    """Does only the first layer's attention matter, in a model such as the poster's?"""
    rows = {row["key"]: row for row in words.rows(file)}
    if "softmax: losses" not in rows:
        return
    lost, count = rows["softmax: losses"]["losses"], rows["softmax: losses"]["examples"]
    command = f"{REFERENCE} poster --data DATA --work WORK"
    ledger = Ledger(path, "the poster's Transformer, from nothing", "SST-2", command)
    layers = [name for name in lost if not name.startswith("all")]
    most = max(layers[1:], key=lambda name: lost[name][0])
    for name, title in (
        (layers[0], "accuracy lost, weights shuffled in the first layer, the poster's model"),
        (most, "largest loss of accuracy, one later layer shuffled, the poster's model"),
    ):
        value, *ends = lost[name]
        ledger.write(title, value, ends, count, "sentences")


if __name__ == "__main__":
    main()
