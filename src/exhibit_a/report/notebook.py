"""How does a result show itself in a notebook?

``widget`` is the page in a cell: the same script, in a shadow root of its own, so that any number
of cells do not disturb each other. ``static_html`` is for places where no script may run, on
GitHub or after nbconvert: pictures with their words and a table, no style, no script.
"""

from collections.abc import Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from exhibit_a.extras import extra
from exhibit_a.report import sentences
from exhibit_a.report.display_units import reading
from exhibit_a.report.html import script
from exhibit_a.report.picture import data_uri, enlarged, word_squares
from exhibit_a.report.static_map import labelled_map, result_maps
from exhibit_a.report.view import view
from exhibit_a.results.result import Result
from exhibit_a.subject.anatomy import key_stack
from exhibit_a.subject.site_names import head_name
from exhibit_a.trace.units import Asked
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import HeadVerdict

if TYPE_CHECKING:
    import anywidget

SHOWN = 6  # heads in the table
FIRST_WORDS = 3  # of every picture


def widget(result: Result, *, by: Asked | None = None) -> "anywidget.AnyWidget":
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


def static_html(result: Result, *, by: Asked | None = None) -> str:
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
    if isinstance(shown, Trial):
        return _trial(shown)
    return shown.checks_html(result_maps(shown))


def _trial(trial: Trial) -> str:
    answer = ", ".join(f"{escape(label)} {share:.3f}" for label, share in trial.answer.items())
    ranked = sentences.most_important(trial)
    rests = (
        [] if trial.reliance is None else sentences.reliance_sentences(trial.reliance, trial.answer)
    )
    return (
        f"<div><p><b>{escape(trial.advice or trial.verdict)}</b></p>"
        f"<p>{escape(' '.join(trial.tokens or ()))}</p>"
        f"<p>Answer: {answer or 'none'}. {escape(' '.join(rests))}</p>"
        f"<p><b>{escape(trial.word)}</b>: {escape(trial.verdict)}</p>"
        f"{_heads(trial)}<p>{escape(sentences.carriers_sentence(trial))}</p>"
        f"{_table(trial, ranked[:SHOWN])}{_pictures(trial)}{_maps(trial, ranked[0])}"
        "<p>For the interactive page: <code>exhibit_a.widget(trial)</code> or "
        "<code>trial.html(path)</code>.</p></div>"
    )


def _heads(trial: Trial) -> str:
    words: dict[int, list[str]] = {}
    for head in trial.verdicts:
        words.setdefault(head.site, []).append(head.word)
    picture = data_uri(enlarged(word_squares(list(words.values())), 18, 2))
    return (
        f'<p><img alt="verdicts, a row for every layer" src="{picture}"><br>'
        "a row for each layer, a column for each head; green: evidence, yellow: contested, red: "
        "misleading, grey: no effect, blue: undetermined</p>"
    )


def _maps(trial: Trial, head: HeadVerdict) -> str:
    maps = {"raw": trial.attention[head.site][head.head]}
    if trial.effective is not None:
        maps["effective"] = trial.effective.effective[head.site][head.head]
    limit = max(float(scores.abs().amax()) for scores in maps.values())
    words = _words(trial, head.site)
    pictures = "".join(
        f"<td>{labelled_map(scores, limit, words, f'{name} attention')}<br>{name}</td>"
        for name, scores in maps.items()
    )
    name = head_name(trial.sites, head.site, head.head)
    serves = sentences.foretells(trial, trial.sites[head.site])
    what = ", for the word after it" if serves else ""
    return f"<p>{name}: each row looks at the columns{what}</p><table><tr>{pictures}</tr></table>"


def _words(trial: Trial, site: int) -> tuple[Sequence[str], Sequence[str]]:
    """What the rows and the columns of a site are called; numbers where there is no text."""
    keys = key_stack(trial.sites[site], trial.sequences)
    known = trial.sequences[trial.sites[site].stack], trial.sequences[keys]
    queries, looked_at = (
        names if len(names) == size else tuple(map(str, range(size)))
        for names, size in zip(known, trial.attention[site].shape[1:], strict=True)
    )
    return queries, looked_at


def _table(trial: Trial, heads: Sequence[HeadVerdict]) -> str:
    names = ("head", "verdict", "share", "alone", "shared", "determined", "points")
    rows = [
        (
            head_name(trial.sites, head.site, head.head),
            head.word,
            _cell(sentences.of_margin(trial, head.reliance), "+.1%"),
            _cell(sentences.of_margin(trial, head.one_head), "+.1%"),
            "yes" if head.shared else "no",
            _cell(head.determined),
            _cell(head.points),
        )
        for head in heads
    ]
    return _rows(names, rows)


def _pictures(trial: Trial) -> str:
    if trial.pictures is None:
        return ""
    rows = [
        (
            f"{sentences.MARKS[picture.advice]} {picture.advice}",
            picture.label,
            sentences.p_text(picture.p_value),
            _cell(picture.probability_loss, ".2f"),
            ", ".join(picture.words[place] for place in picture.ranking[:FIRST_WORDS]),
        )
        for picture in sentences.ranked_pictures(trial.pictures)
    ]
    return _rows(("advice", "picture", "p", "answer loses", "first words"), rows)


def _rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heading = "".join(f"<th>{name}</th>" for name in names)
    lines = ("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{heading}</tr>{''.join(lines)}</table>"


def _cell(value: float | bool | None, form: str = "") -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, form)


@cache
def _widget_class() -> "type[anywidget.AnyWidget]":
    traitlets = extra("traitlets")

    class Page(extra("anywidget").AnyWidget):  # type: ignore[misc]
        """A page in a cell."""

        _esm = script()
        header = traitlets.Unicode().tag(sync=True)
        blocks = traitlets.Unicode().tag(sync=True)

    return Page
