"""What stands at each position of a stack, and what is it called?

A map is read by its rows and columns, so every position of every stack that runs has a name: the
token of a text, the piece of a picture with its row and column (``regions.py``), a moment of sound,
a query that the model learnt. Positions that the tokenizer or a chat template added are special,
and some are padding. Where a stack reads text, the layout says where its tokens stand in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exhibit_a.shapes import Inputs, SiteVisible, TokenMarks
from exhibit_a.subject.anatomy import VISION, Layer, Site, key_stack
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.images import PIXELS
from exhibit_a.subject.prompts import Prompt
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.layout import Layout, Part, read_layout
from exhibit_a.trace.passes import AskedPass
from exhibit_a.trace.regions import patch_grids, patch_names, seen_everywhere, token_names


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
            sequences[stack] = _learnt(visible[sites.index(first)].shape[0])
        else:
            seen = seen_everywhere(first, sites, visible)
            sequences[stack] = _sequence(subject, prompt, stack, seen)
    return sequences


def unnamed(count: int) -> Positions:
    """Positions of states that came from outside, of which only the number is known."""
    tokens, special = positions(None, None, count)
    return Positions(tokens, special, torch.ones(count, dtype=torch.bool))


def naming_masks(
    visible: tuple[SiteVisible, ...], asked: AskedPass | None
) -> tuple[SiteVisible, ...]:
    """Masks of the size of every site, by which positions are counted and named."""
    if asked is None:
        return visible
    known = {size: torch.ones(1, 1).bool().expand(size) for size in set(asked.sizes)}
    return tuple(known[size] for size in asked.sizes)


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
        special = special | _of_template(prompt, len(tokens))
        marks = tuple((special | ~real).tolist())
        layout = _layout(subject, prompt, name, tokens, marks)
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


def _learnt(count: int) -> Positions:
    """Positions that hold no token: what the model learnt to ask the text."""
    names = ("[query]",) if count == 1 else tuple(f"[query {i}]" for i in range(count))
    return Positions(names, torch.zeros(count, dtype=torch.bool), torch.ones(count).bool())


def _of_template(prompt: Prompt, count: int) -> TokenMarks:
    """The tokens that a chat template wrote around the messages."""
    marks = torch.zeros(count, dtype=torch.bool)
    if any(span.kind == "message" for span in prompt.spans):
        marks[:] = True
        for span in prompt.spans:
            marks[span.start : span.stop] = False
    return marks


def _layout(
    subject: Subject, prompt: Prompt, name: str, tokens: tuple[str, ...], marks: tuple[bool, ...]
) -> Layout | None:
    """Where the tokens stand in the text; pictures among the words are no text."""
    ids = prompt.inputs.get(name)
    if ids is None or ids.shape[1] != len(tokens) or "pixel_values" in prompt.inputs:
        return None
    texts = prompt.texts.get(name)
    layout = read_layout(subject.tokenizer, ids[0].tolist(), tokens, marks, texts)
    if layout is None or name != "input_ids":
        return layout
    return replace(layout, parts=_parts(prompt))


def _parts(prompt: Prompt) -> dict[str, tuple[Part, ...]]:
    """The messages of a conversation, the answer to them among these."""
    if not any(span.kind == "message" for span in prompt.spans):
        return {}
    messages = (Part(span.name or span.kind, span.start, span.stop) for span in prompt.spans)
    return {"message": tuple(messages)}
