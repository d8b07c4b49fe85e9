"""Sums a result up on one screen.

The advice, the text with its tokens shaded by attribution, the answer and what it rests on, the
heads, the heat maps; then the tree and the checks. Everything that a colour shows is shown by a
sign as well, so that nothing is lost in a pipe, in a file or to the colour-blind, in 80 columns.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from exhibit_a.report import blocks
from exhibit_a.report.blocks import AnswerSummary, Blocks, Maps, Section, Texts, Tree, of_kind
from exhibit_a.report.console import Screen, Visible, words
from exhibit_a.report.describe import describe
from exhibit_a.report.display_units import reading
from exhibit_a.report.palette import AGAINST, AGAINST_SHADES, FOR_SHADES, OF_ADVICE, OF_WORD
from exhibit_a.report.table import ResponsiveTable, cell
from exhibit_a.results.result import Result
from exhibit_a.trace.units import UnitSpec
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import UNDETERMINED, WORDS

NAMED_TOKENS = 4  # named with their number, for and against
SPREAD_UP_TO = 32  # heads; more stand without a space between them
TREE_LINES = 24
LONGEST_NAME = 18  # of a head, in a table

GLYPHS = dict(zip(WORDS, "■≠×·?", strict=True))

# The share of the largest score from which a token is shaded, its marks either way, its letters.
SHADES = ((2 / 3, "⁺⁺", "⁻⁻", "bold white"), (1 / 3, "⁺", "⁻", "black"), (1 / 8, "", "", "black"))


def show(result: Result, *, console: Console | None = None, by: UnitSpec | None = None) -> None:
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
    summary = next(iter(of_kind(description, AnswerSummary)), None)
    if summary is not None and summary.verdict:
        say(_story(shown, description, summary, len(result.tokens or ())), console=console)
        return
    lines: list[RenderableType] = [words(shown.summary())]
    if summary is not None:
        lines += map(words, filter(None, (summary.advice, " ".join(summary.reliance))))
    lines += [_brief(table) for table in of_kind(description, blocks.Table) if not table.on_page]
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


def _story(
    result: Result, description: Blocks, summary: AnswerSummary, length: int
) -> RenderableType:
    """The text, its answer and everything that was found about it."""
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
    for table in of_kind(description, blocks.Table):
        if not table.on_page:
            sections.append((table.title, _brief(table)))
    trees = of_kind(description, Tree)
    sections.append(("tree", _tree(trees[0]) if trees else Text("none", style="dim")))
    sections.append(("checks", _listed(_checks(result))))
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


def _words(tokens: tuple[str, ...], summary: AnswerSummary) -> RenderableType:
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


def _answer(summary: AnswerSummary) -> RenderableType:
    if not summary.answer:
        return Text("hidden states, and no more")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    is_number = "output" in dict(summary.answer)
    for name, share in summary.answer:
        bar = "" if is_number else "█" * round(30 * min(max(share, 0), 1))
        table.add_row(words(name), f"{share:.3f}", Text(bar, style=AGAINST))
    rests = [words(" ".join(summary.reliance))] if summary.reliance else []
    return Group(table, *rests, words(f"examined: the {summary.target}", style="dim"))


def _grid(maps: Maps, summary: AnswerSummary) -> RenderableType:
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
    brief = [each for each in table.columns if each.brief and each.help]
    helps = (f"{each.name}: {each.help[:1].lower()}{each.help[1:].rstrip('.')}" for each in brief)
    verdicts = [(maps.verdicts or {})[head] for head in table.heads[: table.shown]]
    reasons = dict.fromkeys(reason for word, reason in verdicts if word == UNDETERMINED)
    unclear = [_listed(f"?: {reason}" for reason in reasons)] if reasons else []
    return Group(_brief(table), words("; ".join(helps), style="dim"), *unclear)


def _brief(table: blocks.Table) -> RenderableType:
    """A table in one line for each row: its brief columns, as many as fit."""
    brief = [column for column in table.columns if column.brief] or list(table.columns)
    columns = [
        (column.name, [_styled(row[column.key], column.form) for row in table.first()])
        for column in brief
    ]
    signs = list(columns)
    for place, (name, cells) in enumerate(columns):
        if all(text.plain[2:] in OF_WORD for text in cells):  # words of verdicts as their signs
            signs[place] = (name, [text[:1] for text in cells])
    fewer = (signs[:count] for count in range(len(signs), 1, -1))
    return ResponsiveTable([partial(_drawn, shown) for shown in (columns, *fewer)])


def _styled(value: blocks.Cell, form: str) -> Text:
    """A cell; words of verdicts have a sign, and those of advice a colour."""
    text = "?" if value is None else cell(value, form)
    if text in OF_WORD:
        return Text(f"{GLYPHS[text]} {text}", style=OF_WORD[text])
    if len(text) > LONGEST_NAME:  # in two lines, so that no number next to it is cut
        text = text.replace(", head", ",\nhead")
    return words(text, style=OF_ADVICE.get(text.partition(" ")[2], ""))


def _drawn(columns: list[tuple[str, list[Text]]]) -> Table:
    """Columns as a table; numbers stand to the right."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name, cells in columns:
        is_number = all(text.plain[:1] in "-+.<?0123456789" or len(text) < 4 for text in cells)
        name = "" if all(text.plain in GLYPHS.values() for text in cells) else name
        table.add_column(name, justify="right" if is_number and name else "left", no_wrap=True)
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*row)
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
