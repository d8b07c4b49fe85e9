"""What would the model answer if some of its heads looked evenly?

The attention maps A of one pass are frozen. A head that looks *evenly* spreads the weight of each
of its rows over all keys that the row may see; rows keep their sum, so nothing is scaled. Every
head has a share α of its own map, from 1 (as it was) to 0 (even):

    P(α) = U + α (A − U)

Values are computed anew, so that a change below reaches everything above it; only where heads look
is fixed. The answer is read as a margin: the log-odds of what the model said, which does not
saturate where a probability does.

Where only some rows of attention were kept, these rows are frozen or even, and all others look
where the model lets them: below the first of these rows, nothing changes in a causal model.

The games of several texts can be played in one batch (``head_company.py``).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from exhibit_a.methods.attribution.frozen_maps import FrozenText
from exhibit_a.methods.attribution.head_company import Company, Margins, Play, Shares
from exhibit_a.trace.batches import RowIndex
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target

Head = tuple[int, int]  # site, head


class HeadGame:
    """One text, whose heads can be made to look evenly."""

    def __init__(
        self, trace: Trace, target: Target, *, seat: tuple[Company, int] | None = None
    ) -> None:
        self.company, self.place = seat or (Company([FrozenText.of(trace, target)]), 0)
        text = self.company.texts[self.place]
        self.trace, self.target = text.trace, text.target
        self.own, self.even, self.sums_held = text.own, text.even, text.sums_held
        self.heads: tuple[Head, ...] = tuple(
            (site.index, head) for site in trace.sites for head in range(site.heads)
        )

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def passes(self) -> float:
        """Forward passes of the whole model so far."""
        return self.company.passes[self.place]

    @property
    def one_by_one(self) -> float:
        """The passes that it takes to make every head even alone."""
        layers = len(self.trace.layers)
        return sum(site.heads * (layers - site.call) / layers for site in self.trace.sites)

    def setting(self, even: Sequence[int] = (), *, rest: float = 1.0) -> Float[Tensor, " head"]:
        """The shares with the heads of these numbers even, and all others at ``rest``."""
        shares = torch.full((len(self),), rest)
        shares[list(even)] = 0.0
        return shares

    def by_site(self, numbers: Shaped[Tensor, " head *copy"]) -> tuple[Tensor, ...]:
        """Numbers of all heads, site by site."""
        return self.company.by_site(numbers)

    def play(self, shares: Shares, *, following: bool = False) -> Play:
        """The answers with every head of every copy at its share.

        With ``following``, maps are not frozen: heads that keep their share look where they would.
        """
        return self.company.play(self._copies(len(shares)), shares, following=following)

    def margins(self, shares: Shares, *, following: bool = False) -> Margins:
        """The margins of the answer with every head of every copy at its share."""
        return self.play(shares, following=following).margins

    def _copies(self, count: int) -> RowIndex:
        return torch.full((count,), self.place)


def games_of(traces: Sequence[Trace], targets: Sequence[Target]) -> list[HeadGame]:
    """The games of several texts, in one company."""
    company = Company([FrozenText.of(*text) for text in zip(traces, targets, strict=True)])
    return [
        HeadGame(text.trace, text.target, seat=(company, place))
        for place, text in enumerate(company.texts)
    ]


def margin_of(target: Target) -> Target:
    """The target as a margin: log-odds for what has a probability, the number itself otherwise."""
    return target if target.scale == "logit" else replace(target, scale="log_odds")
