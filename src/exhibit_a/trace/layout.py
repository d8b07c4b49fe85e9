"""Which characters of the text each token stands for.

A fast tokenizer reports it: it is run once more, with its offsets, and is believed if it
gives the same ids. Otherwise (no offsets, ids from elsewhere, a text that the model wrote) the
tokens are decoded one after the other, and what each adds to the text is its place; the layout then
says so. A token that is a part of a character has the place of that character.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from os.path import commonprefix

from exhibit_a.errors import BadRequestError
from exhibit_a.subject.encoding import Tokenizer

NO_OFFSETS = "this tokenizer knows no offsets"
NO_TEXT = "token ids were given, and not their text"
OTHER_IDS = "the ids are not those that the tokenizer gives for the text"
LONGEST = 8  # tokens of one character: more than it has bytes
REPLACEMENT = "\ufffd"  # what stands for an unfinished character

Span = tuple[int, int, int]  # which text, and its characters from … to …
Spans = tuple[Span | None, ...]


@dataclass(frozen=True)
class NamedPart:
    """A stretch of positions with a name: a message, a passage, the answer."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """Where each position of a sequence stands in the texts it was made from."""

    names: tuple[str, ...]  # of the positions
    texts: tuple[str, ...]  # as written; two for a pair
    spans: Spans  # None for what stands in no text
    special: tuple[bool, ...]  # what the tokenizer added, and padding
    unit: str = "token"  # what the positions are
    warning: str = ""  # why the places come from decoded pieces; empty where they are exact
    parts: dict[str, tuple[NamedPart, ...]] = field(default_factory=dict)  # messages, passages …

    def __len__(self) -> int:
        return len(self.names)

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.spans) == len(self.special):
            raise BadRequestError("The layout of a text has not one place for each of its names.")
        for text, start, stop in filter(None, self.spans):
            if not 0 <= text < len(self.texts) or not 0 <= start <= stop <= len(self.texts[text]):
                raise BadRequestError("The layout of a text has places outside of it.")
        for part in (part for parts in self.parts.values() for part in parts):
            if not 0 <= part.start < part.stop <= len(self.names):
                raise BadRequestError("The layout of a text has parts outside of it.")

    def at(self, places: Sequence[int]) -> "Layout":
        """The layout of some of the positions, in their order."""
        parts = {
            name: tuple(
                NamedPart(
                    part.name, bisect_left(places, part.start), bisect_left(places, part.stop)
                )
                for part in parts
                if bisect_left(places, part.start) < bisect_left(places, part.stop)
            )
            for name, parts in self.parts.items()
        }
        return replace(
            self,
            names=tuple(self.names[place] for place in places),
            spans=tuple(self.spans[place] for place in places),
            special=tuple(self.special[place] for place in places),
            parts=parts,
        )

    def written(self, position: int) -> str:
        """The characters of the text that a position stands for."""
        span = self.spans[position]
        return "" if span is None else self.texts[span[0]][span[1] : span[2]]


def read_layout(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    names: tuple[str, ...],
    special: tuple[bool, ...],
    texts: tuple[str, ...] | None = None,
) -> Layout | None:
    """The layout of some ids, or None where nothing decodes them.

    ``texts`` are what they were made from: nothing where the model wrote them itself, so that what
    they decode to is the text.

    >>> ids = subject.tokenizer("Unflinchingly!")["input_ids"]
    >>> names = tuple(subject.tokenizer.convert_ids_to_tokens(ids))
    >>> special = tuple(name.startswith("[") for name in names)
    >>> layout = read_layout(subject.tokenizer, ids, names, special, ("Unflinchingly!",))
    >>> layout.written(1), layout.names[1]
    ('Un', 'un')
    >>> layout.spans[0], layout.warning
    (None, '')
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if not hasattr(tokenizer, "decode"):
        return None
    warning = "" if texts is None else NO_TEXT
    if texts and not getattr(tokenizer, "is_fast", False):
        warning = NO_OFFSETS
    elif texts:
        spans = _stated(tokenizer, list(ids), texts)
        if spans is not None:
            return Layout(names, texts, spans, special)
        warning = OTHER_IDS
    decoded, spans = _decoded(tokenizer, ids, special)
    return Layout(names, decoded, spans, special, warning=warning)


def _stated(tokenizer: Tokenizer, ids: list[int], texts: tuple[str, ...]) -> Spans | None:
    """The offsets that the tokenizer states, if it gives the same ids for the texts.

    A decoder reads its text behind a token to start with, and without its end; a text that was
    too long was cut. An answer stands behind its prompt, read together with it or by itself.
    """
    if len(texts) <= 2:
        whole = tokenizer(*texts, verbose=False)
        if len(whole["input_ids"]) > len(ids) and whole["input_ids"][: len(ids)] != ids:
            cut = tokenizer(*texts, verbose=False, truncation=True, max_length=len(ids))
            whole = cut if cut["input_ids"] == ids else whole
        encoding = whole.encodings[0]
        stated = [
            None if text is None else (text, *offsets)
            for text, offsets in zip(encoding.sequence_ids, encoding.offsets, strict=True)
        ]
        for shift in (0, 1):
            length = len(ids) - shift
            if list(whole["input_ids"][:length]) == ids[shift:]:
                return (*[None] * shift, *stated[:length])
    return _together(tokenizer, ids, texts) or _in_turn(tokenizer, ids, texts)


def _together(tokenizer: Tokenizer, ids: list[int], texts: tuple[str, ...]) -> Spans | None:
    """The offsets of texts that follow each other and were read as one."""
    encoding = tokenizer("".join(texts), add_special_tokens=False, verbose=False).encodings[0]
    ends = list(accumulate(map(len, texts)))
    spans: list[Span | None] = []
    for start, stop in encoding.offsets:
        text = min(bisect_right(ends, start), len(texts) - 1)
        before = ends[text] - len(texts[text])
        spans.append((text, start - before, min(stop, ends[text]) - before))
    return _placed(ids, encoding.ids, spans)


def _in_turn(tokenizer: Tokenizer, ids: list[int], texts: tuple[str, ...]) -> Spans | None:
    """The offsets of texts that follow each other and were read one after the other."""
    stated: list[int] = []
    spans: list[Span | None] = []
    for text, written in enumerate(texts):
        encoding = tokenizer(written, add_special_tokens=False, verbose=False).encodings[0]
        stated += encoding.ids
        spans += [(text, start, stop) for start, stop in encoding.offsets]
    return _placed(ids, stated, spans)


def _placed(ids: list[int], stated: list[int], spans: list[Span | None]) -> Spans | None:
    """The spans of what was stated, where that stands behind nothing but special tokens."""
    before = len(ids) - len(stated)
    if before < 0 or ids[before:] != stated:
        return None
    return (*[None] * before, *spans)


def _decoded(
    tokenizer: Tokenizer, ids: Sequence[int], special: tuple[bool, ...]
) -> tuple[tuple[str, ...], Spans]:
    """The texts between special tokens as they are decoded, and the characters of each token."""
    texts: list[str] = []
    spans: list[Span | None] = [None] * len(ids)
    for run in _runs(special):
        text, places = pieces(tokenizer, [ids[position] for position in run])
        for position, (start, stop) in zip(run, places, strict=True):
            spans[position] = (len(texts), start, stop)
        texts.append(text)
    return tuple(texts), tuple(spans)


def _runs(special: tuple[bool, ...]) -> list[range]:
    """Neighbouring positions with nothing special between them."""
    runs: list[range] = []
    for position in (place for place, marked in enumerate(special) if not marked):
        if runs and runs[-1].stop == position:
            runs[-1] = range(runs[-1].start, position + 1)
        else:
            runs.append(range(position, position + 1))
    return runs


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """The text of some tokens, and the characters that each of them brought.

    >>> ids = subject.tokenizer("unflinchingly honest")["input_ids"][1:-1]
    >>> text, places = pieces(subject.tokenizer, ids)
    >>> text, places[-1]
    ('unflinchingly honest', (13, 20))
    """
    places: list[tuple[int, int]] = []
    text, whole = "", [0]  # numbers of tokens after which no character is left unfinished
    for count in range(1, len(ids) + 1):
        begin = whole[-2] if len(whole) > 1 else 0  # a first token loses its space
        longer = tokenizer.decode(list(ids[begin:count]), clean_up_tokenization_spaces=False)
        unfinished = longer.endswith(REPLACEMENT) and count - whole[-1] < LONGEST
        if unfinished and count < len(ids):
            continue
        known = list(ids[begin : whole[-1]])
        shorter = tokenizer.decode(known, clean_up_tokenization_spaces=False) if known else ""
        kept = len(commonprefix([shorter, longer]))  # noqa: RUF071 (characters are meant)
        start = len(text) - len(shorter) + kept
        text = text[:start] + longer[kept:]
        places += [(start, len(text))] * (count - whole[-1])
        whole.append(count)
    return text, places
