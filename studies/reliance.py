"""Which estimator of reliance is the best for its passes, and how true is ours?

    python studies/reliance.py sentences --data DATA [--first 0] [--count 50] [--compared 12]
    PYTHONPATH=tests python studies/reliance.py planted [--first 5000] [--count 8]

``sentences``  of SST-2, with the embedded ``sentiment``: the truth is the mean of 160 orders (80
               opposite pairs)
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from study import DOCS, Row, parse, read_sst, resumed
from torch import Tensor

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame
from exhibit_a.methods.attribution.head_orders import coalitions, orders
from exhibit_a.methods.attribution.head_shares import FEW
from exhibit_a.numerics.seeds import generator
from exhibit_a.trace.targets import chosen_target, margin_of

TRUTH_PAIRS = 80
PAIRS, BUDGETS = (1, 2, 4, 8, 16), (144, 288, 576, 1152)
FEWEST = 6  # heads of a planted model: with fewer there is nothing to estimate
PLANTED_PAIRS, FEW_PASSES = (1, 2, 4, 8), (24, 48, 96, 192)
NOTHING = 1e-3  # of the margin: shares below it are noise
MOST_WORDS = 12  # in a sentence: the truth takes 11,520 passes
LINE = 0.05  # of the margin: where a head begins to carry
Work = Iterator[tuple[Row, Callable[[], Row]]]


def main() -> None:
    given = {"data": Path, "first": int, "count": int, "compared": 12, "docs": DOCS}
    options = parse(__doc__, part=("sentences", "planted"), **given)
    if options.part == "sentences":
        resumed(options.docs / "reliance.jsonl", of_sentences(options))
    else:
        resumed(options.docs / "reliance-planted.jsonl", of_planted(options))


def of_sentences(options: argparse.Namespace) -> Work:
    """Every estimator on short sentences of the development set, drawn with a fixed seed."""
    texts = [example.text for example in read_sst(options.data / "SST-2" / "dev.tsv")]
    short = [text for text in texts if len(text.split()) <= MOST_WORDS]
    subject = xa.load("sentiment")
    for number, text in enumerate(random.Random(0).sample(short, options.count or 50)):
        if number >= (options.first or 0):
            compare = number < options.compared
            yield (
                {"text": text},
                lambda text=text, compare=compare: of_sentence(subject, text, compare=compare),
            )


def of_planted(options: argparse.Namespace) -> Work:
    """Every estimator on models whose exact shares can be had."""
    from planted.kinds import KINDS, planted

    first = options.first or 5000
    for kind in KINDS:
        for seed in range(first, first + (options.count or 8)):
            yield (
                {"kind": kind, "seed": seed},
                lambda kind=kind, seed=seed: of_model(planted(kind, seed)),
            )


def of_sentence(subject: xa.Subject, text: str, *, compare: bool) -> Row:
    """Every estimator's distance from the truth on one sentence, and its passes."""
    trace = xa.capture(subject, text)
    game = HeadGame(trace, margin_of(chosen_target(trace, None)))
    truth, noise = walked(game, TRUTH_PAIRS, generator(1))
    relied = xa.reliance(trace, by="path")
    row: Row = {"tokens": len(trace.tokens), "size": relied.size, "whole": relied.whole}
    row["noise of the truth"] = float(noise.mean() / relied.size)
    row |= {"path": path(relied, truth), "gap": relied.checks["gap as a share of the whole"]}
    if not compare:
        return row
    for pairs in PAIRS:
        credit, _ = walked(game, pairs, generator(2, pairs))
        row[f"orders {2 * pairs}"] = compared(credit, truth, relied.size, 2 * pairs * len(game))
    return row | by_shapiq(game, truth, relied.size, BUDGETS)


def of_model(model: object) -> Row:
    """Every estimator's distance from the exact shares of a planted model, and its passes.

    Models with fewer heads have nothing to estimate; where all shares are nothing, there is no
    correlation.
    """
    trace = xa.capture(model.subject, model.inputs)
    game = HeadGame(trace, margin_of(chosen_target(trace, None)))
    if not FEWEST <= len(game) <= FEW:
        return {"heads": len(game)}
    truth = coalitions(game).credit
    relied = xa.reliance(trace, by="path")
    row: Row = {
        "heads": len(game),
        "size": relied.size,
        "whole": relied.whole,
        "determined": relied.determined,
    }
    if float(truth.abs().amax()) < NOTHING * relied.size:
        return row
    row |= {"path": path(relied, truth), "gap": relied.checks["gap as a share of the whole"]}
    for pairs in PLANTED_PAIRS:
        before = game.passes
        credit = orders(game, pairs, generator(2, pairs)).credit
        row[f"orders {2 * pairs}"] = compared(credit, truth, relied.size, game.passes - before)
    budgets = [budget for budget in FEW_PASSES if budget < 2 ** len(game)]
    return row | by_shapiq(game, truth, relied.size, budgets)


def compared(credit: Tensor, truth: Tensor, size: float, passes: float) -> Row:
    """Correlation with the truth, mean error, and how often both say that a head carries."""
    both = torch.stack([credit.double(), truth.double()])
    carries = both.abs() >= LINE * size
    return {
        "passes": round(passes, 1),
        "r": float(torch.corrcoef(both)[0, 1]),
        "error": float((both[0] - both[1]).abs().mean() / size),
        "same word": float((carries[0] == carries[1]).float().mean()),
    }


def path(relied: xa.Reliance, truth: Tensor) -> Row:
    """The adaptive path; a point is one pass forwards and one backwards."""
    points = relied.checks["points"]
    return compared(torch.cat(relied.heads), truth, relied.size, 3.0 * points + 2) | {
        "points": points
    }


def by_shapiq(game: HeadGame, truth: Tensor, size: float, budgets: Sequence[int]) -> dict[str, Row]:
    """Kernel regression and SVARM in the same game, with so many passes."""
    import shapiq

    near = {}
    for name, kind in (("kernel", shapiq.KernelSHAP), ("svarm", shapiq.SVARM)):
        for budget in budgets:
            before, own = game.passes, float(game.margins(game.setting()[None]))

            def lost(
                coalitions, own=own
            ):  # what is lost when the heads of a coalition attend uniformly
                shares = 1.0 - torch.as_tensor(coalitions, dtype=torch.float32)
                return (own - game.margins(shares)).double().numpy()

            values = kind(n=len(game), random_state=0).approximate(budget=budget, game=lost)
            credit = torch.tensor([float(values[(head,)]) for head in range(len(game))])
            near[f"{name} {budget}"] = compared(credit, truth, size, game.passes - before)
    return near


# The game of ``xa.reliance`` once more, written out by hand for a BERT classifier, for the referee:
# 160 orders of 72 heads are 11,680 settings. Two facts make them cheap. With frozen maps nobody
# needs queries and keys. And along an order two neighbours differ in one head, so that all layers
# below it are the same: a layer is computed once for every setting of the heads up to it (13, 25, …
# 73 and not 73 each time). In the last layer only the row is needed that the answer is read from.


def walked(game: HeadGame, pairs: int, seeded: torch.Generator) -> tuple[Tensor, Tensor]:
    """Every head's share by pairs of opposite orders, and its standard error."""
    drawn = [torch.randperm(len(game), generator=seeded).tolist() for _ in range(pairs)]
    ends = game.margins(torch.stack([game.setting(rest=0.0), game.setting()])).double()
    torch.testing.assert_close(margins_along(game, drawn[0])[[0, -1]], ends, atol=1e-4, rtol=1e-4)
    credits = []
    for order in drawn:
        credit = torch.zeros(2, len(order), dtype=torch.double)
        for row, way in zip(credit, (order, order[::-1]), strict=True):
            row[way] = margins_along(game, way).diff()
        credits.append(credit.mean(0))
    means = torch.stack(credits)
    return means.mean(0), means.std(0, correction=min(pairs - 1, 1)) / pairs**0.5


@torch.no_grad()
def margins_along(game: HeadGame, order: Sequence[int]) -> Tensor:
    """The margin before the first and after every head of an order has turned to its map."""
    model, target = game.trace.subject.model, game.target.index
    own = torch.stack(game.own)  # (layer, head, query, key)
    even = torch.stack([game.uniform(site) for site in range(len(own))])
    layers, heads = own.shape[:2]
    turned = torch.zeros(len(order) + 1, layers * heads)
    for step, head in enumerate(order, start=1):
        turned[step:, head] = 1.0
    turned = turned.reshape(-1, layers, heads)
    known = torch.zeros(len(turned), dtype=torch.long)  # the state each setting starts from
    states = game.trace.hidden[0][None]
    for number, layer in enumerate(model.bert.encoder.layer):
        done = turned[:, : number + 1].sum((1, 2)).long()  # tells settings apart up to here
        fresh = torch.cat([done.new_ones(1), done.diff()]).bool()
        maps = torch.lerp(even[number], own[number], turned[fresh, number][..., None, None])
        states = with_maps(
            layer, states, known[fresh], maps[:, :, :1] if number + 1 == layers else maps
        )
        known = fresh.long().cumsum(0) - 1
    pooled = torch.tanh(model.bert.pooler.dense(states[:, 0]))
    logits = model.classifier(pooled)[known].double()
    others = torch.cat([logits[:, :target], logits[:, target + 1 :]], 1)
    return logits[:, target] - others.logsumexp(1)


def with_maps(layer: torch.nn.Module, states: Tensor, start: Tensor, maps: Tensor) -> Tensor:
    """A layer over (state, token, width), each map (setting, head, query, key) on its own state."""
    settings, heads, queries, _ = maps.shape
    values = layer.attention.self.value(states).unflatten(-1, (heads, -1)).transpose(1, 2)
    context = (maps @ values[start]).transpose(1, 2).reshape(settings, queries, -1)
    written = layer.attention.output.dense(context) + states[start][:, :queries]
    middle = layer.attention.output.LayerNorm(written)
    inner = F.gelu(layer.intermediate.dense(middle))
    return layer.output.LayerNorm(layer.output.dense(inner) + middle)


if __name__ == "__main__":
    main()
