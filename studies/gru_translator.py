"""How did translators read before attention? Into one vector (Cho et al., 2014; Sutskever et al.).

    h_j = GRU(h_{j−1}; E x_j)
    c   = tanh(W_c [→h_n ; ←h_1])                     the whole sentence, whatever its length
    s_0 = c,  s_i = GRU(s_{i−1}; E y_{i−1}, c)
    t_i = tanh(U_o s_i + V_o E y_{i−1} + C_o c)

Only for comparison: everything but the way the source is read is as in `AdditiveTranslator`, whose
decoder it takes over with an attention that always gives the same c.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from exhibit_a.models import AdditiveConfig
from exhibit_a.models.additive import AdditiveDecoder as Decoder
from exhibit_a.models.additive import AdditiveEncoder, AdditiveTranslator


class PlainConfig(AdditiveConfig):
    """Sizes of a `PlainTranslator`; the attention of the decoder has nothing to choose from."""

    model_type = "study-gru"
    d_attention: int = 1


class PlainEncoder(AdditiveEncoder):
    """A GRU that reads from both sides and keeps what stands at both ends."""

    config_class = PlainConfig

    def __init__(self, config: PlainConfig) -> None:
        super().__init__(config)
        self.ends = nn.Linear(config.d_model, config.d_model)
        self.finish()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Any:
        """One vector in the place of the annotations."""
        read = super().forward(input_ids, attention_mask, **kwargs)
        half = read.last_hidden_state.shape[-1] // 2
        states = read.last_hidden_state  # padding leaves a state as it is, so the last is the end
        ends = self.ends(torch.cat([states[:, -1, :half], states[:, 0, half:]], dim=-1)).tanh()
        read.last_hidden_state = ends.unsqueeze(1)
        return read


class PlainDecoder(Decoder):
    """The decoder of `AdditiveTranslator`; with one vector to look at, it always looks at it."""

    config_class = PlainConfig

    def forward(self, *given: Any, source_mask: Tensor | None = None, **kwargs: Any) -> Any:  # noqa: ARG002
        """There is no padding among one vector."""
        return super().forward(*given, source_mask=None, **kwargs)


class PlainTranslator(AdditiveTranslator):
    """The translator, whole."""

    config_class = PlainConfig
    reads, writes = PlainEncoder, PlainDecoder


AutoConfig.register(PlainConfig.model_type, PlainConfig, exist_ok=True)
AutoModelForSeq2SeqLM.register(PlainConfig, PlainTranslator, exist_ok=True)
