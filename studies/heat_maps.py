"""How often is each heat map worth showing, and does it pay to follow the advice?

    python studies/heat_maps.py --data SST-2-FOLDER --out FOLDER [--count 872] [--model sentiment]

Every sentence is one line of FOLDER/heat-maps.jsonl, and the study goes on where it stopped.
FOLDER/heat-maps.json has, for each map, how often each word of advice came, the median p-value and
the mean comprehensiveness: the probability that the answer loses without the first 1, 5, 10, 20 and
50 % of the words. Then: does the map that the advice names lose more than last-layer attention,
with a bootstrap interval and the p-value of the paired difference? The advice itself rests on
deletions of the same text, some of them the same: the difference says what a person gains by trying
maps before showing one, not that a map is better on other texts.
"""

import json
import math
from pathlib import Path

import torch
from study import Row, parse, resumed, spent

import exhibit_a as xa
from exhibit_a.examples import read_examples
from exhibit_a.methods.explanation.erased_texts import ErasedTexts
from exhibit_a.methods.explanation.words import words_of
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value, wilson

BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # of the words (DeYoung et al., 2020)
ADVICE = ("show", "caution", "do not show")
ERASE = "delete"  # as when the numbers in docs were measured; hiding.py has both
ALWAYS = "raw"  # the map that people show


def main() -> None:
    given = {"data": Path, "out": Path("heat-maps-study"), "count": 872, "model": "sentiment"}
    options = parse(__doc__, need=["data"], **given)
    subject = xa.load(options.model)

    def measure(text: str) -> Row:
        seconds, row = spent(lambda: measured(xa.capture(subject, text)))
        return row | {"seconds": seconds}

    texts = [example.text for example in read_examples(options.data / "dev.tsv")[: options.count]]
    work = [
        ({"number": number}, lambda text=text: measure(text)) for number, text in enumerate(texts)
    ]
    table = summary(resumed(options.out / "heat-maps.jsonl", work))
    (options.out / "heat-maps.json").write_text(json.dumps(table, indent=1), "utf-8")
    print(json.dumps(table, indent=1))


def measured(trace: xa.Trace) -> Row:
    """What is kept of one sentence."""
    result, words = xa.heat_maps(trace, erase=ERASE), words_of(trace)
    texts = ErasedTexts(trace, xa.choose_target(trace), words.places, ERASE)
    rankings = [heat_map.ranking for heat_map in result.values()]
    seeded = torch.Generator().manual_seed(len(words))
    random = [torch.randperm(len(words), generator=seeded).tolist() for _ in range(3)]
    sizes = [math.ceil(share * len(words) - 1e-9) for share in BINS]
    lost = (texts.probability - texts.probabilities([*rankings, *random], sizes)).mean(-1).tolist()
    row = {
        "advice": result.advice,
        "words": len(words),
        "passes": result.passes,
        "orders": result.orders,
    }
    row |= {"exact": result.exact, "probability": result.probability}
    row |= {"random": sum(lost[len(rankings) :]) / len(random), "heat_maps": {}}
    for place, heat_map in enumerate(result.values()):
        said = {
            "advice": heat_map.advice,
            "p": heat_map.p_value,
            "adjusted": heat_map.adjusted,
            "loss": heat_map.loss,
        }
        said |= {"probability_loss": heat_map.probability_loss, "comprehensiveness": lost[place]}
        row["heat_maps"][heat_map.name] = said
    return row


def summary(rows: list[Row]) -> Row:
    """The table of all sentences."""
    passes = torch.tensor([float(row["passes"]) for row in rows])
    return {
        "sentences": len(rows),
        "median passes": float(passes.median()),
        "most passes": float(passes.amax()),
        "mean seconds": float(torch.tensor([row["seconds"] for row in rows]).mean()),
        "no ranking can be judged": sum("can be" in row["advice"] for row in rows) / len(rows),
        "heat_maps": {
            name: of_heat_map([row["heat_maps"][name] for row in rows])
            for name in rows[0]["heat_maps"]
        },
        "following": following(rows),
    }


def of_heat_map(entries: list[Row]) -> Row:
    """How often each advice was given, the median p-value and the mean comprehensiveness."""
    shares = {}
    for word in ADVICE:
        share = sum(entry["advice"] == word for entry in entries) / len(entries)
        shares[word] = {
            "share": share,
            "interval": wilson(torch.tensor(share), len(entries)).tolist(),
        }
    p_values = torch.tensor([entry["p"] for entry in entries])
    lost = of_mean([entry["comprehensiveness"] for entry in entries])
    return {"advice": shares, "median p": float(p_values.median()), "lost": lost}


def of_mean(values: list[float]) -> Row:
    found = torch.tensor(values)
    return {"mean": float(found.mean()), "interval": bootstrap_interval(found, seed=0).tolist()}


def following(rows: list[Row]) -> Row:
    """What the advised map loses more than last-layer attention, over all and over those shown.

    The advised map is that with the largest loss among those to show, else among those to show with
    caution where anything could be judged; else people see last-layer attention.
    """
    names = [advised_heat_map(row) for row in rows]
    pairs = list(zip(rows, names, strict=True))
    advised = [row["heat_maps"][name or ALWAYS]["comprehensiveness"] for row, name in pairs]
    always = [row["heat_maps"][ALWAYS]["comprehensiveness"] for row in rows]
    better = torch.tensor(advised) - torch.tensor(always)
    chosen = better[torch.tensor([name is not None for name in names])]
    return {
        "advised": of_mean(advised),
        "always last-layer attention": of_mean(always),
        "random orders": of_mean([row["random"] for row in rows]),
        "difference": of_mean(better.tolist()) | {"p": float(sign_flip_p_value(better, seed=0))},
        "sentences with a heat map to show": len(chosen) / len(rows),
        "difference there": of_mean(chosen.tolist()) if len(chosen) else None,
    }


def advised_heat_map(row: Row) -> str | None:
    """The map that the advice names; None where nothing can be judged or shown."""
    if "can be" in row["advice"]:
        return None
    for word in ADVICE[:2]:
        entries = {
            name: entry for name, entry in row["heat_maps"].items() if entry["advice"] == word
        }
        if entries:
            return max(entries, key=lambda name: entries[name]["loss"])
    return None


if __name__ == "__main__":
    main()
