"""Movable weight: small programs against all their corners, and the laws of large ones."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.half_precision import both, inputs_of
from support.masks import KINDS, attention_over, mask, seeded
from support.subjects import subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.corpus.summaries import summary_of
from exhibit_a.errors import BadRequestError
from exhibit_a.methods.identifiability import movable as module
from exhibit_a.methods.identifiability.movable import movable_of_row, movable_weight

law = settings(max_examples=40, deadline=None)
sizes = st.tuples(st.integers(2, 24), st.integers(1, 6))


def traced(name):
    """A pass over more tokens than a head is wide, some of them the same."""
    ids = torch.randint(4, 12, (1, 20), generator=seeded(3))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs |= {"decoder_input_ids": ids} if "decoder_input_ids" in FAMILIES[name].inputs() else {}
    return xa.capture(subject_of(name), inputs)


def shown_keys(row):
    """The fewest keys that hold half of the weight, by trying all smaller sets."""
    keys = range(len(row))
    heaviest = sorted(keys, key=lambda key: -row[key])
    fewest = next(n for n in keys if row[heaviest[: n + 1]].sum() >= row.sum() / 2) + 1
    assert not any(row[list(few)].sum() >= row.sum() / 2 for few in combinations(keys, fewest - 1))
    return heaviest[:fewest]


def by_corners(row, values):
    """μ as the best corner: every set of independent columns, solved by elimination."""
    equations = np.column_stack([values, np.ones(len(row))]).T
    rank, wanted = np.linalg.matrix_rank(equations), equations @ row
    shown, least = shown_keys(row), row.sum()
    for keys in map(list, combinations(range(len(row)), int(rank))):
        if np.linalg.matrix_rank(equations[:, keys]) < rank:
            continue
        weights = np.zeros(len(row))
        weights[keys] = np.linalg.lstsq(equations[:, keys], wanted, rcond=None)[0]
        if weights.min() > -1e-10 and np.abs(equations @ weights - wanted).max() < 1e-9:
            least = min(least, weights[shown].sum())
    return row[shown].sum() - least


def drawn(keys, d_head, seed, total=1.0):
    """A row of random weights over keys with random values."""
    generator = np.random.default_rng(seed)
    row = total * generator.dirichlet(np.full(keys, 0.5))
    return row, generator.normal(size=(keys, d_head))


def solved(row, values):
    return movable_of_row(torch.from_numpy(np.array(row)), torch.from_numpy(np.array(values)))


@pytest.mark.parametrize("seed", range(200))
def test_it_is_what_the_best_corner_of_all_gives(seed):
    generator = np.random.default_rng(seed)
    keys, d_head = int(generator.integers(2, 7)), int(generator.integers(1, 5))
    row, values = drawn(keys, d_head, seed, total=generator.choice([1.0, 0.3]))
    if seed % 3 == 0:  # keys with equal values, some of which are shown
        values[generator.integers(keys)] = values[generator.integers(keys)]
    if seed % 5 == 0:  # values of a lower rank than their width
        values[:, 0] = 2 * values[:, -1]
    found = solved(row, values)
    assert found.movable == pytest.approx(by_corners(row, values), abs=1e-9)
    assert found.shown == pytest.approx(row[shown_keys(row)].sum())
    assert found.disagreement <= 1e-9


def test_two_equal_keys_can_move_all_their_weight_between_them():
    row, values = drawn(5, 8, seed=0)
    row = np.array([0.7, 0.1, 0.1, 0.05, 0.05])
    values[3] = values[0]
    assert solved(row, values).movable == pytest.approx(0.7)
    row = np.array([0.4, 0.05, 0.05, 0.4, 0.1])  # both are shown: it stays where it is seen
    assert solved(row, values).shown == pytest.approx(0.8)
    assert solved(row, values).movable == pytest.approx(0)


@pytest.mark.parametrize("weight", [1e-14, 1e-300, 0.0])
@pytest.mark.parametrize("keys", [4, 40])  # without a program, and with one
def test_a_tiny_weight_is_no_obstacle(weight, keys):
    row, values = drawn(keys, 8, seed=1)
    row = np.concatenate([[0.9], 0.1 * row[1:] / row[1:].sum()])
    row[-1], values[-1] = weight, values[0]
    assert solved(row, values).movable == pytest.approx(row[0])


@law
@given(st.integers(1, 9), st.integers(0, 2**31))
def test_no_more_keys_than_equations_leave_nothing_to_move(keys, seed):
    row, values = drawn(keys, 8, seed)
    found = solved(row, values)
    assert found.movable == 0
    assert not found.program


@law
@given(sizes, st.integers(0, 2**31))
def test_no_more_moves_than_is_shown(size, seed):
    found = solved(*drawn(*size, seed))
    assert 0 <= found.movable <= found.shown
    assert found.shown >= 0.5 - 1e-12
    assert found.disagreement <= 1e-7


@law
@given(sizes, st.integers(0, 2**31))
def test_turning_and_shifting_values_and_changing_their_unit_changes_nothing(size, seed):
    row, values = drawn(*size, seed)
    generator = np.random.default_rng(seed + 1)
    turn = np.linalg.qr(generator.normal(size=(size[1], size[1])))[0]
    moved = 1e-4 * (values @ turn + 10 * generator.normal(size=size[1]))
    assert solved(row, moved).movable == pytest.approx(solved(row, values).movable, abs=1e-7)


@law
@given(sizes, st.integers(0, 2**31))
def test_the_order_of_keys_does_not_matter(size, seed):
    row, values = drawn(*size, seed)
    order = np.random.default_rng(seed).permutation(len(row))
    again = solved(row[order], values[order])
    assert again.movable == pytest.approx(solved(row, values).movable, abs=1e-7)


def test_one_unit_for_all_weights_of_a_row_is_a_factor():
    row, values = drawn(12, 3, seed=3)
    assert solved(0.01 * row, values).movable == pytest.approx(0.01 * solved(row, values).movable)


@pytest.mark.parametrize("kind", [*KINDS, "nothing"])
def test_rows_of_a_site_are_solved_over_the_keys_that_they_see(kind):
    n, generator = 12, seeded(4)
    seen = mask("all" if kind == "nothing" else kind, n, generator=generator).clone()
    seen[0] &= kind != "nothing"
    attention = attention_over(seen, 2, generator)
    values = torch.randn(2, n, 3, generator=generator, dtype=torch.float64)
    rows = torch.rand(2, n, generator=generator) < 0.6
    rows[:, 0] = True
    site = movable_weight(attention, values, seen, rows)
    assert torch.equal(site.movable.isnan(), ~rows)
    assert site.rows == int(rows.sum())
    assert site.failed == 0
    for head, query in rows.nonzero().tolist():
        keys = seen[query]
        alone = movable_of_row(attention[head, query, keys], values[head, keys])
        assert_close(site.movable[head, query], torch.tensor(alone.movable, dtype=torch.float64))
        assert_close(site.shown[head, query], torch.tensor(alone.shown, dtype=torch.float64))
    whole = movable_weight(attention, values, seen)
    assert_close(whole.movable[rows], site.movable[rows])
    assert whole.programs == (whole.movable > 0).sum()


def test_padding_changes_nothing():
    generator = seeded(5)
    attention, values = attention_over(mask("all", 9), 2, generator), torch.randn(2, 9, 3)
    alone = movable_weight(attention, values, mask("all", 9))
    padded = torch.nn.functional.pad(attention, (0, 3, 0, 3))
    more = torch.cat([values, torch.full((2, 3, 3), torch.nan)], 1)
    seen = torch.nn.functional.pad(mask("all", 9), (0, 3, 0, 3))
    assert_close(movable_weight(padded, more, seen).movable[:, :9], alone.movable)


def test_a_row_whose_program_fails_has_no_number_and_is_counted(monkeypatch):
    row, values = (torch.from_numpy(array) for array in drawn(12, 3, seed=6))
    seen = torch.ones(1, 12, dtype=torch.bool)
    assert movable_weight(row[None, None], values[None], seen).movable > 0
    monkeypatch.setattr(module, "AGREES", -1.0)
    site = movable_weight(row[None, None], values[None], seen)
    assert site.movable.isnan().all()
    assert (site.programs, site.failed, site.disagreement) == (1, 1, 0.0)
    monkeypatch.undo()
    monkeypatch.setitem(module.TIGHT, "maxiter", 0)
    assert math.isnan(movable_of_row(row, values).movable)
    values[3, 1] = torch.inf
    assert math.isnan(movable_of_row(row, values).movable)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "bart"])
def test_a_trace_has_it_for_as_many_rows_as_were_requested(name):
    trace = traced(name)
    result = xa.attention_identifiability(trace, movable=3)
    for site in trace.sites:
        known = ~result.movable[site.index].isnan()
        real = trace.queries_of(site.index).real
        assert known.any(0).nonzero().flatten()[-1] == real.nonzero().flatten()[-1]
        assert (known.sum(-1) == min(3, int(real.sum()))).all()
        for head, query in known.nonzero().tolist():
            keys = trace.visible[site.index][query]
            alone = movable_of_row(
                trace.attention[site.index][head, query, keys], trace.values[site.index][head, keys]
            )
            assert float(result.movable[site.index][head, query]) == pytest.approx(alone.movable)
    assert result.checks["rows with movable weight"] >= result.checks["linear programs"] > 0
    assert result.checks["programs without certificate"] == 0
    assert result.checks["largest disagreement of program and certificate"] <= 1e-7
    every = xa.attention_identifiability(trace, movable=1000)
    assert all(
        torch.equal(rows.isnan(), count < 0)
        for rows, count in zip(every.movable, every.same_sum, strict=True)
    )


def test_without_a_request_there_is_none():
    result = xa.attention_identifiability(traced("bert"))
    assert set(result.movable) == {None}
    assert "linear programs" not in result.checks


def test_rows_that_were_kept_have_what_they_have_among_all():
    for name in ("llama", "bart"):
        trace = traced(name)
        part = xa.capture(trace.subject, trace.inputs, rows=[12, -1])
        whole = xa.attention_identifiability(trace, movable=1000)
        few = xa.attention_identifiability(part, movable=1000)
        for rows, every in zip(few.movable, whole.movable, strict=True):
            if rows.shape[1]:  # no rows of the other stack were kept
                assert_close(rows, every[:, [12, -1]], rtol=0, atol=1e-5)


@pytest.mark.parametrize("how", ["bfloat16", "float16"])
def test_half_precision_is_computed_on_its_stored_weights(how):
    held, wide = (
        xa.attention_identifiability(xa.capture(each, inputs_of("llama", how)), movable=4)
        for each in both("llama", how)
    )
    assert held.checks["programs without certificate"] == 0
    for mine, theirs in zip(held.movable, wide.movable, strict=True):
        assert_close(mine, theirs, rtol=0, atol=1e-3, equal_nan=True)


def test_it_is_saved_and_shown(tmp_path):
    result = xa.attention_identifiability(traced("bert"), movable=2)
    again = xa.read(result.save(tmp_path / "counts"))
    for mine, theirs in zip(result.movable, again.movable, strict=True):
        assert_close(mine, theirs, equal_nan=True)
    table = result.to_pandas()
    assert "movable" in set(table.get("field", table.columns))
    assert "movable" in result.to_latex(top=3)
    means = torch.cat([rows.nanmean(-1) for rows in result.movable])
    assert summary_of(result).numbers["mean_movable"] == pytest.approx(float(means.mean()))


@pytest.mark.parametrize("rows", [-1, True])
def test_what_is_no_number_of_rows_is_refused(rows):
    with pytest.raises(BadRequestError, match="number of rows"):
        xa.attention_identifiability(traced("bert"), movable=rows)
