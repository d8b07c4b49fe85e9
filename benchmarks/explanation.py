"""Perturbing, replacing and comparing attention, beside the direct way, in one run.

    python benchmarks/explanation.py [--quick]

1. permutation sweep, layer by layer: cached prefix against running the whole model each time;
2. norm-based attribution: head Grams against building all n × n decomposed vectors;
3. attention flow for one answer;
4. the farthest attention under a linear read-out: all corners against 500 steps of Adam.

Random weights of the real shapes; nothing is downloaded.
"""

from functools import partial
from unittest.mock import patch

import torch
from support.measure import begun, bert, drawn, told, turns
from torch import Tensor

from exhibit_a.methods.explanation import flow, shuffling
from exhibit_a.methods.explanation.adversary_search import farthest_corner
from exhibit_a.methods.explanation.decomposition import Mixture
from exhibit_a.numerics.distances import jensen_shannon
from exhibit_a.trace.batches import run


def main() -> None:
    quick = begun(__doc__, quick=False).quick  # smaller shapes, to see that it runs
    permuting(sentences=2 if quick else 8, repeats=4 if quick else 20)
    lengths(tokens=64 if quick else 256)
    flowing(tokens=24 if quick else 128)
    corners(keys=64)


def compare(title: str, slow: str, fast: str, ways: dict) -> None:
    spent = turns(ways)
    gap = float((spent[slow].made - spent[fast].made).abs().amax())
    told(title, spent, fast, {slow: f"apart {gap:.1e}"})


def permuting(sentences: int, repeats: int, tokens: int = 26) -> None:
    """The shape of MiniLM-L6: 6 layers, 12 heads, width 384."""
    subject = bert(384, 6, vocab_size=1000)
    inputs = [drawn(tokens, 10, 900, seed) for seed in range(sentences)]
    traced = torch.no_grad()(run)(subject, inputs)
    lengths = torch.full((sentences,), tokens)
    again, replay = shuffling.Rerun(traced, lengths, list(range(sentences))), shuffling.replay

    @torch.no_grad()
    def sweep() -> Tensor:
        plans = [
            shuffling.Shuffling("attention", "row", frozenset([site]), 0, tokens)
            for site in range(6)
        ]
        return torch.stack([again.measure(plan, repeats).moved for plan in plans])

    def naive() -> Tensor:
        whole = lambda trace, tap, **_: replay(trace, tap, start=0)  # noqa: E731
        with patch.object(shuffling, "replay", whole):
            return sweep()

    ways = {"whole model": naive, "cached prefix": sweep}
    compare("permutation sweep, 6 layers", "whole model", "cached prefix", ways)


def lengths(tokens: int) -> None:
    """One block of BERT-base: 12 heads, width 768."""
    seeded = torch.Generator().manual_seed(0)
    attention = torch.randn(12, tokens, tokens, generator=seeded).softmax(-1)
    sources = torch.randn(12, tokens, 768, generator=seeded)
    own = torch.randn(tokens, 768, generator=seeded)
    one = Mixture(attention, sources, own, torch.ones(tokens), torch.zeros(tokens, 768))

    def tensors() -> Tensor:
        vectors = torch.einsum("hqk,hkd->qkd", attention, sources)
        vectors[torch.arange(tokens), torch.arange(tokens)] += own
        return vectors.norm(dim=-1)

    title = f"norms of decomposed vectors, {tokens} tokens"
    ways = {"(n, n, d) tensor": tensors, "head Grams": one.norms}
    compare(title, "(n, n, d) tensor", "head Grams", ways)


def flowing(tokens: int, layers: int = 12) -> None:
    seeded = torch.Generator().manual_seed(0)
    maps = [(2 * torch.randn(tokens, tokens, generator=seeded)).softmax(-1) for _ in range(layers)]
    ways = {"one answer": lambda: flow.max_flow(torch.eye(tokens)[0], maps)}
    told(f"flow, {tokens} tokens × {layers} layers", turns(ways, 1), "one answer")


def corners(keys: int) -> None:
    """One row, two classes, answer within ±0.05 in log-odds."""
    seeded = torch.Generator().manual_seed(0)
    row = (2 * torch.randn(keys, generator=seeded, dtype=torch.float64)).softmax(-1)
    score = torch.randn(keys, generator=seeded, dtype=torch.float64)
    middle, slack = float(row @ score), 0.05

    def adam() -> Tensor:
        starts = (3 * torch.randn(5, keys, generator=seeded, dtype=torch.float64)).requires_grad_()
        optimiser = torch.optim.Adam([starts], lr=0.01, amsgrad=True)
        for _ in range(500):
            maps = starts.softmax(-1)
            outside = ((maps @ score - middle).abs() - slack).clamp_min(0)
            optimiser.zero_grad()
            (500 * outside - jensen_shannon(maps, row)).sum().backward()
            optimiser.step()
        maps = starts.softmax(-1).detach()
        inside = (maps @ score - middle).abs() <= slack + 1e-3
        return maps[torch.where(inside, jensen_shannon(maps, row), -1.0).argmax()]

    exact = partial(farthest_corner, row, score, middle - slack, middle + slack)
    spent = turns({"5 × 500 steps of Adam": adam, "all corners": exact}, 1)
    far = {way: float(jensen_shannon(one.made, row)) for way, one in spent.items()}
    notes = {
        way: f"{reached / far['all corners']:.0%} of the optimum" for way, reached in far.items()
    }
    told("farthest row, linear read-out", spent, "all corners", notes)


if __name__ == "__main__":
    main()
