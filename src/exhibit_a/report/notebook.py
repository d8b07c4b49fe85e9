"""How does a result show itself in a notebook?

``widget`` is the page in a cell: the same script, in a shadow root of its own, so that any number
of cells do not disturb each other. ``static_html`` is what remains where no script may run, on
GitHub or after nbconvert: pictures and a table, no style, no script.
"""

from functools import cache
from html import escape
from typing import Any

from exhibit_a.errors import BadRequestError
from exhibit_a.report.html import script
from exhibit_a.report.picture import data_uri, enlarged, judged, shaded
from exhibit_a.report.view import view
from exhibit_a.results.result import Result
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import HeadVerdict

SHOWN = 6  # heads in the table
SIDE = 360  # pixels of a map, about


def widget(result: Result) -> Any:
    """The page of a result as a cell of a notebook."""
    shown = view(result)
    return _widget_class()(header=shown.header_json(), blocks=shown.blocks)


def static_html(trial: Trial) -> str:
    """A trial without scripts: verdict, answer, heads, and the maps of the one that counts."""
    answer = ", ".join(f"{escape(label)} {share:.3f}" for label, share in trial.answer.items())
    ranked = sorted(trial.verdicts, key=lambda one: one.share or 0.0, reverse=True)
    return (
        f"<div><p><b>{escape(trial.verdict)}</b></p>"
        f"<p>{escape(' '.join(trial.tokens or ()))}</p>"
        f"<p>Answer: {answer or 'none'}</p>"
        f"{_heads(trial)}{_maps(trial, ranked[0])}{_table(ranked[:SHOWN])}"
        "<p>For the interactive page: <code>exhibit_a.widget(trial)</code> or "
        "<code>trial.html(path)</code>.</p></div>"
    )


def _heads(trial: Trial) -> str:
    words: dict[int, list[str]] = {}
    for one in trial.verdicts:
        words.setdefault(one.site, []).append(one.word)
    picture = data_uri(enlarged(judged(list(words.values())), 18, 2))
    return (
        f'<p><img alt="verdicts, a row for every layer" src="{picture}"><br>'
        "green: evidence, yellow: partial, red: contested, grey: no effect</p>"
    )


def _maps(trial: Trial, one: HeadVerdict) -> str:
    raw = trial.attention[one.site][one.head]
    shown = {"raw": raw}
    if trial.effective is not None:
        shown["effective"] = trial.effective.effective[one.site][one.head]
    limit = max(float(part.abs().amax()) for part in shown.values())
    side = max(SIDE // max(raw.shape), 1)
    pictures = "".join(
        f'<td><img alt="{name} attention" src="{data_uri(enlarged(shaded(part, limit), side))}">'
        f"<br>{name}</td>"
        for name, part in shown.items()
    )
    return f"<p>Site {one.site}, head {one.head}:</p><table><tr>{pictures}</tr></table>"


def _table(verdicts: list[HeadVerdict]) -> str:
    names = ("site", "head", "word", "unique", "distance", "null_fraction", "change", "share")
    heading = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(one, name)}</td>" for name in names) + "</tr>"
        for one in verdicts
    )
    return f"<table><tr>{heading}</tr>{rows}</table>"


def _cell(one: HeadVerdict, name: str) -> str:
    value = getattr(one, name)
    if value is None:
        return "–"
    if name == "change":
        return f"{value:.3f} [{one.change_low:.3f}, {one.change_high:.3f}]"
    return f"{value:.3f}" if isinstance(value, float) else escape(str(value))


@cache
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError as missing:
        raise BadRequestError(
            f"{missing.name} is missing: pip install 'exhibit-a[notebook]'"
        ) from missing

    class Page(anywidget.AnyWidget):  # type: ignore[misc]
        """A page in a cell."""

        _esm = script()
        header = traitlets.Unicode().tag(sync=True)
        blocks = traitlets.Unicode().tag(sync=True)

    return Page
