"""Could attention have looked quite different, and the answer stayed the same?

The adversary of Jain & Wallace (2019), for Transformers: among all attention maps whose answer
stays within ``epsilon`` (total variation) of the model's, find the one farthest from the model's
own in Jensen–Shannon divergence, averaged over heads and rows. For every site alone, then for all
sites at once:

1. start with weight where the model puts least, and with long steps; only where that leads to less
   than nine tenths of what is possible at all, start again with short ones, there, a little off the
   model's own map, and at random;
2. climb with Adam on the scores behind the map, through the tap; whatever leaves the ε-ball is
   pulled back by a penalty that grows while it is outside and fades while it is inside;
3. go from the last guess straight back towards the model's own map until the constraint truly
   holds, and take the farthest map that was ever allowed;
4. run the model once more from the beginning with nothing but the map replaced, and check again.

What is found is a lower bound: there may be maps farther away.

Where the log-odds are a linear function of one single row (one head, one query, a linear read-out,
two classes) no search is needed: ``corners.py`` has the exact optimum.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError, NotComputableError
from exhibit_a.methods.explanation.corners import farthest_corner
from exhibit_a.methods.explanation.flow import readout
from exhibit_a.methods.identifiability.alternatives import alternative_attention
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.distances import (
    farthest_divergence,
    jensen_shannon,
    total_variation,
)
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.result import Result
from exhibit_a.shapes import Attention, SiteMap, SiteRows
from exhibit_a.subject.anatomy import ANSWERS
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.answers import NUMBERS, distribution_at
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target, choose_target

if TYPE_CHECKING:
    pass

ROUNDING = 1e-6  # between a pass with copies and a plain one
HALVINGS = 10
NEARLY, FAIR = 0.98, 0.9  # of the bound: far enough to stop, far enough not to start again
PATIENCE, PROGRESS = 20, 1.01  # so many steps without one per cent of progress end a climb
LONG, SHORT = 2.0, 0.6  # steps of Adam, on the scores

Maps = dict[int, Tensor]  # by site: (head, query, key), with copies in front while searching


@dataclass(frozen=True, kw_only=True, eq=False)
class AdversarialAttention(Result):
    """The farthest attention with (nearly) the same answer, per condition."""

    target: str
    epsilon: float
    conditions: tuple[str, ...]  # one site each, then all of them together
    divergence: Float[Tensor, " condition"]  # mean over heads and rows
    bound: Float[Tensor, " condition"]  # the same if the answer did not matter
    at_answer: Float[Tensor, " condition"]  # over the rows that the answer is read from
    change: Float[Tensor, " condition"]  # of the answer, in a plain run
    exact: Float[Tensor, " condition"]  # 1 where the optimum is exact
    free: Float[Tensor, " condition"]  # at_answer of a map with exactly the same head outputs
    maps: tuple[SiteMap, ...]  # the adversary of each site alone
    rows: tuple[SiteRows, ...]  # its divergence, row by row
    maps_together: tuple[SiteMap, ...]
    rows_together: tuple[SiteRows, ...]


@method(
    question="Could attention have been another, and the answer the same?",
    room="explanation",
    needs=("attention", "hidden", "distribution"),
    cost=Cost(per_layer=20, backwards=True, maps=6),
    command="adversary",
    flags={"compare": "free"},
)
def adversarial_attention(
    trace: Trace,
    *,
    epsilon: float = 0.01,
    target: Target | None = None,
    restarts: int = 4,
    steps: int = 60,
    compare: bool = False,
    seed: int = 0,
) -> AdversarialAttention:
    """Find the attention farthest from the model's whose answer stays within ``epsilon``.

    With ``compare``, ``free`` says how far the row that the answer is read from could move at each
    site without moving any head's output at all (``alternative_attention``; slow for long texts).
    """
    if not 0 <= epsilon <= 1:
        raise BadRequestError(f"epsilon is a total variation, from 0 to 1; {epsilon:g} is not.")
    if restarts < 1 or steps < 0:
        raise BadRequestError("At least one restart and no fewer than zero steps are needed.")
    chosen = target or choose_target(trace)
    kind = trace.subject.anatomy.answers
    if kind in NUMBERS:
        raise NotComputableError(
            f"The model answers with {ANSWERS[kind]}, and ε is between distributions."
        )
    search = _Search(trace.keeping("attention", "hidden"), chosen, epsilon)
    count = len(trace.sites)
    groups = [(site,) for site in range(count)] + ([tuple(range(count))] if count > 1 else [])
    found, exact = [], []
    for number, group in enumerate(groups):
        seeded = generator(seed + number)
        corner = search.corner(group[0], seeded) if len(group) == 1 else None
        found.append(corner or search.climb(group, restarts, steps, seeded))
        exact.append(float(corner is not None))
    rows = [search.rows(maps) for maps in found]
    change = torch.tensor([search.plain_change(maps) for maps in found])
    options = {"epsilon": epsilon, "target": str(chosen), "restarts": restarts, "steps": steps}
    return AdversarialAttention(
        tokens=trace.tokens,
        provenance=provenance(
            trace.subject.name, "adversarial_attention", trace.subject.revision, seed, **options
        ),
        checks={"largest change in a plain run": float(change.amax()), "allowed": epsilon},
        target=str(chosen),
        epsilon=epsilon,
        conditions=tuple("all" if len(group) > 1 else f"site {group[0]}" for group in groups),
        divergence=torch.stack([search.mean(one) for one in rows]),
        bound=torch.stack([search.mean(search.bounds(maps)) for maps in found]),
        at_answer=torch.stack([search.at_answer(one) for one in rows]),
        change=change,
        exact=torch.tensor(exact),
        free=torch.tensor([search.free(group, seed) if compare else torch.nan for group in groups]),
        maps=tuple(found[site][site] for site in range(count)),
        rows=tuple(rows[site][site] for site in range(count)),
        maps_together=tuple(found[-1][site] for site in range(count)),
        rows_together=tuple(rows[-1][site] for site in range(count)),
    )


class _Put(Edit):
    """Puts maps in place, one for each copy."""

    def __init__(self, maps: Mapping[int, Tensor]) -> None:
        super().__init__(maps)
        self.maps = maps

    def weighting(self, call: AttentionCall) -> Attention | None:
        found = self.maps.get(call.site)
        return None if found is None else found.to(call.probs.dtype).expand(call.probs.shape)


class _Search:
    """Everything that stays the same while maps are tried on one trace."""

    def __init__(self, trace: Trace, target: Target, epsilon: float) -> None:
        self.trace, self.position, self.epsilon = trace, target.position, epsilon
        self.own = [attention.detach() for attention in trace.attention]
        self.real = [self._real(site) for site in range(len(self.own))]
        self.answer = self._answers(trace.output)[0].detach()
        self.read = readout(trace, target)
        self.inner = max(0.0, epsilon * (1 - 1e-3) - ROUNDING)  # room for rounding

    def _real(self, site: int) -> Tensor:
        """Which rows count; a learned question that belongs to no token always does."""
        real, rows = self.trace.queries_of(site).real, self.own[site].shape[1]
        return (real if len(real) == rows else torch.ones(rows).bool()).to(self.own[site].device)

    def _answers(self, output: Any) -> Float[Tensor, "copy answer"]:
        logits: Tensor = output.logits.float()
        return torch.softmax(logits if self.position is None else logits[:, self.position], -1)

    def run(self, maps: Mapping[int, Tensor], *, start: int | None = None) -> Tensor:
        """The answers with ``maps`` in place, one for each copy."""
        copies = len(next(iter(maps.values())))
        return self._answers(replay(self.trace, _Put(maps), start=start, copies=copies))

    @torch.no_grad()
    def plain_change(self, maps: Mapping[int, Tensor]) -> float:
        """How far the answer moves in a run from the very beginning; it must be within ε."""
        alone = {site: one.unsqueeze(0) for site, one in maps.items()}
        change = float(total_variation(self.run(alone, start=0), self.answer)[0])
        if change > self.epsilon + ROUNDING:
            raise BrokenInvariantError(
                f"The adversary changes the answer by {change:.3g} in a plain run, more than the "
                f"{self.epsilon:g} that were allowed; no numbers are given."
            )
        return change

    def rows(self, maps: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The divergence of every row from the model's own: (head, query) for each site."""
        return {site: jensen_shannon(one, self.own[site]) for site, one in maps.items()}

    def bounds(self, maps: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The most that every row could differ if the answer did not matter."""
        visible = self.trace.visible
        return {site: farthest_divergence(self.own[site], visible[site]) for site in maps}

    def mean(self, rows: Mapping[int, Tensor]) -> Tensor:
        """The average over heads and real rows of all sites; copies stay apart."""
        every = [one[..., self.real[site]].flatten(-2) for site, one in rows.items()]
        return torch.cat(every, -1).mean(-1)

    def at_answer(self, rows: Mapping[int, Tensor]) -> Tensor:
        """The average over heads, and over rows by how much the answer is read from each."""
        stack, size = self.trace.sites[-1].stack, len(self.read)
        here = [one for site, one in rows.items() if self.trace.sites[site].stack == stack]
        read = [one @ self.read for one in here if one.shape[-1] == size]
        return torch.cat(read).mean() if read else torch.tensor(torch.nan)

    def free(self, group: tuple[int, ...], seed: int) -> float:
        """How far the answer's row of one site can go with every head output as it is."""
        row, site = int(self.read.argmax()), group[0]
        if len(group) > 1 or self.own[site].shape[1] != len(self.read):
            return float("nan")
        others = [
            alternative_attention(self.trace, site=site, head=head, query=row, samples=1, seed=seed)
            for head in range(len(self.own[site]))
        ]
        found = [one.farthest for one in others]
        own = self.own[site][:, row].double().cpu()
        return float(jensen_shannon(torch.stack(found), own).mean())

    def climb(self, group: tuple[int, ...], restarts: int, steps: int, seeded: Any) -> Maps:
        """The farthest map that a few climbs find: one, and the others where it fell short."""
        starts = {site: self._guesses(site, restarts, seeded) for site in group}
        bound = float(self.mean(self.bounds(starts)))
        maps, far = self._climb({s: one[:1] for s, one in starts.items()}, LONG, steps, bound)
        if restarts > 1 and far < FAIR * bound:
            others = {site: one[1:] for site, one in starts.items()}
            found, farther = self._climb(others, SHORT, steps, bound)
            maps = found if farther > far else maps
        return maps

    def _climb(self, scores: Maps, rate: float, steps: int, bound: float) -> tuple[Maps, float]:
        """The farthest map on the way up from any of these scores, brought back into the ε-ball."""
        scores = {site: one.clone().requires_grad_() for site, one in scores.items()}
        optimiser = torch.optim.Adam(list(scores.values()), lr=rate)
        pull = torch.ones(len(next(iter(scores.values()))), device=self.answer.device)
        best = {site: self.own[site].expand_as(one).clone() for site, one in scores.items()}
        farthest, reached = torch.zeros_like(pull), [0.0] * PATIENCE
        ceiling = NEARLY * bound
        for _ in range(steps):
            if reached[-1] >= ceiling or 0 < reached[-1] <= PROGRESS * min(reached[-PATIENCE:]):
                break
            maps = {site: self._map(site, one) for site, one in scores.items()}
            answers, far = self.run(maps), self.mean(self.rows(maps))
            inside = total_variation(answers.detach(), self.answer) <= self.inner
            self._keep(best, farthest, maps, torch.where(inside, far.detach(), -1.0))
            reached.append(float(farthest.amax()))
            surprise = (self.answer * (self.answer.log() - answers.log())).nan_to_num().sum(-1)
            loss = torch.where(inside, 0.0, pull * surprise) - far
            optimiser.zero_grad()
            torch.autograd.backward(loss.sum())
            optimiser.step()
            pull = torch.where(inside, pull * 0.9, pull * 1.5).clamp(1e-2, 1e4)
        with torch.no_grad():
            maps = self._brought_back({s: self._map(s, one) for s, one in scores.items()})
            self._keep(best, farthest, maps, self.mean(self.rows(maps)))
        winner = int(farthest.argmax())
        return {site: one[winner] for site, one in best.items()}, float(farthest[winner])

    @staticmethod
    def _keep(best: Maps, farthest: Tensor, maps: Maps, far: Tensor) -> None:
        """Remember, for every restart, the farthest map that has been allowed so far."""
        better = far > farthest
        farthest[better] = far[better]
        for site, one in maps.items():
            best[site][better] = one.detach()[better]

    def _brought_back(self, maps: Maps) -> Maps:
        """Each map as far on the straight line from the model's own as the answer allows."""

        def part(share: Tensor) -> Maps:
            weight = share[:, None, None, None]
            return {
                site: torch.lerp(self.own[site].expand_as(one), one, weight)
                for site, one in maps.items()
            }

        least = torch.zeros(len(next(iter(maps.values()))), device=self.answer.device)
        most = torch.ones_like(least)
        trial = most
        for _ in range(HALVINGS):
            inside = total_variation(self.run(part(trial)), self.answer) <= self.inner
            least, most = torch.where(inside, trial, least), torch.where(inside, most, trial)
            trial = (least + most) / 2
        return part(least)

    def _guesses(self, site: int, restarts: int, seeded: torch.Generator) -> Tensor:
        """Scores to start from: the model's own turned round, twice, slightly moved, then noise."""
        own = self.own[site].clamp_min(1e-6).log()
        noise = torch.randn(restarts, *own.shape, generator=seeded).to(own)
        return torch.stack([-own, -own, own + noise[0], *(3 * noise[1:])])[:restarts]

    def _map(self, site: int, scores: Tensor) -> Tensor:
        """Rows over the visible keys, each with the total of the model's own row."""
        weights = scores.masked_fill(~self.trace.visible[site], -torch.inf).softmax(-1)
        return weights * self.own[site].sum(-1, keepdim=True)

    def corner(self, site: int, seeded: torch.Generator) -> Maps | None:
        """The exact optimum, where the log-odds are linear in one row and blind to the others."""
        own, visible = self.own[site], self.trace.visible[site]
        if len(self.answer) != 2 or "sinks" in self.trace.sites[site].variants:
            return None
        others = self._map(site, self._guesses(site, 4, seeded)[1:])
        maps = torch.cat([own[None], others]).requires_grad_()
        odds = self.run({site: maps}).logit()[:, 1].double()
        (slope,) = torch.autograd.grad(odds.sum(), maps)
        steep = slope[0].abs().amax(-1)
        heard = steep > 1e-5 * steep.amax()
        linear = odds[0] + ((maps - maps[0]) * slope[0]).double().sum((1, 2, 3))
        if int(heard.sum()) != 1 or not torch.allclose(odds, linear, rtol=1e-3, atol=1e-3):
            return None
        head, query = (int(place) for place in heard.nonzero()[0])
        seen, score = visible[query], slope[0, head, query].detach().double()
        offset = odds[0].detach() - own[head, query].double() @ score
        ends = (self.answer[1] + torch.tensor([-self.inner, self.inner])).double().clamp(0, 1)
        low, high = (ends.logit() - offset).tolist()
        least = own.masked_fill(~visible, torch.inf).argmin(-1, keepdim=True)
        best = torch.zeros_like(own).scatter(-1, least, 1.0)
        row = own[head, query][seen].double()
        best[head, query, seen] = farthest_corner(row, score[seen], low, high).to(own)
        return {site: best}
