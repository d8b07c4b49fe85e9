"""The columns of every table are those that docs/tables.md names."""

import re
from pathlib import Path

import pytest
from support.every_method import TEXT, works
from support.modes import KEPT, fresh_subject

import exhibit_a as xa
from exhibit_a.methods.registry import methods
from exhibit_a.results.result import Result
from exhibit_a.results.tables import leaves

PAGE = (Path(__file__).parents[2] / "docs/tables.md").read_text("utf-8")
QUICK = {"effective_attention", "attribution_tree", "hidden_attribution"}


@pytest.fixture(scope="module")
def trace():
    return xa.capture(fresh_subject(), TEXT, keep=KEPT)


def documented(*first):
    """The cells after the first ones, for the rows of the page that begin with these."""
    start = "".join(rf"\| `{name}` " for name in first)
    rows = re.findall(rf"^{start}\| (.+) \|$", PAGE, re.M)
    return [[cell.strip("` ") for cell in row.split(" | ")] for row in rows]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in methods()]
)
def test_a_result_has_the_columns_that_are_documented(name, trace):
    given = works(trace.subject, trace)[name]()
    results = given.values() if name == "companions" else [given]
    for result in (one for one in results if isinstance(one, Result)):
        table = result.to_pandas(what="long") if name == "trial" else result.to_pandas()
        kind = type(result).__name__
        if result.columns:
            assert list(table) == [column for column, _ in documented(kind)]
            continue
        axes = {field: tuple(axes.split(", ")) for field, axes, _ in documented(kind)}
        assert {leaf.field: leaf.axes for leaf in leaves(result)}.items() <= axes.items()
        columns = {axis for of_field in axes.values() for axis in of_field}
        names = {f"{axis}_token" for axis in columns}
        assert set(table) <= {"field", "value", *columns, *names}
        assert {"field", "value"} <= set(table)
        assert result.to_latex(top=3).count(r"\\") >= 2  # a heading and a row


@pytest.mark.parametrize("kind", [xa.AttributionTree, xa.Triggers, xa.Pruning])
def test_a_list_says_what_its_columns_are(kind):
    assert dict(documented(kind.__name__)) == kind.columns


def test_every_public_result_is_on_the_page():
    public = [getattr(xa, name) for name in xa.__all__]
    kinds = {k for k in public if isinstance(k, type) and issubclass(k, Result)} - {xa.Result}
    told = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M))
    assert {kind.__name__ for kind in kinds} - {"Comparison"} <= told
    assert "`xa.compare(…).to_pandas(what=…)`" in PAGE


def test_nothing_on_the_page_is_unexplained():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert not [row for row in rows if re.search(r"(?<!\\)\| *\|$", row)]
