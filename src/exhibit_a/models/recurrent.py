"""The model that "Attention is not Explanation" was about (Jain and Wallace, NAACL 2019).

    h_j = [→h_j ; ←h_j]                     the text, read from both sides by an LSTM
    e_j = vᵀ tanh(W q + U h_j)   "additive" or   e_j = qᵀ h_j / √d   "dot", with a learnt q
    α = softmax(e),  c = Σ_j α_j h_j
    scores of the labels = W_y c + b

One query looks at all tokens, once. The scores are linear in α: n tokens and L labels leave n − L
directions in which α can move and nothing else does.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import Seq2SeqSequenceClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from exhibit_a.models.additive_attention import AdditiveAttention, SourceMask, added_mask
from exhibit_a.models.classifier import Reading, TextClassifier
from exhibit_a.models.configs import RecurrentConfig
from exhibit_a.models.recurrence import BidirectionalLayer
from exhibit_a.models.sublayers import eager_attention_forward
from exhibit_a.shapes import Source, Target, TokenIds


class DotAttention(nn.Module):
    """e_j = qᵀ h_j / √d: queries, keys and values are the states themselves."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config, self.is_causal = config, False

    def forward(
        self, hidden_states: Target, key_value_states: Source, attention_mask: Tensor | None = None
    ) -> tuple[Target, Tensor | None]:
        """What the query reads, and where."""
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        query, source = hidden_states.unsqueeze(1), key_value_states.unsqueeze(1)
        scaling = self.config.d_model**-0.5
        context, weights = attend(self, query, source, source, attention_mask, scaling=scaling)
        return context.flatten(-2), weights


class ReadingLayer(nn.Module):
    """A query looks at the annotations; what it reads takes its place."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.attention = (
            DotAttention(config)
            if config.attention == "dot"
            else AdditiveAttention(config, config.d_model, config.d_attention)
        )

    def forward(
        self, hidden_states: Target, encoder_hidden_states: Source, real: SourceMask = None
    ) -> tuple[Target, Tensor | None]:
        """c, and α."""
        mask = added_mask(real, hidden_states.shape[1], hidden_states)
        context, weights = self.attention(
            hidden_states, key_value_states=encoder_hidden_states, attention_mask=mask
        )
        return context, weights


class RecurrentClassifier(TextClassifier):
    """A classifier of texts with one attention map of one row.

    >>> config = xa.models.RecurrentConfig(vocab_size=50, d_model=16, d_attention=8)
    >>> subject = xa.load(xa.models.RecurrentClassifier(config))
    >>> len(subject.anatomy.sites), len(subject.anatomy.layers)
    (1, 2)
    """

    config_class = RecurrentConfig
    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.reading = nn.ModuleList(
            BidirectionalLayer("lstm", config.d_model) for _ in range(config.num_layers)
        )
        self.query = nn.Parameter(torch.empty(config.d_model))
        self.answering = nn.ModuleList([ReadingLayer(config)])
        self.classifier = nn.Linear(config.d_model, config.num_labels or 0)
        self.finish()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RecurrentClassifier):
            init.normal_(module.query)

    def read(self, input_ids: TokenIds, attention_mask: Tensor | None) -> Reading:
        """c: what the query reads in the annotations."""
        real = None if attention_mask is None else attention_mask.bool()
        states = self.dropout(self.embedding(input_ids))
        history = [states]
        for layer in self.reading:
            states = layer(states, real)
            history.append(states)
        query = self.query.expand(len(states), 1, -1)
        context, weights = self.answering[0](query, states, real)
        kept = {"encoder_hidden_states": tuple(history), "decoder_hidden_states": (query, context)}
        maps = {"cross_attentions": (weights,)}
        return Reading(context[:, 0], kept, maps, Seq2SeqSequenceClassifierOutput)
