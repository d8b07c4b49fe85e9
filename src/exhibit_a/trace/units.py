"""Which tokens make one word, one sentence, one passage of the text as it was written.

Units are found in the characters of the original text and then given their tokens (``layout.py``
knows the characters of each). Every token belongs to exactly one unit, so sums over units are sums
over tokens; special tokens and padding are units of their own.

1. A *word* is what Unicode's word segmentation (UAX 29) gives: letters and digits with the marks
   and apostrophes inside them, an emoji with all that is joined to it. Words joined by a hyphen are
   one, and so is a run of punctuation. Where a script has no spaces between words (Chinese, Thai)
   these are single characters; tokens that reach over several of them hold them together, so that
   there the pieces of the tokenizer are the words.
2. Tokens that share a word, or a character, go together: a token over two words makes them one
   unit. Spaces go with the word behind them; the end of a line is a unit of its own.
3. *Sentences* end where UAX 29 ends them, also at the end of a line; *lines* at line breaks;
   *passages* and *messages* are those that the text was made from, or else passages are what blank
   lines separate. A token belongs to the one in which it begins.

No boundary ever falls inside a character as people count them (a grapheme cluster).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import regex

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.trace.layout import Layout, NamedPart, Span

UNITS = ("token", "word", "sentence", "line", "passage", "message")
LINE_BREAK = "⏎"

CharacterSpan = tuple[int, int]
UnitSpec = str | Sequence[CharacterSpan | Span | str] | Mapping[str, CharacterSpan | Span]

_WORD_CUT = regex.compile(r"(?w)\b")
_CLUSTER = regex.compile(r"\X")
_READ = regex.compile(r"[\p{L}\p{N}\p{M}_]")
_EMOJI = regex.compile(r"[\p{Extended_Pictographic}\p{Regional_Indicator}]")
_HYPHEN = regex.compile(r"[-‐‑]")
_ENDS = {
    "sentence": regex.compile(
        r"\p{SB=STerm}[\p{SB=ATerm}\p{SB=STerm}]*\p{SB=Close}*\s*"
        r"|\p{SB=ATerm}+\p{SB=Close}*\s+(?!\p{Ll})|\R\s*"
    ),
    "line": regex.compile(r"\R"),
    "passage": regex.compile(r"\R[^\S\r\n]*\R\s*"),
}


@dataclass(frozen=True)
class Units:
    """The units of a sequence, laid out in its texts, and the unit of each position."""

    layout: Layout
    of: tuple[int, ...]

    @property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The positions of each unit."""
        members: list[list[int]] = [[] for _ in self.layout.names]
        for position, unit in enumerate(self.of):
            members[unit].append(position)
        return tuple(map(tuple, members))


def units_of(layout: Layout, by: UnitSpec = "word") -> Units:
    """The units of a sequence: by a name of UNITS, or by spans of characters.

    >>> layout = trace.sequences["encoder"].layout
    >>> units_of(layout).layout.names[:4]
    ('[CLS]', 'a', 'gripping', ',')
    >>> units_of(layout, {"praise": (2, 29)}).layout.names
    ('[CLS]', 'a', 'praise', 'film', '[SEP]')
    """
    if not isinstance(by, str):
        return _united(layout, _by_spans(layout, named_spans(layout, by)), "span")
    require_choice("unit", by, UNITS)
    if by == layout.unit:
        return Units(layout, tuple(range(len(layout))))
    if layout.unit not in ("token", "word") or by == "token":
        raise NotComputableError(
            f"This result is over {layout.unit}s already; ask the one over tokens for {by}s."
        )
    if by in layout.parts:
        return _united(layout, _by_parts(layout, layout.parts[by]), by)
    if by == "message":
        raise BadRequestError("There are no messages in this text; it was not given as a chat.")
    return _united(layout, _by_words(layout) if by == "word" else _by_ends(layout, by), by)


def word_spans(text: str) -> list[CharacterSpan]:
    """Where the words of a text are, punctuation among them and spaces left out.

    >>> [text[start:stop] for text in ["Isn't it well-made?!"] for start, stop in word_spans(text)]
    ["Isn't", 'it', 'well-made', '?!']
    >>> [text[start:stop] for text in ["好看 👨‍👩‍👧!"] for start, stop in word_spans(text)]
    ['好', '看', '👨\u200d👩\u200d👧', '!']
    """
    clusters = {match.start() for match in _CLUSTER.finditer(text)}
    cuts = {match.start() for match in _WORD_CUT.finditer(text)} & clusters | {0, len(text)}
    spans: list[CharacterSpan] = []
    kinds: list[str] = []
    for start, stop in pairwise(sorted(cuts)):
        if text[start:stop].isspace():
            continue
        kind, touching = _kind(text[start:stop]), bool(spans) and spans[-1][1] == start
        if touching and kind == "mark" and kinds[-1] in ("mark", "hyphen"):
            spans[-1], kinds[-1] = (spans[-1][0], stop), "mark"
        elif touching and kind == "word" and kinds[-2:] == ["word", "hyphen"]:
            spans[-2:], kinds[-1:] = [(spans[-2][0], stop)], []
        else:
            hyphen = kind == "mark" and touching and _HYPHEN.fullmatch(text[start:stop])
            spans.append((start, stop))
            kinds.append("hyphen" if hyphen and kinds[-1] == "word" else kind)
    return spans


def _kind(segment: str) -> str:
    """Whether a segment is read as a word, is an emoji, or is punctuation."""
    if _READ.search(segment) and not _EMOJI.match(segment):
        return "word"
    return "emoji" if _EMOJI.search(segment) else "mark"


class _Groups:
    """Positions in groups, each with the characters it stands for and perhaps a name."""

    def __init__(self, layout: Layout) -> None:
        self.first = list(range(len(layout)))  # of its group, or one that leads there
        self.spans: dict[int, Span] = {}
        self.names: dict[int, str] = {}

    def root(self, position: int) -> int:
        """The first position of a group."""
        while self.first[position] != position:
            position = self.first[position]
        return position

    def join(self, position: int, other: int) -> None:
        """Make one group of two."""
        first, second = sorted((self.root(position), self.root(other)))
        self.first[second] = first
        if second in self.spans:
            self.reach(first, self.spans.pop(second))

    def reach(self, position: int, span: Span) -> None:
        """Let the group of a position stand for more characters of its text."""
        root = self.root(position)
        _, start, stop = self.spans.get(root, span)
        self.spans[root] = (span[0], min(start, span[1]), max(stop, span[2]))


def _by_words(layout: Layout) -> _Groups:
    """Step 2: positions that share a word are one group."""
    groups, spans = _Groups(layout), [word_spans(text) for text in layout.texts]
    owner: dict[Span, int] = {}  # the first position in each word
    spaces: int | None = None  # a position of spaces, which goes with the next word
    for position, span in enumerate(layout.spans):
        if layout.special[position]:
            spaces = None
            continue
        words = [] if span is None else [(span[0], *word) for word in _within(spans[span[0]], span)]
        for word in words:
            groups.join(owner.setdefault(word, position), position)
            groups.reach(position, word)
        if spaces is not None:
            groups.join(spaces, position)
        breaks = any(mark in layout.written(position) for mark in "\n\r")
        spaces = None if words or breaks else position
    if spaces is not None and spaces > 0 and not layout.special[spaces - 1]:
        groups.join(spaces - 1, spaces)  # the last spaces have no word behind them
    return groups


def _within(words: Sequence[CharacterSpan], span: Span) -> Sequence[CharacterSpan]:
    """The words that share a character with a span."""
    _, start, stop = span
    first = bisect_right(words, start, key=lambda word: word[1])
    return words[first : bisect_left(words, stop, key=lambda word: word[0])]


def _by_ends(layout: Layout, by: str) -> _Groups:
    """Step 3: texts are cut after each end."""
    cuts = [
        [0, *(match.end() for match in _ENDS[by].finditer(text)), len(text)]
        for text in layout.texts
    ]
    groups = _Groups(layout)
    firsts: dict[tuple[int, int], int] = {}
    for position, span in _in_texts(layout):
        text, place = span[0], _begin(layout, span)
        number = min(bisect_right(cuts[text], place), len(cuts[text]) - 1)
        groups.join(firsts.setdefault((text, number), position), position)
        groups.reach(position, (text, *cuts[text][number - 1 : number + 1]))
    return groups


def _by_parts(layout: Layout, parts: Sequence[NamedPart]) -> _Groups:
    """Parts of the sequence that are known; everything else is left alone."""
    groups = _Groups(layout)
    for part in parts:
        inside = [place for place in range(part.start, part.stop) if not layout.special[place]]
        for position in inside:
            groups.join(inside[0], position)
            if (span := layout.spans[position]) is not None:
                groups.reach(position, span)
        if inside:
            groups.names[inside[0]] = part.name
    return groups


def _by_spans(layout: Layout, named: Mapping[str, Span]) -> _Groups:
    """Spans of characters; what lies between two of them is one group too."""
    groups = _Groups(layout)
    order = sorted(named.items(), key=lambda entry: entry[1])
    firsts: dict[tuple[int, int], int] = {}
    for position, span in _in_texts(layout):
        place = (span[0], _begin(layout, span))
        number = bisect_right(order, place, key=lambda entry: entry[1][:2])
        name, requested = order[number - 1] if number else ("", (-1, 0, 0))
        inside = requested[0] == place[0] and place[1] < requested[2]
        first = firsts.setdefault((place[0], 2 * number + (not inside)), position)
        groups.join(first, position)
        groups.reach(position, requested if inside else span)
        if inside:
            groups.names[first] = name
    return groups


def named_spans(layout: Layout, by: UnitSpec) -> dict[str, Span]:
    """The spans that were requested, by name; a word or phrase stands for its place in the text.

    >>> layout = trace.sequences["encoder"].layout
    >>> named_spans(layout, ["beautifully shot", (0, 10)])
    {'beautifully shot': (0, 13, 29), 'a gripping': (0, 0, 10)}
    >>> named_spans(layout, ["dull"])
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: 'dull' is not in the text: 'a gripping , beautifully ...
    """
    if not isinstance(by, Mapping | Sequence):
        raise BadRequestError(f"Units are named, or a list of spans; {by!r} is neither.")
    if isinstance(by, Mapping):
        named = {str(name): _span(layout, span) for name, span in by.items()}
    else:
        spans = [_span(layout, span) for span in by]
        named = {}
        for text, start, stop in spans:
            name = layout.texts[text][start:stop]
            named[f"{name} ({start})" if name in named else name] = (text, start, stop)
    if not named:
        raise BadRequestError(f"No span was given; give some, or one of {', '.join(UNITS)}.")
    for (name, span), (other, following) in pairwise(
        sorted(named.items(), key=lambda entry: entry[1])
    ):
        if span[0] == following[0] and span[2] > following[1]:
            raise BadRequestError(f"The spans {name!r} and {other!r} overlap; a token is in one.")
    return named


def _span(layout: Layout, requested: object) -> Span:
    """One span that was requested, in the text it is in."""
    if isinstance(requested, str):
        for text, written in enumerate(layout.texts):
            if requested and (start := written.find(requested)) >= 0:
                return text, start, start + len(requested)
        shown = ", ".join(map(repr, layout.texts))
        raise BadRequestError(f"{requested!r} is not in the text: {shown}.")
    numbers = tuple(requested) if isinstance(requested, Sequence) else ()
    if len(numbers) in (2, 3) and all(isinstance(number, int) for number in numbers):
        text, start, stop = numbers if len(numbers) == 3 else (0, *numbers)
        if 0 <= text < len(layout.texts) and 0 <= start < stop <= len(layout.texts[text]):
            return text, start, stop
    sizes = " and ".join(str(len(text)) for text in layout.texts)
    raise BadRequestError(
        f"A span is (start, stop) in characters, or (text, start, stop); {requested!r} is none in "
        f"{sizes} characters."
    )


def _in_texts(layout: Layout) -> Iterator[tuple[int, Span]]:
    """The positions that stand in a text, each with its characters."""
    for position, span in enumerate(layout.spans):
        if span is not None and not layout.special[position]:
            yield position, span


def _begin(layout: Layout, span: Span) -> int:
    """Where the first character of a span is that is no space."""
    text, start, stop = span
    written = layout.texts[text][start:stop]
    return start + len(written) - len(written.lstrip()) if written.strip() else start


def _united(layout: Layout, groups: _Groups, unit: str) -> Units:
    """The groups in the order of their first positions, as a layout of their own."""
    roots = [groups.root(position) for position in range(len(layout))]
    order = {root: number for number, root in enumerate(sorted(set(roots)))}
    of = tuple(order[root] for root in roots)
    spans = [_trimmed(layout, groups.spans.get(root, layout.spans[root])) for root in order]
    names = [
        groups.names.get(root) or _text(layout, span)
        for root, span in zip(order, spans, strict=True)
    ]
    united = replace(
        layout,
        names=tuple(name or layout.names[root] for name, root in zip(names, order, strict=True)),
        spans=tuple(spans),
        special=tuple(layout.special[root] for root in order),
        unit=unit,
        parts={
            name: tuple(
                NamedPart(part.name, of[part.start], of[part.stop - 1] + 1) for part in parts
            )
            for name, parts in layout.parts.items()
        },
    )
    return Units(united, of)


def _trimmed(layout: Layout, span: Span | None) -> Span | None:
    """A span without the spaces around it, unless it is all spaces."""
    if span is None or not (written := layout.texts[span[0]][span[1] : span[2]]).strip():
        return span
    start = span[1] + len(written) - len(written.lstrip())
    return span[0], start, start + len(written.strip())


def _text(layout: Layout, span: Span | None) -> str:
    """What is written in a span; the end of a line is shown by a sign."""
    written = "" if span is None else layout.texts[span[0]][span[1] : span[2]]
    return written if written.strip() else LINE_BREAK * ("\n" in written or "\r" in written)
