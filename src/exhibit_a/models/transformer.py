"""What is a Transformer? The model of "Attention Is All You Need" (Vaswani et al., 2017).

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
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout
from transformers import GenerationMixin, PretrainedConfig
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from exhibit_a.errors import require_choice
from exhibit_a.models.base import (
    ReferenceConfig,
    ReferenceModel,
    mean_loss,
    require_multiple,
    shifted_right,
)
from exhibit_a.shapes import (
    Attention,
    Hidden,
    Queries,
    SharedKeys,
    SharedValues,
    Source,
    SourceIds,
    Target,
    TargetIds,
    TokenIds,
)

Layout = Literal["interleaved", "halved"]


class TransformerConfig(ReferenceConfig):
    """Sizes of a `Transformer`; the defaults are the paper's base model."""

    model_type = "exhibit-transformer"
    attribute_map = {  # noqa: RUF012 - a table of the base class
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "num_heads",
    }
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

    vocab_size: int = 37000
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    num_heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    positions: str = "interleaved"  # or "halved": all sines, then all cosines
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-6
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs: Any) -> None:
        """Refuse sizes that do not fit together."""
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        require_choice("positions", self.positions, ("interleaved", "halved"))
        require_multiple(self.d_model, self.num_heads, "heads")


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


def eager_attention_forward(
    module: nn.Module,  # noqa: ARG001 - every attention function is given its module
    query: Queries,
    key: SharedKeys,
    value: SharedValues,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **kwargs: Any,  # noqa: ARG001 - what other attention functions want
) -> tuple[Float[Tensor, "batch query head d_head"], Attention]:
    """§3.2.1: softmax(Q Kᵀ / √d_k) V; a mask holds −∞ where a query must not look."""
    scores = query @ key.mT * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1)
    context = weights @ value
    return context.transpose(1, 2).contiguous(), weights


class MultiHeadAttention(nn.Module):
    """§3.2.2: h attentions side by side, each in a space of its own."""

    def __init__(self, config: TransformerConfig, index: int, *, masked: bool = False) -> None:
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
        **kwargs: Any,
    ) -> tuple[Target, Tensor | None]:
        """What every position takes from the positions it looks at, and how it looks."""
        query = self._heads(self.query(hidden_states))
        key, value = self._keys_and_values(hidden_states, key_value_states, past)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, weights = attend(
            self, query, key, value, attention_mask, scaling=self.d_head**-0.5, **kwargs
        )
        return self.output(context.flatten(-2)), weights

    def _keys_and_values(
        self, hidden_states: Target, foreign: Source | None, past: Cache | None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of all positions so far; those of the encoder are computed once."""
        if foreign is not None and past is not None and past.get_seq_length(self.index):
            computed: Any = past.layers[self.index]
            return computed.keys, computed.values
        states = hidden_states if foreign is None else foreign
        key, value = self._heads(self.key(states)), self._heads(self.value(states))
        return (key, value) if past is None else past.update(key, value, self.index)

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


class EncoderLayer(nn.Module):
    """§3.1: look at every position of the source, then think at each."""

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config, index)
        self.after_attention = Residual(config)
        self.feed_forward = FeedForward(config)
        self.after_feed_forward = Residual(config)

    def forward(
        self, hidden_states: Hidden, attention_mask: Tensor | None, **kwargs: Any
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
        **kwargs: Any,
    ) -> tuple[Target, Tensor | None, Tensor | None]:
        """The states after three sub-layers, and both attentions."""
        own, crossing = (None, None) if past is None else (_own(past), _crossing(past))
        change, weights = self.self_attention(
            hidden_states, attention_mask=masks[0], past=own, **kwargs
        )
        states = self.after_self_attention(hidden_states, change)
        change, looks = self.cross_attention(
            states, key_value_states=source, attention_mask=masks[1], past=crossing, **kwargs
        )
        states = self.after_cross_attention(states, change)
        return self.after_feed_forward(states, self.feed_forward(states)), weights, looks


class TransformerPart(ReferenceModel):
    """What encoder, decoder and the whole have in common."""

    config_class = TransformerConfig
    config: TransformerConfig
    _supports_sdpa = True
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]  # noqa: RUF012

    def _embedded(self, ids: TokenIds, words: nn.Embedding, first: int = 0) -> Hidden:
        """§3.4 and §3.5: √d_model times the embeddings, plus positions from ``first`` on."""
        config = self.config
        places = torch.arange(first, first + ids.shape[1], device=ids.device)
        positions = positional_encoding(places, config.d_model, config.positions)
        states = words(ids) * math.sqrt(config.d_model)
        return dropout(states + positions.to(states.dtype), config.dropout, self.training)


class TransformerEncoder(TransformerPart):
    """The left half of figure 1."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(EncoderLayer(config, i) for i in range(config.encoder_layers))
        self.finish()

    def forward(
        self,
        input_ids: TokenIds,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        **kwargs: Any,  # noqa: ARG002 - generate passes what only the decoder wants
    ) -> BaseModelOutput:
        """The states of the source after every layer."""
        states = self._embedded(input_ids, self.embedding)
        mask = create_bidirectional_mask(self.config, states, attention_mask)
        history: list[Any] = [states]
        maps = []
        for layer in self.layers:
            states, weights = layer(states, mask)
            history.append(states)
            maps.append(weights)
        return BaseModelOutput(
            last_hidden_state=history[-1],
            hidden_states=tuple(history) if output_hidden_states else None,
            attentions=tuple(maps) if output_attentions else None,
        )


class TransformerDecoder(TransformerPart):
    """The right half of figure 1."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.decoder_layers))
        self.finish()

    def forward(
        self,
        input_ids: TargetIds,
        source: Source,
        attention_mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """The states of the target after every layer."""
        own = None if past_key_values is None else _own(past_key_values)
        written = 0 if own is None else own.get_seq_length()
        states = self._embedded(input_ids, self.embedding, first=written)
        masks = (
            create_causal_mask(self.config, states, attention_mask, past_key_values=own),
            create_bidirectional_mask(
                self.config, states, source_mask, encoder_hidden_states=source
            ),
        )
        history: list[Any] = [states]
        maps, looks = [], []
        for layer in self.layers:
            states, weights, crossing = layer(states, source, masks, past_key_values)
            history.append(states)
            maps.append(weights)
            looks.append(crossing)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=history[-1],
            past_key_values=past_key_values,
            hidden_states=tuple(history) if output_hidden_states else None,
            attentions=tuple(maps) if output_attentions else None,
            cross_attentions=tuple(looks) if output_attentions else None,
        )


class Transformer(TransformerPart, GenerationMixin):
    """The Transformer, whole: source text in, target text out.

    >>> model = xa.models.Transformer(xa.models.TransformerConfig(vocab_size=50, d_model=16,
    ...     encoder_layers=1, decoder_layers=1, num_heads=2, d_ff=32))
    >>> xa.load(model).anatomy.stacks
    ('encoder', 'decoder')
    """

    _tied_weights_keys = {  # noqa: RUF012
        "encoder.embedding.weight": "embedding.weight",
        "decoder.embedding.weight": "embedding.weight",
        "answer.weight": "embedding.weight",
    }

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = TransformerEncoder(config)
        self.decoder = TransformerDecoder(config)
        self.answer = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.finish()

    def forward(
        self,
        input_ids: SourceIds | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: TargetIds | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: TargetIds | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        **kwargs: Any,  # noqa: ARG002 - generate passes what other models want
    ) -> Seq2SeqLMOutput:
        """The score of every token of the vocabulary at every place of the target."""
        wanted = {
            "output_hidden_states": output_hidden_states,
            "output_attentions": output_attentions,
        }
        if encoder_outputs is None:
            assert input_ids is not None
            encoder_outputs = self.encoder(input_ids, attention_mask, **wanted)
        source = encoder_outputs.last_hidden_state
        if decoder_input_ids is None:
            assert labels is not None
            decoder_input_ids = shifted_right(labels, self.config)
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        decoded = self.decoder(
            decoder_input_ids,
            source,
            attention_mask=decoder_attention_mask,
            source_mask=attention_mask,
            past_key_values=past_key_values,
            **wanted,
        )
        logits = self.answer(decoded.last_hidden_state)
        return Seq2SeqLMOutput(
            loss=mean_loss(logits, labels),
            logits=logits,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=source,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )

    def get_output_embeddings(self) -> nn.Linear:
        """The map from states to scores of tokens."""
        return self.answer

    def prepare_decoder_input_ids_from_labels(self, labels: TargetIds) -> TargetIds:
        """What the decoder is given when these are the right answers."""
        return shifted_right(labels, self.config)


def _own(past: EncoderDecoderCache) -> Cache:
    return past.self_attention_cache


def _crossing(past: EncoderDecoderCache) -> Cache:
    return past.cross_attention_cache
