"""What stands at each position of a stack, and what it is called.

A map is read by its rows and columns, so every position of every stack that runs has a name: the
token of a text, the piece of an image with its row and column, a moment of sound, a query that the
model learnt. Positions that the tokenizer or a chat template added are special, and some are
padding. Where a stack reads text, the layout says where its tokens stand in it.

An image is cut into patches, row by row. The tower that looks at it has a position for each patch,
often behind a token of its own ([CLS]); a model of text and images has tokens among the words that
stand for a patch each, or for a square of patches that were merged. A grid says it the other way
round: at (row, column) of the image stands the position there, so that scores of positions, indexed
by it, are an image. Packed patches come square by square: all patches that will be merged into one
token are neighbours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor

from exhibit_a.shapes import Inputs, SiteVisible, TokenMarks
from exhibit_a.subject.anatomy import VISION, Layer, Site, key_stack
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.images import GRID, PIXELS, pair, picture_token, vision_config
from exhibit_a.subject.prompts import Prompt
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.layout import Layout, NamedPart, read_layout
from exhibit_a.trace.passes import PartialPass


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """The positions of one stack's input: their names, and which are special or padding."""

    tokens: tuple[str, ...]
    special: TokenMarks
    real: TokenMarks
    layout: Layout | None = None  # where they stand in the text, where there is one

    def part(self, places: tuple[int, ...]) -> "Positions":
        """Some of the positions."""
        index = torch.tensor(places, dtype=torch.long)
        names = tuple(self.tokens[place] for place in places)
        return Positions(names, self.special[index], self.real[index])


def named_sequences(
    subject: Subject,
    prompt: Prompt,
    layers: Sequence[Layer],
    sites: Sequence[Site],
    visible: Sequence[SiteVisible],
) -> dict[str, Positions]:
    """Names and marks for the positions of every stack, in the order they run."""
    stacks = [layer.stack for layer in layers]
    decodes = subject.model.config.is_encoder_decoder
    sequences: dict[str, Positions] = {}
    for stack in dict.fromkeys(stacks):
        first = next((site for site in sites if site.stack == stack), None)
        if first is None:  # nothing attends in it, but it is looked at
            looking = next(i for i, site in enumerate(sites) if key_stack(site, stacks) == stack)
            sequences[stack] = _sequence(subject, prompt, stack, visible[looking].mT)
        elif first.kind == "cross" and not decodes:
            # These positions hold no token: they are what the model learnt to look up in the text.
            count = visible[sites.index(first)].shape[0]
            names = ("[query]",) if count == 1 else tuple(f"[query {i}]" for i in range(count))
            sequences[stack] = Positions(
                names, torch.zeros(count, dtype=torch.bool), torch.ones(count).bool()
            )
        else:
            seen = seen_everywhere(first, sites, visible)
            sequences[stack] = _sequence(subject, prompt, stack, seen)
    return sequences


def unnamed(count: int) -> Positions:
    """Positions of states that came from outside, of which only the number is known."""
    tokens, special = positions(None, None, count)
    return Positions(tokens, special, torch.ones(count, dtype=torch.bool))


def naming_masks(
    visible: tuple[SiteVisible, ...], partial: PartialPass | None
) -> tuple[SiteVisible, ...]:
    """Masks of the size of every site, by which positions are counted and named."""
    if partial is None:
        return visible
    known = {size: torch.ones(1, 1).bool().expand(size) for size in set(partial.sizes)}
    return tuple(known[size] for size in partial.sizes)


def _sequence(subject: Subject, prompt: Prompt, stack: str, seen: SiteVisible) -> Positions:
    """Names and marks for the positions of one stack."""
    inputs = prompt.inputs
    decodes = stack == "decoder" and subject.model.config.is_encoder_decoder
    name = "decoder_input_ids" if decodes else "input_ids"
    tokens, special = _names(subject, inputs, stack, inputs.get(name), seen)
    mask = inputs.get("decoder_attention_mask" if decodes else "attention_mask")
    real = torch.ones(len(tokens), dtype=torch.bool)
    if mask is not None and mask.shape == (1, len(tokens)):
        real = mask[0].bool().cpu()
    layout = None
    if not stack.startswith(VISION):
        # The tokens that a chat template wrote around the messages are special, too.
        of_template = torch.zeros(len(tokens), dtype=torch.bool)
        if any(span.kind == "message" for span in prompt.spans):
            of_template[:] = True
            for span in prompt.spans:
                of_template[span.start : span.stop] = False
        special = special | of_template
        marks = tuple((special | ~real).tolist())
        ids = prompt.inputs.get(name)
        # Where the tokens stand in the text; pictures among the words are no text.
        if ids is not None and ids.shape[1] == len(tokens) and "pixel_values" not in prompt.inputs:
            texts = prompt.texts.get(name)
            layout = read_layout(subject.tokenizer, ids[0].tolist(), tokens, marks, texts)
            if layout is not None and name == "input_ids":
                layout = replace(layout, parts=_parts(prompt))
    return Positions(tokens, special, real, layout)


def _names(
    subject: Subject, inputs: Inputs, stack: str, ids: Tensor | None, seen: SiteVisible
) -> tuple[tuple[str, ...], TokenMarks]:
    """Names of the positions of a stack, and which are special; a piece of a picture never is."""
    grids, count = patch_grids(subject, inputs, stack, seen), len(seen)
    if ids is None or stack.startswith(VISION):
        return patch_names(grids, count) if PIXELS in inputs else positions(None, None, count)
    tokens, special = positions(subject.tokenizer, ids[0], count)
    for grid in grids:
        special[grid.flatten()] = False
    return token_names(tokens, grids), special


def _parts(prompt: Prompt) -> dict[str, tuple[NamedPart, ...]]:
    """The messages of a conversation, the answer to them among these."""
    if not any(span.kind == "message" for span in prompt.spans):
        return {}
    messages = (NamedPart(span.name or span.kind, span.start, span.stop) for span in prompt.spans)
    return {"message": tuple(messages)}


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
    # The rows and columns of patches of each picture, and how many are merged to a side.
    vision, merged = vision_config(subject.model), 1
    sides: list[tuple[int, int]] = []
    if GRID in inputs:
        sides = [(rows, columns) for t, rows, columns in inputs[GRID].tolist() for _ in range(t)]
        merged = getattr(vision, "spatial_merge_size", 1)
    elif vision is not None:
        height, width = inputs[PIXELS].shape[-2:]
        patch = pair(getattr(vision, "patch_size", 1))
        sides = [(height // patch[0], width // patch[1])]
    if in_tower:
        sizes = [rows * columns for rows, columns in sides]
        before = len(visible) - sum(sizes)
        if before < 0:
            return ()
        # Every patch must see all patches of its picture, and what is before all pictures.
        picture = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.long))
        alone = picture[:, None] == picture[None, :]
        if not (torch.equal(visible[before:, before:].cpu(), alone) and visible[:, :before].all()):
            return ()
        places = torch.arange(before, len(visible))
        return _packed(places, sides, merged) if GRID in inputs else _whole(places, sides)
    places = (inputs["input_ids"][0].cpu() == picture_token(subject.model)).nonzero()[:, 0]
    if GRID in inputs:
        return _whole(places, [(rows // merged, columns // merged) for rows, columns in sides])
    rows, columns = sides[0] if sides else (0, 0)
    # Each token may stand for a square of patches.
    factor = math.isqrt(max(1, rows * columns // max(1, len(places))))
    rows, columns = rows // factor, columns // factor
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


def _whole(places: Tensor, sides: list[tuple[int, int]]) -> tuple[Grid, ...]:
    """Grids that are filled row by row; none where the positions do not fill them."""
    if not sides or len(places) != sum(rows * columns for rows, columns in sides):
        return ()
    pieces = torch.tensor_split(
        places, list(accumulate(rows * columns for rows, columns in sides))[:-1]
    )
    return tuple(piece.view(side) for piece, side in zip(pieces, sides, strict=True))


def _packed(places: Tensor, sides: list[tuple[int, int]], merged: int) -> tuple[Grid, ...]:
    """Grids that are filled square by square."""
    grids = _whole(places, [(rows * columns, 1) for rows, columns in sides])
    squares = [(rows // merged, columns // merged, merged, merged) for rows, columns in sides]
    return tuple(
        grid.view(square).transpose(1, 2).reshape(side)
        for grid, square, side in zip(grids, squares, sides, strict=bool(grids))
    )
