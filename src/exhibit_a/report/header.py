"""What a page is made of: its header, as the viewer reads it.

``viewer/src/model.ts`` is written from these classes and from the blocks among them
(``typescript.py``). A ``block`` is the name of packed numbers (``pack.py``), a ``sequence`` the
name of a list of tokens.
"""

from typing import Literal, NotRequired, TypedDict

from exhibit_a.report.blocks import AnswerSummary, HeatMapPanel, Image, Line, Passages, Series

Bits = Literal[16, 32]


class Sequence(TypedDict):
    """The tokens of a stack, which of them are special, and the words they make."""

    tokens: list[str]
    special: list[bool]
    words: NotRequired[list[str]]  # of the text as written, where that is known
    of: NotRequired[list[int]]  # the word of every token
    gaps: NotRequired[list[str]]  # what stands before each word


class PageMode(TypedDict):
    """One way to look at a map: raw, effective, attribution, difference …"""

    key: str
    name: str
    caption: str
    limit: float  # of the locked scale, over all heads
    signed: bool
    minus: NotRequired[tuple[str, str]]  # drawn as the first of these modes less the second


class PageSite(TypedDict):
    """One place where the model attends: its names, the sequences along its axes, its shape."""

    name: str
    short: str
    queries: str  # names of sequences, or "" where an axis is not of tokens
    keys: str
    rows: int
    columns: int
    heads: int
    visible: NotRequired[str]  # block: first and last visible key of every row
    foretells: NotRequired[bool]  # whether a row serves the word after its own


class Head(TypedDict):
    """One head: where its maps are packed, and the numbers and the verdict about it."""

    site: int
    head: int
    block: str
    scales: dict[str, float]  # largest absolute value of each mode
    rests: dict[str, float]  # the same for the mean of what was left out of a row
    kept: dict[str, float]  # share of absolute weight that was kept
    word: NotRequired[str]
    reason: NotRequired[str]
    numbers: dict[str, float | None]
    answers: NotRequired[dict[str, bool | None]]  # questions about it; null: unknown


class PageColumn(TypedDict):
    """One column of the table of heads."""

    key: str
    name: str
    help: str


class Group(TypedDict):
    """Modes that keep the same entries, where not all entries are kept."""

    modes: list[str]
    count: int  # entries kept in every row


class Word(TypedDict):
    """One word of a verdict, and what it means."""

    word: str
    meaning: str


class PageMaps(TypedDict):
    """The maps of all heads."""

    modes: list[PageMode]
    sites: list[PageSite]
    heads: list[Head]
    columns: list[PageColumn]  # the numbers of each head
    questions: list[PageColumn]  # with yes or no about each head
    words: list[Word]
    bits: Literal[8, 16]
    groups: list[Group] | None  # None: every entry is there
    note: str


class PageSlide(TypedDict):
    """One head whose rows can be exchanged for other valid rows."""

    site: int
    head: int
    block: str  # float32: row numbers, raw rows, alternative rows; then the values
    rows: int
    keys: int
    width: int
    bits: Bits  # of the values: steps of the scale, or float32
    scale: float


class PageSlider(TypedDict):
    """All such heads."""

    heads: list[PageSlide]
    note: str


class PageStory(TypedDict):
    """What every token contributes to every hidden vector."""

    maps: PageMaps  # one site (target, source) with a "head" for every layer
    targets: str
    sources: str
    errors: str | None  # block: float32 standard errors of the own share (layer, target)
    note: str


class PageTree(TypedDict):
    """The attribution tree, with every edge that its sliders could let in."""

    sequence: str
    root: int
    reader: int | None
    layers: int
    threshold: float
    penalty: float
    lowest: float  # threshold below which edges are not in the page
    edges: str  # block: float64 rows of layer, parent, child, score, share
    target: str
    note: str


class PageChart(TypedDict):
    """Series over one axis, of numbers or of names."""

    title: str
    x: str
    y: str
    series: list[Series]
    lines: list[Line]
    names: list[str]  # of the places 0, 1, 2 … of the x axis, if they have any
    caption: str


class PageTable(TypedDict):
    """Rows under headings."""

    title: str
    columns: list[str]
    rows: list[list[str | float | None]]
    caption: str


class PageComparison(TypedDict):
    """Two results side by side: what differs, and the header of each."""

    names: tuple[str, str]
    sentence: str
    answers: list[tuple[str, float | None, float | None]]  # label, share in either
    words: list[tuple[str | None, str | None, float | None, float | None]]  # and its scores
    heads: list[tuple[str, str, str, float | None, float | None]]  # name, verdicts, shares
    moved: list[float | None]  # of every head: total variation between the two maps
    first: "Header"
    second: "Header"


class Header(TypedDict):
    """Everything a page knows, apart from the packed numbers."""

    schema: int
    kind: str
    title: str
    unit: str  # what positions are: word, token, sentence …
    sequences: dict[str, Sequence]
    scene: NotRequired[Image]
    summary: NotRequired[AnswerSummary]
    heat_maps: NotRequired[HeatMapPanel]
    passages: NotRequired[Passages]
    comparison: NotRequired[PageComparison]
    maps: NotRequired[PageMaps]
    slider: NotRequired[PageSlider]
    story: NotRequired[PageStory]
    tree: NotRequired[PageTree]
    charts: list[PageChart]
    tables: list[PageTable]
    tokens: NotRequired["Panels"]  # the same panels over tokens, where positions are words
    about: list[tuple[str, str]]
    checks: list[tuple[str, str]]
    glossary: NotRequired[dict[str, str]]  # a sentence for each word of the page
    blocks: dict[str, tuple[int, int]]  # place in the text of all blocks


class Panels(TypedDict, total=False):
    """The part of a header that depends on the kind of the result."""

    sequences: dict[str, Sequence]
    scene: Image
    summary: AnswerSummary
    heat_maps: HeatMapPanel
    passages: Passages
    maps: PageMaps
    slider: PageSlider
    story: PageStory
    tree: PageTree
    charts: list[PageChart]
    tables: list[PageTable]
