"""What a Transformer's layer is made of: attention, a feed-forward map, and what is around both.

Numbers are sections of "Attention Is All You Need" (Vaswani et al., 2017).

§3.1    around every sub-layer: LayerNorm(x + Dropout(Sublayer(x)))
§3.2.1  Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V
§3.2.2  MultiHead(Q, K, V) = Concat(head_1 … head_h) W_O,  head_i = Attention(Q W_Q, K W_K, V W_V)_i
§3.3    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from exhibit_a.shapes import (
    Attention,
    Hidden,
    Queries,
    SharedKeys,
    SharedValues,
    Source,
    Target,
)


def eager_attention_forward(
    module: nn.Module,  # noqa: ARG001 - every attention function is given its module
    query: Queries,
    key: SharedKeys,
    value: SharedValues,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **kwargs: object,  # noqa: ARG001 - what other attention functions want
) -> tuple[Float[Tensor, "batch query head d_head"], Attention]:
    """§3.2.1: softmax(Q Kᵀ / √d_k) V; a mask holds −∞ where a query must not look."""
    return attended(query @ key.mT * scaling, attention_mask, value)


def attended(
    scores: Attention, attention_mask: Tensor | None, value: SharedValues
) -> tuple[Float[Tensor, "batch query head d_head"], Attention]:
    """The values, averaged by the softmax of ``scores``, and the softmax."""
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1)
    context = weights @ value
    return context.transpose(1, 2).contiguous(), weights


class MultiHeadAttention(nn.Module):
    """§3.2.2: h attentions side by side, each in a space of its own."""

    def __init__(self, config: PretrainedConfig, index: int, *, masked: bool = False) -> None:
        super().__init__()
        self.config, self.index, self.is_causal = config, index, masked
        self.d_head = config.d_model // config.num_heads
        self.query = nn.Linear(config.d_model, config.d_model)
        self.key = nn.Linear(config.d_model, config.d_model)
        self.value = nn.Linear(config.d_model, config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def forward(
        self,
        hidden_states: Target,
        key_value_states: Source | None = None,
        attention_mask: Tensor | None = None,
        past: Cache | None = None,
        **kwargs: object,
    ) -> tuple[Target, Tensor | None]:
        """What every position takes from the positions it looks at, and how it looks."""
        query = self._heads(self.query(hidden_states))
        if key_value_states is not None and past is not None and past.get_seq_length(self.index):
            computed: Any = past.layers[self.index]
            key, value = computed.keys, computed.values
        else:
            states = hidden_states if key_value_states is None else key_value_states
            key, value = self._heads(self.key(states)), self._heads(self.value(states))
            key, value = (key, value) if past is None else past.update(key, value, self.index)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, weights = attend(
            self, query, key, value, attention_mask, scaling=self.d_head**-0.5, **kwargs
        )
        return self.output(context.flatten(-2)), weights

    def _heads(self, states: Hidden) -> Float[Tensor, "batch head token d_head"]:
        return states.view(*states.shape[:-1], -1, self.d_head).transpose(1, 2)


class FeedForward(nn.Module):
    """§3.3: two linear maps with max(0, ·) between them, at every position for itself."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)

    def forward(self, hidden_states: Hidden) -> Hidden:
        """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2."""
        output: Tensor = self.outer(self.inner(hidden_states).relu())
        return output


class Residual(nn.Module):
    """§3.1 and §5.4: LayerNorm(x + Dropout(Sublayer(x)))."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_states: Hidden, change: Hidden) -> Hidden:
        """The states with what a sub-layer made of them, normed."""
        normed: Tensor = self.norm(hidden_states + self.dropout(change))
        return normed
