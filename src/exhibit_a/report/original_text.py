"""How was the text written? Words for the page, where a result knows the places of its tokens.

A word has the characters of the text as they were written; between two words stands what stood
between them. Tokens that stand in no text, such as those that a tokenizer adds, are words of their
own.
"""

from itertools import pairwise

from exhibit_a.report.display_units import TOKEN
from exhibit_a.report.header import Sequence
from exhibit_a.results.result import Result
from exhibit_a.trace.layout import Layout, Span
from exhibit_a.trace.units import Units, units_of


def with_words(sequences: dict[str, Sequence], result: Result) -> dict[str, Sequence]:
    """The sequences of a page, with their words where the result has layouts of the same tokens."""
    layouts = dict(result.layouts)
    if len(layouts) == 1:
        layouts["tokens"] = next(iter(layouts.values()))  # what a result over one stack calls it
    return {
        name: _written(sequence, layouts[name])
        if name in layouts and len(layouts[name]) == len(sequence["tokens"])
        else sequence
        for name, sequence in sequences.items()
    }


def _written(sequence: Sequence, layout: Layout) -> Sequence:
    """The words of a sequence; what is over words or sentences already stands for itself."""
    same = Units(layout, tuple(range(len(layout))))
    units = units_of(layout, "word") if layout.unit == TOKEN else same
    spans = units.layout.spans
    gaps = [" ", *(_between(units.layout, *spans) for spans in pairwise(spans))]
    return {
        **sequence,
        "words": list(units.layout.names),
        "of": list(units.of),
        "gaps": gaps[: len(spans)],
    }


def _between(layout: Layout, first: Span | None, second: Span | None) -> str:
    """What stands between two words: a line where another text begins."""
    if first is None or second is None:
        return " "
    if first[0] != second[0]:
        return "\n"
    return layout.texts[first[0]][first[2] : second[1]]
