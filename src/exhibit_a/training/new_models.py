"""How does a model begin that is made from nothing? With a configuration, a vocabulary and a seed.

Configurations are those of `exhibit_a.models`; on the command line each has a short name.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.models import AdditiveConfig, IdentifiableConfig, RecurrentConfig, TransformerConfig
from exhibit_a.models.configs import ReferenceConfig
from exhibit_a.training.vocabulary import learnt_vocabulary

SHORT_NAMES: dict[str, type[ReferenceConfig]] = {
    "transformer": TransformerConfig,
    "additive": AdditiveConfig,
    "recurrent": RecurrentConfig,
    "identifiable": IdentifiableConfig,
}


def configuration(
    base: str | Path | PretrainedConfig, sizes: Mapping[str, Any] | None = None
) -> ReferenceConfig | None:
    """The configuration of a model to be made from nothing; None where ``base`` is a model.

    >>> configuration("additive", {"d_model": 64}).d_model
    64
    >>> configuration("additive", {"heads": 64})
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: additive has no size "heads"; it has d_attention, d_model, ...
    """
    if isinstance(base, ReferenceConfig):
        return base
    if isinstance(base, PretrainedConfig):
        raise BadRequestError(
            f"{type(base).__name__} is none of the configurations in xa.models, from which models "
            "are made; save a model of yours and give its folder."
        )
    kind = SHORT_NAMES.get(str(base))
    if kind is not None and Path(base).exists():
        kind = None  # a folder of that name
    if kind is None:
        if sizes:
            raise BadRequestError(
                f'"{base}" is a model with sizes of its own; only {", ".join(SHORT_NAMES)} are '
                "made from nothing."
            )
        return None
    _require_sizes(str(base), kind, sizes or {})
    try:
        return kind(**(sizes or {}))
    except ValueError as problem:
        raise BadRequestError(first_line(problem)) from problem


def _require_sizes(name: str, kind: type[ReferenceConfig], sizes: Mapping[str, object]) -> None:
    """Refuse sizes that the configuration does not know, or of another type."""
    declared = {
        size
        for ancestor in kind.__mro__
        if issubclass(ancestor, ReferenceConfig)
        for size in ancestor.__annotations__
    }
    usual = {size: getattr(kind, size) for size in declared if not size.endswith("_token_id")}
    for size, value in sizes.items():
        if size not in usual:
            raise BadRequestError(
                f'{name} has no size "{size}"; it has {", ".join(sorted(usual))}.'
            )
        wanted = (int, float) if isinstance(usual[size], float) else type(usual[size])
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise BadRequestError(f"{size} is {value!r}; it must be like {usual[size]!r}.")
        if not isinstance(value, str | bool) and value < (0 if size == "dropout" else 1e-12):
            raise BadRequestError(f"{size} is {value}; it must be positive.")


def new_classifier(
    config: ReferenceConfig, labels: Sequence[str], texts: Iterable[str]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A classifier with its first weights, and the vocabulary that it learnt from the texts."""
    tokenizer = learnt_vocabulary(texts, config.vocab_size, starts=True)
    tokenizer.model_max_length = getattr(config, "max_position_embeddings", 10**30)
    fitting = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }
    sized = type(config).from_dict({**config.to_dict(), **fitting})
    model: PreTrainedModel = AutoModelForSequenceClassification.from_config(sized)
    return model, tokenizer
