"""Trials to look at: a real one of a tiny model, and a made-up one as large as they come."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree, TreeEdge
from exhibit_a.methods.explanation.heat_maps import HeatMaps
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.provenance import provenance
from exhibit_a.trials.carriers import MinimalHeadSet
from exhibit_a.trials.trial import Trial, trial
from exhibit_a.trials.verdict import WORDS, HeadVerdict, Thresholds
from support.subjects import speaker

TEXT = "the plot is not great but acting saves it . really a very fine film , not dull"


@cache
def tiny_trial() -> Trial:
    """A real trial: three layers of four heads, more tokens than a head is wide."""
    return trial(speaker(), TEXT)


def large_trial(tokens: int = 512, layers: int = 12, heads: int = 12, width: int = 64) -> Trial:
    """Made-up numbers of the right shape, with alternatives that really keep the output."""
    seeded = torch.Generator().manual_seed(0)
    shape = (heads, tokens, tokens)
    raw, effective, scores, values, other = [], [], [], [], []
    for _ in range(layers):
        weights = torch.softmax(2 * torch.randn(shape, generator=seeded), -1)
        value = torch.randn(heads, tokens, width, generator=seeded)
        basis = torch.linalg.qr(value)[0]
        raw.append(weights)
        values.append(value)
        effective.append(weights @ basis @ basis.mT)
        scores.append(1e-4 * torch.randn(shape, generator=seeded) * weights)
        other.append(_alternative(weights, value, seeded))
    sites = tuple(_site(layer, heads, width) for layer in range(layers))
    words = ("[CLS]", *(f"word{i}" for i in range(tokens - 2)), "[SEP]")
    special = torch.zeros(tokens, dtype=torch.bool)
    special[[0, -1]] = True
    common = {"tokens": words, "provenance": provenance("made-up", "trial")}
    shared = common | {"sites": sites, "sequences": {"encoder": words}}
    rows, ones = torch.zeros(heads, tokens), torch.ones(heads)
    counts = torch.full((heads, tokens), width)
    found = EffectiveAttention(
        **shared,
        raw=tuple(raw),
        effective=tuple(effective),
        rank=(counts,) * layers,
        nullity=(tokens - counts,) * layers,
        verdict=(torch.full_like(counts, 2),) * layers,
        null_fraction=(rows + 0.5,) * layers,
        moved=(rows + 0.3,) * layers,
        pearson=(ones * 0.9,) * layers,
        special_raw=(ones * 0.1,) * layers,
        special_effective=(ones * 0.1,) * layers,
        first_raw=(ones * 0.1,) * layers,
        first_effective=(ones * 0.1,) * layers,
        spectrum=(torch.ones(heads, width),) * layers,
        rtol=(torch.full((tokens,), 1e-5),) * layers,
    )
    attribution = SelfAttribution(
        **shared,
        scores=tuple(scores),
        change=torch.zeros(layers),
        gap=torch.zeros(layers),
        points=torch.ones(layers, dtype=torch.long),
        target="probability of good",
    )
    mixed = torch.softmax(4 * torch.randn(layers + 1, tokens, tokens, generator=seeded), -1)
    hidden = HiddenAttribution(
        **common,
        norms=mixed,
        contribution=mixed,
        standard_error=0.01 * mixed,
        special=special,
        stack="encoder",
        source="encoder",
        source_tokens=words,
    )
    tree = AttributionTree(
        tokens=words,
        provenance=provenance("made-up", "tree", threshold=0.4, penalty=0.0, stack="encoder"),
        root=5,
        reader=0,
        edges=(TreeEdge(3, 5, 7, 0.1),),
        objective=0.1,
        layers=layers,
        target="probability of good",
    )
    examined = {"effective": found, "hidden": hidden, "attribution": attribution, "tree": tree}
    not_examined = {"identifiability": None, "mixing": None}
    return Trial(
        **(shared | examined | not_examined),
        reliance=_reliance(shared, scores),
        carriers=MinimalHeadSet(((0, 1), (1, 2)), 2.0, 0.4, 0.1, 0.05, 12),
        heat_maps=_heat_maps(words[1:-1], seeded),
        advice="Do not show this for that answer: it was made up.",
        special=special,
        target="probability of good",
        answer={"bad": 0.2, "good": 0.8},
        attention=tuple(raw),
        values=tuple(values),
        alternative=tuple(other),
        thresholds=Thresholds(),
        verdicts=tuple(_verdict(site, head) for site in range(layers) for head in range(heads)),
        word="contested",
        verdict="Attention here is contested. Of what heads add, 25% is evidence.",
    )


def _reliance(shared: dict[str, Any], scores: list[Tensor]) -> Reliance:
    """As if every edge counted by what it contributes."""
    edges = tuple(1e2 * site for site in scores)
    heads = tuple(site.sum((1, 2)) for site in edges)
    some = tuple(torch.full_like(site, 0.01) for site in heads)
    names = ("one_head", "standard_error", "null", "alignment", "pointing", "coherence")
    names += ("steering", "steering_alone")
    first = torch.zeros_like(edges[0][:, 0], dtype=torch.bool).index_fill(1, torch.tensor(0), True)
    return Reliance(
        **shared,
        **dict.fromkeys(names, some),
        heads=heads,
        edges=edges,
        margin=1.4,
        sinks=(first,) * len(edges),
        baseline_margin=-0.8,
        uniform_margin=-0.9,
        steering_gap=0.0,
        block_layers=(),
        block_worth=0.0,
        baseline="levelled",
        steering_reason="",
        permuted_margin=-0.5,
        permuted_error=0.1,
        gap=0.0,
        way="path",
        determined=True,
        reason="",
        target="log odds of good",
    )


def _heat_maps(words: tuple[str, ...], seeded: torch.Generator) -> HeatMaps:
    """Three heat_maps, one for each advice."""
    names, count = ("raw", "flow", "lime"), len(words)
    numbers = torch.tensor([0.01, 0.03, 0.5])
    cuts = torch.full((3, 2), 0.4)
    return HeatMaps(
        tokens=words,
        provenance=provenance("made-up", "heat_maps"),
        words=words,
        names=names,
        labels=("last-layer attention", "attention flow", "LIME"),
        target="probability of good",
        sizes=(1, 2),
        margin=1.4,
        probability=0.8,
        scores=torch.randn(3, count, generator=seeded),
        margins=cuts,
        probabilities=cuts,
        random_margins=cuts,
        loss=1 - numbers,
        percentile=1 - numbers,
        p_value=numbers,
        adjusted=numbers,
        advices=("show", "caution", "do not show"),
        reasons=("made up",) * 3,
        advice="Do not show LIME for this answer. Show last-layer attention.",
        passes=12,
        orders=40,
        exact=False,
        erase="hide",
    )


def _alternative(weights: Tensor, values: Tensor, seeded: torch.Generator) -> Tensor:
    """Rows moved as far as they can along a direction that no output shows."""
    seen = torch.cat([values, torch.ones_like(values[..., :1])], -1).double()
    basis = torch.linalg.qr(seen)[0]
    other, few = weights.clone(), slice(0, 12)
    own = weights[:, few].double()
    way = own * torch.randn(own.shape, generator=seeded, dtype=torch.double)
    way = way - way @ basis @ basis.mT
    farthest = torch.where(way < 0, -own / way, torch.inf).amin(-1, keepdim=True)
    other[:, few] = (own + 0.99 * farthest * way).float()
    return other


def _site(layer: int, heads: int, width: int) -> Site:
    place = {"index": layer, "layer": layer, "call": layer, "stack": "encoder", "kind": "self"}
    shape = {"heads": heads, "kv_heads": heads, "d_head": width, "d_query": width}
    mask = {"causal": False, "window": None, "variants": ()}
    code = {"module": "", "projection": "", "projection_problem": None}
    return Site(**place, **shape, **mask, **code)


def _verdict(site: int, head: int) -> HeadVerdict:
    return HeadVerdict(
        site=site,
        head=head,
        word=WORDS[(site + head) % len(WORDS)],
        reason="made up",
        unique=0.0,
        distance=0.3 + 0.01 * head,
        null_fraction=0.5,
        reliance=(head + 1) / 100,
        error=0.0,
        one_head=0.01,
        chance=0.01,
        pointing=0.9,
        coherence=0.8,
        shared=head == 1,
        determined=False,
        points=True,
        coherent=True,
    )
