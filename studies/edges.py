"""Does attribution name the edges and words that an answer needs, and do twenty steps suffice?

    python studies/edges.py --data DATA [--sentences 40]

Sentences of SST-2 drawn with a fixed seed, with the embedded ``sentiment``. For each of them

steps  the paper's sum over 20 steps beside the integral closed to 1 %: what it leaves unexplained,
and whether it
       ranks the edges alike;
edges  the answer when a tenth of all edges, of every head and layer, are set to zero: the first by
attribution, by
       weight, or drawn at random;
trees  the answer without the words of the attribution tree, and without as many words at random.

What claims rest on goes into the ledger; a line for each sentence into docs/data/edges.jsonl, so
that the study can be stopped and started again.
"""

import random
from pathlib import Path

import torch
from scipy import stats
from study import DOCS, Ledger, Row, lost_without, parse, resumed, rounded, sentences

import exhibit_a as xa
from exhibit_a.methods.explanation.words import words_of
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Attention
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.edits import Edit

TENTH = 0.1
DRAWS = 4  # random sets of edges or words
STEPS = 20


def main() -> None:
    options = parse(__doc__, need=["data"], data=Path, sentences=40, out=DOCS / "edges.jsonl")
    subject, texts = xa.load("sentiment"), sentences(options.data, options.sentences)
    work = [
        ({"number": number}, lambda text=text: measured(subject, text))
        for number, text in enumerate(texts)
    ]
    write(
        resumed(options.out, work, rounded),
        Ledger(options.ledger, "`sentiment`", "SST-2 dev, drawn"),
    )


def measured(subject: xa.Subject, text: str) -> Row:
    """Everything about one sentence."""
    trace = xa.capture(subject, text)
    closed = xa.self_attribution(trace)
    twenty = xa.self_attribution(trace, rule="riemann", steps=STEPS)
    weights, scores = flat(trace.attention), flat(closed.scores)
    return {
        "tokens": len(trace.tokens),
        "gap": float(twenty.gap.abs().sum() / twenty.change.abs().sum()),
        "alike": float(stats.spearmanr(scores, flat(twenty.scores)).statistic),
        "weights": float(stats.spearmanr(weights, scores.abs()).statistic),
        "edges": without_edges(trace, closed),
        "trees": without_words(trace, closed),
    }


def flat(maps: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The entries of all maps in one row."""
    return torch.cat([each.flatten() for each in maps])


class Without(Edit):
    """Edges that are set to zero, in every copy others."""

    def __init__(self, kept: list[torch.Tensor]) -> None:
        super().__init__(range(len(kept)))
        self.kept = kept

    def weighting(self, call: AttentionCall) -> Attention | None:
        return call.probs * self.kept[call.site]


@torch.no_grad()
def without_edges(trace: xa.Trace, found: xa.SelfAttribution) -> dict[str, float]:
    """What the answer loses without the first tenth of all edges, by three rankings."""
    weights, seeded = flat(trace.attention), generator(0)
    orders = [
        flat(found.scores),
        weights,
        *(torch.rand(len(weights), generator=seeded) for _ in range(DRAWS)),
    ]
    kept = torch.ones(len(orders), len(weights))
    for row, order in zip(kept, orders, strict=True):
        row[order.topk(round(TENTH * len(weights))).indices] = 0
    parts = kept.split([each.numel() for each in trace.attention], 1)
    maps = [
        part.reshape(len(orders), *each.shape)
        for part, each in zip(parts, trace.attention, strict=True)
    ]
    edited = xa.replay(trace, Without(maps), copies=len(orders)).logits.softmax(-1)
    own = trace.output.logits.softmax(-1)[0]
    lost = own.max() - edited[:, own.argmax()]
    return {
        "attribution": float(lost[0]),
        "weight": float(lost[1]),
        "random": float(lost[2:].mean()),
    }


def without_words(trace: xa.Trace, found: xa.SelfAttribution) -> dict[str, float]:
    """What the answer loses without the words of the tree, and without as many random words."""
    tree = xa.attribution_tree(found)
    places = {tree.root, *(edge.child for edge in tree.edges)}
    every = words_of(trace).places
    named = [number for number, own in enumerate(every) if places & set(own)]
    seeded = random.Random(0)
    chance = [seeded.sample(range(len(every)), len(named)) for _ in range(DRAWS)]
    by_tree, *by_chance = lost_without(trace, every, [named, *chance])
    share = len(named) / len(every)
    return {
        "words": len(named),
        "share": share,
        "tree": by_tree,
        "random": sum(by_chance) / len(by_chance),
    }


def write(rows: list[Row], ledger: Ledger) -> None:
    """What the claims about attribution rest on."""
    edges, trees = [row["edges"] for row in rows], [row["trees"] for row in rows]
    tenth, tree = (
        "answer lost without the first tenth of the edges",
        "answer lost without the words of the tree",
    )
    for name, values in {
        "gap of 20 steps, as a share of what the layer changes": [row["gap"] for row in rows],
        "rank correlation of 20 steps with the closed integral": [row["alike"] for row in rows],
        "rank correlation of weights and contributions, all edges": [
            row["weights"] for row in rows
        ],
        f"{tenth}, by attribution less by weight": [
            each["attribution"] - each["weight"] for each in edges
        ],
        f"{tenth}, by weight less at random": [each["weight"] - each["random"] for each in edges],
        f"{tree}, less as many random words": [each["tree"] - each["random"] for each in trees],
    }.items():
        ledger.mean(name, values)


if __name__ == "__main__":
    main()
