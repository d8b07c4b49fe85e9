"""Which estimator of reliance is the best for its passes, and how true is ours?

    python studies/reliance.py sentences --data DATA [--first 0] [--count 50] [--compared 12]
    PYTHONPATH=tests python studies/reliance.py planted [--first 5000] [--count 8]

``sentences``  of SST-2, with the embedded ``sentiment``: the truth is the mean of 160 orders (80
               opposite pairs; ``frozen_walks.py``)
``planted``    models of ``tests/planted`` with 6 to 12 heads: the truth is the Shapley value by all
               sets of heads, exactly

Against the truth stand, with the forward passes each takes: the adaptive path (what ``xa.reliance``
does for more than 12 heads), opposite pairs of orders, and from ``shapiq`` kernel regression with
paired samples and SVARM (version 1.4.1 was asked). A line for each text is appended to
docs/data/reliance.jsonl or reliance-planted.jsonl, so that the study can be stopped and started
again.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
import transformers
import words
from frozen_walks import FrozenWalks

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame
from exhibit_a.methods.attribution.head_orders import coalitions, orders
from exhibit_a.methods.attribution.head_shares import FEW
from exhibit_a.numerics.seeds import generator
from exhibit_a.trace.targets import chosen_target, margin_of

TRUTH_PAIRS = 80
PAIRS = (1, 2, 4, 8, 16)
BUDGETS = (144, 288, 576, 1152)
FEWEST = 6  # heads of a planted model: with fewer there is nothing to estimate
PLANTED_PAIRS, FEW_PASSES = (1, 2, 4, 8), (24, 48, 96, 192)
NOTHING = 1e-3  # of the margin: shares below it are noise
DATA = Path("docs/data")
Made = TypeVar("Made")
MOST_WORDS = 12  # in a sentence: the truth takes 11,520 passes
LINE = 0.05  # of the margin: where a head begins to carry


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("study", choices=("sentences", "planted"))
    asked.add_argument("--data", type=Path, help="a folder with SST-2")
    asked.add_argument("--first", type=int, help="sentence, or seed of planted models")
    asked.add_argument("--count", type=int, help="of sentences, or of planted models of each kind")
    asked.add_argument("--compared", type=int, default=12, help="sentences for every estimator")
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    studies = {"sentences": of_sentences, "planted": of_planted}
    studies[options.study](options)


def of_sentences(options: argparse.Namespace) -> None:
    """Every estimator on sentences."""
    out = DATA / "reliance.jsonl"
    done = {row["text"] for row in words.rows(out)}
    subject = xa.load("sentiment")
    for number, text in enumerate(sentences(options.data, options.count or 50)):
        if text in done or number < (options.first or 0):
            continue
        row = {"text": text} | of_sentence(subject, text, compare=number < options.compared)
        words.append(out, row)
        print(number, row["tokens"], row["path"], flush=True)


def of_planted(options: argparse.Namespace) -> None:
    """Every estimator on models whose exact shares can be had."""
    from planted.kinds import KINDS, planted

    out, first = DATA / "reliance-planted.jsonl", options.first or 5000
    done = {(row["kind"], row["seed"]) for row in words.rows(out)}
    for kind in KINDS:
        for seed in range(first, first + (options.count or 8)):
            if (kind, seed) in done:
                continue
            model = planted(kind, seed)
            row = {"kind": kind, "seed": seed} | of_model(model.subject, model.inputs)
            words.append(out, row)
            print(kind, seed, row["heads"], row.get("path"), flush=True)


def sentences(data: Path, count: int) -> list[str]:
    """Short sentences of the development set, drawn with a fixed seed."""
    short = [text for text in development_set(data) if len(text.split()) <= MOST_WORDS]
    return random.Random(0).sample(short, count)


def development_set(data: Path) -> list[str]:
    """The sentences of SST-2's development set, in their order."""
    rows = (data / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    return [row.split("\t")[0] for row in rows]


def spent(work: Callable[[], Made]) -> tuple[float, Made]:
    """Seconds of processor time, and what they brought."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


class Against:
    """How near estimates of a trace's shares are to the truth, by the passes they take."""

    def __init__(self, relied: xa.Reliance, truth: torch.Tensor) -> None:
        self.relied, self.truth = relied, truth.double()

    def compared(self, credit: torch.Tensor, passes: float) -> dict[str, float]:
        """Correlation, mean error and the line that tells whether a head carries."""
        size, line = self.relied.size, LINE * self.relied.size
        both = torch.stack([credit.double(), self.truth])
        return {
            "passes": round(passes, 1),
            "r": float(torch.corrcoef(both)[0, 1]),
            "error": float((both[0] - both[1]).abs().mean() / size),
            "same word": float(((both[0].abs() >= line) == (both[1].abs() >= line)).float().mean()),
        }

    def path(self) -> dict[str, float]:
        """The adaptive path; a point is one pass forwards and one backwards."""
        points = self.relied.checks["points"]
        near = self.compared(torch.cat(self.relied.heads), 3.0 * points + 2)
        return near | {"points": points}

    def shapiq(self, game: HeadGame, budgets: Sequence[int]) -> dict[str, dict[str, float]]:
        """Kernel regression and SVARM with so many passes."""
        near = {}
        for name in ("kernel", "svarm"):
            for budget in budgets:
                before = game.passes
                credit = approximated(game, name, budget)
                near[f"{name} {budget}"] = self.compared(credit, game.passes - before)
        return near


def of_sentence(subject: xa.Subject, text: str, *, compare: bool) -> dict[str, object]:
    """Every estimator's distance from the truth on one sentence, and its passes."""
    trace = xa.capture(subject, text)
    game = HeadGame(trace, margin_of(chosen_target(trace, None)))
    truth, noise = walked(game, TRUTH_PAIRS, generator(1))
    relied = xa.reliance(trace, by="path")
    against = Against(relied, truth)
    row: dict[str, object] = {
        "tokens": len(trace.tokens),
        "size": relied.size,
        "whole": relied.whole,
        "noise of the truth": float(noise.mean() / relied.size),
        "path": against.path(),
        "gap": relied.checks["gap as a share of the whole"],
    }
    if not compare:
        return row
    for pairs in PAIRS:
        credit, _ = walked(game, pairs, generator(2, pairs))
        row[f"orders {2 * pairs}"] = against.compared(credit, 2 * pairs * len(game))
    return row | against.shapiq(game, BUDGETS)


def of_model(subject: xa.Subject, inputs: dict[str, torch.Tensor]) -> dict[str, object]:
    """Every estimator's distance from the exact shares of a planted model, and its passes.

    Models with fewer heads have nothing to estimate; where all shares are nothing, there is no
    correlation.
    """
    trace = xa.capture(subject, inputs)
    game = HeadGame(trace, margin_of(chosen_target(trace, None)))
    if not FEWEST <= len(game) <= FEW:
        return {"heads": len(game)}
    truth = coalitions(game).credit
    relied = xa.reliance(trace, by="path")
    row: dict[str, object] = {
        "heads": len(game),
        "size": relied.size,
        "whole": relied.whole,
        "determined": relied.determined,
    }
    if float(truth.abs().amax()) < NOTHING * relied.size:
        return row
    against = Against(relied, truth)
    row |= {"path": against.path(), "gap": relied.checks["gap as a share of the whole"]}
    for pairs in PLANTED_PAIRS:
        before = game.passes
        credit = orders(game, pairs, generator(2, pairs)).credit
        row[f"orders {2 * pairs}"] = against.compared(credit, game.passes - before)
    return row | against.shapiq(game, [budget for budget in FEW_PASSES if budget < 2 ** len(game)])


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
