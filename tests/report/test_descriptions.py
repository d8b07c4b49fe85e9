"""What a description says arrives on the page, in a terminal, a notebook, LaTeX and a figure."""

import io
from dataclasses import dataclass

import matplotlib
import pytest
import torch
from jaxtyping import Float
from rich.console import Console
from support.cases import tiny_trial
from support.results import every_result
from torch import Tensor

import exhibit_a as xa
from exhibit_a.errors import NotComputableError
from exhibit_a.report import blocks
from exhibit_a.report.blocks import Column, main_table
from exhibit_a.report.describe import describe, summary_table
from exhibit_a.report.header import Header
from exhibit_a.report.view import view
from exhibit_a.results.result import Result
from exhibit_a.subject.provenance import Provenance

matplotlib.use("Agg")
ORIGIN = Provenance("made-up", "toy_method")
KINDS = sorted(kind.__name__ for kind in describe.registry if kind not in (object, Result))
CORNER = "⌜corner⌝"  # a word that no description has by itself


@pytest.fixture(scope="module")
def tiny():
    return tiny_trial()


@pytest.fixture(autouse=True)
def _forget_toys():
    yield
    for name in ("Toy", "Child"):
        Result.kinds.pop(name, None)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Toy(Result):
    scores: tuple[Float[Tensor, "_head _query _key"], ...] = ()
    strength: tuple[Float[Tensor, " _head"] | None, ...] = ()
    weight: Float[Tensor, " token"] | None = None
    note: str = "a fact"


def printed(result):
    file = io.StringIO()
    xa.show(result, console=Console(file=file, width=200))
    return file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_result_is_shown_in_five_ways(kind):
    result = every_result()[kind]
    shown = view(result).header
    panels = {"maps", "story", "tree", "heat_maps", "passages", "comparison"} & set(shown)
    assert panels or shown["charts"] or shown["tables"]
    assert Header.__required_keys__ <= set(shown)
    assert printed(result).strip()
    assert "<script" not in result._repr_html_()
    try:
        assert r"\toprule" in result.to_latex(top=5)
    except NotComputableError:
        assert not main_table(describe(result)).first(5)
    assert result.plot().axes


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_table_have_the_cells_of_its_columns(kind):
    table = main_table(describe(every_result()[kind]))
    keys = [column.key for column in table.columns]
    assert len(set(keys)) == len(keys)
    for row in table.first(3):
        assert set(keys) <= set(row)
    if table.heads:
        assert len(table.heads) == len(table.rows)
        assert table.first(2) == table.rows[:2]


def one_of_each(child):
    """A block of each kind, named so that it can be found again."""
    maps = torch.rand(2, 4, 4)
    rows = [{"n": 0.25, "w": CORNER}, {"n": 0.5, "w": "other"}]
    columns = (Column("n", f"{CORNER} number", "a help", ".0%"), Column("w", "word"))
    names = tuple("abcd")
    site = blocks.MapSite("Layer 7", "layer 7", "tokens", "tokens", names=(names, names))
    series = (blocks.Series("one", ((0.0, 1.0), (1.0, 2.0)), mark="bars"),)
    return {
        "table": blocks.Table(f"{CORNER} table", columns, rows),
        "table of a terminal": blocks.Table("", columns, rows, on_page=False),
        "maps": blocks.Maps((blocks.Mode("m", f"{CORNER} mode", (maps,)),), (site,)),
        "chart": blocks.Chart("x", f"{CORNER} y", series, names=("left", "right")),
        "grid": blocks.Grid(("r",), ("c", "d"), torch.rand(1, 2), f"{CORNER} grid"),
        "heat maps": blocks.HeatMapPanel(
            list(names),
            [blocks.HeatMapRow(CORNER, "show", "✓", "", 0.01, 0.5, 1.0, [0.1, 0.4, 0.3, 0.2])],
            "",
        ),
        "summary": blocks.AnswerSummary(
            CORNER, [("yes", 1.0)], "", "evidence", "so it is", [], "", "tokens", [], "", []
        ),
    }  # fmt: skip


LOWERED = {  # where each kind of block must be found
    "table": {"page", "latex", "notebook"},
    "maps": {"page", "notebook", "figure"},
    "chart": {"page", "figure"},
    "grid": {"figure"},
    "heat maps": {"page"},
    "table of a terminal": {"terminal", "latex", "notebook"},
    "summary": {"page", "terminal", "notebook"},
}


@pytest.mark.parametrize("kind", LOWERED)
def test_a_new_kind_of_result_needs_one_function(kind):
    class Child(Toy):
        pass

    @describe.register
    def _(result: Child) -> blocks.Blocks:
        texts = blocks.Texts({"tokens": result.tokens})
        return texts, one_of_each(result)[kind]

    child = Child(provenance=ORIGIN, tokens=tuple("abcd"))
    found = {"page"} if CORNER in view(child).header_json() else set()
    found |= {"terminal"} if CORNER in printed(child) else set()
    found |= {"notebook"} if CORNER.lower() in child._repr_html_().lower() else set()
    if "table" in kind:
        assert r"25\%" in child.to_latex()
        found |= {"latex"} if CORNER in child.to_latex() else set()
    if kind in ("maps", "chart", "grid"):
        (axes, *others) = child.plot().axes
        texts = [axes.get_title(), axes.get_ylabel(), *(other.get_ylabel() for other in others)]
        found |= {"figure"} if any(CORNER in text for text in texts) else set()
    assert found == LOWERED[kind]
    assert CORNER not in view(Toy(provenance=ORIGIN, tokens=tuple("abcd"))).header_json()


def test_rows_say_what_the_result_says(tiny):
    effective = summary_table(tiny.effective)
    for row, pearson in zip(effective.rows, tiny.effective.pearson, strict=True):
        assert row["pearson"] == float(pearson.mean())
    edges = summary_table(tiny.attribution, top=3)
    assert [row["contribution"] for row in edges.rows] == [
        edge.score for edge in tiny.attribution.strongest(3)
    ]
    assert len(summary_table(tiny.attribution).rows) == 12


def test_numbers_of_the_page_stand_at_their_heads(tiny):
    maps = view(tiny, "token").header["maps"]
    for entry, verdict in zip(maps["heads"], tiny.verdicts, strict=True):
        assert (entry["site"], entry["head"]) == (verdict.site, verdict.head)
        assert entry["word"] == verdict.word
        assert entry["numbers"]["distance"] == pytest.approx(verdict.distance, abs=1e-8)
        assert entry["answers"]["shared"] == verdict.shared


def test_of_the_maps_of_any_result_the_largest_entry_is_shown():
    scores = torch.zeros(2, 2, 3, 3)
    scores[1, 0, 2, 1] = -5.0
    strength = (None, torch.tensor([0.5, 0.25]))
    toy = Toy(provenance=ORIGIN, tokens=("a", "b", "c"), scores=tuple(scores), strength=strength)
    table = summary_table(toy, top=1)
    assert table.title == "toy method of made-up, 1 of 4 rows"
    assert table.rows == [
        {"site": 1, "head": 0, "scores_largest": -5.0}
        | {"scores_query": "c", "scores_key": "b", "strength": 0.5}
    ]
    rows = summary_table(toy).rows
    assert [row["strength"] for row in rows] == [None, None, 0.5, 0.25]  # and no column is missing
