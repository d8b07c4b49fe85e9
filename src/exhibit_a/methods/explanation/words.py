"""Which tokens make one word?

A person reads words, a model sub-words. The text is decoded token by token, so that each token has
its place among the characters, whatever its tokenizer. A word is a run of letters and digits
(with the apostrophes and hyphens inside it), a run of punctuation, or, where words are written
without spaces, a single character; tokens that share a word, or a character, go together.
"""

import re
from dataclasses import dataclass
from os.path import commonprefix

from jaxtyping import Bool
from torch import Tensor

from exhibit_a.methods.explanation.erasure import removable
from exhibit_a.subject.encoding import Tokenizer
from exhibit_a.trace.capture import Trace

WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|\w+(?:['’-]\w+)*|[^\w\s]+")

Span = tuple[int, int]  # of characters


@dataclass(frozen=True)
class Words:
    """The words of a text that can be taken away, in their order."""

    names: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]  # the tokens of each
    joined: bool  # false where the tokenizer cannot say, and tokens stand for words

    def __len__(self) -> int:
        return len(self.names)


def words_of(trace: Trace) -> Words:
    """The words of a text that can be taken away whole.

    >>> words_of(xa.capture(subject, "unflinchingly honest")).names
    ('unflinchingly', 'honest')
    >>> words_of(xa.capture(subject, "unflinchingly honest")).places
    ((1, 2, 3, 4, 5), (6,))
    """
    free = removable(trace)
    processor = trace.subject.tokenizer
    tokenizer = getattr(processor, "tokenizer", processor)
    if not hasattr(tokenizer, "decode"):
        single = tuple((place,) for place in free.nonzero()[:, 0].tolist())
        return Words(tuple(trace.tokens[place] for (place,) in single), single, joined=False)
    ids = trace.inputs["input_ids"][0].tolist()
    names: list[str] = []
    groups: list[tuple[int, ...]] = []
    for run in _runs(trace.real & ~trace.special):
        for name, places in _words(tokenizer, ids, run):
            if name and bool(free[list(places)].all()):
                names.append(name)
                groups.append(places)
    return Words(tuple(names), tuple(groups), joined=True)


def _runs(written: Bool[Tensor, " token"]) -> list[range]:
    """Neighbouring tokens of the text, with nothing of the tokenizer's between them."""
    runs: list[range] = []
    for place in written.nonzero()[:, 0].tolist():
        if runs and runs[-1].stop == place:
            runs[-1] = range(runs[-1].start, place + 1)
        else:
            runs.append(range(place, place + 1))
    return runs


def _words(tokenizer: Tokenizer, ids: list[int], run: range) -> list[tuple[str, tuple[int, ...]]]:
    """The words of one run of tokens, each with its tokens."""
    text, spans = _spans(tokenizer, [ids[place] for place in run])
    starts = {at: match.start() for match in WORD.finditer(text) for at in range(*match.span())}
    words: list[tuple[set[int], list[int]]] = []  # where its pieces of text begin, its tokens
    for place, (start, stop) in zip(run, spans, strict=True):
        pieces = {starts[at] for at in range(start, stop) if at in starts}
        if words and (not pieces or pieces & words[-1][0]):  # a space alone goes with what it ends
            words[-1][0].update(pieces)
            words[-1][1].append(place)
        else:
            words.append((pieces, [place]))
    ends = {match.start(): match.end() for match in WORD.finditer(text)}
    return [
        (text[min(pieces) : max(ends[start] for start in pieces)] if pieces else "", tuple(places))
        for pieces, places in words
    ]


def _spans(tokenizer: Tokenizer, ids: list[int]) -> tuple[str, list[Span]]:
    """The text of some tokens, and the characters that each of them brought."""
    spans: list[Span] = []
    text = ""
    for count in range(1, len(ids) + 1):
        longer = tokenizer.decode(ids[:count], clean_up_tokenization_spaces=False)
        # Half a character is written anew when its other half comes.
        start = len(commonprefix([text, longer]))  # noqa: RUF071 (characters are meant)
        spans.append((start, len(longer)))
        text = longer
    return text, spans
