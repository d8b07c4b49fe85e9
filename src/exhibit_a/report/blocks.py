"""The kinds of blocks that a result describes itself with.

A description (``describe/``) says once which blocks a result is made of: what its numbers are
called, what they mean and how they are written. The page, the terminal, the notebook, LaTeX and
matplotlib each show these kinds of blocks, and know nothing about kinds of results.

Where a block is shown (a still notebook is one without scripts; a figure is what ``plot`` draws):

=========================== ==================================================================
``AnswerSummary``                 page, terminal, still notebook: the story of a text
``Table``                   page; the others show the first, or those that are not on the page
``Maps``                    page, figure; of the heads' numbers a table everywhere, LaTeX too
``Chart``, ``Figure``       page (without what is only for paper), figure
``Tree``                    page, figure; in the story of a text as lines, too
``Story``                   page, figure
``Grid``                    figure
``Slider``, ``HeatMapPanel``    page
``Passages``, ``Sides``     page
``Section``                 terminal, in the story of a text
``Texts``                   nowhere alone: it names the tokens of the others
=========================== ==================================================================

``Series``, ``Line``, ``AnswerSummary``, ``HeatMapPanel``, ``Passages`` and ``Image`` (which a page
makes of the picture that a vision model read) go into the header of a page as they are
(``header.py``); the others are packed first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from exhibit_a.shapes import SiteHeads

if TYPE_CHECKING:
    from exhibit_a.results.result import Result

Point = tuple[float, float]
Cell = str | int | float | bool | None | tuple[float, ...] | list[float]
Row = dict[str, Cell]
Rows = list[Row]
Head = tuple[int, int]  # site, head
SiteMaps = tuple[Float[Tensor, "_head _row _column"], ...]
Mark = Literal["line", "marked line", "dots", "bars", "levels", "boxes"]


@dataclass(frozen=True)
class Texts:
    """The tokens along the axes of the other blocks, by the name of their stack."""

    sequences: dict[str, tuple[str, ...]]
    special: tuple[bool, ...] = ()  # of the sequences that have as many tokens


@dataclass(frozen=True)
class Column:
    """A number of a table: its key in files, and what people read."""

    key: str
    name: str
    help: str = ""
    form: str = ""  # as in format(), where a number is not written with three digits
    brief: bool = False  # also shown where there is no room for all columns


@dataclass(frozen=True)
class Table:
    """Rows under headings. The first table of a description is the one that sums it up."""

    title: str
    columns: tuple[Column, ...]
    rows: Rows | Callable[[int], Rows]  # the first N, where there are too many to make them all
    caption: str = ""
    shown: int | None = None  # rows that are shown unless another number is requested
    rank: Callable[[Row], float] | None = None  # what a request for the first rows sorts by
    heads: tuple[Head, ...] = ()  # the head that each row is about
    on_page: bool = True  # unless another block shows the same there

    def first(self, top: int | None = None) -> Rows:
        """The first rows: ``top``, or as many as are usually shown."""
        if callable(self.rows):
            return self.rows(self.shown or 0 if top is None else top)
        rows = self.rows
        if top is not None and self.rank is not None:
            rows = sorted(rows, key=self.rank, reverse=True)
        return rows[: self.shown if top is None else top]


@dataclass(frozen=True)
class Mode:
    """One kind of number on every map: raw, effective, attribution …"""

    key: str
    name: str
    maps: SiteMaps | None = None
    caption: str = ""
    signed: bool = True
    minus: tuple[str, str] | None = None  # without maps of its own: the first mode less the second


@dataclass(frozen=True)
class MapSite:
    """Where maps stand: what it is called, and the sequences along its rows and columns."""

    name: str
    short: str
    queries: str = ""  # "" where an axis is not of tokens
    keys: str = ""
    foretells: bool = False  # whether a row serves the word after its own
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # along both axes


@dataclass(frozen=True)
class Maps:
    """The attention maps of all heads, and the numbers about each head."""

    modes: tuple[Mode, ...]
    sites: tuple[MapSite, ...]
    heads: Table | None = None
    verdicts: dict[Head, tuple[str, str]] | None = None  # the word of each head, and its reason
    meanings: tuple[tuple[str, str], ...] = ()  # of these words
    weights: tuple[SiteHeads, ...] = ()  # which head a plot shows: the one with the largest
    label: str = ""  # of the colours
    titled: str = ""  # key of the column that stands in the title of a plot
    additive: bool = False  # whether the heads of a layer add up

    def map_name(self, site: int, head: int) -> str:
        """What a map is called."""
        name = self.sites[site].name
        name, maps = name[:1].lower() + name[1:], self.modes[0].maps
        return f"{name}, head {head}" if maps and len(maps[site]) > 1 else name


@dataclass(frozen=True)
class Grid:
    """Numbers with names on both sides, as colours; marks where ``words`` are given."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    numbers: Float[Tensor, "_row _column"]
    title: str = ""
    label: str = ""
    x: str = ""
    tokens: str | None = None  # the stack that the columns are tokens of
    limit: float | None = None  # of a signed scale
    most: float | None = None  # of a scale that begins at 0
    words: tuple[tuple[str, ...], ...] = ()  # of verdicts, row by row


@dataclass(frozen=True)
class Series:
    """One curve, one cloud of dots, or one bar for each position."""

    name: str
    points: tuple[Point, ...]
    band: tuple[Point, ...] | None = None  # low and high of each point
    dashed: bool | None = None
    mark: Mark = "line"
    role: Literal["", "reference", "signed", "pale"] = ""  # instead of a colour of its own
    like: str = ""  # the series whose colour it takes


@dataclass(frozen=True)
class Line:
    """A line across a chart, at a place on the x axis or, if ``level``, on the y axis."""

    at: float
    name: str
    level: bool | None = None


@dataclass(frozen=True)
class Chart:
    """Series over one axis, which has numbers or names."""

    x: str
    y: str
    series: tuple[Series, ...]
    title: str = ""
    lines: tuple[Line, ...] = ()
    caption: str = ""
    names: tuple[str, ...] = ()  # of the places 0, 1, 2 … of the x axis
    tokens: str | None = None  # the stack that the names are tokens of
    upright: bool = True  # bars rise; otherwise they lie, with the names down the side
    limits: Point | None = None  # of the y axis
    scale: Literal["", "root", "near zero"] = ""  # of the y axis
    ordered: bool = False  # whether the series are steps of one thing, such as layers
    inside: bool = False  # whether the lines leave room for the legend
    most: int | None = None  # places that a plot shows unless ``count`` says another number
    on_page: bool = True  # unless another block shows the same there
    notes: tuple[tuple[float, float, str], ...] = ()  # words at points


@dataclass(frozen=True)
class Figure:
    """What is drawn for a paper: panels next to each other, or below each other."""

    panels: tuple["Chart | Grid | Story", ...]
    size: Point | None = None  # inches
    ratios: tuple[float, ...] | None = None
    below: bool = False
    shared: bool = False  # one y axis for all panels
    on_page: bool = True


@dataclass(frozen=True)
class Tree:
    """An attribution tree, with every edge that a lower threshold could let in."""

    sequence: str
    tokens: tuple[str, ...]
    root: int
    reader: int | None
    layers: int
    threshold: float
    penalty: float
    lowest: float  # threshold below which edges are not kept
    edges: Float[np.ndarray, "_edge _number"]  # layer, parent, child, score, share of the largest
    target: str
    note: str
    text: str  # the tree as lines of words
    drawn: tuple[tuple[int, int, float], ...]  # parent, child and thickness of the tree's own edges
    levels: dict[int, int]  # the layer that each node of the tree stands in


@dataclass(frozen=True)
class Story:
    """What every token contributes to every hidden vector."""

    contribution: Float[Tensor, "_layer _target _source"]
    targets: str  # names of sequences
    sources: str
    target_names: tuple[str, ...]
    source_names: tuple[str, ...]
    errors: Float[Tensor, "_layer _target"] | None  # of what is left of each token
    note: str
    chosen: int  # the token that a plot shows


@dataclass(frozen=True)
class Slide:
    """A head whose rows can be exchanged for others with the same output."""

    site: int
    head: int
    rows: Tensor  # those that move, the most important first
    raw: Tensor
    alternative: Tensor
    values: Tensor


@dataclass(frozen=True)
class Slider:
    """All such heads, the most important first."""

    heads: tuple[Slide, ...]
    note: str = ""


@dataclass(frozen=True)
class AnswerSummary:
    """The answer, what it rests on, and the shaded text."""

    advice: str  # the headline; empty where none was given
    answer: list[tuple[str, float]]
    target: str
    word: str
    verdict: str
    reliance: list[str]  # sentences
    carriers: str  # a sentence about the heads that carry the answer
    sequence: str
    shares: list[float]  # of every token, signed
    caption: str
    skipped: list[tuple[str, str]]
    truth: str | None = None  # the true label, where it was given
    carrying: list[Head] | None = None  # site and head of those that carry the answer
    texts: list[tuple[str, str]] | None = None  # title and sequence of each text


@dataclass(frozen=True)
class HeatMapRow:
    """One heat map of the words, and whether it may be shown."""

    label: str
    advice: str  # show, caution, do not show
    mark: str  # the same as a sign
    reason: str
    p: float
    probability: float  # that the answer loses without its first words, mean over the cuts
    loss: float  # the same in log-odds
    scores: list[float]  # of every word


@dataclass(frozen=True)
class HeatMapPanel:
    """All heat maps that were judged, the best first."""

    words: list[str]
    rows: list[HeatMapRow]
    caption: str


@dataclass(frozen=True)
class ShadedSentence:
    """One sentence, and its score by each method."""

    text: str
    scores: list[float]


@dataclass(frozen=True)
class Passage:
    """One passage in front of a question, and what the answer loses without it."""

    loss: float
    needed: bool
    sentences: list[ShadedSentence]


@dataclass(frozen=True)
class Passages:
    """A question, its passages, and the answer."""

    question: str
    answer: str
    methods: list[str]
    passages: list[Passage]
    caption: str


@dataclass(frozen=True)
class Image:
    """The image that was looked at, and the position at each row and column of it."""

    source: str  # a data URI
    width: int
    height: int
    grids: dict[str, list[list[int]]]  # by sequence
    caption: str


@dataclass(frozen=True)
class Sides:
    """Two results next to each other, and what differs."""

    names: tuple[str, str]
    sentence: str
    answers: list[tuple[str, float | None, float | None]]  # label, share in either
    words: list[tuple[str | None, str | None, float | None, float | None]]  # and its scores
    heads: list[tuple[str, str, str, float | None, float | None]]  # name, verdicts, shares
    moved: list[float | None]  # of every head: total variation between the two maps
    first: "Result"
    second: "Result"


@dataclass(frozen=True)
class Section:
    """Lines of text under a name, for readers of a terminal."""

    name: str
    lines: tuple[str, ...]


Block = (
    Texts | Table | Maps | Grid | Chart | Figure | Tree | Story | Slider
    | AnswerSummary | HeatMapPanel | Passages | Sides | Section
)  # fmt: skip
Blocks = tuple[Block, ...]
Kind = TypeVar("Kind")


def of_kind(blocks: Blocks, kind: type[Kind]) -> list[Kind]:
    """The blocks of one kind, in order."""
    return [block for block in blocks if isinstance(block, kind)]


def main_table(blocks: Blocks) -> Table | None:
    """The table that sums a description up: its first, or that of the heads."""
    for block in blocks:
        if isinstance(block, Table):
            return block
        if isinstance(block, Maps) and block.heads is not None:
            return block.heads
    return None
