"""Laws of the projection behind effective attention, against slow references row by row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.masks import KINDS, attention_over, mask, seeded
from torch.testing import assert_close

from exhibit_a.methods.identifiability import projection as module
from exhibit_a.methods.identifiability.effective import Losses
from exhibit_a.methods.identifiability.projection import Convention, project
from exhibit_a.numerics.parallel import one_thread

law = settings(max_examples=30, deadline=None)
EXACT = torch.finfo(torch.float64).eps
SINGLE = torch.finfo(torch.float32).eps


def measured(attention, values, visible):
    """The projection, and what it took from the maps."""
    losses = Losses(attention)
    projection = project(attention, values, visible, measures=[losses])
    return projection, losses.of(projection)


@st.composite
def layers(draw, kinds=KINDS):
    """Attention, values and a mask, with repeated tokens or values of low rank now and then."""
    generator = seeded(draw(st.integers(0, 2**31)))
    heads, n, d = draw(st.integers(1, 3)), draw(st.integers(2, 24)), draw(st.integers(1, 9))
    visible = mask(draw(st.sampled_from(kinds)), n, generator=generator)
    values = torch.randn(heads, n, d, generator=generator, dtype=torch.float64)
    flaw = draw(st.sampled_from(("none", "none", "repeated", "low rank", "zero", "shared")))
    if flaw == "repeated":
        values = values[:, torch.randint(0, max(1, n // 2), (n,), generator=generator)]
    if flaw == "low rank":
        values = values[..., :1] * torch.randn(d, generator=generator, dtype=torch.float64)
    if flaw == "zero":
        values[0] = 0
    if flaw == "shared":
        values = values[:1].expand(heads, -1, -1).clone()
    return attention_over(visible, heads, generator), values, visible


def row_by_row(attention, values, visible, *, eps=EXACT, route="svd"):
    """The definition: one factorisation for every row of every head, on the keys it sees."""
    with one_thread():
        return _row_by_row(attention, values, visible, eps, route)


def _row_by_row(attention, values, visible, eps, route):
    out = torch.zeros_like(attention, dtype=torch.float64)
    rank = torch.zeros(attention.shape[:2], dtype=torch.long)
    for head, query in ((h, q) for h in range(len(attention)) for q in range(len(visible))):
        seen = visible[query]
        row, seen_values = attention[head, query, seen].double(), values[head, seen].double()
        if not len(seen_values):
            continue
        left, strength, _ = torch.linalg.svd(seen_values, full_matrices=False)
        line = max(seen_values.shape) * eps * strength[0]
        rank[head, query] = (strength > line).sum()
        if route == "svd":
            left = left[:, strength > line]
            out[head, query, seen] = row @ left @ left.T
        elif route == "pinv":
            out[head, query, seen] = (
                row
                @ seen_values
                @ torch.linalg.pinv(seen_values, rtol=max(seen_values.shape) * eps)
            )
        else:
            columns, _ = torch.linalg.qr(seen_values)
            out[head, query, seen] = row @ columns @ columns.T
    return out, rank


def null_part(values, visible, generator):
    """Something random that the values of each row's visible keys multiply away."""
    noise = torch.randn(len(values), *visible.shape, generator=generator, dtype=torch.float64)
    noise = noise * visible
    return noise - row_by_row(noise, values, visible)[0]


@law
@given(layers())
def test_the_output_does_not_change(layer):
    attention, values, visible = layer
    effective = project(attention, values, visible).effective
    assert ((attention - effective) @ values).abs().max() <= 1e-10


@law
@given(layers())
def test_projecting_twice_is_projecting_once(layer):
    attention, values, visible = layer
    once = project(attention, values, visible).effective
    assert_close(project(once, values, visible).effective, once, rtol=0, atol=1e-9)


@law
@given(layers())
def test_what_is_kept_and_what_is_lost_are_perpendicular(layer):
    attention, values, visible = layer
    projection, lost = measured(attention, values, visible)
    null = attention - projection.effective
    assert ((null * projection.effective).sum(-1)).abs().max() <= 1e-9
    assert_close(
        attention.square().sum(-1),
        null.square().sum(-1) + projection.effective.square().sum(-1),
        rtol=0,
        atol=1e-9,
    )
    length = attention.norm(dim=-1)
    assert_close(lost.null_fraction * length, null.norm(dim=-1), rtol=0, atol=1e-9)
    assert_close(lost.moved, null.abs().sum(-1) / 2, rtol=0, atol=1e-12)


@law
@given(layers(), st.integers(0, 2**31))
def test_no_row_with_the_same_output_is_shorter(layer, seed):
    attention, values, visible = layer
    effective = project(attention, values, visible).effective
    other = attention + null_part(values, visible, seeded(seed))
    assert ((other - attention) @ values).abs().max() <= 1e-9
    assert bool((effective.norm(dim=-1) <= other.norm(dim=-1) + 1e-9).all())


@law
@given(layers(), st.integers(0, 2**31))
def test_adding_what_the_values_cannot_see_changes_nothing(layer, seed):
    attention, values, visible = layer
    other = attention + null_part(values, visible, seeded(seed))
    assert_close(
        project(other, values, visible).effective,
        project(attention, values, visible).effective,
        rtol=0,
        atol=1e-9,
    )


@law
@given(layers())
def test_rows_with_independent_values_stay_as_they_are_bit_for_bit(layer):
    attention, values, visible = layer
    projection, lost = measured(attention, values, visible)
    whole = projection.nullity == 0
    assert torch.equal(projection.effective[whole], attention[whole])
    assert not lost.null_fraction[whole].any()
    assert not lost.moved[whole].any()


@law
@given(layers(), st.sampled_from(("svd", "pinv")))
def test_it_is_what_a_factorisation_of_every_row_gives(layer, route):
    attention, values, visible = layer
    projection = project(attention, values, visible)
    expected, rank = row_by_row(attention, values, visible, route=route)
    assert torch.equal(projection.rank, rank)
    assert_close(projection.effective, expected, rtol=0, atol=1e-9)
    assert torch.equal(projection.keys_seen, visible.sum(-1))


@law
@given(layers(kinds=("all", "padded")))
def test_the_trace_of_the_projector_is_the_rank(layer):
    _, values, visible = layer
    identity = torch.eye(len(visible), dtype=torch.float64).expand(len(values), -1, -1)
    projection = project(identity, values, visible)
    trace = projection.effective.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert_close(trace, projection.rank[:, 0].double(), rtol=0, atol=1e-9)


@law
@given(layers())
def test_no_weight_falls_on_a_key_that_a_row_may_not_see(layer):
    attention, values, visible = layer
    spilled = attention + 0.1 * ~visible
    projection = project(spilled, values, visible)
    assert not projection.effective[:, ~visible].any()
    assert_close(projection.effective, project(attention, values, visible).effective)


@law
@given(layers(), st.integers(0, 2**31))
def test_shuffled_tokens_give_shuffled_effective_attention(layer, seed):
    attention, values, visible = layer
    order = torch.randperm(len(visible), generator=seeded(seed))
    shuffled = project(
        attention[:, order][:, :, order], values[:, order], visible[order][:, order]
    ).effective
    plain = project(attention, values, visible).effective
    assert_close(shuffled, plain[:, order][:, :, order], rtol=0, atol=1e-9)


@law
@given(layers(), st.integers(1, 6))
def test_padding_changes_nothing_for_the_tokens_that_are_there(layer, extra):
    attention, values, visible = layer
    n = len(visible)
    wider = torch.nn.functional.pad(attention, (0, extra, 0, extra))
    longer = torch.nn.functional.pad(values, (0, 0, 0, extra), value=3.0)
    seen = torch.nn.functional.pad(visible, (0, extra, 0, extra))
    plain, padded = project(attention, values, visible), project(wider, longer, seen)
    assert_close(padded.effective[:, :n, :n], plain.effective, rtol=0, atol=1e-9)
    assert torch.equal(padded.rank[:, :n], plain.rank)


@law
@given(layers())
def test_with_the_simplex_rows_keep_their_sum_and_the_bias_does_not_matter(layer):
    attention, values, visible = layer
    plain = project(attention, values, visible, Convention(simplex=True))
    assert_close(plain.effective.sum(-1), attention.sum(-1), rtol=0, atol=1e-9)
    biased = project(attention, values + 0.5, visible, Convention(simplex=True))
    assert_close(biased.effective, plain.effective, rtol=0, atol=1e-7)


@law
@given(layers(kinds=("all", "padded", "causal")), st.integers(0, 2**31))
def test_turning_the_values_changes_nothing(layer, seed):
    attention, values, visible = layer
    d = values.shape[-1]
    turn, _ = torch.linalg.qr(torch.randn(d, d, generator=seeded(seed), dtype=torch.float64))
    turned = project(attention, values @ turn, visible)
    plain = project(attention, values, visible)
    assert torch.equal(turned.rank, plain.rank)
    assert_close(turned.effective, plain.effective, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["all", "causal"])
def test_a_repeated_token_drops_the_rank_and_shares_its_weight(kind):
    generator = seeded(3)
    values = torch.randn(2, 6, 8, generator=generator, dtype=torch.float64)
    values[:, 4] = values[:, 1]
    visible = mask(kind, 6)
    projection = project(attention_over(visible, 2, generator), values, visible)
    both = visible[:, 4]
    assert torch.equal(projection.nullity, both.long().expand(2, -1))
    assert_close(
        projection.effective[:, both, 1], projection.effective[:, both, 4], rtol=0, atol=1e-12
    )
    assert bool(projection.unidentifiable[:, both].all())


# How ranks are judged.


@law
@given(
    st.sampled_from(KINDS),
    st.integers(0, 2**31),
    st.floats(-7, -2),
    st.sampled_from((torch.float32, torch.float64)),
)
def test_ranks_and_doubts_are_those_of_every_row_by_itself(kind, seed, exponent, dtype):
    generator = seeded(seed)
    visible = mask(kind, 48, generator=generator)
    fall = torch.logspace(0, exponent, 6, dtype=torch.float64)
    values = torch.randn(2, 48, 6, generator=generator, dtype=torch.float64) * fall
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64))
    values = (values @ turn).to(dtype)
    projection = project(attention_over(visible, 2, generator, dtype), values, visible)
    eps = torch.finfo(dtype).eps
    for head, query in ((h, q) for h in range(2) for q in range(0, 48, 5)):
        with one_thread():
            strength = torch.linalg.svdvals(values[head, visible[query]].double())
        if not len(strength):
            continue
        line = max(int(visible[query].sum()), 6) * eps * strength[0]
        if bool(((strength / line).log10().frac().abs() < 0.02).any()):
            continue  # on one of the lines to within rounding
        assert projection.rank[head, query] == (strength > line).sum()
        near = (strength > line / 10) & (strength < line * 10)
        assert bool(projection.borderline[head, query]) == bool(near.any())
        assert projection.rtol[query] == pytest.approx(float(line / strength[0]))


@pytest.mark.parametrize(
    ("strength", "verdict"), [(1e-2, "identifiable"), (3e-7, "borderline"), (1e-9, "not")]
)
def test_a_verdict_says_when_it_hangs_on_the_tolerance(strength, verdict):
    values = torch.diag(torch.tensor([1.0, 1.0, strength])).unsqueeze(0)
    visible = mask("all", 3)
    projection = project(attention_over(visible, 1, seeded(9), torch.float32), values, visible)
    assert bool(projection.identifiable.all()) == (verdict == "identifiable")
    assert bool(projection.unidentifiable.all()) == (verdict == "not")
    assert bool(projection.borderline.all()) == (verdict == "borderline")
    assert_close(projection.spectrum[0], torch.tensor([1.0, 1.0, strength], dtype=torch.float64))


def test_the_callers_tolerance_and_precision_are_used():
    generator, visible = seeded(12), mask("all", 30)
    values = torch.randn(1, 30, 4, generator=generator).double() * torch.tensor([1, 1, 1, 1e-3])
    attention = attention_over(visible, 1, generator)
    assert int(project(attention, values, visible).rank[0, 0]) == 4
    strict = project(attention, values, visible, Convention(rtol=1e-2))
    assert (int(strict.rank[0, 0]), float(strict.rtol[0])) == (3, 1e-2)
    as_single = project(attention, values, visible, Convention(dtype=torch.float32))
    assert as_single.rtol[0] == pytest.approx(30 * SINGLE)


# How it is computed must not show.


@pytest.mark.parametrize("kind", ["all", "causal", "sliding", "any"])
def test_sites_and_heads_can_be_stacked_and_cut_anywhere(kind, monkeypatch):
    generator = seeded(13)
    visible = mask(kind, 30, generator=generator)
    values = torch.randn(3, 4, 30, 5, generator=generator)
    attention = torch.stack(
        [attention_over(visible, 4, generator, torch.float32) for _ in range(3)]
    )
    together, lost_together = measured(attention, values, visible)
    monkeypatch.setattr(module, "SETTINGS", module.ProjectionSettings(workspace=1))
    for site in range(3):
        alone, lost_alone = measured(attention[site], values[site], visible)
        for name in ("effective", "rank", "spectrum"):
            assert_close(getattr(together, name)[site], getattr(alone, name), rtol=0, atol=3e-7)
        for name in ("null_fraction", "moved", "pearson"):
            cut = getattr(lost_together, name)[site]
            assert_close(cut, getattr(lost_alone, name), rtol=0, atol=3e-7)


def single_precision_values(flaw, n, width, generator):
    """Values of two heads, with what long texts bring along."""
    values = torch.randn(2, n, width, generator=generator)
    if flaw == "repeated tokens":
        return values[:, (torch.rand(n, generator=generator) ** 3 * n / 2).long()]
    if flaw == "graded":
        return values * torch.logspace(0, -2.5, width)
    if flaw == "a massive token":
        values[:, 0] *= 200
    if flaw == "a faint beginning":
        values[:, : width + 20] *= 0.01
    return values[:1].expand(2, -1, -1) if flaw == "shared" else values


@pytest.mark.parametrize("kind", ["all", "causal", "causal, padded left", "window"])
@pytest.mark.parametrize(
    "flaw",
    ["none", "repeated tokens", "graded", "a massive token", "a faint beginning", "shared"],
)
def test_products_in_single_precision_are_as_good_as_a_decomposition_in_double(kind, flaw):
    generator, n, width = seeded(25), 110, 24
    visible = mask("causal" if kind == "window" else kind, n)
    if kind == "window":
        visible = visible.triu(-3 * width)
    values = single_precision_values(flaw, n, width, generator)
    attention = attention_over(visible, 2, generator, torch.float32) ** 2  # some heavy weights
    expected, rank = row_by_row(attention, values, visible, eps=SINGLE)
    projection, lost = measured(attention, values, visible)
    assert torch.equal(projection.rank, rank)
    assert_close(projection.effective.double(), expected, rtol=0, atol=3e-7)
    null = attention.double() - expected
    assert_close(lost.moved, null.abs().sum(-1) / 2, rtol=0, atol=1e-5)
    length = attention.double().norm(dim=-1).clamp_min(1e-30)
    assert_close(lost.null_fraction, null.norm(dim=-1) / length, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["causal", "sliding", "local"])
@pytest.mark.parametrize(
    ("fall", "growth"),
    [((1, 1, 2e-4, 4e-7), 3), ((1, 1, 1, 4e-6), 3), ((1, 1, 1, 1e-6), 3), ((1, 1, 1, 5e-7), 100)],
)
def test_directions_near_the_tolerance_are_dropped_row_by_row(kind, fall, growth):
    generator, visible = seeded(24), mask(kind, 60)
    values = torch.randn(2, 60, 4, generator=generator, dtype=torch.float64) * torch.tensor(fall)
    values[:, 40:, 3] *= growth  # what is dropped at first may be kept later
    turn, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))
    values = values @ turn
    attention = attention_over(visible, 2, generator)
    expected, rank = row_by_row(attention, values, visible, eps=SINGLE)
    projection = project(attention, values, visible, Convention(dtype=torch.float32))
    assert torch.equal(projection.rank, rank)
    assert_close(projection.effective, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["all", "causal", "local"])
def test_pearson_is_the_correlation_over_pairs_that_see_each_other(kind):
    generator, visible = seeded(19), mask(kind, 30)
    attention = attention_over(visible, 2, generator)
    values = torch.randn(2, 30, 4, generator=generator).double()
    projection, lost = measured(attention, values, visible)
    for head in range(2):
        both = torch.stack([attention[head, visible], projection.effective[head, visible]])
        assert float(lost.pearson[head]) == pytest.approx(float(torch.corrcoef(both)[0, 1]))


def test_rows_that_see_nothing_are_nothing():
    visible = mask("causal, padded left", 12)
    projection, lost = measured(
        attention_over(visible, 2, seeded(21)), torch.randn(2, 12, 3).double(), visible
    )
    assert not projection.effective[:, :2].any()
    assert not lost.null_fraction[:, :2].any()
    assert projection.rank[:, :2].unique().tolist() == [0]


def test_more_keys_than_dimensions_are_never_identifiable_however_borderline_the_rank():
    generator, visible = seeded(10), mask("all", 12)
    values = torch.randn(1, 12, 3, generator=generator) * torch.tensor([1.0, 1.0, 1e-6])
    projection = project(attention_over(visible, 1, generator, torch.float32), values, visible)
    assert bool(projection.borderline.all())
    assert bool(projection.unidentifiable.all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_exactly_and_judged_as_single(dtype):
    generator, visible = seeded(11), mask("causal", 150)
    values = torch.randn(1, 150, 8, generator=generator).to(dtype)
    attention = attention_over(visible, 1, generator, torch.float32).to(dtype)
    projection = project(attention, values, visible)
    expected, rank = row_by_row(attention, values, visible, eps=SINGLE)
    assert torch.equal(projection.rank, rank)
    assert projection.rtol[-1] == pytest.approx(150 * SINGLE)
    assert projection.effective.dtype is torch.float32
    assert_close(projection.effective.double(), expected, rtol=0, atol=1e-6)


def test_cross_attention_has_more_queries_than_keys_or_fewer():
    generator = seeded(22)
    for queries, keys in ((4, 20), (20, 4)):
        visible = mask("padded", queries, keys)
        values = torch.randn(2, keys, 3, generator=generator, dtype=torch.float64)
        attention = attention_over(visible, 2, generator)
        expected, _ = row_by_row(attention, values, visible)
        assert_close(project(attention, values, visible).effective, expected, rtol=0, atol=1e-12)
