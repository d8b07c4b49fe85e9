"""Which candidates stand nearer to a guess than the token it is a guess of?

A token is found when no rival is as near as it is. Words have words as rivals and special tokens
have everybody; a position with the very same vector is no rival, for nothing could tell the two
apart, and a tie is a miss. What is counted is summed over texts with Poisson weights beside it, a
bootstrap over texts that remembers none of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.numerics.seeds import generator

REPLICATES = 500
TWIN = 1e-5  # closer than this (1 − cosine) are the same vector but for rounding

WORD_STATISTICS = ("rate", "top", "mrr", "same_token", "bits")
STATISTICS = (*WORD_STATISTICS, "with_special", "special_only")

ByLayer = dict[str, Float[Tensor, " layer"]]
Bounds = dict[str, Float[Tensor, "layer bound"]]
Vectors = Float[Tensor, "text token d_input"]
Marks = Bool[Tensor, "text token"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Who stands around the tokens of some texts."""

    own: Vectors
    others: Float[Tensor, "#text candidate d_input"]
    twin: Bool[Tensor, "text token candidate"]  # the same vector: not told apart, no rival
    same_token: Bool[Tensor, "text token candidate"]
    allowed: Bool[Tensor, "#text candidate"]
    is_word: Bool[Tensor, "#text candidate"]

    def rivals(self, words: Marks) -> Bool[Tensor, "text token candidate"]:
        """For words, other words; for special tokens, everybody else."""
        everybody = self.allowed.unsqueeze(1) & ~self.twin
        return everybody & (self.is_word.unsqueeze(1) | ~words.unsqueeze(2))


def cosine(a: Float[Tensor, "#text token d_input"], b: Tensor) -> Tensor:
    """Cosines of all pairs within each text."""
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT


def score_candidates(
    field: Candidates, predicted: Vectors, metric: str, top: int, words: Marks, special: Marks
) -> Float[Tensor, "statistic text"]:
    """What is counted for one map at one layer, summed over the tokens of each text."""
    if metric == "cosine":
        near = cosine(predicted, field.others)
        mine = F.cosine_similarity(predicted, field.own, dim=-1)
    else:
        near = _nearness(predicted, field.others)
        mine = 2 * (predicted * field.own).sum(-1) - field.own.square().sum(-1)
    as_near = near >= mine.unsqueeze(2)
    rivals = field.rivals(words)
    rank = 1.0 + (as_near & rivals).sum(-1)
    best_alike = near.masked_fill(~field.same_token, -torch.inf).amax(-1).maximum(mine)
    beaten = ((near >= best_alike.unsqueeze(2)) & rivals & ~field.same_token).any(-1)
    overall = 1.0 + (as_near & field.rivals(torch.zeros_like(words))).sum(-1)
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
    return torch.stack([part.double().sum(1) for part in statistics])


def _nearness(a: Tensor, b: Tensor) -> Tensor:
    """−‖a − b‖², but for a part that is the same for all candidates b."""
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
        """Take in sums for some texts, and their numbers of words."""
        weights = torch.poisson(
            torch.ones(REPLICATES, len(words)), generator=self.chance_of
        ).double()
        self.sums += hits.sum(-1)
        self.replicates += torch.einsum("mlt,rt->rml", hits[0], weights)
        self.replicate_words += weights @ words.double()
        self.texts += len(words)

    @property
    def chance(self) -> float:
        """The rate of a guess that knows nothing."""
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
        """Where 95 % of the bootstrap replicates of the rate lie."""
        rates = self.replicates / self.replicate_words.reshape(-1, 1, 1)  # NaN where none was drawn
        ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
        bounds = rates.nanquantile(ends, dim=0).permute(1, 2, 0).float()  # (map, layer, bound)
        return dict(zip(self.names, bounds, strict=True))
