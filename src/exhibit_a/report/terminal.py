"""How is a trial summed up on one screen?

The text with its tokens shaded by attribution, the answer, a grid of all heads, the heads that
carry most, the tree, and the doubts. Everything that a colour shows is shown by a sign as well, so
that nothing is lost in a pipe, in a file or to the colour-blind, in 80 columns.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from exhibit_a.report.palette import AGAINST, AGAINST_SHADES, FOR_SHADES, OF_WORD
from exhibit_a.results.result import Result
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import (
    CONTESTED,
    EVIDENCE,
    NO_EFFECT,
    PARTIAL,
    WORDS,
    HeadVerdict,
    carried,
)

SHOWN_HEADS = 5
NAMED_TOKENS = 4  # named with their number, for and against
SPREAD_UP_TO = 32  # heads; more stand without a space between them
TREE_LINES = 24

GLYPHS = {EVIDENCE: "■", PARTIAL: "□", CONTESTED: "≠", NO_EFFECT: "·"}

# The share of the largest score from which a token is shaded, its marks either way, its letters.
SHADES = (
    (2 / 3, "⁺⁺", "⁻⁻", "bold white"),
    (1 / 3, "⁺", "⁻", "black"),
    (1 / 8, "", "", "black"),
)


def show(result: Result, *, console: Console | None = None) -> None:
    """Print a summary of a result: one screen for a trial, a paragraph for anything else.

    >>> xa.show(xa.effective_attention(trace))
    EffectiveAttention: effective_attention on sentiment, 8 tokens ([CLS] a gripping , ...

    Print it elsewhere with a console of your own:

    >>> from rich.console import Console
    >>> with (tmp_path / "tree.txt").open("w") as file:
    ...     tree = xa.attribution_tree(xa.self_attribution(trace))
    ...     xa.show(tree, console=Console(file=file, width=100))
    >>> (tmp_path / "tree.txt").read_text()[:34]
    'AttributionTree: attribution_tree '
    """
    say(story(result) if isinstance(result, Trial) else Text(result.summary()), console=console)


def say(content: RenderableType, *, console: Console | None = None) -> None:
    """Print to a terminal as it is, and to a file without the spaces that fill its lines."""
    screen = console or Console(highlight=False)
    if screen.is_terminal:
        screen.print(content)
        return
    with screen.capture() as printed:
        screen.print(content)
    screen.file.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def story(trial: Trial) -> RenderableType:
    """The summary of a trial."""
    sections: list[tuple[str, RenderableType]] = [
        (_title(trial), _words(trial)),
        ("answer", _answer(trial)),
        ("heads", _grid(trial)),
        (f"verdict: {trial.word}", Text(trial.verdict)),
        (_chosen_by(trial), _heads(trial)),
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
    return Group(Text(name, style="bold"), inside)


def _listed(lines: Iterable[str]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row("·", Text(line))
    return table


def _title(trial: Trial) -> str:
    return f"Exhibit A · {trial.provenance.model} · {len(trial.tokens or ())} tokens"


def _words(trial: Trial) -> RenderableType:
    """The text, shaded, and its strongest tokens by name and number."""
    tokens, scores = trial.tokens or (), trial.token_scores
    if scores is None:
        return Text(" ".join(tokens))
    numbers = scores.tolist()
    largest = max(map(abs, numbers)) or 1.0
    text = Text(" ").join(_shaded(*pair, largest) for pair in zip(tokens, numbers, strict=True))
    ranked = sorted(zip(numbers, tokens, strict=True), key=lambda pair: -abs(pair[0]))
    lines: list[RenderableType] = [text]
    for side, sign in (("for", 1), ("against", -1)):
        named = [f"{token} {score:+.2f}" for score, token in ranked if score * sign > 0]
        if named:
            lines.append(Text(f"{side}: {', '.join(named[:NAMED_TOKENS])}", style="dim"))
    return Group(*lines)


def _shaded(token: str, score: float, largest: float) -> Text:
    shades = FOR_SHADES if score > 0 else AGAINST_SHADES
    for (least, more, less, letters), shade in zip(SHADES, shades, strict=True):
        if abs(score) >= least * largest:
            return Text(token + (more if score > 0 else less), style=f"{letters} on {shade}")
    return Text(token)


def _answer(trial: Trial) -> RenderableType:
    if not trial.answer:
        return Text("hidden states, and no more")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for name, share in trial.answer.items():
        bar = "█" * round(30 * min(max(share, 0), 1)) if "output" not in trial.answer else ""
        table.add_row(Text(name), f"{share:.3f}", Text(bar, style=AGAINST))
    return Group(table, Text(f"examined: the {trial.target}", style="dim"))


def _grid(trial: Trial) -> RenderableType:
    """Every head as one sign, a row for each site; then what the signs mean."""
    rows: list[RenderableType] = []
    names = [f"layer {site_name(trial, site.index)}" for site in trial.sites]
    for site, name in zip(trial.sites, names, strict=True):
        heads = [head for head in trial.verdicts if head.site == site.index]
        gap = " " if site.heads <= SPREAD_UP_TO else ""
        line = Text(f"{name.ljust(max(map(len, names)))}  ", style="dim", overflow="fold")
        for head in heads:
            line.append(GLYPHS[head.word] + gap, style=f"not dim {OF_WORD[head.word]}")
        rows.append(line)
    counts, weights = Counter(head.word for head in trial.verdicts), carried(trial.verdicts)
    of = "the attribution" if trial.attribution is not None else "heads"
    for word in WORDS:
        count = f" {word:<10}{counts[word]:>4} heads, {weights[word]:>4.0%} of {of}"
        rows.append(Text.assemble((GLYPHS[word], OF_WORD[word]), count))
    return Group(*rows)


def site_name(trial: Trial, index: int) -> str:
    """A site in a few letters: the stack where there are two, the layer, and whether it crosses."""
    site = trial.sites[index]
    stack = f"{site.stack[:3]} " if len(trial.sequences) > 1 else ""
    return f"{stack}{site.layer}" + "x" * (site.kind == "cross")


def head_name(trial: Trial, head: HeadVerdict) -> str:
    """A head in a few letters: its layer and its number in it."""
    return f"{site_name(trial, head.site)}.{head.head}"


def most_important(trial: Trial) -> Sequence[HeadVerdict]:
    """All heads by what they carry of the attribution, or move of the answer, or by distance."""

    def weight(head: HeadVerdict) -> float:
        known = (head.share, head.change, head.distance)
        return next((number for number in known if number is not None), 0.0)

    return sorted(trial.verdicts, key=lambda head: -weight(head))


def _chosen_by(trial: Trial) -> str:
    by = "most of the attribution" if trial.attribution is not None else "the farthest alternatives"
    return f"the {SHOWN_HEADS} heads (layer.head) with {by}"


def _heads(trial: Trial) -> RenderableType:
    """One line of numbers for each head, then what keeps some from being evidence."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in ("head", "verdict"):
        table.add_column(name, no_wrap=True)
    for name in ("unique", "other", "null", "change if permuted", "share", "agree"):
        table.add_column(name, justify="right", no_wrap=True)
    heads = most_important(trial)[:SHOWN_HEADS]
    for head in heads:
        table.add_row(
            head_name(trial, head),
            Text(f"{GLYPHS[head.word]} {head.word}", style=OF_WORD[head.word]),
            _number(head.unique, ".0%"),
            _number(head.distance, ".2f"),
            _number(head.null_fraction, ".2f"),
            _interval(head),
            _number(head.share, ".1%"),
            _number(head.agreement, ".2f"),
        )
    return Group(
        table, _listed(f"{head_name(trial, head)} {head.word}: {head.reason}" for head in heads)
    )


def _number(value: float | None, form: str) -> str:
    return "?" if value is None else format(value, form)


def _interval(head: HeadVerdict) -> str:
    if head.change is None or head.change_low is None or head.change_high is None:
        return "?"
    return f"{head.change:.3f} [{head.change_low:.3f}, {head.change_high:.3f}]"


def _tree(trial: Trial) -> RenderableType:
    if trial.tree is None:
        return Text("none", style="dim")
    lines = trial.tree.text().splitlines()
    more = len(lines) - TREE_LINES
    shown = lines[:TREE_LINES] + ([f"… and {more} more"] if more > 0 else [])
    return Text("\n".join(shown), no_wrap=True, overflow="ellipsis")


def _doubts(trial: Trial) -> list[str]:
    """The checks behind the verdicts, with their values."""
    return [
        f"{name}: {value:.2g}" if isinstance(value, float) else f"{name}: {value}"
        for name, value in trial.checks.items()
    ]
