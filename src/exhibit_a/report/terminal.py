"""Sums a result up on one screen.

The advice, the text with its tokens shaded by attribution, the answer and what it rests on, the
heads, the pictures; then the tree and the checks. Everything that a colour shows is shown by a
sign as well, so that nothing is lost in a pipe, in a file or to the colour-blind, in 80 columns.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from exhibit_a.report import blocks
from exhibit_a.report.blocks import Blocks, HeatMaps, Maps, Section, Summary, Texts, Tree, of_kind
from exhibit_a.report.console import Screen, Visible, words
from exhibit_a.report.describe import describe
from exhibit_a.report.display_units import reading
from exhibit_a.report.palette import AGAINST, AGAINST_SHADES, FOR_SHADES, OF_ADVICE, OF_WORD
from exhibit_a.report.sentences import p_text
from exhibit_a.report.table import Fitting, cell
from exhibit_a.results.result import Result
from exhibit_a.trace.units import Asked
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import UNDETERMINED, WORDS

PICTURE_WORDS = 3  # first words of a picture that are named
SHORTENED = 16  # letters of them where the line is short
NAMED_TOKENS = 4  # named with their number, for and against
SPREAD_UP_TO = 32  # heads; more stand without a space between them
TREE_LINES = 24
LONGEST_NAME = 18  # of a head, in the table of heads

GLYPHS = dict(zip(WORDS, "■≠×·?", strict=True))

# The share of the largest score from which a token is shaded, its marks either way, its letters.
SHADES = (
    (2 / 3, "⁺⁺", "⁻⁻", "bold white"),
    (1 / 3, "⁺", "⁻", "black"),
    (1 / 8, "", "", "black"),
)


def show(result: Result, *, console: Console | None = None, by: Asked | None = None) -> None:
    """Print a summary of a result: one screen for a trial, a paragraph for anything else.

    >>> xa.show(xa.effective_attention(trace))
    EffectiveAttention: effective_attention on sentiment, 8 words ([CLS] a gripping , ...

    Print it elsewhere with a console of your own:

    >>> from rich.console import Console
    >>> with (tmp_path / "tree.txt").open("w") as file:
    ...     tree = xa.attribution_tree(xa.self_attribution(trace))
    ...     xa.show(tree, console=Console(file=file, width=100))
    >>> (tmp_path / "tree.txt").read_text()[:34]
    'AttributionTree: attribution_tree '

    Args:
        console: where to print; without, to standard output.
        by: units of the text to show it over, as in ``Result.by``, or "token"; without, words.
    """
    shown = reading(result, by)
    description = describe(shown)
    summary = next(iter(of_kind(description, Summary)), None)
    if summary is not None and summary.verdict:
        say(_story(shown, description, summary, len(result.tokens or ())), console=console)
        return
    lines: list[RenderableType] = [words(shown.summary())]
    if summary is not None:
        lines += map(words, filter(None, (summary.advice, " ".join(summary.reliance))))
    lines += map(_heat_maps, of_kind(description, HeatMaps))
    say(Group(*lines), console=console)


def say(content: RenderableType, *, console: Console | None = None) -> None:
    """Print to a terminal as it is, and to a file without the spaces that fill its lines."""
    screen = console or Screen()
    if screen.is_terminal:
        screen.print(Visible(content))
        return
    with screen.capture() as printed:
        screen.print(Visible(content))
    screen.file.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def _story(result: Result, description: Blocks, summary: Summary, length: int) -> RenderableType:
    """A text of so many tokens, its answer and everything that was found about it."""
    title = f"Exhibit A · {result.provenance.model} · {length} tokens"
    tokens = next(iter(of_kind(description, Texts))).sequences[summary.sequence]
    advice = [(title, words(summary.advice, style="bold"))] if summary.advice else []
    aligned = [
        (section.name, words("\n".join(section.lines))) for section in of_kind(description, Section)
    ]
    sections: list[tuple[str, RenderableType]] = [
        *advice,
        ("text" if advice else title, _words(tokens, summary)),
        ("answer", _answer(summary)),
        *aligned,
        (f"verdict: {summary.word}", words(summary.verdict)),
    ]
    for maps in of_kind(description, Maps):
        sections.append(("heads", _grid(maps, summary)))
        if maps.heads is not None:
            sections.append((maps.heads.title, _heads(maps, maps.heads)))
    for heat_maps in of_kind(description, HeatMaps):
        sections.append(("pictures of the text", _heat_maps(heat_maps)))
    trees = of_kind(description, Tree)
    sections.append(("tree", _tree(trees[0]) if trees else Text("none", style="dim")))
    sections.append(("doubts", _listed(_checks(result))))
    if summary.skipped:
        reasons = _listed(f"{name}: {reason}" for name, reason in summary.skipped)
        sections.append(("not examined", reasons))
    return Group(*(_section(name, body) for name, body in sections))


def timing(trial: Trial, **more: float) -> RenderableType:
    """The seconds that each stage took, and what came before and after."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(justify="left")
    table.add_column(justify="right")
    spent = trial.seconds | more
    for stage, seconds in (spent | {"together": sum(spent.values())}).items():
        table.add_row(stage, f"{seconds:.2f} s")
    return _section("time", table)


def _section(name: str, body: RenderableType) -> RenderableType:
    inside = Padding(body, (0, 0, 1, 2), expand=False)
    return Group(words(name, style="bold"), inside)


def _listed(lines: Iterable[str]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row("·", words(line))
    return table


def _words(tokens: tuple[str, ...], summary: Summary) -> RenderableType:
    """The text, shaded, and its strongest tokens by name and number."""
    numbers = summary.shares
    if not numbers:
        return Group(words(" ".join(tokens)), words(summary.caption, style="dim"))
    largest = max(map(abs, numbers)) or 1.0
    text = Text(" ").join(_shaded(*pair, largest) for pair in zip(tokens, numbers, strict=True))
    ranked = sorted(zip(numbers, tokens, strict=True), key=lambda pair: -abs(pair[0]))
    lines: list[RenderableType] = [text]
    for side, sign in (("for", 1), ("against", -1)):
        named = [f"{token} {score:+.2f}" for score, token in ranked if score * sign > 0]
        if named:
            lines.append(words(f"{side}: {', '.join(named[:NAMED_TOKENS])}", style="dim"))
    return Group(*lines)


def _shaded(token: str, score: float, largest: float) -> Text:
    shades = FOR_SHADES if score > 0 else AGAINST_SHADES
    for (least, more, less, letters), shade in zip(SHADES, shades, strict=True):
        if abs(score) >= least * largest:
            return words(token + (more if score > 0 else less), style=f"{letters} on {shade}")
    return words(token)


def _answer(summary: Summary) -> RenderableType:
    if not summary.answer:
        return Text("hidden states, and no more")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    is_number = "output" in dict(summary.answer)
    for name, share in summary.answer:
        bar = "" if is_number else "█" * round(30 * min(max(share, 0), 1))
        table.add_row(words(name), f"{share:.3f}", Text(bar, style=AGAINST))
    rests = [words(" ".join(summary.reliance))] if summary.reliance else []
    return Group(table, *rests, words(f"examined: the {summary.target}", style="dim"))


def _grid(maps: Maps, summary: Summary) -> RenderableType:
    """Every head as one sign, a row for each layer; then what the signs mean."""
    verdicts = {place: word for place, (word, _) in (maps.verdicts or {}).items()}
    rows: list[RenderableType] = []
    width = max(len(site.short) for site in maps.sites)
    for number, site in enumerate(maps.sites):
        signs = [word for (place, _), word in verdicts.items() if place == number]
        gap = " " if len(signs) <= SPREAD_UP_TO else ""
        line = Text(f"{site.short.ljust(width)}  ", style="dim", overflow="fold")
        for word in signs:
            line.append(GLYPHS[word] + gap, style=f"not dim {OF_WORD[word]}")
        rows.append(line)
    counts = Counter(verdicts.values())
    legend = [
        Text.assemble((GLYPHS[word], OF_WORD[word]), f" {counts[word]} {word}")
        for word in WORDS
        if counts[word]
    ]
    rows.append(Columns(legend, padding=(0, 2)))
    if summary.carriers:
        rows.append(words(summary.carriers))
    return Group(*rows)


def _heads(maps: Maps, table: blocks.Table) -> RenderableType:
    """One line for each head; then what the columns mean, and the reasons that no column tells."""
    heads = table.heads[: table.shown]
    verdicts = {head: (maps.verdicts or {})[head] for head in heads}
    styles = [OF_WORD[word] for word, _ in verdicts.values()]
    glyphs = [GLYPHS[word] for word, _ in verdicts.values()]
    columns = {"head": [words(_head(maps.map_name(*head))) for head in heads]}
    columns["verdict"] = [
        Text(f"{glyph} {word}", style=style)
        for glyph, (word, _), style in zip(glyphs, verdicts.values(), styles, strict=True)
    ]
    columns[""] = [Text(glyph, style=style) for glyph, style in zip(glyphs, styles, strict=True)]
    brief = [column for column in table.columns if column.brief and column.key != "verdict"]
    for column in brief:
        values = [row[column.key] for row in table.first()]
        columns[column.name] = [
            Text("?" if value is None else cell(value, column.form)) for value in values
        ]
    numbers = [column.name for column in brief]
    narrower = ([name for name in numbers if name not in left] for left in _LEFT_OUT)
    widths = (("head", "verdict", *numbers), *(("head", "", *names) for names in narrower))
    drawn = Fitting([partial(_table_of, columns, shown) for shown in widths])
    helps = (f"{each.name}: {each.help[:1].lower()}{each.help[1:].rstrip('.')}" for each in brief)
    means = words("; ".join(helps), style="dim")
    reasons = dict.fromkeys(reason for word, reason in verdicts.values() if word == UNDETERMINED)
    return Group(
        drawn, means, *([_listed(f"?: {reason}" for reason in reasons)] if reasons else [])
    )


# Names of columns that go first where the line is short.
_LEFT_OUT = ((), ("shared",), ("shared", "elsewhere", "agreement"))


def _table_of(columns: dict[str, list[Text]], shown: Iterable[str]) -> Table:
    """Some of the columns as a table; what is no word stands to the right."""
    names = list(shown)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in names:
        justify: JustifyMethod = "left" if name in ("head", "verdict", "") else "right"
        table.add_column(name, justify=justify, no_wrap=True)
    for row in zip(*(columns[name] for name in names), strict=True):
        table.add_row(*row)
    return table


def _head(name: str) -> str:
    """The name of a head; in two lines where it is long, so that no number beside it is cut."""
    return name if len(name) <= LONGEST_NAME else name.replace(", head", ",\nhead")


def _heat_maps(heat_maps: HeatMaps) -> RenderableType:
    """One line for each picture: may it be shown, how far from luck, what the answer loses."""
    letters = (None, SHORTENED, 0)
    return Fitting([partial(_heat_map_table, heat_maps, room) for room in letters])


def _heat_map_table(heat_maps: HeatMaps, letters: int | None) -> Table:
    """With the first words of each picture, in so many letters; as they are for None."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("advice", no_wrap=True, min_width=13)
    table.add_column("picture", no_wrap=True, overflow="ellipsis", min_width=27)
    chances = [p_text(heat_map.p) for heat_map in heat_maps.pictures]
    table.add_column(
        "p", justify="right", no_wrap=True, min_width=max(map(len, chances), default=1)
    )
    table.add_column("loses", justify="right", no_wrap=True, min_width=5)
    if letters != 0:
        table.add_column("its first words", no_wrap=True, overflow="ellipsis", max_width=letters)
    for heat_map, chance in zip(heat_maps.pictures, chances, strict=True):
        first = [heat_maps.words[place] for place in heat_map.first(PICTURE_WORDS)]
        table.add_row(
            Text(f"{heat_map.mark} {heat_map.advice}", style=OF_ADVICE[heat_map.advice]),
            words(heat_map.label),
            chance,
            f"{round(heat_map.probability, 2) + 0.0:.2f}",  # no minus nought
            *([] if letters == 0 else [words(", ".join(first))]),
        )
    return table


def _tree(tree: Tree) -> RenderableType:
    lines = tree.text.splitlines()
    more = len(lines) - TREE_LINES
    shown = lines[:TREE_LINES] + ([f"… and {more} more"] if more > 0 else [])
    return words("\n".join(shown), no_wrap=True, overflow="ellipsis")


def _checks(result: Result) -> Iterator[str]:
    """The checks behind the verdicts, with their values."""
    for name, value in result.checks.items():
        yield f"{name}: {value:.2g}" if isinstance(value, float) else f"{name}: {value}"
