"""How is a trial summed up on one screen?

The advice, the text with its tokens shaded by attribution, the answer and what it rests on, the
heads, the pictures; then the tree and the doubts. Everything that a colour shows is shown by a
sign as well, so that nothing is lost in a pipe, in a file or to the colour-blind, in 80 columns.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.explanation.pictures import Pictures
from exhibit_a.report.alignment import alignment
from exhibit_a.report.console import Screen, Visible, words
from exhibit_a.report.display_units import reading
from exhibit_a.report.palette import AGAINST, AGAINST_SHADES, FOR_SHADES, OF_ADVICE, OF_WORD
from exhibit_a.report.responsive_table import Fitting
from exhibit_a.report.sentences import (
    MARKS,
    carriers_sentence,
    most_important,
    of_margin,
    p_text,
    ranked_pictures,
    reliance_sentences,
    unshaded,
)
from exhibit_a.results.result import Result
from exhibit_a.subject.site_names import head_name, layer_name
from exhibit_a.trace.units import Asked
from exhibit_a.trials.sentences import percent_text
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import UNDETERMINED, WORDS, HeadVerdict

SHOWN_HEADS = 5
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
    length, result = len(result.tokens or ()), reading(result, by)
    if isinstance(result, Trial):
        say(story(result, length), console=console)
    elif isinstance(result, Pictures):
        say(
            Group(words(result.summary()), _advised(result.advice), _pictures(result)),
            console=console,
        )
    elif isinstance(result, Reliance):
        sentences = " ".join(reliance_sentences(result, {}))
        say(Group(words(result.summary()), words(sentences)), console=console)
    else:
        say(words(result.summary()), console=console)


def say(content: RenderableType, *, console: Console | None = None) -> None:
    """Print to a terminal as it is, and to a file without the spaces that fill its lines."""
    screen = console or Screen()
    if screen.is_terminal:
        screen.print(Visible(content))
        return
    with screen.capture() as printed:
        screen.print(Visible(content))
    screen.file.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def story(trial: Trial, length: int) -> RenderableType:
    """The summary of a trial, of so many tokens."""
    pictures = trial.pictures
    title = f"Exhibit A · {trial.provenance.model} · {length} tokens"
    sections: list[tuple[str, RenderableType]] = [
        *([(title, _advised(trial.advice))] if trial.advice else []),
        ("text" if trial.advice else title, _words(trial)),
        ("answer", _answer(trial)),
        *_alignment(trial),
        (f"verdict: {trial.word}", words(trial.verdict)),
        ("heads", _grid(trial)),
        (_chosen_by(trial), _heads(trial)),
        *([("pictures of the text", _pictures(pictures))] if pictures is not None else []),
        ("tree", _tree(trial)),
        ("doubts", _listed(_doubts(trial))),
    ]
    if trial.skipped:
        reasons = _listed(f"{name}: {reason}" for name, reason in trial.skipped.items())
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


def _advised(advice: str) -> RenderableType:
    return words(advice, style="bold")


def _words(trial: Trial) -> RenderableType:
    """The text, shaded, and its strongest tokens by name and number."""
    tokens, scores, reason = trial.tokens or (), trial.token_scores, unshaded(trial)
    if scores is None or reason:
        return Group(words(" ".join(tokens)), words(reason, style="dim"))
    numbers = scores.tolist()
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


def _answer(trial: Trial) -> RenderableType:
    if not trial.answer:
        return Text("hidden states, and no more")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for name, share in trial.answer.items():
        bar = "█" * round(30 * min(max(share, 0), 1)) if "output" not in trial.answer else ""
        table.add_row(words(name), f"{share:.3f}", Text(bar, style=AGAINST))
    sentences = [] if trial.reliance is None else reliance_sentences(trial.reliance, trial.answer)
    rests = [words(" ".join(sentences))] if sentences else []
    return Group(table, *rests, words(f"examined: the {trial.target}", style="dim"))


def _alignment(trial: Trial) -> list[tuple[str, RenderableType]]:
    """Of a translation, the source token that every target token looks at; else nothing."""
    aligned = alignment(trial)
    if aligned is None:
        return []
    links = (f"{target} ← {source} {weight:.2f}" for target, source, weight in aligned.links)
    return [(f"alignment by {aligned.head}", words("   ".join(links)))]


def _grid(trial: Trial) -> RenderableType:
    """Every head as one sign, a row for each site; then what the signs mean."""
    rows: list[RenderableType] = []
    names = [layer_name(site, trial.sites) for site in trial.sites]
    for site, name in zip(trial.sites, names, strict=True):
        heads = [head for head in trial.verdicts if head.site == site.index]
        gap = " " if site.heads <= SPREAD_UP_TO else ""
        line = Text(f"{name.ljust(max(map(len, names)))}  ", style="dim", overflow="fold")
        for head in heads:
            line.append(GLYPHS[head.word] + gap, style=f"not dim {OF_WORD[head.word]}")
        rows.append(line)
    counts = Counter(head.word for head in trial.verdicts)
    legend = [
        Text.assemble((GLYPHS[word], OF_WORD[word]), f" {counts[word]} {word}")
        for word in WORDS
        if counts[word]
    ]
    rows.append(Columns(legend, padding=(0, 2)))
    if sentence := carriers_sentence(trial):
        rows.append(words(sentence))
    return Group(*rows)


def _chosen_by(trial: Trial) -> str:
    if trial.reliance is None:
        return f"the {SHOWN_HEADS} heads with the farthest alternatives"
    return f"the {SHOWN_HEADS} heads that carry most, in parts of the margin"


COLUMNS = (
    "share: what the head adds to the answer; alone: what is lost when only it looks evenly; "
    "shared: others do its work then; elsewhere: weight that could stand on other words; "
    "agreement: of its weights with what counts"
)


def _heads(trial: Trial) -> RenderableType:
    """One line for each head; then the reasons that no column tells."""
    heads = most_important(trial)[:SHOWN_HEADS]
    columns = {
        "head": [words(_head(trial, head)) for head in heads],
        "verdict": [_styled(head, f"{GLYPHS[head.word]} {head.word}") for head in heads],
        "": [_styled(head, GLYPHS[head.word]) for head in heads],
        "share": [Text(_part(of_margin(trial, head.reliance))) for head in heads],
        "alone": [Text(_part(of_margin(trial, head.one_head))) for head in heads],
        "shared": [Text("yes" if head.shared else "no") for head in heads],
        "elsewhere": [Text(_number(head.distance, ".0%")) for head in heads],
        "agreement": [Text(_number(head.pointing, ".2f")) for head in heads],
    }
    numbers = ("share", "alone", "shared", "elsewhere", "agreement")
    widths = (
        ("head", "verdict", *numbers),
        ("head", "", *numbers),  # the signs are named above
        ("head", "", "share", "alone", "elsewhere", "agreement"),
        ("head", "", "share", "alone"),
    )
    table = Fitting([partial(_table_of, columns, shown) for shown in widths])
    unclear = [head for head in heads if head.word == UNDETERMINED]
    reasons = dict.fromkeys(head.reason for head in unclear)
    means = words(COLUMNS, style="dim")
    return Group(
        table, means, *([_listed(f"?: {reason}" for reason in reasons)] if unclear else [])
    )


def _table_of(columns: dict[str, list[Text]], shown: Sequence[str]) -> Table:
    """Some of the columns as a table; what is no word stands to the right."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in shown:
        justify: JustifyMethod = "left" if name in ("head", "verdict", "") else "right"
        table.add_column(name, justify=justify, no_wrap=True)
    for row in zip(*(columns[name] for name in shown), strict=True):
        table.add_row(*row)
    return table


def _styled(head: HeadVerdict, text: str) -> Text:
    return Text(text, style=OF_WORD[head.word])


def _head(trial: Trial, head: HeadVerdict) -> str:
    """Its name; in two lines where that is long, so that no number beside it is cut."""
    name = head_name(trial.sites, head.site, head.head)
    return name if len(name) <= LONGEST_NAME else name.replace(", head", ",\nhead")


def _number(value: float | None, form: str) -> str:
    return "?" if value is None else format(value, form)


def _part(share: float | None) -> str:
    return "?" if share is None else percent_text(share)


def _pictures(pictures: Pictures) -> RenderableType:
    """One line for each picture: may it be shown, how far from luck, what the answer loses."""
    letters = (None, SHORTENED, 0)
    return Fitting([partial(_picture_table, pictures, room) for room in letters])


def _picture_table(pictures: Pictures, letters: int | None) -> Table:
    """With the first words of each picture, in so many letters; as they are for None."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("advice", no_wrap=True, min_width=13)
    table.add_column("picture", no_wrap=True, overflow="ellipsis", min_width=27)
    widest = max((len(p_text(picture.p_value)) for picture in pictures.values()), default=1)
    table.add_column("p", justify="right", no_wrap=True, min_width=widest)
    table.add_column("loses", justify="right", no_wrap=True, min_width=5)
    if letters != 0:
        table.add_column("its first words", no_wrap=True, overflow="ellipsis", max_width=letters)
    for picture in ranked_pictures(pictures):
        first = [picture.words[place] for place in picture.ranking[:PICTURE_WORDS]]
        table.add_row(
            Text(f"{MARKS[picture.advice]} {picture.advice}", style=OF_ADVICE[picture.advice]),
            words(picture.label),
            p_text(picture.p_value),
            f"{round(picture.probability_loss, 2) + 0.0:.2f}",  # no minus nought
            *([] if letters == 0 else [words(", ".join(first))]),
        )
    return table


def _tree(trial: Trial) -> RenderableType:
    if trial.tree is None:
        return Text("none", style="dim")
    stack = trial.tree.provenance.parameters.get("stack", "")
    several = len({site.stack for site in trial.sites}) > 1
    lines = trial.tree.text(layer=f"{stack} layer" if several else "layer").splitlines()
    more = len(lines) - TREE_LINES
    shown = lines[:TREE_LINES] + ([f"… and {more} more"] if more > 0 else [])
    return words("\n".join(shown), no_wrap=True, overflow="ellipsis")


def _doubts(trial: Trial) -> list[str]:
    """The checks behind the verdicts, with their values."""
    return [
        f"{name}: {value:.2g}" if isinstance(value, float) else f"{name}: {value}"
        for name, value in trial.checks.items()
    ]
