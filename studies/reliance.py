"""Which estimator of reliance is the best for its passes, and how true is ours?

    python studies/reliance.py --data DATA [--first 0] [--count 50] [--compared 12] [--out FILE]

For sentences of SST-2 and the embedded ``sentiment``: the truth is the mean of 160 orders (80
opposite pairs; ``frozen_walks.py``). Against it stand, with the forward passes each takes: the
adaptive path (what ``xa.reliance`` does), opposite pairs of orders, and from ``shapiq`` kernel
regression with paired samples and SVARM. A line for each sentence is appended to the file, so that
the study can be stopped and started again.
"""

import argparse
import json
import random
from pathlib import Path

import torch
import transformers
from frozen_walks import FrozenWalks

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame, margin_of
from exhibit_a.numerics.seeds import generator
from exhibit_a.trace.targets import chosen_target

TRUTH_PAIRS = 80
PAIRS = (1, 2, 4, 8, 16)
BUDGETS = (144, 288, 576, 1152)
MOST_WORDS = 12  # in a sentence: the truth takes 11,520 passes
LINE = 0.05  # of the margin: where a head begins to carry


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--data", type=Path, required=True)
    asked.add_argument("--first", type=int, default=0, help="sentences before it are left out")
    asked.add_argument("--count", type=int, default=50)
    asked.add_argument("--compared", type=int, default=12)
    asked.add_argument("--out", type=Path, default=Path("docs/data/reliance.jsonl"))
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = {json.loads(line)["text"] for line in lines}
    subject = xa.load("sentiment")
    for number, text in enumerate(sentences(options.data, options.count)):
        if text in done or number < options.first:
            continue
        row = measured(subject, text, compare=number < options.compared)
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(number, row["tokens"], row["path"], flush=True)


def sentences(data: Path, count: int) -> list[str]:
    """Short sentences of the development set, drawn with a fixed seed."""
    rows = (data / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    texts = [row.split("\t")[0] for row in rows]
    short = [text for text in texts if len(text.split()) <= MOST_WORDS]
    return random.Random(0).sample(short, count)


def measured(subject: xa.Subject, text: str, *, compare: bool) -> dict[str, object]:
    """Every estimator's distance from the truth, and its passes."""
    trace = xa.capture(subject, text)
    game = HeadGame(trace, margin_of(chosen_target(trace, None)))
    truth, noise = walked(game, TRUTH_PAIRS, generator(1))
    relied = xa.reliance(trace, by="path")
    size = relied.size

    def compared(credit: torch.Tensor, passes: float) -> dict[str, float]:
        return {
            "passes": round(passes, 1),
            "r": float(torch.corrcoef(torch.stack([credit.double(), truth.double()]))[0, 1]),
            "error": float((credit - truth).abs().mean() / size),
            "same word": float(
                ((credit.abs() >= LINE * size) == (truth.abs() >= LINE * size)).float().mean()
            ),
        }

    points = relied.checks["points"]
    row: dict[str, object] = {
        "text": text,
        "tokens": len(trace.tokens),
        "size": size,
        "whole": relied.whole,
        "noise of the truth": float(noise.mean() / size),
        "path": compared(torch.cat(relied.heads), 3.0 * points + 2) | {"points": points},
        "gap": relied.checks["gap as a share of the whole"],
    }
    if not compare:
        return row
    for pairs in PAIRS:
        credit, _ = walked(game, pairs, generator(2, pairs))
        row[f"orders {2 * pairs}"] = compared(credit, 2 * pairs * len(game))
    for name in ("kernel", "svarm"):
        for budget in BUDGETS:
            before = game.passes
            credit = approximated(game, name, budget)
            row[f"{name} {budget}"] = compared(credit, game.passes - before)
    return row


def walked(
    game: HeadGame, pairs: int, seeded: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every head's share by pairs of opposite orders, and its standard error."""
    drawn = [torch.randperm(len(game), generator=seeded).tolist() for _ in range(pairs)]
    walks = FrozenWalks(game)
    ends = game.margins(torch.stack([game.setting(rest=0.0), game.setting()])).double()
    torch.testing.assert_close(walks.margins(drawn[0])[[0, -1]], ends, atol=1e-4, rtol=1e-4)
    there, back = walks.shares(drawn), walks.shares([order[::-1] for order in drawn])
    means = (there + back) / 2
    return means.mean(0), means.std(0, correction=min(pairs - 1, 1)) / pairs**0.5


def approximated(game: HeadGame, name: str, budget: int) -> torch.Tensor:
    """Shapley values by an estimator of shapiq, in the same game."""
    import shapiq

    own = float(game.margins(game.setting()[None]))

    def lost(coalitions):  # what is lost when the heads of a coalition look evenly
        shares = 1.0 - torch.as_tensor(coalitions, dtype=torch.float32)
        return (own - game.margins(shares)).double().numpy()

    kinds = {"kernel": shapiq.KernelSHAP, "svarm": shapiq.SVARM}
    estimator = kinds[name](n=len(game), random_state=0)
    values = estimator.approximate(budget=budget, game=lost)
    return torch.tensor([float(values[(head,)]) for head in range(len(game))])


if __name__ == "__main__":
    main()
