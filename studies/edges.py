"""Does attribution name the edges and words that an answer needs, and do twenty steps suffice?

    python studies/edges.py --data DATA [--sentences 40]

Sentences of SST-2 drawn with a fixed seed, with the embedded ``sentiment``. For each of them

steps  the paper's sum over 20 steps beside the integral closed to 1 %: what it leaves unexplained,
       and whether it ranks the edges alike;
edges  the answer when a tenth of all edges, of every head and layer, are set to zero: the first by
       attribution, by weight, or drawn at random;
trees  the answer without the words of the attribution tree, and without as many words at random.

What claims rest on goes into the ledger; a line for each sentence into docs/data/edges.jsonl, so
that the study can be stopped and started again.
"""

import random
from pathlib import Path
from typing import Any

import torch
import transformers
import words
from deleting import lost_without
from ledger import Ledger, of_sentences
from make_models import read_sst
from scipy import stats

import exhibit_a as xa
from exhibit_a.methods.explanation.words import words_of
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Attention
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit

KEPT_IN = Path(__file__).parents[1] / "docs/data/edges.jsonl"
TENTH = 0.1
DRAWS = 4  # random sets of edges or words
STEPS = 20


def main() -> None:
    options = of_sentences(__doc__, "SST-2", 40, KEPT_IN).parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    subject = xa.load("sentiment")
    texts = sentences(options.data, options.sentences)
    for number, text in enumerate(texts):
        if number not in {row["number"] for row in words.rows(options.out)}:
            words.append(options.out, words.rounded({"number": number} | measured(subject, text)))
            print(number, flush=True)
    rows = [row for row in words.rows(options.out) if row["number"] < len(texts)]
    write(rows, Ledger(options.ledger, "`sentiment`", "SST-2 dev, drawn"))


def sentences(data: Path, count: int) -> list[str]:
    """Sentences of the development set; a larger count only adds to a smaller one."""
    texts = [example.text for example in read_sst(data / "SST-2" / "dev.tsv")]
    random.Random(0).shuffle(texts)
    return texts[:count]


def measured(subject: xa.Subject, text: str) -> dict[str, Any]:
    """Everything about one sentence."""
    trace = xa.capture(subject, text)
    closed = xa.self_attribution(trace)
    twenty = xa.self_attribution(trace, rule="riemann", steps=STEPS)
    return {
        "tokens": len(trace.tokens),
        "gap": float(twenty.gap.abs().sum() / twenty.change.abs().sum()),
        "alike": rank_correlation(flat(closed.scores), flat(twenty.scores)),
        "weights": rank_correlation(flat(trace.attention), flat(closed.scores).abs()),
        "edges": without_edges(trace, closed),
        "trees": without_words(trace, closed),
    }


def flat(maps: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The entries of all maps in one row."""
    return torch.cat([each.flatten() for each in maps])


def rank_correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    """Spearman's, with mean ranks for ties."""
    return float(stats.spearmanr(first.numpy(), second.numpy()).statistic)


class Without(Edit):
    """Edges that are set to zero, in every copy others."""

    def __init__(self, kept: list[torch.Tensor]) -> None:
        super().__init__(range(len(kept)))
        self.kept = kept

    def weighting(self, call: AttentionCall) -> Attention | None:
        return call.probs * self.kept[call.site]


@torch.no_grad()
def without_edges(trace: Trace, found: xa.SelfAttribution) -> dict[str, float]:
    """What the answer loses without the first tenth of all edges, by three rankings."""
    weights, seeded = flat(trace.attention), generator(0)
    count = round(TENTH * len(weights))
    orders = [flat(found.scores), weights]
    orders += [torch.rand(len(weights), generator=seeded) for _ in range(DRAWS)]
    kept = torch.ones(len(orders), len(weights))
    for row, order in zip(kept, orders, strict=True):
        row[order.topk(count).indices] = 0
    sizes = [each.numel() for each in trace.attention]
    maps = [
        part.reshape(len(orders), *each.shape)
        for part, each in zip(kept.split(sizes, 1), trace.attention, strict=True)
    ]
    edited = xa.replay(trace, Without(maps), copies=len(orders)).logits.softmax(-1)
    own = trace.output.logits.softmax(-1)[0]
    lost = own.max() - edited[:, own.argmax()]
    return {
        "attribution": float(lost[0]),
        "weight": float(lost[1]),
        "random": float(lost[2:].mean()),
    }


def without_words(trace: Trace, found: xa.SelfAttribution) -> dict[str, float]:
    """What the answer loses without the words of the tree, and without as many random words."""
    tree = xa.attribution_tree(found)
    places = {tree.root, *(edge.child for edge in tree.edges)}
    every = words_of(trace).places
    named = [number for number, own in enumerate(every) if places & set(own)]
    seeded = random.Random(0)
    chance = [seeded.sample(range(len(every)), len(named)) for _ in range(DRAWS)]
    by_tree, *by_chance = lost_without(trace, every, [named, *chance])
    return {
        "words": len(named),
        "share": len(named) / len(every),
        "tree": by_tree,
        "random": sum(by_chance) / len(by_chance),
    }


def write(rows: list[dict[str, Any]], ledger: Ledger) -> None:
    """What the claims about attribution rest on."""
    ledger.mean("gap of 20 steps, as a share of what the layer changes", (r["gap"] for r in rows))
    name = "rank correlation of 20 steps with the closed integral"
    ledger.mean(name, (row["alike"] for row in rows))
    name = "rank correlation of weights and contributions, all edges"
    ledger.mean(name, (row["weights"] for row in rows))
    for first, second, between in (
        ("attribution", "weight", "by attribution less by weight"),
        ("weight", "random", "by weight less at random"),
    ):
        ledger.mean(
            f"answer lost without the first tenth of the edges, {between}",
            (row["edges"][first] - row["edges"][second] for row in rows),
        )
    name = "answer lost without the words of the tree, less as many random words"
    ledger.mean(name, (row["trees"]["tree"] - row["trees"]["random"] for row in rows))


if __name__ == "__main__":
    main()
