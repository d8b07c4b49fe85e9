"""The summary on a screen: whole without colour, in 80 columns, no word without a number."""

import dataclasses
import io
import re

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from support.cases import large_trial
from support.subjects import speaker, subject_of

import exhibit_a as xa
from exhibit_a.report.sentences import most_important, of_margin
from exhibit_a.report.terminal import GLYPHS, show
from exhibit_a.trials.sentences import percent_text

METRICS = ("comprehensiveness", "sufficiency", "deletion", "insertion", "leave_one_out", "flips")
LONG = "the plot is not great but acting saves it . really a very fine film , not dull"


def printed(result, width=80, **options):
    file = io.StringIO()
    show(result, console=Console(file=file, width=width, highlight=False, **options))
    return file.getvalue()


@pytest.fixture(scope="module")
def trial():
    return xa.trial(speaker(), LONG, probes=4)


def test_it_fits_in_80_columns_and_is_plain_in_a_file(trial):
    output = printed(trial)
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= 80
    assert all(line == line.rstrip() for line in output.splitlines())


def _name(head):
    return f"layer {head.site}, head {head.head}"


def test_the_grid_has_a_sign_for_every_head_and_the_counts_agree(trial):
    output = printed(trial)
    rows = [line.split()[2:] for line in output.splitlines() if re.match(r"  layer \d ", line)]
    signs = [sign for row in rows for sign in row]
    assert signs == [GLYPHS[head.word] for head in trial.verdicts]
    for word, glyph in GLYPHS.items():
        count = sum(head.word == word for head in trial.verdicts)
        assert (f"{glyph} {count} {word}" in output) == (count > 0)


@pytest.fixture
def shaded(trial):
    """The trial before its heat maps were judged: its words are shaded whatever they say."""
    return dataclasses.replace(trial, heat_maps=None)


def advised(trial, advice):
    heat_maps = trial.heat_maps
    place = heat_maps.names.index("self_attribution")
    advices = (*heat_maps.advices[:place], advice, *heat_maps.advices[place + 1 :])
    return dataclasses.replace(trial, heat_maps=dataclasses.replace(heat_maps, advices=advices))


def test_words_are_not_shaded_where_that_picture_should_not_be_shown(trial):
    shown, refused = (printed(advised(trial, advice)) for advice in ("show", "do not show"))
    assert "⁺⁺" in shown or "⁻⁻" in shown
    assert "⁺" not in refused
    assert "⁻" not in refused
    assert "The words are not shaded by self-attribution" in refused


def test_the_sign_of_a_token_is_told_without_colour(shaded):
    trial = shaded
    output, scores = printed(trial), trial.token_scores
    strongest = int(scores.abs().argmax())
    mark = "⁺⁺" if scores[strongest] > 0 else "⁻⁻"
    assert trial.tokens[strongest] + mark in output
    side = "for" if scores[strongest] > 0 else "against"
    assert f"{side}: {trial.tokens[strongest]} {float(scores[strongest]):+.2f}" in output


def test_a_terminal_gets_colours_that_mean_the_same(shaded):
    trial = shaded
    output = printed(trial, force_terminal=True, color_system="truecolor")
    assert "\x1b[" in output
    without = re.sub(r"\x1b\[[0-9;]*m", "", output)
    plain = printed(trial)
    assert [line.rstrip() for line in without.splitlines()] == plain.splitlines()


def test_what_was_not_examined_is_said_with_its_reason():
    inputs = {"input_ids": torch.arange(4, 24).unsqueeze(0)}
    output = printed(xa.trial(subject_of("clip-text"), inputs, probes=4))
    flat = " ".join(output.split())
    assert "not examined" in flat
    assert "reliance: CLIPTextModel answers with hidden states only" in flat
    assert "? " in output  # numbers that are not known
    assert "None" not in output


METRICS = "comprehensiveness", "sufficiency", "deletion", "insertion", "leave_one_out", "first_flip"


@pytest.mark.parametrize("width", [48, 60, 80, 120])
def test_a_narrow_screen_drops_columns_and_cuts_no_number(width):
    made_up = large_trial(tokens=12, layers=6, heads=12, width=8)
    output = printed(made_up, width=width)
    lines = output.splitlines()
    assert max(map(cell_len, lines)) <= width
    for head in most_important(made_up)[:5]:
        row = next(line for line in lines if line.strip().startswith(f"{_name(head)} "))
        assert "…" not in row
        assert percent_text(of_margin(made_up, head.reliance)) in row.split()
    if width >= 120:
        assert "agreement" in output
        assert "its first words" in output
