"""The summary on a screen: whole without colour, in 80 columns, no word without a number."""

import dataclasses
import io
import re

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from support.subjects import subject_of
from support.words import tokenizer
from support.zoo import FAMILIES

import exhibit_a as xa
from exhibit_a.report.table import cell, table
from exhibit_a.report.terminal import GLYPHS, most_important, say, show, timing
from exhibit_a.subject.subject import load

LONG = "the plot is not great but acting saves it . really a very fine film , not dull"


def printed(result, width=80, **options):
    file = io.StringIO()
    show(result, console=Console(file=file, width=width, highlight=False, **options))
    return file.getvalue()


@pytest.fixture(scope="module")
def found():
    return xa.trial(load(FAMILIES["bert"].build(), tokenizer=tokenizer()), LONG, probes=4)


def test_it_fits_in_80_columns_and_is_plain_in_a_file(found):
    told = printed(found)
    assert "\x1b" not in told
    assert max(map(len, told.splitlines())) <= 80
    assert all(line == line.rstrip() for line in told.splitlines())


def test_it_says_everything(found):
    told = printed(found)
    flat = " ".join(told.split())
    assert " ".join(found.verdict.split()) in flat
    assert f"verdict: {found.word}" in flat
    for label, share in found.answer.items():
        assert f"{label} {share:.3f}" in flat
    for one in most_important(found)[:5]:
        row = next(line for line in told.splitlines() if line.strip().startswith(f"{_name(one)} "))
        assert one.word in row
        assert f"{one.change:.3f} [{one.change_low:.3f}, {one.change_high:.3f}]" in row
        assert f"{one.share:.1%}" in row
    for doubt in ("parity", "largest gap", "rows searched"):
        assert doubt in told
    assert found.tree.text().splitlines()[0] in told


def _name(one):
    return f"{one.site}.{one.head}"


def test_the_grid_has_a_sign_for_every_head_and_the_counts_agree(found):
    told = printed(found)
    rows = [line.split()[2:] for line in told.splitlines() if re.match(r"  layer \d ", line)]
    signs = [sign for row in rows for sign in row]
    assert signs == [GLYPHS[one.word] for one in found.verdicts]
    for word, glyph in GLYPHS.items():
        count = sum(one.word == word for one in found.verdicts)
        assert re.search(rf"{glyph} {word} +{count} heads", told)


def test_the_sign_of_a_token_is_told_without_colour(found):
    told, scores = printed(found), found.token_scores
    strongest = int(scores.abs().argmax())
    mark = "⁺⁺" if scores[strongest] > 0 else "⁻⁻"
    assert found.tokens[strongest] + mark in told
    side = "for" if scores[strongest] > 0 else "against"
    assert f"{side}: {found.tokens[strongest]} {float(scores[strongest]):+.2f}" in told


def test_a_terminal_gets_colours_that_mean_the_same(found):
    told = printed(found, force_terminal=True, color_system="truecolor")
    scores = found.token_scores
    strongest = float(scores[scores.abs().argmax()])
    assert ("48;2;184;74;12" if strongest > 0 else "48;2;31;109;179") in told  # orange is for
    without = re.sub(r"\x1b\[[0-9;]*m", "", told)
    plain = printed(found)
    assert [line.rstrip() for line in without.splitlines()] == plain.splitlines()


def test_what_was_not_examined_is_said_with_its_reason():
    inputs = {"input_ids": torch.arange(4, 24).unsqueeze(0)}
    told = printed(xa.trial(subject_of("clip-text"), inputs, probes=4))
    flat = " ".join(told.split())
    assert "not examined" in flat
    assert "permutation: CLIPTextModel answers with hidden states only" in flat
    assert "? " in told  # numbers that nobody knows
    assert "None" not in told


def test_two_stacks_have_names(found):
    told = printed(xa.trial(subject_of("bart"), FAMILIES["bart"].inputs(), probes=4))
    for name in ("layer enc 0", "layer dec 1", "layer dec 1x"):
        assert name in told


def test_words_of_the_text_are_not_read_as_markup(found):
    tokens = ("[bold]", *found.tokens[1:])
    told = printed(dataclasses.replace(found, tokens=tokens))
    assert "[bold]" in told


def test_time_is_told_by_stage(found):
    file = io.StringIO()
    say(timing(found, load=1.5), console=Console(file=file, width=80))
    told = file.getvalue()
    assert re.search(r"load +1.50 s", told)
    assert re.search(rf"together +{sum(found.seconds.values()) + 1.5:.2f} s", told)
    assert all(stage in told for stage in found.seconds)


def test_other_results_have_a_summary(found, capsys):
    xa.show(found.effective)
    assert "effective_attention" in capsys.readouterr().out
    found.show()
    assert "verdict" in capsys.readouterr().out


METRICS = "comprehensiveness", "sufficiency", "deletion", "insertion", "leave_one_out", "first_flip"
TABLES = {
    "effective": {"site": "encoder 0", "not_unique": 0.25, "nullity": 12, "pearson": 0.5}
    | {"null_fraction": 0.5, "moved": 0.125, "special_raw": 0.1, "special_effective": 0.2}
    | {"first_raw": 0.3, "first_effective": 0.4},
    "triggers": {"pattern": "understood understand", "speaks_for": "contradiction"}
    | {"class": "contradiction", "before": 0.697, "after": 0.856, "interval": (0.654, 0.753)}
    | {"random": 0.697, "attention": 0.12},
    "faithful": {"attribution": "integrated_gradients"}
    | dict.fromkeys(METRICS, (-1.234e-05, 0.001, 0.465)),
    "diff": {"statistic": "special_effective", "site": 11, "head": 11, "first": 0.1234}
    | {"second": 0.2345, "difference": 0.1111, "interval_low": -0.1, "interval_high": 0.3},
}


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", TABLES)
def test_no_number_and_no_name_of_a_table_is_cut(name, width):
    row = TABLES[name]
    screen = Console(file=io.StringIO(), width=width)
    screen.print(table("a title", [row, row], width=width))
    told = screen.file.getvalue()
    assert "…" not in told
    assert all(cell_len(line) <= width for line in told.splitlines())
    words = told.split()
    values = [one for value in row.values() for one in cell(value).split()]
    pieces = [one for key in row for one in key.replace("effective", "eff.").split("_")]
    assert set(values) | set(pieces) - {METRICS[0]} <= set(words)


def test_a_table_with_room_has_every_row_in_one_line():
    screen = Console(file=io.StringIO(), width=120)
    screen.print(table("a title", [TABLES["triggers"]] * 3, width=120))
    assert screen.file.getvalue().count("understood understand  contradiction") == 3


def test_no_rows_are_a_title(capsys):
    Console().print(table("nothing found", [], width=80))
    assert capsys.readouterr().out.split() == ["nothing", "found"]
