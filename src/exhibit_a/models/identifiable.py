"""An encoder that can be built so that its attention is unique (Bhardwaj et al., ACL 2021).

A head passes on A_h V_h W_O. As many keys as V_h W_O has independent rows leave no choice of A_h:

con  heads side by side:  Concat(A_1 V_1 … A_H V_H) W_O,  d_v = d/H, so rank ≤ d/H keys
add  heads added up:      (A_1 V_1 + … + A_H V_H) W_O,    d_v = d,   so rank ≤ d keys

and in both A_h = softmax(Q_h K_hᵀ / √d_k) with a d_k of its own: the smaller d_k, the fewer other
maps the layer can make at all. The code released with the paper masks the wrong positions, mixes
the masks of examples, scales by d_v, and adds neighbouring features of one head instead of heads,
which leaves rank d_v/H. Here the equations are as printed.
"""

import torch
from torch import Tensor, nn
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from exhibit_a.models.base import through
from exhibit_a.models.classifier import Reading, TextClassifier, of_stack
from exhibit_a.models.configs import IdentifiableConfig
from exhibit_a.models.sublayers import FeedForward, Residual, eager_attention_forward
from exhibit_a.shapes import Hidden, TokenIds


class IdentifiableAttention(nn.Module):
    """Attention whose keys and values have widths of their own."""

    def __init__(self, config: IdentifiableConfig) -> None:
        super().__init__()
        self.config, self.is_causal = config, False
        self.query = nn.Linear(config.d_model, config.num_heads * config.d_key)
        self.key = nn.Linear(config.d_model, config.num_heads * config.d_key)
        self.value = nn.Linear(config.d_model, config.num_heads * config.d_value)
        self.output = nn.Linear(config.d_model, config.d_model)

    def forward(
        self, hidden_states: Hidden, attention_mask: Tensor | None = None
    ) -> tuple[Hidden, Tensor | None]:
        """What every position takes from the positions it looks at, and how it looks."""
        query, key, value = (
            project(hidden_states).unflatten(-1, (-1, width)).transpose(1, 2)
            for project, width in (
                (self.query, self.config.d_key),
                (self.key, self.config.d_key),
                (self.value, self.config.d_value),
            )
        )
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        scaling = self.config.d_key**-0.5
        context, weights = attend(self, query, key, value, attention_mask, scaling=scaling)
        joined = context.sum(-2) if self.config.heads == "add" else context.flatten(-2)
        return self.output(joined), weights


class IdentifiableLayer(nn.Module):
    """Attention and a feed-forward map, each with a residual and a norm."""

    def __init__(self, config: IdentifiableConfig) -> None:
        super().__init__()
        self.attention = IdentifiableAttention(config)
        self.after_attention = Residual(config)
        self.feed_forward = FeedForward(config)
        self.after_feed_forward = Residual(config)

    def forward(
        self, hidden_states: Hidden, attention_mask: Tensor | None = None
    ) -> tuple[Hidden, Tensor | None]:
        """The states after both, and the attention."""
        change, weights = self.attention(hidden_states, attention_mask)
        states = self.after_attention(hidden_states, change)
        return self.after_feed_forward(states, self.feed_forward(states)), weights


class IdentifiableEncoder(TextClassifier):
    """A classifier of texts: the state of the first token answers.

    >>> config = xa.models.IdentifiableConfig(vocab_size=50, d_model=16, heads="con", d_key=2)
    >>> site = xa.load(xa.models.IdentifiableEncoder(config)).anatomy.sites[0]
    >>> site.heads, site.d_query, site.d_head
    (4, 2, 4)
    """

    config_class = IdentifiableConfig
    config: IdentifiableConfig
    _supports_sdpa = True

    def __init__(self, config: IdentifiableConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_position_embeddings, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(IdentifiableLayer(config) for _ in range(config.num_layers))
        self.classifier = nn.Linear(config.d_model, config.num_labels or 0)
        self.finish()

    def read(self, input_ids: TokenIds, attention_mask: Tensor | None) -> Reading:
        """The state of the first token, after the layers."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        states = self.dropout(self.embedding(input_ids) + self.positions(places))
        mask = create_bidirectional_mask(self.config, states, attention_mask)
        history, maps = through(self.layers, states, mask)
        return of_stack(_first(history[-1], attention_mask), history, maps)


def _first(states: Hidden, attention_mask: Tensor | None) -> Tensor:
    """The state of the first token that is not padding, in each row."""
    if attention_mask is None:
        return states[:, 0]
    rows = torch.arange(len(states), device=states.device)
    return states[rows, attention_mask.long().argmax(-1)]
