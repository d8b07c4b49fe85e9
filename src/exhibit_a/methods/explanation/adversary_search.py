"""Searches for attention as far as possible from the model's own with nearly the same answer.

Maps of some sites are replaced, the answer stays within ``epsilon`` of the model's, and the mean
Jensen–Shannon divergence from the model's own rows is made as large as a search can make it:

1. start with weight where the model puts least, and with long steps; only where that leads to less
   than nine tenths of what is possible at all, start again with short steps: there, near the
   model's own map, and at random;
2. climb with Adam on the scores behind the map, through the tap; a map outside the ε-ball pays a
   penalty that grows while it is outside and shrinks while it is inside;
3. go from the last map straight back towards the model's own until the constraint holds, and take
   the farthest map that was ever allowed;
4. run the model once more from the beginning with nothing but the map replaced, and check again.

Where the log-odds are a linear function of one single row (one head, one query, a linear read-out,
two classes) no search is needed: ``farthest_corner`` gives the exact optimum.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError, NotComputableError
from exhibit_a.methods.identifiability.alternatives import alternative_attention
from exhibit_a.numerics.distances import farthest_divergence, jensen_shannon, total_variation
from exhibit_a.numerics.precision import to_float64
from exhibit_a.shapes import Attention, HasLogits
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.answer_rows import readout, rows_read
from exhibit_a.trace.answers import logits_along
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target


@dataclass(frozen=True)
class AdversarySettings:
    """How far and how long the search climbs."""

    rounding: float = 1e-6  # between a pass with copies and a plain one
    halvings: int = 10  # of the way to a point that changes the answer too much
    nearly: float = 0.98  # of the bound: far enough to stop
    fair: float = 0.9  # of the bound: far enough not to start again
    patience: int = 20  # steps without progress, after which a climb ends
    progress: float = 1.01  # less than this factor is none
    long: float = 2.0  # step of Adam on the scores, for the first climb
    short: float = 0.6  # and for those that start again


SETTINGS = AdversarySettings()

Group = tuple[int, ...]  # sites whose attention is replaced together
Maps = dict[int, Tensor]  # by site: (head, query, key), with copies in front while searching
Answers = Float[Tensor, "copy place answer"]
Rows = dict[int, Tensor]  # by site: one number for each (head, query)


class _ReplaceMaps(Edit):
    """Replaces the attention of some sites, by one map for each copy."""

    def __init__(self, maps: Mapping[int, Tensor]) -> None:
        super().__init__(maps)
        self.maps = maps

    def weighting(self, call: AttentionCall) -> Attention | None:
        attention = self.maps.get(call.site)
        if attention is None:
            return None
        return attention.to(call.probs.dtype).expand(call.probs.shape)


class AdversarySearch:
    """Everything that stays the same while maps are tried on one trace."""

    def __init__(self, trace: Trace, target: Target, epsilon: float) -> None:
        self.trace, self.target, self.epsilon = trace, target, epsilon
        self.attention = [attention.detach() for attention in trace.attention]
        self.real = [self._real(site) for site in range(len(self.attention))]
        self.answer = self.distributions(trace.output)[0].detach()  # (place, answer)
        self.read = readout(trace, target)
        self.rows = rows_read(trace, self.distributions)
        self.inner = max(0.0, epsilon * (1 - 1e-3) - SETTINGS.rounding)  # room for rounding

    def _real(self, site: int) -> Tensor:
        """Which rows count; a learned query that belongs to no token always does."""
        real, rows = self.trace.queries_of(site).real, self.attention[site].shape[1]
        counted = real if len(real) == rows else torch.ones(rows).bool()
        return counted.to(self.attention[site].device)

    def run(self, maps: Mapping[int, Tensor], *, start: int | None = None) -> Answers:
        """The answers with ``maps`` in place, one for each copy."""
        copies = len(next(iter(maps.values())))
        read = self.rows if start is None else None  # a run from the beginning is a whole one
        edit = _ReplaceMaps(maps)
        output = replay(self.trace, edit, start=start, copies=copies, read=read)
        return self.distributions(output)

    def distributions(self, output: HasLogits) -> Answers:
        """Over the classes, or over the token at each place of the answer."""
        logits = logits_along(output, self.target.position, len(self.target.indices))
        return torch.softmax(logits.float(), -1)

    def moved(self, answers: Answers) -> Float[Tensor, " copy"]:
        """How far the answer of every copy has moved: at the place where it moved most."""
        return total_variation(answers, self.answer).amax(-1)

    def farthest(
        self, group: Group, restarts: int, steps: int, seeded: torch.Generator
    ) -> tuple[Maps, bool]:
        """The farthest maps found for a group of sites, and whether they are the exact optimum."""
        exact = self.exact_optimum(group[0], seeded) if len(group) == 1 else None
        if exact is not None:
            return exact, True
        return self.climb(group, restarts, steps, seeded), False

    @torch.no_grad()
    def plain_change(self, maps: Mapping[int, Tensor]) -> float:
        """How far the answer moves in a run from the very beginning; it must be within ε."""
        single = {site: attention.unsqueeze(0) for site, attention in maps.items()}
        change = float(self.moved(self.run(single, start=0))[0])
        if change > self.epsilon + SETTINGS.rounding:
            raise BrokenInvariantError(
                f"The adversary changes the answer by {change:.3g} in a plain run, more than the "
                f"{self.epsilon:g} that were allowed; no numbers are given."
            )
        return change

    def divergences(self, maps: Mapping[int, Tensor]) -> Rows:
        """The divergence of every row from the model's own."""
        return {
            site: jensen_shannon(attention, self.attention[site])
            for site, attention in maps.items()
        }

    def bounds(self, maps: Mapping[int, Tensor]) -> Rows:
        """The most that every row could differ if the answer did not matter."""
        visible = self.trace.visible
        return {site: farthest_divergence(self.attention[site], visible[site]) for site in maps}

    def mean(self, rows: Rows) -> Tensor:
        """The average over heads and real rows of all sites; copies stay apart."""
        counted = [values[..., self.real[site]].flatten(-2) for site, values in rows.items()]
        return torch.cat(counted, -1).mean(-1)

    def at_answer(self, rows: Rows) -> Tensor:
        """The average over heads, and over rows by how much the answer is read from each."""
        sites, size = self.trace.sites, len(self.read)
        read = [
            values @ self.read
            for site, values in rows.items()
            if sites[site].stack == sites[-1].stack and values.shape[-1] == size
        ]
        return torch.cat(read).mean() if read else torch.tensor(torch.nan)

    def free(self, group: Group, seed: int) -> float:
        """How far the answer's row of one site can go with every head output as it is."""
        row, site = int(self.read.argmax()), group[0]
        if len(group) > 1 or self.attention[site].shape[1] != len(self.read):
            return float("nan")
        alternatives = [
            alternative_attention(self.trace, site=site, head=head, query=row, samples=1, seed=seed)
            for head in range(len(self.attention[site]))
        ]
        farthest = torch.stack([alternative.farthest for alternative in alternatives])
        return float(
            jensen_shannon(farthest, to_float64(self.attention[site][:, row]).cpu()).mean()
        )

    def climb(self, group: Group, restarts: int, steps: int, seeded: torch.Generator) -> Maps:
        """The farthest maps of one long climb, or of others where that leads not far enough."""
        starts = {site: self._starts(site, restarts, seeded) for site in group}
        bound = float(self.mean(self.bounds(starts)))
        first = {site: scores[:1] for site, scores in starts.items()}
        maps, divergence = self._climb(first, SETTINGS.long, steps, bound)
        if restarts > 1 and divergence < SETTINGS.fair * bound:
            others = {site: scores[1:] for site, scores in starts.items()}
            other_maps, other_divergence = self._climb(others, SETTINGS.short, steps, bound)
            maps = other_maps if other_divergence > divergence else maps
        return maps

    def _climb(self, starts: Maps, rate: float, steps: int, bound: float) -> tuple[Maps, float]:
        """The farthest maps on the way up from any of these scores, inside the ε-ball."""
        scores = {site: start.clone().requires_grad_() for site, start in starts.items()}
        optimiser = torch.optim.Adam(list(scores.values()), lr=rate)
        penalty = torch.ones(len(next(iter(scores.values()))), device=self.answer.device)
        best = {site: self.attention[site].expand_as(s).clone() for site, s in scores.items()}
        farthest, reached = torch.zeros_like(penalty), [0.0] * SETTINGS.patience
        ceiling, recent = SETTINGS.nearly * bound, SETTINGS.patience
        for _ in range(steps):
            if reached[-1] >= ceiling or 0 < reached[-1] <= SETTINGS.progress * min(
                reached[-recent:]
            ):
                break
            maps = self._maps(scores)
            answers, divergence = self.run(maps), self.mean(self.divergences(maps))
            inside = self.moved(answers.detach()) <= self.inner
            self._remember(best, farthest, maps, torch.where(inside, divergence.detach(), -1.0))
            reached.append(float(farthest.amax()))
            distance = self.answer * (self.answer.log() - answers.log())
            distance = distance.nan_to_num().sum((-2, -1))
            loss = torch.where(inside, 0.0, penalty * distance) - divergence
            optimiser.zero_grad()
            torch.autograd.backward(loss.sum())
            optimiser.step()
            penalty = torch.where(inside, penalty * 0.9, penalty * 1.5).clamp(1e-2, 1e4)
        with torch.no_grad():
            maps = self._pulled_inside(self._maps(scores))
            self._remember(best, farthest, maps, self.mean(self.divergences(maps)))
        winner = int(farthest.argmax())
        return {site: copies[winner] for site, copies in best.items()}, float(farthest[winner])

    @staticmethod
    def _remember(best: Maps, farthest: Tensor, maps: Maps, divergence: Tensor) -> None:
        """Keep, for every restart, the farthest map that has been allowed so far."""
        better = divergence > farthest
        farthest[better] = divergence[better]
        for site, attention in maps.items():
            best[site][better] = attention.detach()[better]

    def _pulled_inside(self, maps: Maps) -> Maps:
        """Each map as far on the straight line from the model's own as the answer allows."""

        def between(share: Tensor) -> Maps:
            weight = share[:, None, None, None]
            return {
                site: torch.lerp(self.attention[site].expand_as(end), end, weight)
                for site, end in maps.items()
            }

        least = torch.zeros(len(next(iter(maps.values()))), device=self.answer.device)
        most = torch.ones_like(least)
        trial = most
        for _ in range(SETTINGS.halvings):
            inside = self.moved(self.run(between(trial))) <= self.inner
            least, most = torch.where(inside, trial, least), torch.where(inside, most, trial)
            trial = (least + most) / 2
        return between(least)

    def _starts(self, site: int, restarts: int, seeded: torch.Generator) -> Tensor:
        """Scores to start from: the model's own with opposite sign, twice; near them; noise."""
        scores = self.attention[site].clamp_min(1e-6).log()
        noise = torch.randn(restarts, *scores.shape, generator=seeded).to(scores)
        return torch.stack([-scores, -scores, scores + noise[0], *(3 * noise[1:])])[:restarts]

    def _maps(self, scores: Maps) -> Maps:
        """Rows over the visible keys, each with the total of the model's own row."""
        maps = {}
        for site, values in scores.items():
            weights = values.masked_fill(~self.trace.visible[site], -torch.inf).softmax(-1)
            maps[site] = weights * self.attention[site].sum(-1, keepdim=True)
        return maps

    def exact_optimum(self, site: int, seeded: torch.Generator) -> Maps | None:
        """The farthest map, where the log-odds are linear in one row and ignore the others."""
        attention, visible = self.attention[site], self.trace.visible[site]
        if self.answer.shape != (1, 2) or "sinks" in self.trace.sites[site].variants:
            return None
        others = self._maps({site: self._starts(site, 4, seeded)[1:]})[site]
        maps = torch.cat([attention[None], others]).requires_grad_()
        odds = to_float64(self.run({site: maps}).logit()[:, 0, 1])
        (gradient,) = torch.autograd.grad(odds.sum(), maps)
        steepness = gradient[0].abs().amax(-1)
        matters = steepness > 1e-5 * steepness.amax()
        linear = odds[0] + to_float64((maps - maps[0]) * gradient[0]).sum((1, 2, 3))
        if int(matters.sum()) != 1 or not torch.allclose(odds, linear, rtol=1e-3, atol=1e-3):
            return None
        head, query = (int(place) for place in matters.nonzero()[0])
        seen, score = visible[query], gradient[0, head, query].detach()
        offset = odds[0].detach() - to_float64(attention[head, query]) @ to_float64(score)
        inside = torch.tensor([-self.inner, self.inner], device=offset.device)
        ends = (to_float64(self.answer[0, 1]) + inside).clamp(0, 1)
        low, high = (ends.logit() - offset).tolist()
        least = attention.masked_fill(~visible, torch.inf).argmin(-1, keepdim=True)
        best = torch.zeros_like(attention).scatter(-1, least, 1.0)
        row = to_float64(attention[head, query][seen])
        corner = farthest_corner(row, to_float64(score[seen]), low, high)
        best[head, query, seen] = corner.to(attention)
        return {site: best}


def farthest_corner(
    row: Float[Tensor, " key"], score: Float[Tensor, " key"], low: float, high: float
) -> Float[Tensor, " key"]:
    """The distribution a farthest from ``row`` with low ≤ a · score ≤ high, exactly.

    Divergence from the row is convex, so its maximum over the polytope {a ≥ 0, Σa = 1, low ≤ a · s
    ≤ high} lies in a corner, and corners have at most two keys: single keys whose score lies
    inside, and pairs of keys whose scores lie on either side of one end. They are all tried.
    """
    corners = [torch.eye(len(row), dtype=row.dtype)[(score >= low) & (score <= high)]]
    for end in (low, high):
        under, over = torch.where((score < end)[:, None] & (score > end)[None, :])
        share = (end - score[under]) / (score[over] - score[under])
        pairs = torch.zeros(len(share), len(row), dtype=row.dtype)
        pairs.scatter_(1, under[:, None], 1 - share[:, None])
        corners.append(pairs.scatter_(1, over[:, None], share[:, None]))
    every = torch.cat(corners)
    if not len(every):
        raise NotComputableError("No distribution over these keys keeps the answer in its range.")
    return every[jensen_shannon(every, row).argmax()]
