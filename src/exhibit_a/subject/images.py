"""Brings images into a model, alone or among the words of a text.

A model of text and pictures has a token that stands for a piece of the picture, and says how many
of them a picture becomes by computing its features. Nothing more need be known to make up an input
for it: the token, the size of a picture, and that number.
"""

import inspect
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.extras import extra
from exhibit_a.shapes import Inputs, TokenIds
from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.precision import computing_dtype

MOST_PIXELS = 100_000_000  # of a file that is read
PIXELS, GRID = "pixel_values", "image_grid_thw"  # what transformers calls them


def reads_pictures(model: PreTrainedModel) -> bool:
    """Whether a model takes a picture among the tokens of a text."""
    return (
        model.main_input_name == "input_ids"
        and PIXELS in inspect.signature(model.forward).parameters
        and picture_token(model) is not None
        and hasattr(model, "get_image_features")
    )


def picture_token(model: PreTrainedModel) -> int | None:
    """The id that stands for a piece of a picture in a text."""
    for name in ("image_token_id", "image_token_index"):
        token = getattr(model.config, name, None)
        if isinstance(token, int):
            return token
    return None


def vision_config(model: PreTrainedModel) -> PretrainedConfig | None:
    """The part of a configuration that says how a picture is cut into patches."""
    parts = (getattr(model.config, name, None) for name in model.config.sub_configs)
    stating = (config for config in (model.config, *parts) if hasattr(config, "patch_size"))
    return next(stating, None)


def pair(size: int | Sequence[int]) -> tuple[int, int]:
    """A size that is stated once, or as height and width."""
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)


def read_picture(path: str | Path) -> Any:
    """The picture in a file, upright and in plain colours; the first one where it moves.

    A file that is no picture, or one too large to be meant, is refused in one line.
    """
    image = extra("PIL.Image")
    try:
        if not Path(path).is_file():
            raise OSError("there is no such file")  # a pipe would have to be waited for
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about sizes that are refused below
            file = image.open(path)
        with file:
            if file.width * file.height > MOST_PIXELS:
                raise OSError(f"it has {file.width} × {file.height} pixels, too many")
            # As red, green and blue, turned as its camera says, on white.
            picture = extra("PIL.ImageOps").exif_transpose(file)
            if picture.mode.startswith(("I", "F")):  # more than 8 bits: convert would clip them
                levels = np.asarray(picture, dtype=np.float64)
                scaled = 255 * (levels - levels.min()) / max(float(np.ptp(levels)), 1e-9)
                picture = image.fromarray(scaled.astype(np.uint8))
            if picture.has_transparency_data:
                ground = image.new("RGBA", picture.size, "white")
                picture = image.alpha_composite(ground, picture.convert("RGBA"))
            return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, EOFError, image.DecompressionBombError) as problem:
        raise BadRequestError(
            f"This model looks at images, and {str(path)!r} is not a readable image file: "
            f"{first_line(problem)}."
        ) from problem


def with_picture(model: PreTrainedModel, ids: TokenIds, seeded: torch.Generator) -> Inputs | None:
    """A made-up picture in the middle of ids, or None where the model does not say how."""
    picture = _made_up(model, seeded)
    pieces = None if picture is None else _pieces(model, picture)
    token = picture_token(model)
    if picture is None or not pieces or token is None:
        return None
    ids = ids.masked_fill(ids == token, token - 1 if token else 1)
    middle = ids.shape[1] // 2
    inside = torch.full((1, pieces), token)
    inputs: Inputs = {"input_ids": torch.cat([ids[:, :middle], inside, ids[:, middle:]], 1)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == token).long()
    return inputs | picture


def require_one_picture(inputs: Inputs) -> None:
    """Refuse several pictures that a tower would look at side by side, as if they were texts."""
    pixels = inputs.get(PIXELS)
    if isinstance(pixels, Tensor) and GRID not in inputs and len(pixels) != 1:
        raise BadRequestError(
            f"{len(pixels)} pictures were given; this model's tower looks at each by itself, and "
            "one at a time can be examined."
        )


def _made_up(model: PreTrainedModel, seeded: torch.Generator) -> Inputs | None:
    """Noise of the size the model takes; packed patches get a small grid that is not square."""
    vision = vision_config(model)
    if vision is None:
        return None
    patch = pair(getattr(vision, "patch_size", 1))
    channels = getattr(vision, "in_channels", getattr(vision, "num_channels", 3))
    shape: tuple[int, ...]
    if GRID in inspect.signature(model.forward).parameters:
        merged = getattr(vision, "spatial_merge_size", 1)
        grid = torch.tensor([[1, 2 * merged, 3 * merged]])
        width = channels * getattr(vision, "temporal_patch_size", 1) * patch[0] * patch[1]
        shape = (int(grid.prod()), width)
    else:
        size = getattr(vision, "image_size", None)
        if size is None:
            return None
        grid, shape = None, (1, channels, *pair(size))
    pixels = torch.randn(shape, generator=seeded).to(model.device, computing_dtype(model))
    return {PIXELS: pixels} if grid is None else {PIXELS: pixels, GRID: grid.to(model.device)}


def _pieces(model: PreTrainedModel, picture: Inputs) -> int:
    """How many tokens a picture becomes; 0 where the model cannot tell by itself."""
    with suppress(Exception), torch.no_grad(), frozen_eval(model):  # any family, any failure
        features: Any = model.get_image_features(**picture)  # type: ignore[operator]
        pooled = getattr(features, "pooler_output", features)
        pieces = [pooled] if isinstance(pooled, Tensor) else list(pooled)
        return sum(piece.shape[:-1].numel() for piece in pieces)
    return 0


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture as a model was given it, and where its positions stand in it."""

    pixels: UInt8[Tensor, "height width 3"]
    grids: dict[str, tuple[Int[Tensor, "_row _column"], ...]]  # by stack, for each picture

    def __str__(self) -> str:
        height, width = self.pixels.shape[:2]
        rows, columns = next(iter(self.grids.values()))[0].shape
        return f"image {width}×{height}, {columns}×{rows} patches"


def pixels_of(model: PreTrainedModel, inputs: Inputs) -> UInt8[Tensor, "height width 3"] | None:
    """The one picture among the inputs, with its darkest value black and its lightest white.

    It is what the model sees: cut, scaled and normalised as its processor did.
    """
    pixels, vision = inputs.get(PIXELS), vision_config(model)
    if not isinstance(pixels, Tensor) or vision is None:
        return None
    pixels = pixels.detach().float().cpu()
    if GRID in inputs:
        pixels = _unpacked(pixels, inputs[GRID].tolist(), vision)
    if pixels is None or pixels.ndim != 4 or pixels.shape[:2] != (1, 3):
        return None
    picture = pixels[0].permute(1, 2, 0)
    low, high = picture.amin(), picture.amax()
    return (255 * (picture - low) / (high - low).clamp_min(1e-6)).round().to(torch.uint8)


def _unpacked(pixels: Tensor, grids: list[list[int]], vision: PretrainedConfig) -> Tensor | None:
    """Packed patches of one still picture as (1, colour, height, width)."""
    moments, merged = (
        getattr(vision, "temporal_patch_size", 1),
        getattr(vision, "spatial_merge_size", 1),
    )
    if len(grids) != 1 or grids[0][0] != 1:
        return None
    _, rows, columns = grids[0]
    high, wide = pair(getattr(vision, "patch_size", 1))
    squares = pixels.reshape(
        rows // merged, columns // merged, merged, merged, -1, moments, high, wide
    )[:, :, :, :, :, 0]
    laid_out = squares.permute(4, 0, 2, 5, 1, 3, 6)
    return laid_out.reshape(1, -1, rows * high, columns * wide)
