"""What goes into the model, and what are its positions called?

Text, pairs of texts and images become a batch of one; positions get names and are marked as
special (added by the tokenizer, not written by anybody) or as padding.
"""

import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from exhibit_a.errors import BadRequestError, UnsupportedModelError

NO_PAIRS = "A pair was given, but this tokenizer has no way to mark two texts; give one text."
_ENOUGH = 10**6  # tokenizers without a limit say 10**30


def encode(
    model: PreTrainedModel,
    tokenizer: Any,
    text: Any,
    pair: str | None,
    limit: int | None,
    truncate: bool,
) -> dict[str, Any]:
    """Inputs for one text, pair, image, or what the caller has encoded already."""
    if isinstance(text, Mapping):
        return _given(model, text, pair)
    if tokenizer is None:
        raise BadRequestError(
            "There is no tokenizer for this model: give load(..., tokenizer=...) or encoded inputs."
        )
    if model.main_input_name == "pixel_values":
        return _image(model, tokenizer, text)
    if not isinstance(text, str):
        raise BadRequestError(f"Text was expected, {type(text).__name__} was given.")
    if not text.strip() or (pair is not None and not pair.strip()):
        raise BadRequestError("The text is empty; there is nothing to attend to.")
    if pair is not None and not separates(tokenizer):
        raise BadRequestError(NO_PAIRS)
    encoded = tokenizer(text, pair, return_tensors="pt", verbose=False)
    length = encoded["input_ids"].shape[1]
    if limit is not None and length > limit:
        if not truncate:
            raise BadRequestError(
                f"The text has {length} tokens and the model takes {limit}; shorten it or truncate "
                "(--truncate, truncate=True)."
            )
        encoded = tokenizer(
            text, pair, return_tensors="pt", truncation=True, max_length=limit, verbose=False
        )
    understood = inspect.signature(model.forward).parameters
    return {name: part.to(model.device) for name, part in encoded.items() if name in understood}


def positions(
    tokenizer: Any, ids: Tensor | None, count: int, image: bool = False
) -> tuple[tuple[str, ...], Tensor]:
    """A name for each position, and which of them are special."""
    if ids is None and image:
        return _patches(count)
    if ids is None:  # sound: moments in their order
        return tuple(map(str, range(count))), torch.zeros(count, dtype=torch.bool)
    listed = ids.tolist()
    if tokenizer is None or not hasattr(tokenizer, "convert_ids_to_tokens"):
        tokenizer = getattr(tokenizer, "tokenizer", None)
    if tokenizer is None:
        return tuple(str(i) for i in listed), torch.zeros(len(listed), dtype=torch.bool)
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    found = tokenizer.convert_ids_to_tokens(listed)
    names = tuple(name or str(i) for name, i in zip(found, listed, strict=True))
    return names, torch.tensor([i in special for i in listed])


def length_limit(model: PreTrainedModel, tokenizer: Any) -> int | None:
    """The longest input the model has positions for, as far as it and its tokenizer say."""
    if model.main_input_name != "input_ids":
        return None
    limits = []
    told = getattr(tokenizer, "model_max_length", None)
    if told is not None and told < _ENOUGH:
        limits.append(int(told))
    table = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(table, int) and table > 0:
        # RoBERTa counts positions from its padding index on, so some rows are never used.
        reserved = [
            part.padding_idx + 1
            for part in model.modules()
            if isinstance(part, nn.Embedding)
            and part.num_embeddings == table
            and part.padding_idx is not None
        ]
        limits.append(table - max(reserved, default=0))
    return min(limits, default=None)


def probe(model: PreTrainedModel) -> dict[str, Any]:
    """A short made-up input of the kind the model takes."""
    config, seeded = model.config, torch.Generator().manual_seed(0)
    kind = model.main_input_name
    inputs: dict[str, Any] = {}
    shape: tuple[int, ...]
    if kind == "input_ids":
        inputs = {"input_ids": _ids(model, 7, seeded)}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    elif kind == "pixel_values":
        side = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
        shape = (1, getattr(config, "num_channels", 3), side, side)
        inputs = {"pixel_values": torch.randn(shape, generator=seeded).to(model.dtype)}
    elif kind == "input_features":
        shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
        inputs = {"input_features": torch.randn(shape, generator=seeded).to(model.dtype)}
    else:
        raise UnsupportedModelError(
            f"{type(model).__name__} takes {kind!r}; text, images and mel features are supported."
        )
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = _ids(model, 5, seeded)
    return {name: part.to(model.device) for name, part in inputs.items()}


def _ids(model: PreTrainedModel, count: int, seeded: torch.Generator) -> Tensor:
    vocabulary = model.config.get_text_config().vocab_size
    return torch.randint(min(8, vocabulary - 1), vocabulary, (1, count), generator=seeded)


def _given(model: PreTrainedModel, inputs: Mapping[str, Any], pair: str | None) -> dict[str, Any]:
    if pair is not None:
        raise BadRequestError("A pair was given with encoded inputs; encode both texts together.")
    sizes = {part.shape[0] for part in inputs.values() if isinstance(part, Tensor)}
    if sizes != {1}:
        raise BadRequestError(
            f"Encoded inputs must be a batch of 1, found batches of {sorted(sizes)}."
        )
    if "input_ids" in inputs and inputs["input_ids"].shape[1] == 0:
        raise BadRequestError("The text is empty; there is nothing to attend to.")
    return {k: v.to(model.device) if isinstance(v, Tensor) else v for k, v in inputs.items()}


def _image(model: PreTrainedModel, processor: Any, image: Any) -> dict[str, Any]:
    """Pixels for an image, an array, or the path of an image file."""
    if isinstance(image, str | Path):
        from PIL import Image, UnidentifiedImageError

        try:
            image = Image.open(image).convert("RGB")
        except (OSError, UnidentifiedImageError) as problem:
            raise BadRequestError(
                f"This model looks at images, and {str(image)!r} is not a readable image file."
            ) from problem
    pixels = processor(images=image, return_tensors="pt")["pixel_values"]
    return {"pixel_values": pixels.to(model.device, model.dtype)}


def separates(tokenizer: Any) -> bool:
    """Whether a pair gets more marks than a single text."""
    count = tokenizer.num_special_tokens_to_add
    return bool(count(pair=True) > count(pair=False))


def _patches(count: int) -> tuple[tuple[str, ...], Tensor]:
    """Names for the positions of an image: a square of patches after what the model puts first."""
    side = math.isqrt(count)
    first = count - side * side
    names = [f"[{i}]" for i in range(first)]
    names += [f"{row},{column}" for row in range(side) for column in range(side)]
    return tuple(names), torch.arange(count) < first
