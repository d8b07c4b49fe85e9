"""What all reference models have in common: first weights, embeddings, and the loss."""

from collections.abc import Iterable
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import FloatTensor, Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PretrainedConfig, PreTrainedModel
from transformers import initialization as init

from exhibit_a.models.configs import ReferenceConfig, TranslatorConfig
from exhibit_a.shapes import Hidden, TargetIds

IGNORED = -100  # a label that is no answer: padding of a target


class ReferenceModel(PreTrainedModel):
    """A model whose tokens have one matrix of embeddings, called ``embedding``."""

    config: ReferenceConfig
    embedding: nn.Embedding
    base_model_prefix = ""
    main_input_name = "input_ids"

    def finish(self) -> None:
        """Draw the first weights and tie what is tied; the last line of every ``__init__``."""
        self.post_init()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Linear maps that keep the size of what they are given; embeddings of length one."""
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.d_model**-0.5)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)

    def get_input_embeddings(self) -> nn.Embedding:
        """The embeddings of the tokens."""
        return self.embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Other embeddings, wherever these are used."""
        assert isinstance(value, nn.Embedding)
        for module in self.modules():
            if isinstance(module, ReferenceModel):
                module.embedding = value


class Stack(ReferenceModel):
    """Half of a translator: embeddings, and layers one after the other."""

    config: TranslatorConfig

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(self.new_layers())
        self.finish()

    def new_layers(self) -> Iterable[nn.Module]:
        """The layers, with their first weights."""
        raise NotImplementedError


def through(
    layers: nn.ModuleList, states: Hidden, *given: Any
) -> tuple[list[Any], list[tuple[Any, ...]]]:  # tensors; outputs of models want FloatTensors
    """The states before the first layer and after each, and the attention maps of each layer."""
    history: list[Any] = [states]
    maps = []
    for layer in layers:
        states, *weights = layer(states, *given)
        history.append(states)
        maps.append(tuple(weights))
    return history, maps


def shifted_right(labels: TargetIds, config: PretrainedConfig) -> TargetIds:
    """The target one place later, behind the start token: what is known before each answer."""
    start = torch.full_like(labels[:, :1], config.decoder_start_token_id)
    known = torch.cat([start, labels[:, :-1]], dim=1)
    return known.masked_fill(known == IGNORED, config.pad_token_id)


def mean_loss(
    logits: Float[Tensor, "*place answer"], labels: Int[Tensor, "*place"] | None
) -> FloatTensor | None:
    """−log p of the right answers, on average; None where they are not known."""
    if labels is None:
        return None
    loss = cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)
    return cast("FloatTensor", loss)
