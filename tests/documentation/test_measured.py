"""A measured number of the documentation is one that a study wrote, not one that was typed."""

import re
import runpy
from pathlib import Path

import pytest
from measurements import kept as ledger
from tables import keep, kept

ROOT = Path(__file__).parents[2]
MADE = runpy.run_path(str(ROOT / "docs/making/measured.py"))
NUMBER = re.compile(r"(?<![\w.,-])−?(\d*\.\d+(?:e-\d+)?|\d+(?= %))(?P<share> %)?(?![\w.]*\d)")
CODE = re.compile(r"```.*?```|`[^`]*`|^ {4}.*?$", re.DOTALL | re.MULTILINE)
SETTINGS = {"95 %", "0.4", "0.02", ".05", ".01", "0.01", "0.3"}  # what was asked for, not found


def prose(text):
    """What a page says outside its tables and its code."""
    outside = CODE.sub("", MADE["MARK"].sub("", text))
    return "\n".join(line for line in outside.splitlines() if not line.startswith("|"))


def numbers(text):
    """Every number that was measured by the look of it: with a point, or a share in per cent."""
    for found in NUMBER.finditer(text):
        yield found.group().lstrip("−"), float(found[1]), bool(found["share"])


def known_on(text):
    """The numbers of a page's tables and of the ledger."""
    cells = " ".join(
        cell
        for mark in MADE["MARK"].finditer(text)
        for row in kept()[mark["id"]]["rows"]
        for cell in row
    )
    digits = re.findall(r"\d[\d,]*\.?\d*(?:e-\d+)?|\.\d+", cells)
    values = [float(each.replace(",", "")) for each in digits if each.strip(",")]
    for line in ledger().values():
        values += [abs(line.value), *map(abs, line.interval)]
    return values


def stands_among(number, share, digits, known):
    """Whether one of the known numbers reads so when rounded; a share may be a part of 1."""
    scales = (1, 100) if share else (1,)
    return any(
        abs(round(scale * value, digits) - number) < 1e-9 for value in known for scale in scales
    )


@pytest.mark.parametrize("page", MADE["PAGES"], ids=lambda page: page.stem)
def test_tables_are_what_the_studies_wrote(page):
    text = page.read_text("utf-8")
    assert MADE["filled"](text) == text
    assert MADE["MARK"].search(text)


@pytest.mark.parametrize("page", MADE["PAGES"], ids=lambda page: page.stem)
def test_no_other_table_holds_measured_numbers(page):
    rest = MADE["MARK"].sub("", page.read_text("utf-8"))
    rows = [line for line in rest.splitlines() if line.startswith("|")]
    assert not [row for row in rows if re.search(r"\.\d|\d %", CODE.sub("", row))]


@pytest.mark.parametrize("page", MADE["PAGES"], ids=lambda page: page.stem)
def test_a_number_in_a_sentence_is_one_of_those_measured(page):
    text = page.read_text("utf-8")
    known = known_on(text)
    typed = []
    for written, number, share in numbers(prose(text)):
        digits = len(written.rstrip(" %").partition("e")[0].partition(".")[2])
        if written not in SETTINGS and not stands_among(number, share, digits, known):
            typed.append(written)
    assert typed == []


def test_a_table_replaces_the_one_before_it(tmp_path, capsys):
    path = tmp_path / "tables.jsonl"
    keep("first", ["a", "b"], [[1, 0.25]], path, "python studies/x.py")
    keep("second", ["a"], [[2]], path, "python studies/x.py")
    keep("first", ["a", "b"], [[3, 0.5]], path, "python studies/x.py")
    assert "| 3 | 0.5 |" in capsys.readouterr().out
    assert list(kept(path)) == ["second", "first"]
    assert kept(path)["first"]["rows"] == [["3", "0.5"]]


def test_a_typed_number_would_be_found():
    ((written, number, share),) = numbers("It rises by .123 on 5 texts.")
    assert (written, number, share) == (".123", 0.123, False)
    assert not stands_among(number, share, 3, [0.1216, 0.45])
    assert stands_among(12.0, True, 0, [0.1226])
