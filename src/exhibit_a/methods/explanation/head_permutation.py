"""Does the answer depend on where this one head looks?

One text, one head at a time: the weights of every row of the head are given to other keys among
those the row may see, and the layers from there on run again. The change of the answer is the total
variation ½ Σ|p − p′| between its distributions, from 0 (nothing changed) to 1.

1. A permutation is drawn for every row, anew for every repeat; all heads get the same draws, so
   that heads are compared and not luck.
2. The heads of a site run as copies of one batch, on top of what the layers below returned.
3. The mean over repeats has a standard error, and an interval by Student's t.
4. A model may do without each of many heads alone but not without all of them, so all heads are
   also permuted at once.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.explanation.shuffling import shuffled
from exhibit_a.numerics.distances import total_variation
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Attention, HasLogits, SiteHeads, SiteVisible
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.answers import NUMBERS, distribution_at
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.passes import answering_from
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target

TOKENS = 4096  # in one pass, copies included
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class HeadPermutation:
    """How far the answer moved when a head's rows were permuted, for every head of every site."""

    change: tuple[SiteHeads, ...]  # mean over repeats
    error: tuple[SiteHeads, ...]  # its standard error
    together: float  # the change with all heads of all sites permuted at once, and its error
    together_error: float
    repeats: int

    @property
    def half(self) -> float:
        """Half the width of the interval around a mean, in standard errors."""
        return float(stats.t.ppf((1 + LEVEL) / 2, self.repeats - 1))


@torch.no_grad()
def head_permutation(
    trace: Trace, target: Target, *, repeats: int = 8, seed: int = 0
) -> HeadPermutation:
    """Permute the rows of each head alone, and see how far the answer moves."""
    if repeats < 2:
        raise BadRequestError(f"An error needs at least 2 repeats, {repeats} were asked for.")
    if trace.subject.anatomy.answers in (*NUMBERS, "states"):
        raise NotComputableError(
            f"{type(trace.subject.model).__name__} answers with no distribution, so there is no "
            "total variation between two answers."
        )
    trace = trace.keeping("attention", "hidden")
    shuffler = _Shuffler(trace, target, repeats, seed)
    changes = [shuffler.changes(site.index) for site in trace.sites]
    every = shuffler.changes_together()
    return HeadPermutation(
        change=tuple(change.mean(1) for change in changes),
        error=tuple(change.std(1) / repeats**0.5 for change in changes),
        together=float(every.mean()),
        together_error=float(every.std()) / repeats**0.5,
        repeats=repeats,
    )


class _Shuffler:
    """Replays one text with permuted attention, and compares the answers with the model's own."""

    def __init__(self, trace: Trace, target: Target, repeats: int, seed: int) -> None:
        self.repeats, self.seed = repeats, seed
        self.trace, self.position = answering_from(trace, target.position)
        self.answer = distribution_at(trace.output, target.position)

    def changes(self, site: int) -> Float[Tensor, "head repeat"]:
        """The change of the answer for every head and repeat, as copies of a few passes."""
        heads, queries, keys = self.trace.attention[site].shape
        draws = torch.rand(self.repeats, queries, keys, generator=generator(self.seed, site))
        pairs = torch.cartesian_prod(torch.arange(heads), torch.arange(self.repeats))
        changes = []
        for chunk in torch.split(pairs, max(1, TOKENS // max(queries, keys))):
            head, repeat = chunk.unbind(1)
            edit = _PermutedHeads(site, head, draws[repeat], self.trace.visible[site])
            changes.append(self._change(replay(self.trace, edit, copies=len(head))))
        return torch.cat(changes).reshape(heads, self.repeats).cpu()

    def changes_together(self) -> Float[Tensor, " repeat"]:
        """The change of the answer with all heads of all sites permuted, for every repeat."""
        taps = [_PermutedSites(self.trace, self.seed, number) for number in range(self.repeats)]
        return torch.cat([self._change(replay(self.trace, tap)) for tap in taps])

    def _change(self, output: HasLogits) -> Float[Tensor, " copy"]:
        return total_variation(distribution_at(output, self.position), self.answer)


class _PermutedSites(Tap):
    """All heads of all sites permuted, each row in its own way."""

    def __init__(self, trace: Trace, seed: int, number: int) -> None:
        self.trace, self.seed, self.number = trace, seed, number

    def weighting(self, call: AttentionCall) -> Attention:
        """The weights in another order."""
        seeded = generator(self.seed, call.site, self.number)
        draws = torch.rand(call.probs.shape, generator=seeded).to(call.probs.device)
        visible = self.trace.visible[call.site].to(call.probs.device)
        return shuffled(call.probs, visible.reshape(1, 1, *visible.shape), draws)


class _PermutedHeads(Edit):
    """In every copy, one head whose weights stand in another order."""

    def __init__(
        self,
        site: int,
        heads: Int[Tensor, " copy"],
        draws: Float[Tensor, "copy query key"],
        visible: SiteVisible,
    ) -> None:
        super().__init__([site])
        self.heads, self.draws, self.visible = heads, draws, visible

    def weighting(self, call: AttentionCall) -> Attention | None:
        """The weights, with each copy's own head permuted among the keys it may see."""
        if call.site not in self.sites:
            return None
        changed, copies = call.probs.clone(), torch.arange(len(self.heads))
        chosen = changed[copies, self.heads].unsqueeze(1)
        visible = self.visible.to(changed.device).reshape(1, 1, *self.visible.shape)
        draws = self.draws.to(changed.device).unsqueeze(1)
        changed[copies, self.heads] = shuffled(chosen, visible, draws).squeeze(1)
        return changed
