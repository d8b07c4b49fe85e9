"""What do all reference models have in common? First weights, embeddings, and the loss."""

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import FloatTensor, Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PretrainedConfig, PreTrainedModel
from transformers import initialization as init

from exhibit_a.shapes import Hidden, TargetIds

IGNORED = -100  # a label that is no answer: padding of a target


class ReferenceConfig(PretrainedConfig):
    """Sizes of a reference model."""

    # Every configuration takes more options than the fields of its class (num_labels, dtype, …),
    # which a check of its signature would refuse.
    __no_type_check__ = True
    attribute_map = {  # noqa: RUF012 - a table of the base class
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
    }

    vocab_size: int = 20000
    d_model: int = 512
    pad_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        """Refuse sizes that do not fit together."""
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]
        self.check_sizes()

    def check_sizes(self) -> None:
        """Raise where fields of this configuration do not fit together."""


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


def require_multiple(width: int, parts: int, what: str) -> None:
    """Refuse a width that cannot be cut into equal parts."""
    if width % parts:
        raise ValueError(f"A width of {width} cannot be cut into {parts} {what}.")


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
