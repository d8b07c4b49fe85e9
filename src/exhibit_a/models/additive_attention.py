"""Additive attention (Bahdanau et al., ICLR 2015, §3.1).

    e_ij = vᵀ tanh(W s_{i−1} + U h_j)      how well what comes next fits what stands at j
    α_ij = exp(e_ij) / Σ_k exp(e_ik)       as shares of one
    c_i  = Σ_j α_ij h_j                    what is read: the annotations themselves, averaged

In the words of later attention: one head, queries W s, keys U h, values h, and a score that is no
product of query and key.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from exhibit_a.models.sublayers import attended
from exhibit_a.shapes import Attention, Queries, SharedKeys, SharedValues, Source, Target

SourceMask = Bool[Tensor, "batch source"] | None


def eager_attention_forward(
    module: nn.Module,
    query: Queries,
    key: SharedKeys,
    value: SharedValues,
    attention_mask: Tensor | None,
    **kwargs: object,  # noqa: ARG001 - what other attention functions want
) -> tuple[Float[Tensor, "batch query head d_head"], Attention]:
    """c_i = Σ_j α_ij h_j, for all i at once."""
    assert isinstance(module, AdditiveAttention)
    scores = module.energy((query.unsqueeze(-2) + key.unsqueeze(-3)).tanh()).squeeze(-1)
    return attended(scores, attention_mask, value)


class AdditiveAttention(nn.Module):
    """One head that looks by vᵀ tanh(W s + U h)."""

    def __init__(self, config: PretrainedConfig, d_model: int, d_attention: int) -> None:
        super().__init__()
        self.config, self.is_causal = config, False
        self.query = nn.Linear(d_model, d_attention)
        self.key = nn.Linear(d_model, d_attention, bias=False)
        self.energy = nn.Linear(d_attention, 1, bias=False)

    def forward(
        self, hidden_states: Target, key_value_states: Source, attention_mask: Tensor | None = None
    ) -> tuple[Target, Tensor | None]:
        """What each state reads, and where; ``key_value_states`` are the annotations h."""
        query, key = self.query(hidden_states), self.key(key_value_states)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, weights = attend(
            self,
            query.unsqueeze(1),
            key.unsqueeze(1),
            key_value_states.unsqueeze(1),
            attention_mask,
        )
        return context.flatten(-2), weights

    def of_one(
        self, state: Float[Tensor, "batch d_model"], keys: Tensor, source: Source, real: SourceMask
    ) -> Float[Tensor, "batch d_model"]:
        """What one state reads; ``keys`` are U h."""
        scores = self.energy((self.query(state).unsqueeze(1) + keys).tanh())
        if real is not None:
            scores = scores.masked_fill(~real.unsqueeze(-1), torch.finfo(scores.dtype).min)
        read: Tensor = scores.softmax(1).mT @ source
        return read.squeeze(1)


def added_mask(real: SourceMask, rows: int, like: Tensor) -> Tensor | None:
    """What is added to scores so that ``rows`` queries do not look at padding."""
    if real is None:
        return None
    hidden = torch.zeros_like(real, dtype=like.dtype)
    hidden = hidden.masked_fill(~real, torch.finfo(like.dtype).min)
    return hidden[:, None, None].expand(-1, 1, rows, -1)
