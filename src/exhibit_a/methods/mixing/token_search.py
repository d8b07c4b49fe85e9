"""Counts the candidates that are nearer to a prediction than the token that it should find.

A token is found when no rival is as near as it is. The rivals of a word are other words, those of a
special token all other tokens; a position with the very same vector is no rival, because nothing
could tell the two apart, and a tie is a miss. What is counted is summed over texts, and again with
Poisson weights, which is a bootstrap over texts that keeps none of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator

REPLICATES = 500
TWIN = 1e-5  # closer than this (1 − cosine) are the same vector but for rounding

WORD_STATISTICS = ("rate", "top", "mrr", "same_token", "bits")
STATISTICS = (*WORD_STATISTICS, "with_special", "special_only")

Metric = Literal["cosine", "l2"]
ByLayer = dict[str, Float[Tensor, " layer"]]
Bounds = dict[str, Float[Tensor, "layer bound"]]
Vectors = Float[Tensor, "text token d_input"]
Marks = Bool[Tensor, "text token"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The vectors among which the tokens of some texts are to be found."""

    own: Vectors  # of the tokens themselves
    others: Float[Tensor, "#text candidate d_input"]
    twin: Bool[Tensor, "text token candidate"]  # has the same vector, and so is no rival
    same_token: Bool[Tensor, "text token candidate"]
    allowed: Bool[Tensor, "#text candidate"]
    is_word: Bool[Tensor, "#text candidate"]

    def rivals(self, words: Marks) -> Bool[Tensor, "text token candidate"]:
        """For words, other words; for special tokens, all other tokens."""
        others = self.allowed.unsqueeze(1) & ~self.twin
        return others & (self.is_word.unsqueeze(1) | ~words.unsqueeze(2))


def cosine(a: Float[Tensor, "#text token d_input"], b: Tensor) -> Tensor:
    """Cosines of all pairs within each text."""
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT


def score_candidates(
    candidates: Candidates,
    predicted: Vectors,
    metric: Metric,
    top: int,
    words: Marks,
    special: Marks,
) -> Float[Tensor, "statistic text"]:
    """What is counted for one map at one layer, summed over the tokens of each text."""
    own = candidates.own
    if metric == "cosine":
        nearness = cosine(predicted, candidates.others)
        own_nearness = F.cosine_similarity(predicted, own, dim=-1)
    else:
        nearness = _nearness(predicted, candidates.others)
        own_nearness = 2 * (predicted * own).sum(-1) - own.square().sum(-1)
    as_near = nearness >= own_nearness.unsqueeze(2)
    rivals = candidates.rivals(words)
    rank = 1.0 + (as_near & rivals).sum(-1)
    same_token = candidates.same_token
    best_alike = nearness.masked_fill(~same_token, -torch.inf).amax(-1).maximum(own_nearness)
    beaten = ((nearness >= best_alike.unsqueeze(2)) & rivals & ~same_token).any(-1)
    overall = 1.0 + (as_near & candidates.rivals(torch.zeros_like(words))).sum(-1)
    among = 1.0 + rivals.sum(-1)
    statistics = [
        (rank == 1) * words,
        (rank <= top) * words,
        words / rank,
        ~beaten & words,
        torch.log2(among / rank) * words,
        (overall == 1) * (words | special),
        (overall == 1) * special,
    ]
    return torch.stack([to_float64(statistic).sum(1) for statistic in statistics])


def _nearness(a: Tensor, b: Tensor) -> Tensor:
    """−‖a − b‖² + ‖a‖², which orders the candidates b in the same way."""
    return 2 * a @ b.mT - b.square().sum(-1).unsqueeze(-2)


class Score:
    """Sums over texts, with bootstrap weights, of everything that is counted."""

    def __init__(self, names: Sequence[str], layers: int, seed: int) -> None:
        self.names, self.texts = list(names), 0
        self.chance_sum = 0.0
        self.counts = {"words": 0, "all": 0, "special": 0}
        self.sums = torch.zeros(len(STATISTICS), len(self.names), layers, dtype=torch.float64)
        self.replicates = torch.zeros(REPLICATES, len(self.names), layers, dtype=torch.float64)
        self.replicate_words = torch.zeros(REPLICATES, dtype=torch.float64)
        self.chance_of = generator(seed + 2)

    def add(self, hits: Float[Tensor, "statistic map layer text"], words: Tensor) -> None:
        """Add the sums of some texts, and their numbers of words."""
        weights = to_float64(
            torch.poisson(torch.ones(REPLICATES, len(words)), generator=self.chance_of)
        )
        self.sums += hits.sum(-1)
        self.replicates += torch.einsum("mlt,rt->rml", hits[0], weights)
        self.replicate_words += weights @ to_float64(words)
        self.texts += len(words)

    @property
    def chance(self) -> float:
        """The rate of guessing at random."""
        return self.chance_sum / max(1, self.counts["words"])

    def rates(self) -> dict[str, ByLayer]:
        """Every statistic, for every map, by layer."""
        kinds = ["words"] * len(WORD_STATISTICS) + ["all", "special"]
        return {
            statistic: {
                name: (sums[i] / max(1, self.counts[kind])).float()
                for i, name in enumerate(self.names)
            }
            for statistic, kind, sums in zip(STATISTICS, kinds, self.sums, strict=True)
        }

    def intervals(self) -> Bounds:
        """Bounds between which 95 % of the bootstrap replicates of the rate lie."""
        rates = self.replicates / self.replicate_words.reshape(-1, 1, 1)  # NaN where none was drawn
        ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
        bounds = rates.nanquantile(ends, dim=0).permute(1, 2, 0).float()  # (map, layer, bound)
        return dict(zip(self.names, bounds, strict=True))
