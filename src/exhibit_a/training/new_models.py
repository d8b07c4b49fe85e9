"""Makes new models: a configuration, a vocabulary learnt from the data, first weights.

Configurations are those of `exhibit_a.models`; on the command line each has a short name. Words are
made of pieces by byte-pair encoding: the most frequent pair of neighbouring pieces becomes a piece,
again and again, until there are as many as requested (Sennrich et al., 2016). The marker ▁ stands
for the blank before a word, so that pieces can be put together again exactly. Both languages of a
translator share one vocabulary.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.models import AdditiveConfig, IdentifiableConfig, RecurrentConfig, TransformerConfig
from exhibit_a.models.configs import ReferenceConfig
from exhibit_a.training.data import Pairs

PADDING, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL = [PADDING, START, END, UNKNOWN]  # their ids are 0, 1, 2 and 3
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
    sizes = sizes or {}
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
                f'{base} has no size "{size}"; it has {", ".join(sorted(usual))}.'
            )
        wanted = (int, float) if isinstance(usual[size], float) else type(usual[size])
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise BadRequestError(f"{size} is {value!r}; it must be like {usual[size]!r}.")
        if not isinstance(value, str | bool) and value < (0 if size == "dropout" else 1e-12):
            raise BadRequestError(f"{size} is {value}; it must be positive.")
    try:
        return kind(**sizes)
    except ValueError as problem:
        raise BadRequestError(first_line(problem)) from problem


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


def new_translator(
    config: ReferenceConfig, pairs: Pairs, longest: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A translator with its first weights, and the vocabulary that it learnt from the pairs.

    A sentence of more than ``longest`` tokens is refused: attention over it may fit no memory.
    """
    tokenizer = learnt_vocabulary((text for pair in pairs for text in pair), config.vocab_size)
    for number, pair in enumerate(pairs, 1):
        count = max(map(len, tokenizer(list(pair))["input_ids"]))
        if count > longest:
            raise BadRequestError(
                f"Pair {number} to learn from has {count} tokens, and a batch takes {longest}; "
                "shorten it, or give more batch_tokens."
            )
    sized = type(config).from_dict({**config.to_dict(), "vocab_size": len(tokenizer)})
    model: PreTrainedModel = AutoModelForSeq2SeqLM.from_config(sized)
    return model, tokenizer


def learnt_vocabulary(
    texts: Iterable[str], size: int, *, starts: bool = False
) -> PreTrainedTokenizerBase:
    """A tokenizer with at most ``size`` pieces, learnt from the texts; every text gets an end.

    ``starts`` puts a token in front as well, whose state can answer for the whole text.

    >>> tokenizer = learnt_vocabulary(["two dogs run", "two dogs sleep"], 40)
    >>> tokenizer.decode(tokenizer("two dogs run")["input_ids"], skip_special_tokens=True)
    'two dogs run'
    """
    pieces = Tokenizer(models.BPE(unk_token=UNKNOWN))
    pieces.normalizer = normalizers.Sequence([normalizers.NFC()])
    pieces.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")]
    )
    pieces.decoder = decoders.Metaspace()
    trainer = BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    pieces.train_from_iterator(texts, trainer)
    single = f"{START} $A {END}" if starts else f"$A {END}"
    pieces.post_processor = processors.TemplateProcessing(
        single=single,
        pair=f"{single} $B {END}",
        special_tokens=[(token, SPECIAL.index(token)) for token in (START, END)],
    )
    named = {"pad_token": PADDING, "bos_token": START, "eos_token": END, "unk_token": UNKNOWN}
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces, clean_up_tokenization_spaces=False, **named
    )
