"""People read words: terminal, page, notebook and figures show them, and tokens when asked."""

import io

import pytest
import torch
from rich.console import Console

import exhibit_a as xa
from exhibit_a.errors import NotComputableError
from exhibit_a.report.display_units import reading, unit_of
from exhibit_a.report.view import view

TEXT = "An unflinchingly honest film. It never drags"
WORDS = ("[CLS]", "An", "unflinchingly", "honest", "film", ".", "It", "never", "drags", "[SEP]")


@pytest.fixture(scope="module")
def trace():
    return xa.capture(xa.load("sentiment"), TEXT)


@pytest.fixture(scope="module")
def raw(trace):
    return xa.companions(trace, methods=["raw"])["raw"]


@pytest.fixture(scope="module")
def trial():
    return xa.trial(xa.load("sentiment"), TEXT, probes=2, heat_maps=False)


def printed(result, **options):
    file = io.StringIO()
    xa.show(result, console=Console(file=file, width=200), **options)
    return file.getvalue()


def names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_words_are_usual_and_tokens_one_word_away(raw):
    assert reading(raw).tokens == WORDS
    assert reading(raw, "token") is raw
    assert reading(raw, "sentence").tokens[1] == "An unflinchingly honest film."
    assert unit_of(reading(raw)) == "word"
    assert torch.isclose(reading(raw).scores.sum(), raw.scores.sum(), atol=1e-6)


def test_what_cannot_be_added_up_is_shown_over_tokens_unless_words_were_asked_for(trace):
    counts = xa.attention_identifiability(trace)
    assert reading(counts) is counts
    with pytest.raises(NotComputableError, match="no sums over words"):
        reading(counts, "word")


def test_the_terminal_shows_words(trial, raw):
    assert "unflinchingly" in printed(trial)
    assert "##" not in printed(trial)
    assert "15 tokens" in printed(trial)
    assert "##fl" in printed(trial, by="token")
    assert "10 words ([CLS] An unflinchingly" in printed(raw)


def test_the_page_has_words_and_the_panels_over_tokens_beside_them(trial, tmp_path):
    shown = view(trial)
    assert shown.header["unit"] == "word"
    assert shown.header["sequences"]["encoder"]["tokens"] == list(WORDS)
    tokens = shown.header["tokens"]
    assert tokens["sequences"]["encoder"]["tokens"] == list(trial.tokens)
    blocks = {head["block"] for head in tokens["maps"]["heads"]}
    assert blocks <= set(shown.header["blocks"])
    assert not blocks & {head["block"] for head in shown.header["maps"]["heads"]}
    assert sum(size for _, size in shown.header["blocks"].values()) == len(shown.blocks)
    shares = shown.header["summary"]["shares"]
    assert len(shares) in (0, len(WORDS))
    alone = view(trial, "token")
    assert alone.header["unit"] == "token"
    assert "tokens" not in alone.header
    assert "unflinchingly" in trial.html(tmp_path / "page.html").read_text("utf-8")


def test_figures_are_drawn_over_words_unless_tokens_are_named(trace):
    result = xa.companions(trace, methods=["attention_gradient"])["attention_gradient"]

    def labels(**options):
        (axes, *_) = result.plot(**options).axes
        return names(axes.xaxis) + names(axes.yaxis)

    assert "unflinchingly" in labels()
    assert "##fl" in labels(by="token")
    assert "An unflinchingly ho…" in " ".join(labels(by="sentence"))
    assert "fl" in labels(tokens="words")


def test_a_notebook_shows_words(trial, raw):
    assert "unflinchingly" in xa.static_html(trial)
    assert "##fl" in xa.static_html(trial, by="token")
    assert TEXT in raw._repr_html_()
    assert '"unit":"word"' in xa.widget(raw).header
