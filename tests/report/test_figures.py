"""Figures: every kind has one, it fits where it is put, and its names can be read."""

import io
import re
from itertools import pairwise

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest
import torch
from support.results import ORIGIN, every_result, long_trial, of_tokens

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.custom_methods import TokenAttribution
from exhibit_a.report.describe import describe
from exhibit_a.report.figures import plot_curves
from exhibit_a.results.result import Result

PANELS = {
    "AdversarialKeys": 2,
    "EffectiveAttention": 3,
    "Faithfulness": 2,
    "HiddenAttribution": 3,
    "IdentifiabilityByLength": 3,
    "Reliance": 2,
    "Trial": 2,
}


KINDS = sorted(kind.__name__ for kind in describe.registry if kind not in (object, Result))


def saved(figure, form):
    file = io.BytesIO()
    figure.savefig(file, format=form)
    return file.getvalue()


def touching(axis):
    """Pairs of neighbouring names that overlap."""
    labels = [label for label in axis.get_ticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels if label.get_visible()]
    ends = [(box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1) for box in boxes]
    ends.sort()
    return [pair for pair in pairwise(ends) if pair[0][1] > pair[1][0] + 0.5]


def cut_off(figure):
    """Whether the edge of the figure cuts something off."""
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    return min(drawn.x0, drawn.y0) < -0.02 or drawn.x1 > width + 0.02 or drawn.y1 > height + 0.02


@pytest.mark.parametrize("figsize", [None, "one column"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_readably_at_every_size(kind, figsize):
    figure = every_result()[kind].plot(figsize=figsize)
    assert saved(figure, "png")
    if figsize is not None:
        assert figure.get_figwidth() == pytest.approx(3.3)
    assert not cut_off(figure)
    for axes in figure.axes:
        assert not touching(axes.xaxis)
        assert not touching(axes.yaxis)


@pytest.mark.parametrize("kind", KINDS)
def test_one_panel_is_drawn_into_the_axes_of_the_caller(kind):
    figure, axes = matplotlib.pyplot.subplots()
    try:
        if kind in PANELS:
            with pytest.raises(BadRequestError, match=f"{PANELS[kind]} panels"):
                every_result()[kind].plot(ax=axes)
            return
        assert every_result()[kind].plot(ax=axes) is figure
        assert axes.has_data()
    finally:
        matplotlib.pyplot.close(figure)


@pytest.mark.parametrize(("tokens", "figsize"), [(60, "one column"), (250, None)])
@pytest.mark.parametrize("place", range(7))
def test_names_thin_out_instead_of_touching(tokens, figsize, place):
    figure = of_tokens(tokens)[place].plot(figsize=figsize)
    figure.draw_without_rendering()
    assert max(figure.get_size_inches()) <= 13.5
    named = 0
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        assert not touching(axis)
        words = [label for label in axis.get_ticklabels() if "word" in label.get_text()]
        named += len(words)
        assert len(words) * 6 <= figure.get_size_inches().max() * 72
    assert named
    assert not cut_off(figure)


def test_saved_text_is_text_and_settings_stay_as_they_were():
    before = dict(matplotlib.rcParams)
    figure = long_trial(12).attribution.plot()
    drawing = saved(figure, "svg").decode()
    for word in ("word3", "[CLS]", "query", "layer"):
        assert re.search(rf"<text[^>]*>[^<]*{re.escape(word)}", drawing), word
    paper = saved(figure, "pdf")
    assert b"/Type3" not in paper
    assert b"/FontFile2" in paper
    assert dict(matplotlib.rcParams) == before


def test_the_map_shown_is_that_of_the_head_with_most_attribution():
    attribution = long_trial(12).attribution
    scores = tuple(table.clone() for table in attribution.scores)
    scores[1][2] *= 50
    scores[0][3] *= 10
    result = changed(attribution, scores=scores)
    assert result.plot().axes[0].get_title() == "layer 1, head 2"
    assert result.plot(site=0).axes[0].get_title() == "layer 0, head 3"
    assert result.plot(site=-2).axes[0].get_title() == "layer 0, head 3"
    assert result.plot(site=0, head=1).axes[0].get_title() == "layer 0, head 1"
    together = result.plot(head="all").axes[0]
    assert together.get_title() == "layer 1, all heads"
    assert np.allclose(together.images[0].get_array(), scores[1].sum(0))
    for options, message in (
        ({"site": 2}, "this model has 0 to 1"),
        ({"head": 4}, "its heads are 0 to 3"),
        ({"head": "some"}, 'a number or "all"'),
    ):
        with pytest.raises(BadRequestError, match=message):
            result.plot(**options)


def test_tokens_are_no_commands():
    tokens = ("$x$", "$$", "\n", "a" * 50, r"\frac", "_^")
    result = TokenAttribution(
        provenance=ORIGIN, tokens=tokens, method="ours", target="token $a$", scores=torch.ones(6)
    )
    drawing = saved(result.plot(), "svg").decode()
    for words in ("$x$", "$$", "·", "a" * 19 + "…", r"\frac", "_^", "token $a$"):
        assert re.search(rf"<text[^>]*>[^<]*{re.escape(words)}</text>", drawing), words


def changed(result, **fields):
    """The same result with other numbers."""
    return type(result)(**{**vars(result), **fields})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"hed": 3}, "site, head"),
        ({"figsize": "huge"}, "one column"),
        ({"figsize": (0, 3)}, "inches"),
        ({"figsize": (1, 2, 3)}, "inches"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, word):
    with pytest.raises(BadRequestError, match=word):
        long_trial(12).attribution.plot(**options)


def test_several_curves_share_a_figure():
    curve = every_result()["PruningCurve"]
    figure = plot_curves([curve, curve], figsize=(5, 4))
    assert figure.get_size_inches().tolist() == [5, 4]
    assert len(figure.axes[0].lines) == 2


def test_labels_replace_tokens():
    result = long_trial(12).attribution
    names = [f"name{place}" for place in range(12)]
    for given in (names, {"encoder": names}):
        figure = result.plot(tokens=given)
        for labels in (figure.axes[0].get_xticklabels(), figure.axes[0].get_yticklabels()):
            assert [label.get_text() for label in labels] == names
    with pytest.raises(BadRequestError, match="2 labels"):
        result.plot(tokens=["a", "b"])
    with pytest.raises(BadRequestError, match="words"):
        result.plot(tokens="letters")


def test_a_colour_map_of_the_caller_is_used():
    trial = long_trial(12)
    image = trial.attribution.plot(cmap="PuOr").axes[0].images[0]
    assert image.get_cmap().name == "PuOr"
    bars = of_tokens(12)[-1].plot(cmap="PuOr").axes[0].patches
    assert bars[0].get_facecolor() == pytest.approx(matplotlib.colormaps["PuOr"](0.15), abs=0.01)
    with pytest.raises(BadRequestError, match="no colour map 'mud'"):
        trial.attribution.plot(cmap="mud")
