"""How often is each picture worth showing, and does it pay to follow the advice?

    python studies/pictures.py --data SST-2-FOLDER --out FOLDER [--count 872] [--model sentiment]

Every sentence is one line of FOLDER/pictures.jsonl, and the study goes on where it stopped. The
table (also FOLDER/pictures.json) has, for each picture, how often each word of advice came, the
median p-value and the mean comprehensiveness: the probability that the answer loses without the
first 1, 5, 10, 20 and 50 % of the words. Then: does the picture that the advice names lose more
than last-layer attention, with a bootstrap interval and the p-value of the paired difference? The
advice itself rests on deletions of the same text, some of them the same: the difference says what
a person gains by trying pictures before showing one, not that a picture is better on other texts.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from exhibit_a.examples import Example, read_examples
from exhibit_a.methods.explanation.pictures import Pictures, pictures
from exhibit_a.methods.explanation.shortened import ShortenedTexts
from exhibit_a.methods.explanation.words import words_of
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value, wilson
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.targets import choose_target

BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # of the words (DeYoung et al., 2020)
WORDS = ("show", "caution", "do not show")
ALWAYS = "raw"  # the picture that people show
Row = dict[str, Any]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--data", required=True, type=Path, help="folder with dev.tsv")
    asked.add_argument("--out", type=Path, default=Path("pictures-study"), help="for results")
    asked.add_argument("--count", type=int, default=872, help="development sentences")
    asked.add_argument("--model", default="sentiment")
    asked.add_argument("--methods", nargs="+", help="pictures; without, the usual ones")
    options = asked.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "pictures.jsonl"
    measure(load(options.model), read_examples(options.data / "dev.tsv"), path, options)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()[: options.count]]
    table = summary(rows)
    (options.out / "pictures.json").write_text(json.dumps(table, indent=1), "utf-8")
    show(table)


def measure(subject: Subject, examples: list[Example], path: Path, options: Any) -> None:
    """One line for each sentence that has none yet."""
    done = len(path.read_text("utf-8").splitlines()) if path.exists() else 0
    with path.open("a", encoding="utf-8") as file:
        for example in examples[done : options.count]:
            started = time.process_time()
            trace = capture(subject, example.text)
            result = pictures(trace, methods=options.methods)
            row = measured(trace, result)
            row |= {"seconds": time.process_time() - started}
            file.write(json.dumps(row) + "\n")
            file.flush()


def measured(trace: Trace, result: Pictures) -> Row:
    """What is kept of one sentence."""
    words = words_of(trace)
    texts = ShortenedTexts(trace, choose_target(trace), words.places)
    sizes = [math.ceil(share * len(words) - 1e-9) for share in BINS]
    rankings = [picture.ranking for picture in result.values()]
    seeded = torch.Generator().manual_seed(len(words))
    random = [torch.randperm(len(words), generator=seeded).tolist() for _ in range(3)]
    kept = texts.probabilities([*rankings, *random], sizes)
    lost = (texts.probability - kept).mean(-1).tolist()
    return {
        "advice": result.advice,
        "words": len(words),
        "passes": result.passes,
        "orders": result.orders,
        "exact": result.exact,
        "probability": result.probability,
        "random": sum(lost[len(rankings) :]) / len(random),
        "pictures": {
            picture.name: {
                "advice": picture.advice,
                "p": picture.p_value,
                "adjusted": picture.adjusted,
                "loss": picture.loss,
                "probability_loss": picture.probability_loss,
                "comprehensiveness": lost[place],
            }
            for place, picture in enumerate(result.values())
        },
    }


def summary(rows: list[Row]) -> Row:
    """The table of all sentences."""
    names = list(rows[0]["pictures"])
    passes = torch.tensor([float(row["passes"]) for row in rows])
    seconds = torch.tensor([row["seconds"] for row in rows])
    return {
        "sentences": len(rows),
        "median passes": float(passes.median()),
        "most passes": float(passes.amax()),
        "mean seconds": float(seconds.mean()),
        "no ranking can be judged": sum("can be" in row["advice"] for row in rows) / len(rows),
        "pictures": {name: of_picture([row["pictures"][name] for row in rows]) for name in names},
        "following": following(rows),
    }


def of_picture(entries: list[Row]) -> Row:
    """How often each advice was given, the median p-value and the mean comprehensiveness."""
    shares = {}
    for word in WORDS:
        share = sum(entry["advice"] == word for entry in entries) / len(entries)
        low, high = wilson(torch.tensor(share), len(entries)).tolist()
        shares[word] = {"share": share, "interval": [low, high]}
    lost = torch.tensor([entry["comprehensiveness"] for entry in entries])
    p_values = torch.tensor([entry["p"] for entry in entries])
    return {"advice": shares, "median p": float(p_values.median()), "lost": of_mean(lost)}


def of_mean(values: torch.Tensor) -> Row:
    return {"mean": float(values.mean()), "interval": bootstrap_interval(values, seed=0).tolist()}


def following(rows: list[Row]) -> Row:
    """What the advised picture loses more than last-layer attention, over all and over those shown.

    The advised picture is that with the largest loss among those to show, else among those to
    show with caution where anything could be judged; else people see last-layer attention.
    """
    advised, always, chance, acted = [], [], [], []
    for row in rows:
        name = advised_picture(row)
        acted.append(name is not None)
        advised.append(row["pictures"][name or ALWAYS]["comprehensiveness"])
        always.append(row["pictures"][ALWAYS]["comprehensiveness"])
        chance.append(row["random"])
    better = torch.tensor(advised) - torch.tensor(always)
    chosen = better[torch.tensor(acted)]
    return {
        "advised": of_mean(torch.tensor(advised)),
        "always last-layer attention": of_mean(torch.tensor(always)),
        "random orders": of_mean(torch.tensor(chance)),
        "difference": of_mean(better) | {"p": float(sign_flip_p_value(better, seed=0))},
        "sentences with a picture to show": len(chosen) / len(rows),
        "difference there": of_mean(chosen) if len(chosen) else None,
    }


def advised_picture(row: Row) -> str | None:
    """The picture that the advice names; None where nothing can be judged or shown."""
    if "can be" in row["advice"]:
        return None
    for word in ("show", "caution"):
        entries = {n: e for n, e in row["pictures"].items() if e["advice"] == word}
        if entries:
            return max(entries, key=lambda name: entries[name]["loss"])
    return None


def show(table: Row) -> None:
    print(f"{table['sentences']} sentences, {table['median passes']:.0f} passes (median), "
          f"{table['most passes']:.0f} (most), {table['mean seconds']:.1f} s of processor each; "
          f"no ranking can be judged on {table['no ranking can be judged']:.0%}")  # fmt: skip
    for name, entry in table["pictures"].items():
        shares = "  ".join(f"{word} {entry['advice'][word]['share']:4.0%}" for word in WORDS)
        print(f"{name:22s} {shares}  p {entry['median p']:.3f}  lost {interval(entry['lost'])}")
    for name, entry in table["following"].items():
        if isinstance(entry, dict):
            print(f"{name}: {interval(entry)}" + (f", p {entry['p']:.4f}" if "p" in entry else ""))
        elif entry is not None:
            print(f"{name}: {entry:.0%}")


def interval(entry: Row) -> str:
    low, high = entry["interval"]
    return f"{entry['mean']:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
