"""Encodes what goes into the model, and names its positions.

Text, pairs of texts and images become a batch of one; positions get names and are marked as
special (added by the tokenizer, and no part of the text) or as padding.
"""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from exhibit_a.errors import BadRequestError, UnsupportedModelError, first_line
from exhibit_a.extras import extra
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Inputs
from exhibit_a.subject.guard import StopEarly, frozen_eval, here_only, hooked
from exhibit_a.subject.images import (
    GRID,
    PIXELS,
    read_picture,
    reads_pictures,
    require_one_picture,
    with_picture,
)
from exhibit_a.subject.precision import computing_dtype

NO_PAIRS = "A pair was given, but this tokenizer has no way to mark two texts; give one text."
WHOLE_NUMBERS = (torch.int32, torch.int64)  # that an embedding takes
_UNLIMITED = 10**6  # tokenizers without a limit state 10**30

Tokenizer = Any  # a tokenizer, an image processor or both in one: they share no base class


def encode(
    model: PreTrainedModel,
    tokenizer: Tokenizer,
    text: object,
    pair: str | None,
    limit: int | None,
    truncate: bool,
) -> Inputs:
    """Inputs for one text, pair, image, or what the caller has encoded already."""
    if isinstance(text, Mapping):
        # The caller has encoded them; they must fit the model.
        if pair is not None:
            raise BadRequestError(
                "A pair was given with encoded inputs; encode both texts together."
            )
        for name, tensor in text.items():
            wrong = name.endswith("_ids") and getattr(tensor, "dtype", None) not in WHOLE_NUMBERS
            if isinstance(tensor, Tensor) and (wrong or tensor.is_meta):
                raise BadRequestError(
                    f"{name} was given as {tensor.dtype} on {tensor.device}; ids are torch.long, "
                    "and nothing can be on meta, which holds no numbers."
                )
        pictures = (PIXELS, GRID) if "input_ids" in text else ()
        rows = {name: tensor for name, tensor in text.items() if name not in pictures}
        sizes = {tensor.shape[0] for tensor in rows.values() if isinstance(tensor, Tensor)}
        if sizes != {1}:
            raise BadRequestError(
                f"Encoded inputs must be a batch of 1, found batches of {sorted(sizes)}."
            )
        require_one_picture(dict(text))
        if isinstance(ids := text.get("input_ids"), Tensor):
            _require_ids(model, ids, limit)
            mask = text.get("attention_mask")
            if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape != ids.shape:
                raise BadRequestError(
                    f"attention_mask {tuple(mask.shape)} does not fit input_ids {tuple(ids.shape)}."
                )
        return {k: _placed(v, model) if isinstance(v, Tensor) else v for k, v in text.items()}
    if tokenizer is None:
        if model.main_input_name == "pixel_values":
            extra("PIL")  # without it no processor of images can be read
        raise BadRequestError(
            "There is no tokenizer for this model: give load(..., tokenizer=...) or encoded inputs."
        )
    if model.main_input_name == "pixel_values":
        if pair is not None:
            raise BadRequestError(
                "A pair was given, but this model looks at one image; leave it out."
            )
        image = text
        if isinstance(image, str | Path):
            image = read_picture(image)
        try:
            pixels = tokenizer(images=image, return_tensors="pt")["pixel_values"]
        except (ValueError, TypeError, AttributeError) as problem:
            raise BadRequestError(
                f"This model looks at images: {type(image).__name__} was given, and cannot be used "
                f"({first_line(problem)})."
            ) from problem
        return {"pixel_values": pixels.to(model.device, computing_dtype(model))}
    require_text(text)
    if pair is not None:
        require_text(pair)
    if pair is not None and not separates(tokenizer):
        raise BadRequestError(NO_PAIRS)
    encoded = tokenizer(text, pair, return_tensors="pt", verbose=False)
    length = encoded["input_ids"].shape[1]
    if length == 0:
        raise BadRequestError(f"This tokenizer finds nothing to read in {text!r}.")
    if limit is not None and length > limit:
        if not truncate:
            raise BadRequestError(
                f"The text has {length} tokens and the model takes {limit}; shorten it or truncate "
                "(--truncate, truncate=True)."
            )
        encoded = tokenizer(
            text, pair, return_tensors="pt", truncation=True, max_length=limit, verbose=False
        )
    accepted = inspect.signature(model.forward).parameters
    return {name: value.to(model.device) for name, value in encoded.items() if name in accepted}


def require_text(text: object) -> None:
    """Refuse what is no text, or holds nothing to read."""
    if not isinstance(text, str):
        raise BadRequestError(f"Text was expected, {type(text).__name__} was given.")
    if not text.strip():
        raise BadRequestError("The text is empty; there is nothing to attend to.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadRequestError("The text holds half a character (a lone surrogate); decode it anew.")


def positions(
    tokenizer: Tokenizer, ids: Tensor | None, count: int
) -> tuple[tuple[str, ...], Tensor]:
    """A name for each position, and which of them are special."""
    if ids is None:  # sound: moments in their order
        return tuple(map(str, range(count))), torch.zeros(count, dtype=torch.bool)
    listed = ids.tolist()
    if tokenizer is None or not hasattr(tokenizer, "convert_ids_to_tokens"):
        tokenizer = getattr(tokenizer, "tokenizer", None)
    if tokenizer is None:
        return tuple(str(i) for i in listed), torch.zeros(len(listed), dtype=torch.bool)
    written = {tokenizer.unk_token_id, getattr(tokenizer, "mask_token_id", None)}
    special = set(tokenizer.all_special_ids) - written
    tokens = tokenizer.convert_ids_to_tokens(listed)
    names = tuple(token or str(i) for token, i in zip(tokens, listed, strict=True))
    return names, torch.tensor([i in special for i in listed])


def length_limit(model: PreTrainedModel, tokenizer: Tokenizer) -> int | None:
    """The longest input the model has positions for, as far as it and its tokenizer state it."""
    if model.main_input_name != "input_ids":
        return None
    limits = []
    stated = getattr(tokenizer, "model_max_length", None)
    if stated is not None and stated < _UNLIMITED:
        limits.append(int(stated))
    table = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(table, int) and table > 0:
        # RoBERTa counts positions from its padding index on, so some rows are never used.
        reserved = [
            module.padding_idx + 1
            for module in model.modules()
            if isinstance(module, nn.Embedding)
            and module.num_embeddings == table
            and module.padding_idx is not None
        ]
        limits.append(table - max(reserved, default=0))
    return min(limits, default=None)


def probe(model: PreTrainedModel) -> Inputs:
    """A short made-up input of the kind the model takes."""
    seeded, kind = generator(0), model.main_input_name
    inputs: Inputs = {}
    shape: tuple[int, ...]
    if kind == "input_ids":
        inputs = {"input_ids": _ids(model, 7, seeded)}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if reads_pictures(model):
            inputs = with_picture(model, inputs["input_ids"], seeded) or inputs
    elif kind == "pixel_values":
        size, channels = _stated(model, "image_size"), _stated(model, "num_channels")
        side = size if isinstance(size, int) else size[0]
        shape = (1, channels, side, side)
        inputs = {"pixel_values": torch.randn(shape, generator=seeded).to(computing_dtype(model))}
    elif kind == "input_features":
        shape = (1, _stated(model, "num_mel_bins"), 2 * _stated(model, "max_source_positions"))
        inputs = {"input_features": torch.randn(shape, generator=seeded).to(computing_dtype(model))}
    else:
        raise UnsupportedModelError(
            f"{type(model).__name__} takes {kind!r}; text, images and mel features are supported."
        )
    inputs = {name: value.to(model.device) for name, value in inputs.items()}
    if model.config.is_encoder_decoder and decoder_ids(model, inputs) is None:
        inputs["decoder_input_ids"] = _ids(model, 5, seeded).to(model.device)
    return inputs


def text_probe(model: PreTrainedModel) -> Inputs:
    """A short made-up text, also for a model that takes pictures with it."""
    inputs = probe(model)
    text = _ids(model, 7, generator(0)).to(model.device)
    kept = {name: row for name, row in inputs.items() if name == "decoder_input_ids"}
    return {**kept, "input_ids": text, "attention_mask": torch.ones_like(text)}


def decoder_ids(model: PreTrainedModel, inputs: Inputs) -> Tensor | None:
    """The ids that a model makes for its decoder by itself, or None where they must be given.

    A classifier with two stacks reads its input twice, and shifts it for the decoder by itself.
    """
    decoder = model.get_decoder()
    if model.can_generate() or decoder is model:
        return None
    received: list[object] = []

    def receive(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        received.append(kwargs.get("input_ids", args[0] if args else None))
        raise StopEarly

    with torch.no_grad(), frozen_eval(model):
        handle = decoder.register_forward_pre_hook(here_only(receive), with_kwargs=True)
        with hooked([handle]), suppress(StopEarly, ValueError):
            model(**inputs)
    return received[0] if received and isinstance(received[0], Tensor) else None


def decoder_limit(model: PreTrainedModel) -> int | None:
    """The longest text that a decoder has positions for, as far as the model states it."""
    stated = getattr(model.config, "max_target_positions", None)
    table = stated or getattr(model.config, "max_position_embeddings", None)
    return table if isinstance(table, int) and table > 0 else None


def shapes(inputs: Mapping[str, object]) -> str:
    """The names and shapes of inputs, for a message."""
    return ", ".join(f"{k} {tuple(v.shape)}" for k, v in inputs.items() if isinstance(v, Tensor))


def _ids(model: PreTrainedModel, count: int, seeded: torch.Generator) -> Tensor:
    """Made-up ids; the last one ends a text, because some classifiers look for that."""
    config = model.config.get_text_config()
    vocabulary = _stated(model, "vocab_size")
    ids = torch.randint(min(8, vocabulary - 1), vocabulary, (1, count), generator=seeded)
    end = getattr(config, "eos_token_id", None)
    if model.config.is_encoder_decoder and isinstance(end, int) and end < vocabulary:
        ids[0, -1] = end
    return ids


def _stated(model: PreTrainedModel, name: str) -> Any:
    """A size that the configuration states, of the model or of a part of it."""
    whole = model.config
    inner = (getattr(whole, part, None) for part in whole.sub_configs)
    for config in (whole, whole.get_text_config(), *inner):
        if getattr(config, name, None) is not None:
            return getattr(config, name)
    raise UnsupportedModelError(
        f"{type(model).__name__} does not state its {name}, so no probe can be made for it."
    )


def _placed(tensor: Tensor, model: PreTrainedModel) -> Tensor:
    """A tensor where the model is; one from inference mode as a copy, which gradients may meet."""
    return (tensor.clone() if tensor.is_inference() else tensor).to(model.device)


def _require_ids(model: PreTrainedModel, ids: Tensor, limit: int | None) -> None:
    if ids.ndim != 2:
        raise BadRequestError(f"input_ids must be (1, token), found {tuple(ids.shape)}.")
    if ids.shape[1] == 0:
        raise BadRequestError("The text is empty; there is nothing to attend to.")
    if limit is not None and ids.shape[1] > limit:
        raise BadRequestError(f"{ids.shape[1]} token ids were given and the model takes {limit}.")
    words = model.get_input_embeddings()
    if isinstance(words, nn.Embedding) and not 0 <= int(ids.min()) <= int(ids.max()) < len(
        words.weight
    ):
        raise BadRequestError(
            f"Token ids from {int(ids.min())} to {int(ids.max())} were given; the model knows 0 to "
            f"{len(words.weight) - 1}."
        )


def separates(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer adds more special tokens to a pair than to a single text."""
    count = tokenizer.num_special_tokens_to_add
    return bool(count(pair=True) > count(pair=False))
