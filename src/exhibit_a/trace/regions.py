"""Which part of the picture does a position stand for?

A picture is cut into patches, row by row. The tower that looks at it has a position for each patch,
often behind a token of its own ([CLS]); a model of text and pictures has tokens among the words
that stand for a patch each, or for a square of patches that were merged. A grid says it the other
way round: at (row, column) of the picture stands the position there, so that scores of positions,
indexed by it, are a picture.

Packed patches come square by square: all patches that will be merged into one token are neighbours.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor

from exhibit_a.shapes import Inputs, SiteVisible, TokenMarks
from exhibit_a.subject.anatomy import VISION, Site
from exhibit_a.subject.images import GRID, PIXELS, pair, picture_token, vision_config
from exhibit_a.subject.subject import Subject

Grid = Int[Tensor, "row column"]  # of positions


def patch_grids(
    subject: Subject, inputs: Inputs, stack: str, visible: SiteVisible
) -> tuple[Grid, ...]:
    """A grid of the positions of a stack for every picture; none where there is no picture.

    ``visible`` is what the positions of the stack see. Where a tower sees less than whole pictures,
    it looks through windows, for which it may have put its patches into another order.

    >>> seen = torch.ones(2, 2, dtype=torch.bool)
    >>> patch_grids(subject, {"input_ids": torch.tensor([[5, 6]])}, "encoder", seen)
    ()
    """
    pixels = inputs.get(PIXELS)
    if not isinstance(pixels, Tensor):
        return ()
    in_tower = stack.startswith(VISION) or "input_ids" not in inputs
    sides, merged = _sides(subject, inputs)
    if in_tower:
        sizes = [rows * columns for rows, columns in sides]
        if sum(sizes) > len(visible) or not _sees_whole(visible, sizes):
            return ()
        places = torch.arange(len(visible) - sum(sizes), len(visible))
        return _packed(places, sides, merged) if GRID in inputs else _whole(places, sides)
    places = (inputs["input_ids"][0].cpu() == picture_token(subject.model)).nonzero()[:, 0]
    if GRID in inputs:
        return _whole(places, [(rows // merged, columns // merged) for rows, columns in sides])
    rows, columns = _pooled(sides[0], len(places)) if sides else (0, 0)
    return _whole(places[max(0, len(places) - rows * columns) :], [(rows, columns)])


def seen_everywhere(
    site: Site, sites: Sequence[Site], visible: Sequence[SiteVisible]
) -> SiteVisible:
    """What every self-attention of a site's stack lets its positions see."""
    alike = {  # layers with the same mask share one tensor
        id(seen): seen
        for other, seen in zip(sites, visible, strict=True)
        if other.stack == site.stack and other.kind == site.kind
    }
    seen, *others = (seen.cpu() for seen in alike.values())
    for other in others:
        seen = seen & other
    return seen


def patch_names(grids: tuple[Grid, ...], count: int) -> tuple[tuple[str, ...], TokenMarks]:
    """Names for the positions of a tower, and which of them are its own and show no patch."""
    special = torch.ones(count, dtype=torch.bool)
    for grid in grids:
        special[grid.flatten()] = False
    lone = int(special.sum()) == 1
    names = ["[CLS]" if lone else f"[{position}]" for position in range(count)]
    return tuple(_with_cells(names, grids)), special


def token_names(names: tuple[str, ...], grids: tuple[Grid, ...]) -> tuple[str, ...]:
    """The names of tokens, with those that stand for a piece of a picture named after it."""
    return tuple(_with_cells(list(names), grids, "image "))


def _with_cells(names: list[str], grids: tuple[Grid, ...], prefix: str = "") -> list[str]:
    for number, grid in enumerate(grids, 1):
        which = f"{prefix}{number}: " if len(grids) > 1 else prefix
        for row, places in enumerate(grid.tolist()):
            for column, place in enumerate(places):
                names[place] = f"{which}{row},{column}"
    return names


def _sides(subject: Subject, inputs: Inputs) -> tuple[list[tuple[int, int]], int]:
    """How many rows and columns of patches each picture has, and how many are merged to a side."""
    vision = vision_config(subject.model)
    if GRID in inputs:
        frames = [(rows, columns) for t, rows, columns in inputs[GRID].tolist() for _ in range(t)]
        return frames, getattr(vision, "spatial_merge_size", 1)
    if vision is None:
        return [], 1
    height, width = inputs[PIXELS].shape[-2:]
    patch = pair(getattr(vision, "patch_size", 1))
    return [(height // patch[0], width // patch[1])], 1


def _sees_whole(visible: SiteVisible, sizes: list[int]) -> bool:
    """Whether every patch sees all patches of its picture, and what is before all pictures."""
    text_tokens = len(visible) - sum(sizes)
    picture = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.long))
    alone = picture[:, None] == picture[None, :]
    return torch.equal(visible[text_tokens:, text_tokens:].cpu(), alone) and bool(
        visible[:, :text_tokens].all()
    )


def _whole(places: Tensor, sides: list[tuple[int, int]]) -> tuple[Grid, ...]:
    """Grids that are filled row by row; none where the positions do not fill them."""
    if not sides or len(places) != sum(rows * columns for rows, columns in sides):
        return ()
    pieces = torch.tensor_split(places, _ends(sides))
    return tuple(piece.view(side) for piece, side in zip(pieces, sides, strict=True))


def _ends(sides: list[tuple[int, int]]) -> list[int]:
    """Where each picture but the last ends."""
    return list(accumulate(rows * columns for rows, columns in sides))[:-1]


def _packed(places: Tensor, sides: list[tuple[int, int]], merged: int) -> tuple[Grid, ...]:
    """Grids that are filled square by square."""
    grids = _whole(places, [(rows * columns, 1) for rows, columns in sides])
    squares = [(rows // merged, columns // merged, merged, merged) for rows, columns in sides]
    return tuple(
        grid.view(square).transpose(1, 2).reshape(side)
        for grid, square, side in zip(grids, squares, sides, strict=bool(grids))
    )


def _pooled(side: tuple[int, int], count: int) -> tuple[int, int]:
    """The rows and columns of tokens, of which each may stand for a square of patches."""
    rows, columns = side
    factor = math.isqrt(max(1, rows * columns // max(1, count)))
    return rows // factor, columns // factor
