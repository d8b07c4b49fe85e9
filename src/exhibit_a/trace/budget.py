"""Whether a pass fits into memory, and which rows of it would.

What a pass takes at its peak, above the model itself, is counted before it is run:

    kept     maps (layers × heads × n²; or rows × n), keys and values, hidden states, answers
    passing  three maps of the largest site (scores, masked scores, weights), or of its rows; four
             vectors as wide as the widest Linear in a layer, and four states, for every token

Nothing is kept that was not requested. A pass that would not fit is refused before it starts, with
the number of rows that would.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from exhibit_a.errors import NotComputableError
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.shapes import Inputs
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.weights import every_module

PASSING_MAPS, PASSING_VECTORS, PASSING_STATES = 3, 4, 4
GIGABYTE = 1e9


@dataclass(frozen=True)
class PassSize:
    """Bytes of what a pass makes, by kind."""

    maps: float  # of all sites
    largest: float  # maps of one site
    per_row: float  # one row of all sites that have the requested rows
    vectors: float  # keys and values
    states: float  # hidden states of all layers
    passing: float  # what a layer makes and lets go
    per_answer: float
    length: int
    fused: bool  # whether no map is formed where rows are requested

    def peak(self, maps: float = 1.0, states: float = 1.0, *, rows: int | None = None) -> float:
        """Bytes at the peak, by the sets of maps and states kept, or rows instead of maps."""
        if rows is not None:
            kept = self.vectors + max(maps, 1.0) * rows * self.per_row
            passing = PASSING_MAPS * (rows * self.per_row if self.fused else self.largest)
        else:
            kept, passing = maps * self.maps + self.vectors / 2, PASSING_MAPS * self.largest
        answers = (self.length if rows is None else rows) * self.per_answer
        return kept + passing + max(states, 1.0) * self.states + self.passing + answers


def pass_size(subject: Subject, sizes: Sequence[tuple[int, int]]) -> PassSize:
    """The size of a pass, by the queries and keys of every site."""
    sites, layers = subject.anatomy.sites, len(subject.anatomy.layers)
    number, width = torch.finfo(subject.dtype).bits / 8, subject.anatomy.d_model
    places = list(zip(sites, sizes, strict=True))
    maps = [site.heads * queries * keys * number for site, (queries, keys) in places]
    length = max(max(size) for size in sizes)
    answering = [(s, size) for s, size in places if s.stack == sites[-1].stack]
    linear_widths = [
        part.out_features
        for module in {layer.module for layer in subject.anatomy.layers}
        for part in every_module(subject.model.get_submodule(module))
        if isinstance(part, nn.Linear)
    ]
    widest = max(linear_widths, default=subject.anatomy.d_model)
    return PassSize(
        maps=sum(maps),
        largest=max(maps),
        per_row=sum(site.heads * keys * number for site, (_, keys) in answering),
        vectors=sum(
            site.kv_heads * (site.d_head + (site.d_query or site.d_head)) * keys * number
            for site, (_, keys) in places
        ),
        states=(layers + 1) * length * width * number,
        passing=length * number * (PASSING_VECTORS * widest + PASSING_STATES * width),
        per_answer=_answers(subject) * number,
        length=length,
        fused=bool(subject.kernels),
    )


def require_room(subject: Subject, inputs: Inputs, keep: Sequence[str], rows: int | None) -> None:
    """Refuse a pass that would not fit, and say how many rows of it would."""
    ids = inputs.get("input_ids")
    if ids is None:
        return  # pictures and sound have a length of their own, which is never long
    read = (inputs.get(name) for name in ("input_ids", "decoder_input_ids"))
    length = max(1, *(ids.shape[1] for ids in read if ids is not None))
    size = pass_size(subject, [(length, length)] * len(subject.anatomy.sites))
    free = free_bytes(subject.device)
    needed = size.peak(1.0 if "attention" in keep else 0.0, rows=rows)
    if needed <= free:
        return
    without = size.peak(0.0, rows=0)
    fitting = int((free - without) / ((1 + PASSING_MAPS) * size.per_row + size.per_answer))
    requested = "All maps" if rows is None else f"{rows} rows"
    cure = (
        f"ask for rows instead: {min(fitting, length)} would fit, as rows=slice(-"
        f"{min(fitting, length)}, None) or rows=[-1]"
        if fitting > 0
        else "even one row does not fit; give a shorter text"
    )
    raise NotComputableError(
        f"{requested} of {length} tokens take {needed / GIGABYTE:.1f} GB besides the model, and "
        f"{free / GIGABYTE:.1f} GB are free; {cure}."
    )


def _answers(subject: Subject) -> int:
    """Numbers of the answer at one position, for models that answer at every one."""
    if subject.anatomy.answers not in ("tokens", "token classes"):
        return 0
    return int(getattr(subject.model.config.get_text_config(), "vocab_size", 0))
