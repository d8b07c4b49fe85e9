"""What every result promises, whatever method it came from."""

import inspect
from dataclasses import dataclass

import pytest
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

import exhibit_a
from exhibit_a.errors import ExhibitError
from exhibit_a.report.describe import describe
from exhibit_a.results.plain import plain
from exhibit_a.results.providers import provider
from exhibit_a.results.result import Result
from exhibit_a.results.tables import axes_of, record_table
from exhibit_a.subject.provenance import provenance

PUBLIC = [getattr(exhibit_a, name) for name in sorted(exhibit_a.__all__)]
RESULTS = [kind for kind in PUBLIC if inspect.isclass(kind) and issubclass(kind, Result)]
KINDS = [kind for kind in RESULTS if kind is not Result]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_public_result_can_be_read_and_drawn(kind):
    assert Result.kinds[kind.__name__] is kind
    assert describe.dispatch(kind) is not describe.dispatch(Result)


def test_a_result_finds_who_draws_it(monkeypatch, tmp_path):
    asked, page, figure = [], tmp_path / "page.html", Figure()
    answers = {"screen": None, "figure": figure, "page": page, "latex": "a table"}

    def drawer(name):
        def drawn(result, *rest, **options):
            asked.append((name, rest, options))
            return answers[name]

        return drawn

    monkeypatch.setattr("exhibit_a.results.result.provider", drawer)
    result = Result(provenance=provenance("tiny", "nothing"))
    assert result.show() is None
    assert result.plot(cmap="grey") is figure
    assert result.html(page) is page
    assert result.to_latex(top=2) == "a table"
    assert asked == [
        ("screen", (), {"by": None}),
        ("figure", (), {"cmap": "grey"}),
        ("page", (page,), {"by": None}),
        ("latex", (), {"top": 2}),
    ]


def test_the_axes_of_a_field_are_read_off_its_annotation():
    heads = Float[Tensor, " head"]
    assert axes_of(heads) == ("head",)
    assert axes_of(tuple[heads | None, ...]) == ("site", "head")
    assert axes_of(dict[str, heads]) == ("name", "head")
    assert axes_of(tuple[heads, ...], "layer") == ("layer", "head")
    assert axes_of(dict[str, int]) == ()


def test_what_nobody_provides_is_named():
    with pytest.raises(ExhibitError, match="sculpture"):
        provider("sculpture")


def test_any_value_becomes_one_that_json_can_hold(tmp_path):
    assert plain({1: (float("nan"), 0.125, True, None), "a": [tmp_path]}) == {
        "1": [None, 0.125, True, None],
        "a": [str(tmp_path)],
    }
    assert plain(1 / 3, digits=3) == 0.333


def test_a_table_of_records_has_its_columns_even_without_a_row():
    assert record_table([{"head": 1}, {"head": 2}])["head"].tolist() == [1, 2]
    assert list(record_table([], ["head", "word"])) == ["head", "word"]


def test_a_dataclass_becomes_plain_without_optional_fields_that_have_no_value():
    @dataclass(frozen=True)
    class Point:
        x: float
        name: str | None = None
        at: str | None = "here"

    assert plain([Point(0.25), Point(float("nan"), "b", None)]) == [
        {"x": 0.25, "at": "here"},
        {"x": None, "name": "b", "at": None},
    ]


def test_long_texts_are_cut_in_summaries():
    made = provenance("tiny", "nothing")
    words = tuple(f"w{number}" for number in range(1000))
    assert len(Result(tokens=words, provenance=made).summary()) < 600


def test_a_summary_of_what_has_no_tokens_counts_none():
    assert "token" not in Result(provenance=provenance("tiny", "nothing")).summary()
