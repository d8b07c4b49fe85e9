"""The translator with which attention began: it looks back at the source (Bahdanau et al., 2015).

    h_j = [→h_j ; ←h_j]                                  the source, read from both sides by a GRU
    s_0 = tanh(W_s ←h_1)
    c_i = Σ_j α_ij h_j,  α_ij ∝ exp vᵀ tanh(W s_{i−1} + U h_j)
    s_i = GRU(s_{i−1}; E y_{i−1}, c_i)
    t_i = maxout(U_o s_i + V_o E y_{i−1} + C_o c_i)      the larger of each two neighbours
    p(y_i | y_1 … y_{i−1}, x) ∝ exp(y_iᵀ W_o t_i)

Row i of α needs s_{i−1}, and that needs c_{i−1}: rows are found one after the other. When all are
known, every c_i is one product α h; this is the call that can be watched and changed. Whoever
changes a row changes what is read there and every state after it; the other rows stay as they are.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
)

from exhibit_a.models.additive_attention import AdditiveAttention, SourceMask, added_mask
from exhibit_a.models.base import Stack
from exhibit_a.models.configs import AdditiveConfig
from exhibit_a.models.recurrence import BidirectionalLayer, State, gru
from exhibit_a.models.translator import Translator
from exhibit_a.shapes import Source, SourceIds, Target, TargetIds


class AdditiveDecoderLayer(nn.Module):
    """Look at the source, move the state, say something; token by token."""

    def __init__(self, config: AdditiveConfig) -> None:
        super().__init__()
        width, wide = config.d_model, config.d_model * (2 if config.readout == "maxout" else 1)
        self.config = config
        self.first = nn.Linear(width // 2, width)
        self.attention = AdditiveAttention(config, width, config.d_attention)
        self.word = nn.Linear(width, 3 * width + wide)  # W E y for the GRU, V_o E y for the answer
        self.context = nn.Linear(width, 3 * width + wide)  # C c for the GRU, C_o c for the answer
        self.carried = nn.Linear(width, 3 * width)
        self.state = nn.Linear(width, wide)  # U_o s
        self.sizes = (3 * width, wide)

    def forward(
        self,
        hidden_states: Target,
        encoder_hidden_states: Source,
        real: SourceMask = None,
        past: Cache | None = None,
    ) -> tuple[Target, Tensor | None]:
        """t_1 … t_n for the words y_0 … y_{n−1}, and α."""
        words, source = self.word(hidden_states), encoder_hidden_states
        begin = self._begin(source, past)
        states, contexts = self._find_rows(words, source, real, begin)
        weights = None
        if not self.training:
            before = torch.cat([begin.unsqueeze(1), states[:, :-1]], dim=1)
            mask = added_mask(real, before.shape[1], before)
            contexts, weights = self.attention(before, key_value_states=source, attention_mask=mask)
        given = words + self.context(contexts)
        if not self.training:
            states = self._states(given[..., : self.sizes[0]], begin)
        if past is not None:
            past.update(states.unsqueeze(1), states.unsqueeze(1), 0)
        return self._readout(self.state(states) + given[..., self.sizes[0] :]), weights

    def _begin(self, source: Source, past: Cache | None) -> State:
        """s_0 = tanh(W_s ←h_1), or the last state that was kept."""
        if past is not None and past.get_seq_length():
            kept: Any = past.layers[0]
            last: Tensor = kept.keys[:, 0, -1]
            return last
        begin: Tensor = self.first(source[:, 0, source.shape[-1] // 2 :]).tanh()
        return begin

    def _find_rows(
        self, words: Tensor, source: Source, real: SourceMask, state: State
    ) -> tuple[Target, Target]:
        """s_1 … s_n and c_1 … c_n, each from the ones before."""
        keys, gates = self.attention.key(source), self.sizes[0]
        into_gates = self.context.weight[:gates], self.context.bias[:gates]
        states, contexts = [], []
        for word in words[..., :gates].unbind(1):
            context = self.attention.of_one(state, keys, source, real)
            given = word + linear(context, *into_gates)
            state = gru(given, self.carried(state), state)
            states.append(state)
            contexts.append(context)
        return torch.stack(states, dim=1), torch.stack(contexts, dim=1)

    def _states(self, given: Tensor, state: State) -> Target:
        """s_1 … s_n, where every c_i is known."""
        states = []
        for step in given.unbind(1):
            state = gru(step, self.carried(state), state)
            states.append(state)
        return torch.stack(states, dim=1)

    def _readout(self, wide: Tensor) -> Target:
        """t_i: the larger of each two neighbours, or tanh."""
        if self.config.readout == "tanh":
            return wide.tanh()
        return torch.maximum(wide[..., 0::2], wide[..., 1::2])


class AdditiveEncoder(Stack):
    """A GRU that reads the source from both sides."""

    config_class = AdditiveConfig
    config: AdditiveConfig

    def new_layers(self) -> Iterable[nn.Module]:
        """One layer in the paper."""
        width = self.config.d_model
        return (BidirectionalLayer("gru", width) for _ in range(self.config.encoder_layers))

    def forward(
        self,
        input_ids: SourceIds,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool = False,
        **kwargs: object,  # noqa: ARG002 - generate passes what only the decoder wants
    ) -> BaseModelOutput:
        """The annotations h_1 … h_n."""
        states = self.dropout(self.embedding(input_ids))
        real = None if attention_mask is None else attention_mask.bool()
        history = [states]
        for layer in self.layers:
            states = layer(states, real)
            history.append(states)
        return BaseModelOutput(
            last_hidden_state=states,
            hidden_states=tuple(history) if output_hidden_states else None,
        )


class AdditiveDecoder(Stack):
    """A GRU that writes, and looks at the source before every word."""

    config_class = AdditiveConfig
    config: AdditiveConfig

    def new_layers(self) -> Iterable[nn.Module]:
        """One layer."""
        return [AdditiveDecoderLayer(self.config)]

    def forward(
        self,
        input_ids: TargetIds,
        source: Source,
        attention_mask: Tensor | None = None,  # noqa: ARG002 - it never looks at what it wrote
        source_mask: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """The states before and after the layer, and α."""
        words = self.dropout(self.embedding(input_ids))
        past = None if past_key_values is None else past_key_values.self_attention_cache
        real = None if source_mask is None else source_mask.bool()
        states, weights = self.layers[0](words, source, real, past)
        states = self.dropout(states)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=states,
            hidden_states=(words, states),
            cross_attentions=(weights,),
        )


class AdditiveTranslator(Translator):
    """The translator, whole: source text in, target text out.

    >>> config = xa.models.AdditiveConfig(vocab_size=50, d_model=16, d_attention=8)
    >>> site = xa.load(xa.models.AdditiveTranslator(config)).anatomy.sites[0]
    >>> site.kind, site.heads, site.d_query, site.d_head
    ('cross', 1, 8, 16)
    """

    config_class = AdditiveConfig
    reads, writes = AdditiveEncoder, AdditiveDecoder
