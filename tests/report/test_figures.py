"""Figures: every kind has one, it fits where it is put, and its names can be read."""

import io
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest
import torch
from support.cases import TEXT, large_trial
from support.corpora import sentences, some_examples
from support.subjects import speaker, trace_of

import exhibit_a
from exhibit_a.errors import BadRequestError
from exhibit_a.methods.attribution import tree
from exhibit_a.methods.attribution.contribution import contribution_weights
from exhibit_a.methods.custom_methods import HeadMaps, TokenAttribution
from exhibit_a.methods.explanation.adversarial import adversarial_attention
from exhibit_a.methods.explanation.adversarial_keys import adversarial_keys
from exhibit_a.methods.explanation.faithfulness import faithfulness
from exhibit_a.methods.explanation.permutation import permutation_test
from exhibit_a.methods.explanation.pictures import pictures
from exhibit_a.methods.heads.curve import pruning_curve
from exhibit_a.methods.heads.importance import head_importance, head_similarity
from exhibit_a.methods.heads.patching import head_patching
from exhibit_a.methods.heads.pruning import measure_pruning
from exhibit_a.methods.heads.removal import prune
from exhibit_a.methods.heads.sinks import sink_diagnosis
from exhibit_a.methods.identifiability.alternatives import alternative_attention
from exhibit_a.methods.identifiability.counts import (
    attention_identifiability,
    identifiability_by_length,
)
from exhibit_a.methods.mixing.head_mixing import head_mixing
from exhibit_a.methods.triggers.insertion import Inserted, Pattern
from exhibit_a.methods.triggers.triggers import Attack, Triggers
from exhibit_a.report import palette
from exhibit_a.report.figures import draw, plot_curves
from exhibit_a.results.result import Result
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.trials.comparison import compare

PANELS = {
    "AdversarialKeys": 2,
    "EffectiveAttention": 3,
    "Faithfulness": 2,
    "HiddenAttribution": 3,
    "IdentifiabilityByLength": 3,
    "Reliance": 2,
    "Trial": 2,
}
ORIGIN = provenance("made-up", "made-up")


@cache
def long_trial(tokens):
    return large_trial(tokens=tokens, layers=2, heads=4, width=8)


def of_tokens(tokens):
    """Results with names of tokens in their figures."""
    trial = long_trial(tokens)
    maps = {"method": "ours", "maps": trial.attention, "sites": trial.sites}
    scores = torch.linspace(-1, 1, tokens)
    return [
        trial,
        trial.effective,
        trial.attribution,
        trial.hidden,
        trial.tree,
        HeadMaps(provenance=ORIGIN, tokens=trial.tokens, sequences=trial.sequences, **maps),
        TokenAttribution(
            provenance=ORIGIN, tokens=trial.tokens, method="ours", target="yes", scores=scores
        ),
    ]


def of_patterns():
    pieces = tuple(Inserted(place, f"piece{place}", 0, 0.5) for place in range(4))
    patterns = tuple(
        Pattern(pieces[:count], (0.3, 0.1 * count), 0, 0, count % 2, "1") for count in (1, 4)
    )
    labels = ("against it", "for it")
    shares = torch.tensor([[0.5, 0.9], [0.8, 0.2]])
    return [
        Triggers(provenance=ORIGIN, patterns=patterns, by_attention=patterns, labels=labels),
        Attack(
            provenance=ORIGIN,
            before=torch.tensor([0.9, 0.8]),
            after=shares,
            interval=shares.unsqueeze(-1).expand(-1, -1, 2),
            random=shares + 0.1,
            random_spread=shares / 10,
            attention=shares + 0.05,
            counts=torch.tensor([10, 20]),
            patterns=patterns,
            attention_patterns=patterns,
            labels=labels,
        ),
    ]


def context():
    passages = ["Tom has a red ball.", "Lily has a blue kite."]
    return exhibit_a.context_attribution(
        load("stories"), "Lily has a", passages, answer=" blue kite", methods=["raw"], samples=0
    )


@cache
def every_result():
    subject, examples = speaker(), some_examples(6)
    trace = capture(subject, TEXT)
    importance = head_importance(subject, examples, by="attention")
    results = [
        *of_tokens(12),
        long_trial(12).reliance,
        compare(long_trial(12), long_trial(12), names=("one", "two")),
        adversarial_attention(trace, restarts=1, steps=1),
        adversarial_keys(subject, examples, held_out=examples, epochs=1, hidden=4),
        alternative_attention(trace, site=1, head=2, samples=1),
        attention_identifiability(trace),
        faithfulness(subject, examples[:2], attribution=["raw", "norm"], rankings=1),
        head_mixing(trace, probes=2),
        head_similarity(importance, importance, names=("this", "that")),
        identifiability_by_length(subject, TEXT, lengths=[4, 9, 12]),
        importance,
        measure_pruning(subject, prune(subject, [(0, 0)]), [(0, 0)], examples, repeats=1),
        permutation_test(subject, examples, repeats=2),
        pictures(trace, methods=["raw", "mean_attention", "attention_gradient"]),
        pruning_curve(subject, examples, importance, fractions=[0, 1], overlap=True),
        contribution_weights(trace),
        sink_diagnosis(trace),
        head_patching(trace, counterfactual=TEXT.replace("not", "very"), verify=2),
        context(),
        exhibit_a.token_identifiability(subject, sentences(12), maps=("identity",)),
        *of_patterns(),
    ]
    return {type(result).__name__: result for result in results}


KINDS = sorted(kind.__name__ for kind in draw.registry if kind is not object)


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
            with pytest.raises(
                BadRequestError, match=rf"{kind} has {PANELS[kind]} panels.* one ax"
            ):
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


def test_strong_tokens_keep_their_names():
    scores = torch.zeros(400)
    scores[[123, 257]] = torch.tensor([1.0, -1.0])
    result = TokenAttribution(
        provenance=ORIGIN,
        tokens=tuple(f"word{place}" for place in range(400)),
        method="ours",
        target="yes",
        scores=scores,
    )
    figure = result.plot()
    names = {label.get_text() for label in figure.axes[0].get_yticklabels()}
    assert {"word123", "word257"} <= names
    assert len(names) < 100
    figure.axes[0].set_ylim(120.5, 100.5)  # who zooms in gets the names of everything there
    names = {label.get_text() for label in figure.axes[0].get_yticklabels()}
    assert names == {f"word{place}" for place in range(101, 121)}


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


def test_the_effective_map_shown_is_the_one_that_differs_most():
    effective = long_trial(12).effective
    moved = tuple(rows.clone() for rows in effective.moved)
    moved[1][3] += 0.2
    assert "layer 1, head 3" in title(changed(effective, moved=moved).plot())
    same = tuple(torch.zeros_like(rows) for rows in moved)
    special = tuple(shares.clone() for shares in effective.special_raw)
    special[0][1] = 0.0
    assert "layer 0, head 1" in title(changed(effective, moved=same, special_raw=special).plot())


def test_shares_that_are_like_chance_are_not_painted():
    reliance = long_trial(12).reliance
    heads = tuple(torch.tensor([0.5, -0.5, 0.015, 0.0]) for _ in reliance.heads)  # 0.01 by chance
    result = changed(reliance, heads=heads)
    share, alone = (axes.images[0].get_array() for axes in result.plot().axes[:2])
    scale = result.size
    assert np.allclose(share, [[0.5 / scale, -0.5 / scale, 0, 0]] * 2)
    assert np.allclose(alone, 0.01 / scale)


def test_sites_of_two_stacks_are_told_apart():
    figure = exhibit_a.self_attribution(trace_of("bart")).plot(site=-1, head=0)
    assert figure.axes[0].get_title() == "decoder layer 1, cross, head 0"


def test_labels_replace_tokens():
    result = long_trial(12).attribution
    names = [f"name{place}" for place in range(12)]
    for given in (names, {"encoder": names}):
        figure = result.plot(tokens=given)
        for labels in (figure.axes[0].get_xticklabels(), figure.axes[0].get_yticklabels()):
            assert [label.get_text() for label in labels] == names
    with pytest.raises(BadRequestError, match="12 tokens cannot be named by 2 labels"):
        result.plot(tokens=["a", "b"])
    with pytest.raises(BadRequestError, match="no way to write tokens 'letters'; choose words"):
        result.plot(tokens="letters")


def test_words_are_written_without_the_marks_of_their_tokenizer():
    tokens = ("[CLS]", "Ġgood", "▁film", "##ing", "▁", "#")
    result = TokenAttribution(
        provenance=ORIGIN, tokens=tokens, method="ours", target="yes", scores=torch.ones(6)
    )
    names = [label.get_text() for label in result.plot(tokens="words").axes[0].get_yticklabels()]
    assert names == ["[CLS]", "good", "film", "ing", "▁", "#"]


def test_tokens_are_no_commands():
    tokens = ("$x$", "$$", "\n", "a" * 50, r"\frac", "_^")
    result = TokenAttribution(
        provenance=ORIGIN, tokens=tokens, method="ours", target="token $a$", scores=torch.ones(6)
    )
    drawing = saved(result.plot(), "svg").decode()
    for words in ("$x$", "$$", "·", "a" * 19 + "…", r"\frac", "_^", "token $a$"):
        assert re.search(rf"<text[^>]*>[^<]*{re.escape(words)}</text>", drawing), words


def test_a_colour_map_of_the_caller_is_used():
    trial = long_trial(12)
    image = trial.attribution.plot(cmap="PuOr").axes[0].images[0]
    assert image.get_cmap().name == "PuOr"
    bars = of_tokens(12)[-1].plot(cmap="PuOr").axes[0].patches
    assert bars[0].get_facecolor() == pytest.approx(matplotlib.colormaps["PuOr"](0.15), abs=0.01)
    with pytest.raises(BadRequestError, match="no colour map 'mud'"):
        trial.attribution.plot(cmap="mud")


def test_what_cannot_be_drawn_is_said_in_one_line():
    with pytest.raises(BadRequestError, match=r"^Result has no plot\. Draw from to_pandas\(\)"):
        Result(provenance=ORIGIN).plot()
    attribution = long_trial(12).attribution
    message = (
        "SelfAttribution has no option 'hed'; choose ax, figsize, cmap, tokens, by, site, head"
    )
    with pytest.raises(BadRequestError, match=message):
        attribution.plot(hed=3)
    with pytest.raises(BadRequestError, match="size of a figure 'huge'; choose one column, two"):
        attribution.plot(figsize="huge")
    for size in ((1, 2, 3), (0, 3)):
        with pytest.raises(BadRequestError, match=r"figsize is .width, height. in inches"):
            attribution.plot(figsize=size)
    assert attribution.plot(figsize=(5, 4)).get_size_inches().tolist() == [5, 4]


def test_several_curves_share_a_figure():
    curve = every_result()["PruningCurve"]
    figure = plot_curves([curve, curve], figsize="two columns")
    assert figure.get_figwidth() == pytest.approx(6.9)
    assert len(figure.axes[0].lines) == 2


def test_a_missing_library_is_named_with_its_extra():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from exhibit_a.results.providers import provider\n"
        "try: provider('figure')\n"
        "except Exception as problem: print(type(problem).__name__, problem)"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert output.startswith("BadRequestError matplotlib is missing: pip install 'exhibit-a[viz]'")


def test_the_page_and_the_tree_have_the_same_colours():
    page = Path(exhibit_a.__file__).parents[2] / "viewer" / "src" / "colour.ts"
    light = re.findall(r'\[(-?[\d.]+), "(#\w{6})"\]', page.read_text("utf-8"))[:7]
    assert [float(anchor) for anchor, _ in light] == palette.ANCHORS.tolist()
    assert [code for _, code in light] == [
        "#" + bytes(row).hex() for row in palette.SIGNED.tolist()
    ]
    drawn = (tree.BLUE, tree.VERMILION)
    assert drawn == (palette.BLUE.lower(), palette.VERMILION.lower())


def test_scales_are_readable_in_grey():
    grey = np.array([0.299, 0.587, 0.114])
    assert (np.diff(palette.SEQUENTIAL @ grey) < -20).all()
    signed = palette.SIGNED @ grey
    assert (np.diff(signed[:4]) > 20).all()
    assert (np.diff(signed[3:]) < -20).all()


def test_colours_stand_in_the_palette_and_nowhere_else():
    source = Path(exhibit_a.__file__).parent
    known = {source / "report" / "palette.py", source / "methods" / "attribution" / "tree.py"}
    colour = re.compile(r"[\"' ]#[0-9a-fA-F]{6}\b")
    files = {path for path in source.rglob("*.py") if colour.search(path.read_text("utf-8"))}
    assert files == known


def changed(result, **fields):
    """The same result with other numbers."""
    return type(result)(**{**vars(result), **fields})


def title(figure):
    return figure.get_suptitle()
