"""Would self-attribution need fewer passes with points that it can use again?

    python benchmarks/quadrature.py [--out docs/data/quadrature.json]

Self-attribution walks each site at Gauss–Legendre points, 3 at first; where the sum does not close,
at 5 others, at 8 others. Nested rules keep what they have: Clenshaw–Curtis, and Lobatto points with
what Kronrod and Patterson add to them. Both contain the ends of the path, of which the answer
without the site is known anyway; slopes of the whole model come from one pass for all sites.

Every site of a few texts is walked once at many points. From these each way is judged: which rule
it would accept, by the tests of the package, how many passes forwards that takes, and how far the
contributions of its edges are from those of all points.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.interpolate import barycentric_interpolate
from support.quiet import begun

import exhibit_a as xa
from exhibit_a.methods.attribution.path_integral import Plan, _SiteWork, wide
from exhibit_a.numerics.panels import ROUGH
from exhibit_a.trace.batches import of_one
from exhibit_a.trace.targets import chosen_target, reached

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


@dataclass
class Way:
    """Rules in the order they are tried, and what each costs forwards beside those before it."""

    rules: list[Points]
    nested: bool
    shared: float  # passes that serve all sites
    passes: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    first: int = 0  # the rule that a site begins with


def ways() -> dict[str, Way]:
    """The way of the package, and those that keep their points."""
    gauss = [(legendre.leggauss(count)[0] + 1) / 2 for count in (3, 5, 8, 12, 18)]
    curtis = [(1 - np.cos(np.pi * np.arange(n) / (n - 1))) / 2 for n in (3, 5, 9, 17, DENSE)]
    five = np.array([-1, -((3 / 7) ** 0.5), 0, (3 / 7) ** 0.5, 1])
    nine = np.sort(np.r_[five, -0.89040553, -0.34098227, 0.34098227, 0.89040553])
    added = np.array([0.16433744, 0.50890120, 0.78241604, 0.96619986])
    lobatto = [(x + 1) / 2 for x in (five, nine, np.sort(np.r_[nine, -added, added]))]
    return {
        "Gauss–Legendre 3, 5, 8, … anew (ours)": Way(gauss, nested=False, shared=1),
        "Clenshaw–Curtis 3, 5, 9, … kept": Way(curtis, nested=True, shared=2),
        "Clenshaw–Curtis 5, 9, … kept": Way(curtis[1:], nested=True, shared=2),
        "Lobatto 5, 9, 17 kept": Way(lobatto, nested=True, shared=2),
    }


def main() -> None:
    out, tried = begun(__doc__), ways()
    texts = 0
    for model, given in TEXTS.items():
        subject = xa.load(model)
        for text, pair in given:
            texts += 1
            judge(xa.capture(subject, text, pair=pair), tried)
    rows: list[dict[str, Any]] = [
        {
            "way": name,
            "passes": way.shared + sum(way.passes) / texts,
            "error": float(np.median(way.errors)),
            "error of nine in ten": float(np.quantile(way.errors, 0.9)),
            "worst error": max(way.errors),
        }
        for name, way in tried.items()
    ]
    for row in rows:
        ratio = rows[0]["passes"] / row["passes"]
        print(
            f"{row['way']}: {row['passes']:.1f} passes, {ratio:.2f} × fewer, edges differ by "
            f"{row['error']:.2%}, nine in ten by less than {row['error of nine in ten']:.2%}, "
            f"the worst by {row['worst error']:.2%}"
        )
    if out is not None:
        out.write_text(json.dumps({"texts": texts, "points": DENSE, "rows": rows}, indent=1) + "\n")


def judge(trace: xa.Trace, tried: dict[str, Way]) -> None:
    """Walk every site of a text once, and let every way choose its rule."""
    layers = len(trace.layers)
    for way in tried.values():
        way.first = 0
    for site, walked in sites(trace):
        share = (layers - trace.sites[site].call) / layers
        for way in tried.values():
            accept(way, walked, share)


@dataclass(frozen=True, eq=False)
class Walked:
    """What a site gives at many points: F, its slope, and what each context contributes."""

    points: Points
    heights: Points
    slopes: Points
    contributed: NDArray[np.float64]
    allowed: float

    def at(self, what: NDArray[np.float64], points: Points) -> NDArray[np.float64]:
        """A number, or many, at other points of the path."""
        read: NDArray[np.float64] = barycentric_interpolate(self.points, what, points)
        return read


def sites(trace: xa.Trace) -> Iterator[tuple[int, Walked]]:
    """Every site, the last one first."""
    target = chosen_target(trace, None)
    whole = wide(reached(trace, target).detach())
    points = (1 - np.cos(np.pi * np.arange(DENSE) / (DENSE - 1))) / 2
    for site in reversed(trace.sites):
        work = _SiteWork(of_one(trace), site.index, lambda out, _: target(out), whole, Plan())
        pieces = list(work._pieces(torch.zeros(DENSE, dtype=torch.long), torch.from_numpy(points)))
        heights = torch.cat([height for _, height, _, _ in pieces]).double().numpy()
        each = torch.cat([(slope * context).flatten(1) for _, _, slope, context in pieces])
        contributed = each.double().numpy()
        slopes = contributed.sum(1)
        yield site.index, Walked(points, heights, slopes, contributed, float(work.allowed))


def accept(way: Way, walked: Walked, share: float) -> None:
    """The first rule that closes, its cost, and how far its edges are from those of all points."""
    cost, last = 1.0, len(way.rules) - 1
    for place, points in enumerate(way.rules):
        if place < way.first and not way.nested:
            continue
        cost = len(points) - 1 if way.nested else cost + len(points)
        climbing, weights = operators(tuple(points))
        slopes, heights = (walked.at(of, points) for of in (walked.slopes, walked.heights))
        gap = abs(weights @ slopes - (walked.heights[-1] - walked.heights[0]))
        bend = np.abs(climbing @ slopes - (heights - walked.heights[0])).max()
        if (gap <= walked.allowed and bend <= ROUGH * walked.allowed) or place == last:
            way.first = place  # a lower site bends the answer more, never less
            break
    _, all_weights = operators(tuple(walked.points))
    true = all_weights @ walked.contributed
    found = weights @ walked.at(walked.contributed, points)
    way.passes.append(cost * share)
    way.errors.append(float(np.abs(found - true).sum() / np.abs(true).sum()))


@cache
def operators(points: tuple[float, ...]) -> tuple[NDArray[np.float64], Points]:
    """What turns slopes at the points into F there, and into the integral from 0 to 1."""
    places, count = 2 * np.array(points) - 1, len(points)
    values = legendre.legvander(places, count)
    from_slopes = np.linalg.inv(values[:, :count])
    below = np.concatenate([-np.ones((count, 1)), values[:, : count - 1]], 1)
    risen = (values[:, 1:] - below) / (2 * np.arange(count) + 1)
    return risen @ from_slopes / 2, from_slopes[0]


if __name__ == "__main__":
    main()
