"""The Transformer: the model of "Attention Is All You Need" (Vaswani et al., 2017).

Numbers are sections of the paper.

§3.1    encoder and decoder are N equal layers; around every sub-layer
            LayerNorm(x + Dropout(Sublayer(x)))
§3.2.1  Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V
§3.2.2  MultiHead(Q, K, V) = Concat(head_1 … head_h) W_O,  head_i = Attention(Q W_Q, K W_K, V W_V)_i
§3.2.3  three uses: the encoder looks at itself, the decoder at what it has written so far, and the
        decoder at the encoder
§3.3    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2
§3.4    one matrix of embeddings for source, target and, transposed, for the answer; times √d_model
§3.5    PE(p, 2i) = sin(p / 10000^(2i/d_model)),  PE(p, 2i+1) = cos(p / 10000^(2i/d_model))
"""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
)

from exhibit_a.models.base import Stack, through
from exhibit_a.models.configs import TransformerConfig
from exhibit_a.models.sublayers import FeedForward, MultiHeadAttention, Residual
from exhibit_a.models.translator import Translator
from exhibit_a.shapes import Hidden, Source, Target, TargetIds, TokenIds


def positional_encoding(
    positions: Int[Tensor, " token"], width: int, layout: str = "interleaved"
) -> Float[Tensor, "token d_model"]:
    """§3.5: a wave of its own length for each pair of features, read at each position."""
    length = 10000 ** (torch.arange(0, width, 2, device=positions.device) / width)
    angle = positions[:, None] / length
    waves = angle.sin(), angle[:, : width // 2].cos()
    if layout == "halved":
        return torch.cat(waves, dim=-1)
    encoding = angle.new_empty(len(positions), width)
    encoding[:, 0::2], encoding[:, 1::2] = waves
    return encoding


class EncoderLayer(nn.Module):
    """§3.1: look at every position of the source, then think at each."""

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config, index)
        self.after_attention = Residual(config)
        self.feed_forward = FeedForward(config)
        self.after_feed_forward = Residual(config)

    def forward(
        self, hidden_states: Hidden, attention_mask: Tensor | None, **kwargs: object
    ) -> tuple[Hidden, Tensor | None]:
        """The states after both sub-layers, and the attention."""
        change, weights = self.attention(hidden_states, attention_mask=attention_mask, **kwargs)
        states = self.after_attention(hidden_states, change)
        return self.after_feed_forward(states, self.feed_forward(states)), weights


class DecoderLayer(nn.Module):
    """§3.1: look at what is written so far, look at the source, then think."""

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, index, masked=True)
        self.after_self_attention = Residual(config)
        self.cross_attention = MultiHeadAttention(config, index)
        self.after_cross_attention = Residual(config)
        self.feed_forward = FeedForward(config)
        self.after_feed_forward = Residual(config)

    def forward(
        self,
        hidden_states: Target,
        source: Source,
        masks: tuple[Tensor | None, Tensor | None],
        past: EncoderDecoderCache | None = None,
        **kwargs: object,
    ) -> tuple[Target, Tensor | None, Tensor | None]:
        """The states after three sub-layers, and both attentions."""
        own, crossing = (None, None) if past is None else (_own(past), past.cross_attention_cache)
        change, weights = self.self_attention(
            hidden_states, attention_mask=masks[0], past=own, **kwargs
        )
        states = self.after_self_attention(hidden_states, change)
        change, looks = self.cross_attention(
            states, key_value_states=source, attention_mask=masks[1], past=crossing, **kwargs
        )
        states = self.after_cross_attention(states, change)
        return self.after_feed_forward(states, self.feed_forward(states)), weights, looks


class TransformerStack(Stack):
    """What encoder and decoder have in common."""

    config_class = TransformerConfig
    config: TransformerConfig
    layer: type[nn.Module]
    depth: str  # the field of the configuration that says how many
    _supports_sdpa = True

    def new_layers(self) -> Iterable[nn.Module]:
        """§3.1: N equal layers."""
        return (self.layer(self.config, i) for i in range(getattr(self.config, self.depth)))

    def _embedded(self, ids: TokenIds, words: nn.Embedding, first: int = 0) -> Hidden:
        """§3.4 and §3.5: √d_model times the embeddings, plus positions from ``first`` on."""
        config = self.config
        places = torch.arange(first, first + ids.shape[1], device=ids.device)
        positions = positional_encoding(places, config.d_model, config.positions)
        states = words(ids) * math.sqrt(config.d_model)
        embedded: Tensor = self.dropout(states + positions.to(states.dtype))
        return embedded


class TransformerEncoder(TransformerStack):
    """The left half of figure 1."""

    layer, depth = EncoderLayer, "encoder_layers"

    def forward(
        self,
        input_ids: TokenIds,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        **kwargs: object,  # noqa: ARG002 - generate passes what only the decoder wants
    ) -> BaseModelOutput:
        """The states of the source after every layer."""
        states = self._embedded(input_ids, self.embedding)
        mask = create_bidirectional_mask(self.config, states, attention_mask)
        history, maps = through(self.layers, states, mask)
        return BaseModelOutput(
            last_hidden_state=history[-1],
            hidden_states=tuple(history) if output_hidden_states else None,
            attentions=tuple(weights for (weights,) in maps) if output_attentions else None,
        )


class TransformerDecoder(TransformerStack):
    """The right half of figure 1."""

    layer, depth = DecoderLayer, "decoder_layers"

    def forward(
        self,
        input_ids: TargetIds,
        source: Source,
        attention_mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """The states of the target after every layer, and how each layer looks."""
        own = None if past_key_values is None else _own(past_key_values)
        written = 0 if own is None else own.get_seq_length()
        states = self._embedded(input_ids, self.embedding, first=written)
        masks = (
            create_causal_mask(self.config, states, attention_mask, past_key_values=own),
            create_bidirectional_mask(
                self.config, states, source_mask, encoder_hidden_states=source
            ),
        )
        history, maps = through(self.layers, states, source, masks, past_key_values)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=history[-1],
            hidden_states=tuple(history),
            attentions=tuple(own for own, _ in maps),
            cross_attentions=tuple(cross for _, cross in maps),
        )


class Transformer(Translator):
    """The Transformer, whole: source text in, target text out.

    >>> model = xa.models.Transformer(xa.models.TransformerConfig(vocab_size=50, d_model=16,
    ...     encoder_layers=1, decoder_layers=1, num_heads=2, d_ff=32))
    >>> xa.load(model).anatomy.stacks
    ('encoder', 'decoder')
    """

    config_class = TransformerConfig
    _supports_sdpa = True
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]  # noqa: RUF012
    reads, writes = TransformerEncoder, TransformerDecoder


def _own(past: EncoderDecoderCache) -> Cache:
    return past.self_attention_cache
