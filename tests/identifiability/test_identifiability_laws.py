"""Laws of the freedom that an attention row has under one demand after the other."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.masks import seeded
from torch.testing import assert_close

from exhibit_a.methods.identifiability.counts import degrees_of_freedom
from exhibit_a.numerics.parallel import one_thread

law = settings(max_examples=30, deadline=None)


def everything(n):
    return torch.ones(n, n, dtype=torch.bool)


def head(n, d_key, d_value, seed=0, dtype=torch.float64, visible=None):
    """A head as a model has it: attention from random queries and keys."""
    generator = seeded(seed)
    draw = [torch.randn(1, n, d, generator=generator) for d in (d_key, d_key, d_value)]
    queries, keys, values = (drawn.to(dtype) for drawn in draw)
    scores = queries @ keys.mT / d_key**0.5
    visible = everything(n) if visible is None else visible
    attention = torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1)
    return attention, values, keys, queries / d_key**0.5


def counted(size, seed, repeated=False):
    """A head of n tokens, two of which may have the same values, and its degrees of freedom."""
    attention, values, keys, queries = head(*size, seed)
    if repeated:
        values[:, -1] = values[:, 0]
    freedom = degrees_of_freedom(attention, values, keys, everything(size[0]))
    return (attention, values, keys, queries), freedom


sizes = st.tuples(st.integers(2, 14), st.integers(1, 8), st.integers(1, 8))


@law
@given(sizes, st.integers(0, 2**31))
def test_each_demand_leaves_as_much_as_counting_dimensions_says(size, seed):
    n, d_key, d_value = size
    _, freedom = counted(size, seed)
    assert freedom.same_output.unique().tolist() == [max(0, n - d_value)]
    assert freedom.same_sum.unique().tolist() == [max(0, n - d_value - 1)]
    assert freedom.not_negative.unique().tolist() == [max(0, n - d_value - 1)]
    assert freedom.reach.unique().tolist() == [min(d_key, n - 1)]
    assert freedom.generated.unique().tolist() == [max(0, min(d_key, n - 1) - min(d_value, n - 1))]


@law
@given(sizes, st.integers(0, 2**31))
def test_the_local_test_compares_two_ranks(size, seed):
    (attention, values, keys, _), freedom = counted(size, seed)
    for query, row in enumerate(attention[0]):
        moves = (row.diag() - torch.outer(row, row)) @ keys[0]
        with one_thread():
            reach = int(torch.linalg.matrix_rank(moves, rtol=1e-10))
            visible_rank = int(torch.linalg.matrix_rank(values[0].T @ moves, rtol=1e-10))
        assert freedom.reach[0, query] == reach
        assert freedom.generated[0, query] == reach - visible_rank


def search(attention, values, keys, query, start):
    """Gauss–Newton in query space: the closest query to ``start`` with the output of ``query``."""
    wanted = torch.softmax(keys @ query, 0) @ values
    for _ in range(60):
        row = torch.softmax(keys @ start, 0)
        covariance = values.T @ ((row.diag() - torch.outer(row, row)) @ keys)
        step = torch.linalg.pinv(covariance, rtol=1e-9) @ (wanted - row @ values)
        start = start + step * min(1.0, 1 / float(step.norm() + 1e-12))
    row = torch.softmax(keys @ start, 0)
    return row, float((row @ values - wanted).abs().max())


def others(layer, index, distance, generator):
    """Rows with the same output that a search from ``distance`` away ends in."""
    attention, values, keys, queries = (tensor[0] for tensor in layer)
    row, query = attention[index], queries[index]
    moves = (row.diag() - torch.outer(row, row)) @ keys
    unseen = torch.linalg.svd(values.T @ moves)[2][-1]  # the direction that shows least
    away = torch.randn(len(query), generator=generator, dtype=torch.float64)
    for push in (unseen, -unseen, away / away.norm()):
        another, error = search(row, values, keys, query, query + distance * push)
        if error < 1e-10:
            yield float((another - row).abs().max())


@pytest.mark.parametrize(("d_key", "d_value"), [(2, 4), (4, 4), (3, 6), (5, 4), (6, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_searching_finds_another_query_exactly_where_the_local_test_says_so(d_key, d_value, seed):
    layer = head(12, d_key, d_value, seed)
    freedom = degrees_of_freedom(*layer[:3], everything(12))
    with one_thread():
        for index in range(3):
            gaps = list(others(layer, index, 0.01, seeded(seed)))
            assert gaps
            assert (max(gaps) > 1e-5) == bool(freedom.generated[0, index] > 0)


def test_the_visibility_of_a_move_is_how_far_the_output_goes_with_it():
    attention, values, keys, _ = head(9, 3, 5, seed=2)
    freedom = degrees_of_freedom(attention, values, keys, everything(9))
    row = attention[0, 4]
    moves, _ = torch.linalg.qr((row.diag() - torch.outer(row, row)) @ keys[0])
    strength = torch.linalg.svdvals(values[0].T @ moves)
    assert_close(freedom.visibility[0, 4], strength[-1] / strength[0])


def test_rows_with_zero_weights_are_counted_on_their_face():
    n, d_value = 9, 3
    attention, values, keys, _ = head(n, 4, d_value, seed=4)
    attention[0, 2, 5:] = 0
    attention[0, 2] /= attention[0, 2].sum()
    freedom = degrees_of_freedom(attention, values, keys, everything(n))
    assert freedom.same_sum[0, 2] == n - d_value - 1
    assert freedom.not_negative[0, 2] == 5 - d_value - 1
    assert freedom.not_negative[0, 1] == n - d_value - 1


def test_a_causal_row_is_counted_as_if_the_text_ended_there():
    n = 14
    visible = everything(n).tril()
    attention, values, keys, _ = head(n, 4, 3, seed=5, visible=visible)
    freedom = degrees_of_freedom(attention, values, keys, visible)
    for last in range(1, n):
        alone = degrees_of_freedom(
            attention[:, last : last + 1, : last + 1],
            values[:, : last + 1],
            keys[:, : last + 1],
            visible[last : last + 1, : last + 1],
        )
        for name in ("same_output", "same_sum", "not_negative", "generated", "reach"):
            assert getattr(freedom, name)[0, last] == getattr(alone, name)[0, 0]


@law
@given(st.integers(0, 2**31))
def test_constants_added_to_values_or_keys_change_nothing_that_softmax_keeps(seed):
    attention, values, keys, _ = head(12, 3, 4, seed)
    plain = degrees_of_freedom(attention, values, keys, everything(12))
    shifted = degrees_of_freedom(attention, values + 2.0, keys - 1.5, everything(12))
    for name in ("same_sum", "not_negative", "generated", "reach"):
        assert torch.equal(getattr(plain, name), getattr(shifted, name))
    assert_close(plain.visibility, shifted.visibility, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 30.0, 1000.0])
def test_rounding_of_what_all_keys_or_values_share_is_no_freedom(offset):
    generator = seeded(7)
    keys = (
        torch.randn(1, 24, 3, generator=generator) @ torch.randn(3, 6, generator=generator)
    ) + offset
    values = torch.randn(1, 24, 4, generator=generator) + offset
    attention = torch.softmax(torch.randn(1, 24, 24, generator=generator), dim=-1)
    freedom = degrees_of_freedom(attention, values, keys, everything(24))
    assert freedom.reach.unique().tolist() == [3]
    assert freedom.generated.unique().tolist() == [0]


def test_long_rows_in_single_precision_are_judged_like_short_exact_ones():
    attention, values, keys, _ = head(80, 6, 4, seed=6, dtype=torch.float32)
    rough = degrees_of_freedom(attention, values, keys, everything(80))
    exact = degrees_of_freedom(attention.double(), values.double(), keys.double(), everything(80))
    for name in ("same_output", "same_sum", "not_negative", "generated", "reach"):
        assert torch.equal(getattr(rough, name), getattr(exact, name))
    attention, values, keys, _ = head(80, 4, 6, seed=6, dtype=torch.float32)
    rough = degrees_of_freedom(attention, values, keys, everything(80))
    exact = degrees_of_freedom(attention.double(), values.double(), keys.double(), everything(80))
    assert_close(rough.visibility, exact.visibility, rtol=1e-4, atol=0)


def test_without_keys_the_last_demand_is_left_open():
    attention, values, _, _ = head(9, 3, 5)
    freedom = degrees_of_freedom(attention, values, None, everything(9))
    assert (freedom.generated, freedom.reach, freedom.visibility) == (None, None, None)
    assert freedom.same_sum.unique().tolist() == [3]


# The two ways of joining heads, as tensors (Bhardwaj et al., 2021).


@law
@given(sizes, st.integers(0, 2**31), st.booleans())
def test_a_further_demand_never_leaves_more(size, seed, repeated):
    n = size[0]
    (_, values, _, _), freedom = counted(size, seed, repeated)
    assert bool((freedom.same_output >= freedom.same_sum).all())
    assert bool((freedom.same_sum >= freedom.not_negative).all())
    assert bool((freedom.not_negative >= freedom.generated).all())
    rank = torch.linalg.matrix_rank(torch.cat([values, torch.ones(1, n, 1)], -1), rtol=1e-10)
    assert_close(freedom.same_sum, (n - rank).expand(1, n), check_dtype=False)
