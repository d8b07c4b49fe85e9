"""Which model was the poster about? A small encoder whose attention is softmax or 1.5-entmax.

"Is Attention Explanation in Transformers?" (Drozdyuk, Vafaie, Ogbuagu, Hajianpour): 4 layers of
width 128, 8 heads, d_ff 512, sinusoidal positions, states summed over the tokens, one map to the
labels. 1.5-entmax (Peters et al., 2019) gives weights that can be exactly zero:

    p = [z/2 − τ]₊²,  with the τ that makes them add up to one
"""

from typing import Any

from entmax import entmax15
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from exhibit_a.errors import require_choice
from exhibit_a.models import TransformerConfig
from exhibit_a.models.base import through
from exhibit_a.models.classifier import Reading, TextClassifier, of_stack
from exhibit_a.models.sublayers import MultiHeadAttention
from exhibit_a.models.transformer import EncoderLayer, TransformerStack


class PosterConfig(TransformerConfig):
    """Sizes of a `PosterClassifier`; the defaults are the poster's."""

    model_type = "study-poster"
    normaliser: str = "softmax"  # or "entmax"
    vocab_size: int = 20000
    d_model: int = 128
    encoder_layers: int = 4
    d_ff: int = 512
    is_encoder_decoder: bool = False

    def check_sizes(self) -> None:
        super().check_sizes()
        require_choice("normaliser", self.normaliser, ("softmax", "entmax"))


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **kwargs: Any,  # noqa: ARG001 - what other attention functions want
) -> tuple[Tensor, Tensor]:
    """softmax or 1.5-entmax of Q Kᵀ / √d_k, times V."""
    scores = query @ key.mT * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = entmax15(scores) if module.config.normaliser == "entmax" else scores.softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class PosterAttention(MultiHeadAttention):
    """Multi-head attention with the normaliser of the configuration."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        query = self._heads(self.query(hidden_states))
        key, value = self._heads(self.key(hidden_states)), self._heads(self.value(hidden_states))
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        context, weights = attend(self, query, key, value, attention_mask, scaling=self.d_head**-0.5, **kwargs)
        return self.output(context.flatten(-2)), weights


class PosterLayer(EncoderLayer):
    def __init__(self, config: PosterConfig, index: int) -> None:
        super().__init__(config, index)
        self.attention = PosterAttention(config, index)


class PosterClassifier(TextClassifier, TransformerStack):
    """A classifier of texts: states are summed over the tokens that are not padding."""

    config_class = PosterConfig
    config: PosterConfig
    layer, depth = PosterLayer, "encoder_layers"
    _supports_sdpa = False  # it knows no entmax

    def __init__(self, config: PosterConfig) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.d_model, config.num_labels or 0)
        self.finish()

    def read(self, input_ids: Tensor, attention_mask: Tensor | None) -> Reading:
        states = self._embedded(input_ids, self.embedding)
        mask = create_bidirectional_mask(self.config, states, attention_mask)
        history, maps = through(self.layers, states, mask)
        real = 1 if attention_mask is None else attention_mask.unsqueeze(-1)
        return of_stack((history[-1] * real).sum(1), history, maps)


AutoConfig.register(PosterConfig.model_type, PosterConfig, exist_ok=True)
AutoModelForSequenceClassification.register(PosterConfig, PosterClassifier, exist_ok=True)
