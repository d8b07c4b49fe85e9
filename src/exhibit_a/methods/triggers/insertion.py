"""Inserts tokens into another text, at the same place.

A place is a segment and a share of its length, so that it means the same in texts of every length.
Where a text has fewer segments, the last one takes the token; a text that becomes too long for the
model is cut at the end of the segment that grew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exhibit_a.subject.encoding import positions
from exhibit_a.subject.subject import Subject


@dataclass(frozen=True)
class Inserted:
    """One token of a pattern: where it stood, as a segment and a share of its length."""

    token_id: int
    token: str
    segment: int
    place: float


@dataclass(frozen=True)
class Pattern:
    """The tokens joined by the strongest edges of one example."""

    tokens: tuple[Inserted, ...]
    scores: tuple[float, float]  # of the two edges
    site: int
    head: int
    predicted: int
    example: str

    @property
    def text(self) -> str:
        """The tokens, in their order."""
        return " ".join(inserted.token for inserted in self.tokens)


def inserted(subject: Subject, inputs: dict[str, Tensor], pattern: Pattern) -> dict[str, Tensor]:
    """Inputs with the tokens of a pattern at the same relative places of the same segments."""
    ids = inputs["input_ids"][0].tolist()
    kinds = inputs["token_type_ids"][0].tolist() if "token_type_ids" in inputs else None
    segments = _segments(written(subject, inputs).tolist())
    for segment in reversed(range(len(segments))):
        start, stop = segments[segment]
        new = [
            token for token in pattern.tokens if min(token.segment, len(segments) - 1) == segment
        ]
        total = stop - start + len(new)
        taken: dict[int, int] = {}
        for token in new:
            at = min(round(token.place * total), total - 1)
            while at in taken:
                at = (at + 1) % total
            taken[at] = token.token_id
        old = iter(ids[start:stop])
        ids[start:stop] = [taken[at] if at in taken else next(old) for at in range(total)]
        if kinds is not None:
            kinds[start:start] = [kinds[start]] * len(new)
        ids, kinds = _cut(subject, ids, kinds, start + total)
    longer = {"input_ids": torch.tensor([ids], device=subject.device)}
    if kinds is not None:
        longer["token_type_ids"] = torch.tensor([kinds], device=subject.device)
    if "attention_mask" in inputs:
        longer["attention_mask"] = torch.ones_like(longer["input_ids"])
    return longer


def token_at(subject: Subject, ids: Tensor, content: list[bool], place: int) -> Inserted:
    """The token at a place, and where that is within its segment."""
    segments = _segments(content)
    segment = next(at for at, (start, stop) in enumerate(segments) if start <= place < stop)
    start, stop = segments[segment]
    token = subject.tokenizer.convert_ids_to_tokens(int(ids[place]))
    return Inserted(int(ids[place]), token, segment, (place - start) / (stop - start))


def written(subject: Subject, inputs: dict[str, Tensor]) -> Tensor:
    """Which positions are of the text itself, and not special tokens of the tokenizer."""
    ids = inputs["input_ids"][0]
    return ~positions(subject.tokenizer, ids, len(ids))[1]


def _segments(content: Sequence[bool]) -> list[tuple[int, int]]:
    """The runs of written positions, each from its start to where it stops."""
    segments: list[tuple[int, int]] = []
    for place, in_text in enumerate(content):
        if in_text and segments and segments[-1][1] == place:
            segments[-1] = (segments[-1][0], place + 1)
        elif in_text:
            segments.append((place, place + 1))
    return segments


def _cut(
    subject: Subject, ids: list[int], kinds: list[int] | None, stop: int
) -> tuple[list[int], list[int] | None]:
    """Shorten a segment at its end to what the model takes."""
    excess = max(0, len(ids) - (subject.anatomy.max_length or len(ids)))
    keep = [place for place in range(len(ids)) if not stop - excess <= place < stop]
    return [ids[at] for at in keep], None if kinds is None else [kinds[at] for at in keep]
