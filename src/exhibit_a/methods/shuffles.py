"""How is attention shuffled, the same way whatever batch a text is in?

A permutation of a set of keys is the order of random numbers, one for each key, so that one draw
serves texts of every length and every mask. Draws depend on the seed, the site, the repeat and the
example's place in the data set, and on nothing else.
"""

import hashlib
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.shapes import Attention, Queries, SharedKeys
from exhibit_a.subject.tap import AttentionCall, Tap


def shuffled(
    probs: Attention, visible: Bool[Tensor, "#batch #head query key"] | None, draw: Tensor
) -> Attention:
    """Rows whose visible weights stand in the order of ``draw``; hidden keys keep what they had."""
    if visible is None:
        return probs.gather(-1, draw.argsort(dim=-1).expand(probs.shape))
    hidden = ~visible.expand(probs.shape)
    order = draw.expand(probs.shape).masked_fill(hidden, 2.0).argsort(dim=-1, stable=True)
    places = hidden.to(torch.int8).argsort(dim=-1, stable=True)
    return torch.zeros_like(probs).scatter(-1, places, probs.gather(-1, order))


def uniform(probs: Attention, visible: Bool[Tensor, "#batch #head query key"] | None) -> Attention:
    """The same weight for every visible key, with the row's total unchanged."""
    seen = torch.ones_like(probs) if visible is None else visible.expand(probs.shape).to(probs)
    return probs.sum(-1, keepdim=True) * seen / seen.sum(-1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class Plan:
    """What is shuffled where; the same plan and the same place give the same permutation."""

    what: str
    scope: str
    sites: frozenset[int]
    seed: int
    longest: int  # text of the data set: a global permutation is one of so many positions

    def draw(
        self, site: int, texts: "Texts", repeats: range, heads: int, keys: int
    ) -> Float[Tensor, "row head query key"]:
        """Random numbers, one for each key of each thing that has its own permutation.

        They depend on the example's place in the data set and on nothing else of its batch.
        """
        positions = self.what != "features"
        rows = int(texts.lengths.amax()) if self.scope == "row" else 1
        heads = heads if self.scope in ("row", "head") else 1
        drawn = torch.ones(len(texts.places), len(repeats), heads, rows, keys)
        for index, place in enumerate(texts.places):
            length = int(texts.lengths[index]) if positions else keys
            own = (heads, length if self.scope == "row" else 1, length)
            if self.scope == "global":
                place, own = 0, (1, 1, self.longest if positions else keys)
            for copy, repeat in enumerate(repeats):
                seeded = torch.Generator().manual_seed(_mixed(self.seed, site, repeat, place))
                draw = torch.rand(own, generator=seeded)
                drawn[index, copy, :, : own[1], :length] = draw[..., :length]
        return drawn.flatten(0, 1)


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of a batch: where each stands in the data set, and its length."""

    places: list[int]
    lengths: Int[Tensor, " text"]


class Shuffle(Tap):
    """Shuffles what the plan says, for each copy of each text of one batch."""

    def __init__(self, plan: Plan, texts: Texts, repeats: range) -> None:
        self.plan, self.texts, self.repeats = plan, texts, repeats

    def scoring(
        self, site: int, query: Queries, key: SharedKeys
    ) -> tuple[Queries, SharedKeys] | None:
        """Reorder key positions or key features."""
        if site not in self.plan.sites or self.plan.what == "attention":
            return None
        heads, positions, width = key.shape[1:]
        features = self.plan.what == "features"
        draw = self.plan.draw(
            site, self.texts, self.repeats, heads, width if features else positions
        )
        order = draw.to(key.device).argsort(dim=-1, stable=True)  # padding drew 1: it stays last
        order = order if features else order.mT
        return query, key.gather(-1 if features else -2, order.expand(key.shape))

    def weighting(self, call: AttentionCall) -> Attention | None:
        """Reorder the weights of every row."""
        if call.site not in self.plan.sites or self.plan.what != "attention":
            return None
        heads, _, keys = call.probs.shape[1:]
        draw = self.plan.draw(call.site, self.texts, self.repeats, heads, keys)
        return shuffled(call.probs, call.visible, draw.to(call.probs.device))


class Uniform(Tap):
    """Makes every row of some sites uniform."""

    def __init__(self, sites: frozenset[int]) -> None:
        self.sites = sites

    def weighting(self, call: AttentionCall) -> Attention | None:
        """The same weight for every visible key."""
        return uniform(call.probs, call.visible) if call.site in self.sites else None


def _mixed(*numbers: int) -> int:
    """One seed from several numbers, so that no two draws share their randomness by chance."""
    text = "/".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest())
