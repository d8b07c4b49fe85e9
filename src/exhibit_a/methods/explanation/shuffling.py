"""Shuffles attention, keys or their features, independently of the batch that a text is in.

A permutation of a set of keys is the order of random numbers, one for each key, so that one draw
serves texts of every length and every mask. Draws depend on the seed, the site, the repeat and the
text's place in the data set, and on nothing else of its batch. ``permutation.py`` says what the
shuffling is for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.numerics.distances import total_variation
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Attention, Queries, SharedKeys
from exhibit_a.subject.anatomy import check_site
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.answer_rows import rows_read
from exhibit_a.trace.answers import Gold, distributions
from exhibit_a.trace.batches import Batch
from exhibit_a.trace.replay import replay

What = Literal["attention", "keys", "features"]
Scope = Literal["row", "head", "example", "global"]
TOKENS = 2048  # in one pass, copies included


def shuffled(
    probs: Attention, visible: Bool[Tensor, "#batch #head query key"] | None, draw: Tensor
) -> Attention:
    """Rows whose visible weights stand in the order of ``draw``; hidden keys keep what they had."""
    if visible is None:
        return probs.gather(-1, draw.argsort(dim=-1).expand(probs.shape))
    if bool(visible.all()):
        return probs.gather(-1, draw.argsort(dim=-1, stable=True).expand(probs.shape))
    hidden = ~visible.expand(probs.shape)
    order = draw.expand(probs.shape).masked_fill(hidden, 2.0).argsort(dim=-1, stable=True)
    places = hidden.to(torch.int8).argsort(dim=-1, stable=True)
    return torch.zeros_like(probs).scatter(-1, places, probs.gather(-1, order))


def uniform(probs: Attention, visible: Bool[Tensor, "#batch #head query key"] | None) -> Attention:
    """The same weight for every visible key, with the row's total unchanged."""
    seen = torch.ones_like(probs) if visible is None else visible.expand(probs.shape).to(probs)
    return probs.sum(-1, keepdim=True) * seen / seen.sum(-1, keepdim=True).clamp_min(1)


@dataclass(frozen=True)
class Shuffling:
    """What is shuffled where; the same plan and the same place give the same permutation."""

    what: str
    scope: str
    sites: frozenset[int]
    seed: int
    longest: int  # text of the data set: a global permutation is one of its positions

    def draw(
        self, site: int, texts: "_Texts", repeats: range, size: tuple[int, int, int]
    ) -> Float[Tensor, "row head query key"]:
        """Random numbers, one for each key of each thing that has its own permutation.

        ``size`` is that of a map: heads, rows, keys. A text looks from each of its tokens, unless
        the rows are not its tokens: a classifier that looks once looks in one row. The numbers
        depend on the example's place in the data set and on nothing else of its batch.
        """
        heads, rows, keys = size
        positions = self.what != "features"
        looks_from_tokens = rows == int(texts.lengths.amax())
        rows = rows if self.scope == "row" else 1
        heads = heads if self.scope in ("row", "head") else 1
        drawn = torch.ones(len(texts.places), len(repeats), heads, rows, keys)
        for index, place in enumerate(texts.places):
            length = int(texts.lengths[index]) if positions else keys
            own_rows = length if looks_from_tokens else rows
            shape = (heads, own_rows if self.scope == "row" else 1, length)
            if self.scope == "global":
                place, shape = 0, (1, 1, self.longest if positions else keys)
            for copy, repeat in enumerate(repeats):
                seeded = generator(self.seed, site, repeat, place)
                draw = torch.rand(shape, generator=seeded)
                drawn[index, copy, :, : shape[1], :length] = draw[..., :length]
        return drawn.flatten(0, 1)


@dataclass(frozen=True, eq=False)
class _Texts:
    """The texts of a batch: where each stands in the data set, and its length."""

    places: list[int]
    lengths: Int[Tensor, " text"]


class _Shuffle(Tap):
    """Shuffles what the plan says, for each copy of each text of one batch."""

    def __init__(self, plan: Shuffling, texts: _Texts, repeats: range) -> None:
        self.plan, self.texts, self.repeats = plan, texts, repeats

    def scoring(
        self, site: int, query: Queries, key: SharedKeys
    ) -> tuple[Queries, SharedKeys] | None:
        """Reorder key positions or key features."""
        if site not in self.plan.sites or self.plan.what == "attention":
            return None
        heads, positions, width = key.shape[1:]
        features = self.plan.what == "features"
        size = (heads, positions, width if features else positions)
        draw = self.plan.draw(site, self.texts, self.repeats, size)
        order = draw.to(key.device).argsort(dim=-1, stable=True)  # padding drew 1: it stays last
        order = order if features else order.mT
        return query, key.gather(-1 if features else -2, order.expand(key.shape))

    def weighting(self, call: AttentionCall) -> Attention | None:
        """Reorder the weights of every row."""
        if call.site not in self.plan.sites or self.plan.what != "attention":
            return None
        heads, rows, keys = call.probs.shape[1:]
        draw = self.plan.draw(call.site, self.texts, self.repeats, (heads, rows, keys))
        return shuffled(call.probs, call.visible, draw.to(call.probs.device))


class _Uniform(Tap):
    """Gives every visible key of some sites the same weight."""

    def __init__(self, sites: frozenset[int]) -> None:
        self.sites = sites

    def weighting(self, call: AttentionCall) -> Attention | None:
        return uniform(call.probs, call.visible) if call.site in self.sites else None


class Shuffled(NamedTuple):
    """What shuffling did to the answers of some texts; the last repeat is uniform."""

    moved: Float[Tensor, "text repeat"]  # total variation, on average over the tokens of an answer
    flipped: Bool[Tensor, "text repeat"]
    right: Bool[Tensor, "text repeat"]


class Rerun:
    """A batch that has run once and runs again from the first layer that is changed.

    Its right answers are ``gold``; without, they are the model's own, after the last token where it
    goes on with a text.
    """

    def __init__(
        self, batch: Batch, lengths: Tensor, places: list[int], gold: Gold | None = None
    ) -> None:
        self.batch, self.texts = batch, _Texts(places, lengths)
        if gold is None:
            answer = distributions(batch.subject, batch.output, lengths).argmax(-1, keepdim=True)
            is_causal_lm = batch.output.logits.ndim == 3
            gold = Gold(answer, (lengths - 1).to(answer.device) if is_causal_lm else None)
        self.gold = gold
        self.unchanged = torch.softmax(gold.logits(batch.output).float(), -1)
        self.read = rows_read(batch, lambda output: gold.logits(output).float())

    @property
    def own_right(self) -> Bool[Tensor, " text"]:
        """Whether the model as it is gives the right answer."""
        return self._same(self.unchanged.argmax(-1), self.gold.tokens)

    def answers(
        self, tap: Tap, sites: frozenset[int], copies: int
    ) -> Float[Tensor, "text copy place answer"]:
        """The answers with ``tap`` in place; copies of a text stand next to each other."""
        index = torch.arange(len(self.batch)).repeat_interleave(copies)
        batch = self.batch.rows(index)
        output = replay(batch, tap, start=batch.sites[min(sites)].call, read=self.read)
        answers = torch.softmax(self.gold.rows(index).logits(output).float(), -1)
        return answers.reshape(len(self.batch), copies, *answers.shape[1:])

    def measure(self, plan: Shuffling, repeats: int) -> Shuffled:
        """What every repeat does to the answers, a few at a time where the text is long."""
        tokens = len(self.batch) * int(self.texts.lengths.amax())
        together = max(1, min(repeats, TOKENS // tokens))
        measured = []
        for first in range(0, repeats, together):
            chunk = range(first, min(first + together, repeats))
            tap = _Shuffle(plan, self.texts, chunk)
            measured.append(self._compared(self.answers(tap, plan.sites, len(chunk))))
        measured.append(self._compared(self.answers(_Uniform(plan.sites), plan.sites, 1)))
        return Shuffled(*(torch.cat(parts, 1) for parts in zip(*measured, strict=True)))

    def _compared(self, answers: Float[Tensor, "text copy place answer"]) -> Shuffled:
        marks = self.gold.marks.to(answers.device)[:, None]
        moved = total_variation(answers, self.unchanged[:, None]) * marks
        given, own = answers.argmax(-1), self.unchanged.argmax(-1)[:, None]
        return Shuffled(
            moved.sum(-1) / marks.sum(-1),
            ~self._same(given, own, marks),
            self._same(given, self.gold.tokens.to(given.device)[:, None], marks),
        )

    def _same(self, given: Tensor, wanted: Tensor, marks: Tensor | None = None) -> Tensor:
        """Whether answers are the same at every place that belongs to them."""
        counted = self.gold.marks if marks is None else marks
        return ((given == wanted.to(given.device)) | ~counted.to(given.device)).all(-1)


def chosen_sites(subject: Subject, what: str, scope: str, sites: Sequence[int] | None) -> list[int]:
    """The sites that were requested, where shuffling ``what`` respects the mask."""
    require_choice("kind of shuffling", what, get_args(What))
    require_choice("scope", scope, get_args(Scope))
    count = len(subject.anatomy.sites)
    chosen = list(range(count) if sites is None else dict.fromkeys(sites))
    if not chosen:
        raise BadRequestError(f"No sites were named; this model has 0 to {count - 1}.")
    for number in chosen:
        check_site(subject.anatomy.sites, number)
        site = subject.anatomy.sites[number]
        if what == "keys" and (site.causal or site.window is not None):
            raise NotComputableError(
                f"At site {number} not all rows see the same keys (a causal mask or a window), and "
                'moving keys would show it hidden ones. Shuffle "attention" instead.'
            )
    return chosen


def conditions(sites: Sequence[int]) -> list[frozenset[int]]:
    """Each site alone, then all of them together."""
    together = [frozenset(sites)] if len(sites) > 1 else []
    return [*(frozenset([site]) for site in sites), *together]
