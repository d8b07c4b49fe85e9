"""At which points does self-attribution walk a path in the fewest passes?

    python benchmarks/quadrature.py [--out docs/data/quadrature.json]

Version 0.1.0 walked each site at Gauss–Legendre points, 3 at first; where the sum did not close, at
5 others, at 8 others. Nested rules keep what they have: Clenshaw–Curtis, and Lobatto points with
what Kronrod and Patterson add to them (ours). Both contain the ends of the path: the answer without
the site is known anyway, and gradients of the whole model come from one pass for all sites.

Every site of a few texts is walked once at many points, in the embedded models and in rough ones,
whose weights are random and large. From these each way is judged: which rule it would accept, by
the tests of the package, how many passes forwards and backwards that takes, and how far the
contributions of its edges are from those of all points. What the many points leave open is left
out: the package lays panels there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.interpolate import barycentric_interpolate
from support.measure import begun, written
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

import exhibit_a as xa
from exhibit_a.methods.attribution.path_integral import SETTINGS, PathPlan, _SiteWork
from exhibit_a.numerics.panels import ROUGH
from exhibit_a.numerics.quadrature import nested
from exhibit_a.trace.batches import of_one
from exhibit_a.trace.targets import chosen_target

Points = NDArray[np.float64]
DENSE = 33
TEXTS = {
    "sentiment": (
        ("a gripping , beautifully shot film that never lets go .", None),
        ("it 's slow -- very , very slow .", None),
        ("the actors do what they can with a script that gives them nothing to say .", None),
        ("not the worst way to spend an evening , but far from the best .", None),
        ("an utterly compelling tale of two sisters and the house they cannot sell .", None),
        ("there is no pleasure in watching a child suffer .", None),
    ),
    "nli": (
        ("A man is playing a guitar on the street.", "Someone makes music outside."),
        ("The committee did not reach a decision on Friday.", "A decision was made."),
        ("Two dogs run through deep snow towards the camera.", "The dogs are asleep."),
        ("She bought the tickets before the price went up.", "The tickets were expensive."),
    ),
}
ROUGH_MODELS = ((BertForSequenceClassification, BertConfig), (LlamaForCausalLM, LlamaConfig))
LARGER = 4.0  # what the weights of random models are multiplied by


@dataclass
class Way:
    """Rules in the order they are tried, and what each costs beside those before it."""

    rules: list[Points]
    nested: bool
    strict: tuple[float, ...]  # share of the gap that is allowed, rule by rule
    forwards: list[float] = field(default_factory=list)
    backwards: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    first: int = 0  # the rule that a site begins with


def ways() -> dict[str, Way]:
    """The way of the package, and those that keep their points."""
    gauss = [(legendre.leggauss(count)[0] + 1) / 2 for count in (3, 5, 8, 12, 18)]
    curtis = [(1 - np.cos(np.pi * np.arange(n) / (n - 1))) / 2 for n in (3, 5, 9, 17, DENSE)]
    lobatto = [rule.points.numpy() for rule in nested()]
    plain = (1.0,) * 5
    return {
        "Gauss–Legendre 3, 5, 8, … anew (0.1.0)": Way(gauss, nested=False, strict=plain),
        "Clenshaw–Curtis 3, 5, 9, … kept": Way(curtis, nested=True, strict=plain),
        "Clenshaw–Curtis 5, 9, … kept": Way(curtis[1:], nested=True, strict=plain[1:]),
        "Lobatto 5, 9, 17 kept": Way(lobatto, nested=True, strict=plain[2:]),
        "Lobatto 5, 9, 17 kept, half the gap (ours)": Way(lobatto, True, SETTINGS.strict),
    }


def main() -> None:
    given = begun(__doc__, texts=6, seeds=6)
    groups = {"embedded": list(embedded(given.texts)), "rough": list(rough(given.seeds))}
    told = {name: judged(traces) for name, traces in groups.items()}
    for name, rows in told.items():
        print(f"{name} models, {len(groups[name])} texts")
        for row in rows:
            print(f"  {row}")
    texts = {name: len(traces) for name, traces in groups.items()}
    written(given.out, {"texts": texts, "points": DENSE, "rows": told})


def embedded(count: int) -> Iterator[xa.Trace]:
    """Texts in the embedded models."""
    for model, given in TEXTS.items():
        subject = xa.load(model)
        for text, pair in given[:count]:
            yield xa.capture(subject, text, pair=pair)


def rough(seeds: int) -> Iterator[xa.Trace]:
    """Ids at random in random models."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 48, "vocab_size": 80, "max_position_embeddings": 64}
    for model_class, config_class in ROUGH_MODELS:
        for seed in range(seeds):
            torch.manual_seed(seed)
            model = model_class(config_class(**sizes)).eval()
            with torch.no_grad():
                for weight in model.parameters():
                    weight.mul_(LARGER if weight.ndim >= 2 else 1.0)
            yield xa.capture(xa.load(model), {"input_ids": torch.randint(3, 80, (1, 9))})


def judged(traces: list[xa.Trace]) -> list[dict[str, Any]]:
    """What every way costs for some texts, and how far it is off."""
    tried = ways()
    for trace in traces:
        judge(trace, tried)
    return [
        {
            "way": name,
            "forwards": 1 + way.nested + sum(way.forwards) / len(traces),
            "backwards": way.nested + sum(way.backwards) / len(traces),
            "error": float(np.median(way.errors)),
            "error of nine in ten": float(np.quantile(way.errors, 0.9)),
            "worst error": max(way.errors),
        }
        for name, way in tried.items()
    ]


def judge(trace: xa.Trace, tried: dict[str, Way]) -> None:
    """Walk every site of a text once, and let every way choose its rule."""
    layers = len(trace.layers)
    for way in tried.values():
        way.first = 0
    for site, walked in sites(trace):
        share = (layers - trace.sites[site].call) / layers
        if walked.closes:
            for way in tried.values():
                accept(way, walked, share)


@dataclass(frozen=True, eq=False)
class Walked:
    """What a site gives at many points: F, its gradient, and what each context contributes."""

    points: Points
    heights: Points
    gradients: Points
    contributed: NDArray[np.float64]
    allowed: float

    @property
    def closes(self) -> bool:
        """Whether all points together add up to the change, far better than is asked."""
        _, weights = operators(tuple(self.points))
        gap = abs(weights @ self.gradients - (self.heights[-1] - self.heights[0]))
        return bool(gap <= 0.2 * self.allowed)

    def at(self, what: NDArray[np.float64], points: Points) -> NDArray[np.float64]:
        """A number, or many, at other points of the path."""
        read: NDArray[np.float64] = barycentric_interpolate(self.points, what, points)
        return read


def sites(trace: xa.Trace) -> Iterator[tuple[int, Walked]]:
    """Every site, the last one first."""
    target = chosen_target(trace, None)
    whole = target.value(trace).detach()
    points = (1 - np.cos(np.pi * np.arange(DENSE) / (DENSE - 1))) / 2
    for site in reversed(trace.sites):
        answer = lambda out, _: target(out)  # noqa: E731
        work = _SiteWork(of_one(trace), site.index, answer, whole, PathPlan(), None)
        pieces = list(work._pieces(torch.zeros(DENSE, dtype=torch.long), torch.from_numpy(points)))
        heights = torch.cat([height for _, height, _, _ in pieces]).double().numpy()
        each = torch.cat([(gradient * context).flatten(1) for _, _, gradient, context in pieces])
        contributed = each.double().numpy()
        gradients = contributed.sum(1)
        yield site.index, Walked(points, heights, gradients, contributed, float(work.allowed))


def accept(way: Way, walked: Walked, share: float) -> None:
    """The first rule that closes, its cost, and how far its edges are from those of all points."""
    taken, last = 0, len(way.rules) - 1
    for place, (points, strict) in enumerate(zip(way.rules, way.strict, strict=True)):
        if place < way.first and not way.nested:
            continue
        taken = len(points) - 2 if way.nested else taken + len(points)
        cumulative_weights, weights = operators(tuple(points))
        gradients, heights = (walked.at(of, points) for of in (walked.gradients, walked.heights))
        gap = abs(weights @ gradients - (walked.heights[-1] - walked.heights[0]))
        bend = np.abs(cumulative_weights @ gradients - (heights - walked.heights[0])).max()
        allowed = strict * walked.allowed
        if (gap <= allowed and bend <= ROUGH * allowed) or place == last:
            way.first = place  # a lower site bends the answer more, never less
            break
    _, all_weights = operators(tuple(walked.points))
    true = all_weights @ walked.contributed
    found = weights @ walked.at(walked.contributed, points)
    way.forwards.append((taken + 1) * share)  # and the answer without the site,
    way.backwards.append((taken + way.nested) * share)  # whose gradients are used where ends are
    way.errors.append(float(np.abs(found - true).sum() / np.abs(true).sum()))


@cache
def operators(points: tuple[float, ...]) -> tuple[NDArray[np.float64], Points]:
    """What turns gradients at the points into F there, and into the integral from 0 to 1."""
    places, count = 2 * np.array(points) - 1, len(points)
    values = legendre.legvander(places, count)
    from_gradients = np.linalg.inv(values[:, :count])
    below = np.concatenate([-np.ones((count, 1)), values[:, : count - 1]], 1)
    risen = (values[:, 1:] - below) / (2 * np.arange(count) + 1)
    return risen @ from_gradients / 2, from_gradients[0]


if __name__ == "__main__":
    main()
