"""The rows of the command line: one function for each kind of result, and some for any other."""

import io
from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Float
from rich.console import Console
from support.cases import tiny_trial
from torch import Tensor

import exhibit_a as xa
from exhibit_a.report.any_rows import LONGEST
from exhibit_a.report.summaries import Summary, summary_rows
from exhibit_a.report.table import table
from exhibit_a.results.result import Result
from exhibit_a.subject.provenance import Provenance

ORIGIN = Provenance("made-up", "toy_method")
PARTS = ("effective", "identifiability", "hidden", "mixing", "attribution", "tree", "reliance")
PARTS += ("pictures",)
WITHOUT = {"Result", "SiteResult", "HeadMaps"}  # shown as any result


@pytest.fixture(scope="module")
def tiny():
    return tiny_trial()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Toy(Result):
    scores: tuple[Float[Tensor, "_head _query _key"], ...] = ()
    strength: tuple[Float[Tensor, " _head"] | None, ...] = ()
    weight: Float[Tensor, " token"] | None = None
    note: str = "a fact"


@pytest.fixture(autouse=True)
def _forget_toys():
    yield
    for name in ("Toy", "Child"):
        Result.kinds.pop(name, None)


def printed(summary):
    screen = Console(file=io.StringIO(), width=80)
    screen.print(table(summary.title, summary.rows, width=80))
    return screen.file.getvalue()


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_a_trial_has_a_table(tiny, part):
    summary = summary_rows(getattr(tiny, part))
    assert summary.title
    assert len({tuple(row) for row in summary.rows}) == 1  # the same columns everywhere
    assert summary.title.split()[0] in printed(summary)


def test_every_kind_of_our_results_is_described():
    ours = {name for name, kind in Result.kinds.items() if kind.__module__.startswith("exhibit_a.")}
    plain = summary_rows.dispatch(Result)
    for name in ours - WITHOUT:
        assert summary_rows.dispatch(Result.kinds[name]) is not plain, name


def test_rows_say_what_the_result_says(tiny):
    effective = summary_rows(tiny.effective)
    assert effective.title.endswith(f"{len(tiny.tokens)} tokens, means over heads and rows")
    for row, pearson in zip(effective.rows, tiny.effective.pearson, strict=True):
        assert row["pearson"] == float(pearson.mean())
    edges = summary_rows(tiny.attribution, top=3)
    assert [row["contribution"] for row in edges.rows] == [
        edge.score for edge in tiny.attribution.strongest(3)
    ]
    assert len(summary_rows(tiny.attribution).rows) == 12


def test_a_trial_is_summed_up_by_the_heads_that_carry_most(tiny):
    summary = summary_rows(tiny, top=2)
    assert summary.title == tiny.advice
    heads = sorted(tiny.verdicts, key=lambda head: -abs(head.reliance))[:2]
    assert [(row["layer"], row["head"]) for row in summary.rows] == [
        (head.site, head.head) for head in heads
    ]


def test_a_reliance_is_summed_up_by_its_largest_shares(tiny):
    rows = summary_rows(tiny.reliance, top=3).rows
    shares = sorted(abs(float(share)) for site in tiny.reliance.heads for share in site)
    assert [abs(row["share"]) for row in rows] == shares[::-1][:3]
    assert rows[0]["of_margin"] == pytest.approx(rows[0]["share"] / tiny.reliance.size)


def test_pictures_are_summed_up_with_the_advice_as_a_sign_and_a_word(tiny):
    summary = summary_rows(tiny.pictures)
    assert summary.title == tiny.pictures.advice
    by_label = {picture.label: picture for picture in tiny.pictures.values()}
    assert len(summary.rows) == len(by_label)
    for row in summary.rows:
        assert row["advice"].endswith(f" {by_label[row['picture']].advice}")
        assert row["p"] == by_label[row["picture"]].p_value


def test_a_class_is_summed_up_like_the_one_it_extends(tiny):
    class Child(type(tiny.attribution)):
        pass

    child = Child(**vars(tiny.attribution))
    assert summary_rows(child, top=2) == summary_rows(tiny.attribution, top=2)


def test_a_new_kind_needs_one_function():
    class Child(Toy):
        pass

    @summary_rows.register
    def _(result: Child, top: int | None = None) -> Summary:
        return Summary(f"a child, {top}", [{"note": result.note}])

    assert summary_rows(Child(provenance=ORIGIN), top=1) == Summary(
        "a child, 1", [{"note": "a fact"}]
    )


def test_of_the_maps_of_any_result_the_largest_entry_is_shown():
    scores = torch.zeros(2, 2, 3, 3)
    scores[1, 0, 2, 1] = -5.0
    strength = (None, torch.tensor([0.5, 0.25]))
    toy = Toy(provenance=ORIGIN, tokens=("a", "b", "c"), scores=tuple(scores), strength=strength)
    summary = summary_rows(toy, top=1)
    assert summary.title == "toy method of made-up, 1 of 4 rows"
    assert summary.rows == [
        {"site": 1, "head": 0, "scores_largest": -5.0}
        | {"scores_query": "c", "scores_key": "b", "strength": 0.5}
    ]
    rows = summary_rows(toy).rows
    assert [row["strength"] for row in rows] == [None, None, 0.5, 0.25]  # and no column is missing
    assert "toy method" in printed(summary_rows(toy))


def test_token_scores_of_any_result_are_shown_token_by_token():
    weight = torch.tensor([0.1, float("nan"), -0.3])
    toy = Toy(provenance=ORIGIN, tokens=("a", "b", "c"), weight=weight)
    rows = summary_rows(toy).rows
    assert [(row["position"], row["token"]) for row in rows] == [(0, "a"), (2, "c")]
    assert [row["token"] for row in summary_rows(toy, top=1).rows] == ["c"]


def test_a_long_result_says_how_much_of_it_is_shown():
    toy = Toy(provenance=ORIGIN, tokens=("a",) * 100, weight=torch.rand(100))
    summary = summary_rows(toy)
    assert len(summary.rows) == LONGEST
    assert summary.title == f"toy method of made-up, {LONGEST} of 100 rows"


def test_of_a_result_without_numbers_the_plain_values_are_shown():
    assert summary_rows(Toy(provenance=ORIGIN)).rows == [{"what": "note", "value": "a fact"}]


def test_conditions_that_were_not_asked_for_have_no_column():
    numbers = torch.tensor([0.5])
    common = dict.fromkeys(("divergence", "bound", "at_answer", "change", "exact"), numbers)
    common |= dict.fromkeys(("maps", "rows", "maps_together", "rows_together"), ())
    for free, has in ((torch.nan, False), (0.25, True)):
        result = xa.AdversarialAttention(
            provenance=ORIGIN,
            target="probability of good",
            epsilon=0.01,
            conditions=("layer 0",),
            free=torch.tensor([free]),
            **common,
        )
        assert ("same_outputs" in summary_rows(result).rows[0]) == has


def test_two_data_sets_are_columns_with_their_names():
    result = xa.HeadSimilarity(
        provenance=Provenance("m", "head_similarity", parameters={"by": ["taylor", "taylor"]}),
        first=torch.tensor([[0.1, 0.9], [0.5, torch.nan]]),
        second=torch.tensor([[0.2, 0.8], [0.4, torch.nan]]),
        pearson=0.5,
        interval=(0.25, 0.75),
        spearman=1.0,
        names=("dev", "test"),
    )
    summary = summary_rows(result, top=2)
    assert summary.title == "importance by taylor: Pearson 0.50 (0.25 to 0.75), Spearman 1.00"
    assert [(row["layer"], row["head"]) for row in summary.rows] == [(0, 1), (1, 0)]
    assert list(summary.rows[0]) == ["layer", "head", "dev", "test"]
