"""Shows a result in a notebook.

``widget`` is the page in a cell: the same script, in a shadow root of its own, so that any number
of cells do not disturb each other. ``static_html`` is for places where no script may run, on
GitHub or after nbconvert: pictures with their words and a table, no style, no script.
"""

from functools import cache
from html import escape
from typing import TYPE_CHECKING

from exhibit_a.extras import extra
from exhibit_a.report.blocks import (
    AnswerSummary,
    Blocks,
    Maps,
    Table,
    Texts,
    main_table,
    of_kind,
)
from exhibit_a.report.describe import describe
from exhibit_a.report.display_units import reading
from exhibit_a.report.html import script
from exhibit_a.report.images import data_uri, enlarged, labelled_map, labelled_maps, word_squares
from exhibit_a.report.table import cell
from exhibit_a.report.view import view
from exhibit_a.results.result import Result
from exhibit_a.trace.units import UnitSpec

if TYPE_CHECKING:
    import anywidget

SHOWN = 12  # rows of a table


def widget(result: Result, *, by: UnitSpec | None = None) -> "anywidget.AnyWidget":
    """The page of a result as a cell of a notebook.

    >>> cell = xa.widget(xa.effective_attention(trace))
    >>> cell.header[:40]
    '{"schema":1,"kind":"EffectiveAttention",'

    Put the widget on the last line of a cell to see it. Any result has one:

    >>> "Self attribution of sentiment" in xa.widget(xa.self_attribution(trace)).header
    True

    Args:
        by: units of the text to show it over, as in ``Result.by``, or "token"; without, words.
    """
    page = view(result, by)
    return _widget_class()(header=page.header_json(), blocks=page.blocks)


def static_html(result: Result, *, by: UnitSpec | None = None) -> str:
    """A result without scripts, its maps labelled with the words of the text.

    Of a trial: verdict, answer, heads, and the maps of the head that carries most.

    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    >>> tiny = xa.load(BertForSequenceClassification(BertConfig(vocab_size=32, **size)))
    >>> trial = xa.trial(tiny, {"input_ids": torch.tensor([[1, 5, 9, 2]])}, probes=2)
    >>> html = xa.static_html(trial)
    >>> html.count("<img"), html.count("<script")
    (3, 0)

    Notebooks ask for it by themselves:

    >>> trial._repr_html_() == html
    True

    Any result has one:

    >>> 'alt="effective, layer ' in xa.static_html(trial.effective)
    True

    Args:
        by: units of the text to show it over, as in ``Result.by``, or "token"; without, words.
    """
    shown = reading(result, by)
    description = describe(shown)
    summary = next(iter(of_kind(description, AnswerSummary)), None)
    if summary is not None and summary.verdict:
        return _story(description, summary)
    table = main_table(description)
    return shown.checks_html(labelled_maps(description) + ("" if table is None else _table(table)))


def _story(description: Blocks, summary: AnswerSummary) -> str:
    """A text, its answer, the verdict of every head, and the maps of the one that carries most."""
    answer = ", ".join(f"{escape(label)} {share:.3f}" for label, share in summary.answer)
    tokens = next(iter(of_kind(description, Texts))).sequences[summary.sequence]
    maps = "".join(_heads(block) + _maps(block) for block in of_kind(description, Maps))
    tables = "".join(_table(each) for each in of_kind(description, Table) if not each.on_page)
    return (
        f"<div><p><b>{escape(summary.advice or summary.verdict)}</b></p>"
        f"<p>{escape(' '.join(tokens))}</p>"
        f"<p>Answer: {answer or 'none'}. {escape(' '.join(summary.reliance))}</p>"
        f"<p><b>{escape(summary.word)}</b>: {escape(summary.verdict)}</p>"
        f"<p>{escape(summary.carriers)}</p>"
        f"{maps}{tables}"
        "<p>For the interactive page: <code>exhibit_a.widget(trial)</code> or "
        "<code>trial.html(path)</code>.</p></div>"
    )


def _heads(maps: Maps) -> str:
    """A square for the verdict of every head, and the table of those that carry most."""
    if maps.verdicts is None or maps.heads is None:
        return ""
    words: dict[int, list[str]] = {}
    for (site, _), (word, _) in maps.verdicts.items():
        words.setdefault(site, []).append(word)
    image = data_uri(enlarged(word_squares(list(words.values())), 18, 2))
    return (
        f'<p><img alt="verdicts, a row for every layer" src="{image}"><br>'
        "a row for each layer, a column for each head; green: evidence, yellow: contested, red: "
        f"misleading, grey: no effect, blue: undetermined</p>{_table(maps.heads)}"
    )


def _maps(maps: Maps) -> str:
    """The maps of the head that carries most, in the modes that stand on one scale."""
    table = maps.heads
    if table is None or not table.heads:
        return ""
    site, head = table.heads[0]
    place = maps.sites[site]
    shown = {
        mode.key: mode.maps[site][head]
        for mode in maps.modes
        if mode.key in ("raw", "effective") and mode.maps is not None
    }
    limit = max(float(scores.abs().amax()) for scores in shown.values())
    images = "".join(
        f"<td>{labelled_map(scores, limit, place.names, f'{name} attention')}<br>{name}</td>"
        for name, scores in shown.items()
    )
    what = ", for the word after it" if place.foretells else ""
    return (
        f"<p>{maps.map_name(site, head)}: each row looks at the columns{what}</p>"
        f"<table><tr>{images}</tr></table>"
    )


def _table(table: Table) -> str:
    """The brief columns of a table, or all, and its first rows."""
    columns = [each for each in table.columns if each.brief] or table.columns
    rows = table.first()[:SHOWN]
    cells = [[cell(row[each.key], each.form) for each in columns] for row in rows]
    heading = "".join(f"<th>{escape(each.name)}</th>" for each in columns)
    lines = (
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in cells
    )
    return f"<table><tr>{heading}</tr>{''.join(lines)}</table>"


@cache
def _widget_class() -> "type[anywidget.AnyWidget]":
    traitlets = extra("traitlets")

    class Page(extra("anywidget").AnyWidget):  # type: ignore[misc]
        """A page in a cell."""

        _esm = script()
        header = traitlets.Unicode().tag(sync=True)
        blocks = traitlets.Unicode().tag(sync=True)

    return Page
