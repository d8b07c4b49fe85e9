"""The game of even heads, its shares, its null and its doubts, each from its definition."""

from itertools import permutations

import pytest
import torch
from planted.kinds import planted
from support.subjects import opinionated, precise, subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution.head_game import HeadGame
from exhibit_a.methods.attribution.head_orders import coalitions, orders
from exhibit_a.methods.attribution.head_shares import along_rows
from exhibit_a.methods.attribution.reliance import reliance
from exhibit_a.numerics.seeds import generator
from exhibit_a.subject.subject import load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import chosen_target, margin_of

TEXT = "the cat sat on the mat"
FEW = {"num_hidden_layers": 2, "num_attention_heads": 2}


def small(name="bert", **changes):
    """A trace in float64 with four heads in two layers."""
    return precise(name, **(FEW | changes))


def game_of(trace):
    return HeadGame(trace, margin_of(chosen_target(trace, None)))


def margin_by_hand(trace, even):
    """The margin with some heads even and all maps frozen, read aloud from the definition."""
    parts = []
    for site in trace.sites:
        maps = trace.attention[site.index].clone()
        for row, seen in enumerate(trace.visible[site.index]):
            for head in range(site.heads):
                if (site.index, head) in even:
                    total = maps[head, row].sum()
                    maps[head, row] = torch.where(seen, total / seen.sum(), 0.0)
        parts.append(edits.replace(site.index, maps))
    output = replay(trace, edits.together(*parts), start=0)
    target = chosen_target(trace, None)
    logits = output.logits if target.position is None else output.logits[:, target.position]
    others = [value for index, value in enumerate(logits[0]) if index != target.index]
    return float(logits[0, target.index] - torch.stack(others).logsumexp(0))


@pytest.mark.parametrize("name", ["bert", "llama", "bart", "vit"])
def test_the_game_is_what_its_definition_says(name):
    trace = capture(subject_of(name), FAMILIES[name].inputs())
    game = game_of(trace)
    for even in ([], [1], [0, 5, 7], list(range(len(game)))):
        by_hand = margin_by_hand(trace, {game.heads[head] for head in even})
        assert_close(float(game.margins(game.setting(even)[None])), by_hand, atol=2e-4, rtol=1e-4)


def test_exact_shares_are_the_shapley_values_of_all_orders():
    trace = small()
    game = game_of(trace)
    players = range(len(game))
    value = {}
    for bits in range(2 ** len(game)):
        even = {game.heads[head] for head in players if bits >> head & 1}
        value[bits] = margin_by_hand(trace, even)
    shares = torch.zeros(len(game), dtype=torch.double)
    every = list(permutations(players))
    for order in every:
        bits = 0
        for head in order:
            shares[head] += (value[bits] - value[bits | 1 << head]) / len(every)
            bits |= 1 << head
    result = reliance(trace)
    assert result.way == "coalitions"
    assert_close(torch.cat(result.heads).double(), shares, atol=2e-5, rtol=1e-4)
    assert_close(result.whole, value[0] - value[2 ** len(game) - 1], atol=1e-5, rtol=1e-5)


def test_the_path_is_the_integral_of_each_heads_own_gradient():
    """Gradients by differences of the answer itself, without any gradient of ours."""
    trace = small()
    game = game_of(trace)
    points, step, heads = 48, 1e-3, len(game)
    alphas = (torch.arange(points) + 0.5) / points
    moved = alphas[:, None, None, None].repeat(1, heads, 2, heads)  # point, head, side, share
    for head in range(heads):
        moved[:, head, 0, head] += step
        moved[:, head, 1, head] -= step
    above, below = (
        game.margins(moved.flatten(0, 2)).double().unflatten(0, (points, heads, 2)).unbind(-1)
    )
    shares = ((above - below) / (2 * step)).mean(0)
    found = torch.cat(reliance(trace, by="path").heads).double()
    assert_close(found, shares, atol=2e-3 * float(shares.abs().amax()), rtol=2e-2)


def test_shares_edges_and_whole_add_up():
    result = reliance(capture(opinionated(), TEXT), by="path")
    shares = torch.cat(result.heads)
    assert abs(float(shares.sum()) + result.gap - result.whole) < 1e-4
    for share, edges in zip(result.heads, result.edges, strict=True):
        assert_close(edges.sum((1, 2)), share, atol=1e-4, rtol=1e-4)
    assert abs(result.gap) <= 0.05 * max(abs(result.whole), 0.05 * result.size)


def test_one_head_effects_are_interventions():
    trace = capture(opinionated(), TEXT)
    result = reliance(trace, by="path")
    for site, head in [(0, 0), (1, 3), (2, 1)]:
        lost = margin_by_hand(trace, set()) - margin_by_hand(trace, {(site, head)})
        assert_close(float(result.one_head[site][head]), lost, atol=2e-3, rtol=1e-3)


def test_twins_get_the_same_and_a_head_that_is_not_read_gets_nothing():
    model = FAMILIES["bert"].build(**FEW)
    width = model.config.hidden_size // 2
    first, second = model.bert.encoder.layer
    with torch.no_grad():
        for part in (
            first.attention.self.query,
            first.attention.self.key,
            first.attention.self.value,
        ):
            part.weight[width:] = part.weight[:width]
            part.bias[width:] = part.bias[:width]
        first.attention.output.dense.weight[:, width:] = first.attention.output.dense.weight[
            :, :width
        ]
        second.attention.output.dense.weight[:, width:] = 0
    trace = capture(load(model), FAMILIES["bert"].inputs())
    for by in ("path", "coalitions", "orders"):
        result = reliance(trace, by=by, budget=16)
        assert_close(result.heads[0][0], result.heads[0][1], atol=0.05 * result.size, rtol=0.3)
        assert abs(float(result.heads[1][1])) < 1e-6
        assert abs(float(result.one_head[1][1])) < 1e-6


def test_turning_values_and_turning_them_back_changes_nothing():
    model = FAMILIES["bert"].build(**FEW)
    before = reliance(capture(load(model), FAMILIES["bert"].inputs()), by="path")
    turn = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(0)))[0]
    for layer in model.bert.encoder.layer:
        value, out = layer.attention.self.value, layer.attention.output.dense
        with torch.no_grad():
            value.weight[:16] = turn @ value.weight[:16]
            value.bias[:16] = turn @ value.bias[:16]
            out.weight[:, :16] = out.weight[:, :16] @ turn.T
    after = reliance(capture(load(model), FAMILIES["bert"].inputs()), by="path")
    for one, other in zip(before.heads, after.heads, strict=True):
        assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_padding_changes_nothing():
    subject = opinionated()
    inputs = subject.encode(TEXT)
    padded = {name: torch.nn.functional.pad(part, (0, 3)) for name, part in inputs.items()}
    plain, longer = (reliance(capture(subject, each), by="path") for each in (inputs, padded))
    assert_close(torch.cat(plain.heads), torch.cat(longer.heads), atol=1e-3, rtol=1e-3)
    assert_close(torch.cat(plain.null), torch.cat(longer.null), atol=1e-3, rtol=1e-2)


def test_the_null_is_the_spread_over_all_permutations():
    random = torch.Generator().manual_seed(0)
    own = torch.softmax(torch.randn(1, 2, 4, generator=random, dtype=torch.double), -1)
    gradients = torch.randn(1, 2, 4, generator=random, dtype=torch.double)
    visible = torch.ones(2, 4, dtype=torch.bool)
    even = torch.full_like(own, 0.25)
    shares = [
        sum(
            float(((own[0, row, list(order)] - 0.25) * gradients[0, row]).sum())
            for row, order in enumerate(pair)
        )
        for pair in ((a, b) for a in permutations(range(4)) for b in permutations(range(4)))
    ]
    null, alignment, pointing, coherence = along_rows(own, even, gradients, visible)
    assert_close(float(null[0]), float(torch.tensor(shares, dtype=torch.double).std(correction=0)))
    assert abs(sum(shares) / len(shares)) < 1e-12
    assert -1 <= float(alignment[0]) <= 1
    assert -1 <= float(pointing[0]) <= 1
    assert -1 <= float(coherence[0]) <= 1


def test_a_head_points_where_its_weight_contributes():
    visible = torch.ones(1, 4, dtype=torch.bool)
    gradients = torch.tensor([[[8.0, 0.0, 0.0, 0.0]]])
    even = torch.full((1, 1, 4), 0.25)
    there = torch.tensor([[[0.91, 0.03, 0.03, 0.03]]])
    elsewhere = torch.tensor([[[0.3, 0.64, 0.03, 0.03]]])  # most weight on a key that is not read
    assert float(along_rows(there, even, gradients, visible).pointing) > 0.95
    assert float(along_rows(elsewhere, even, gradients, visible).pointing) < 0.6


def test_orders_agree_with_all_coalitions_within_their_error():
    game = game_of(small())
    exact, sampled = coalitions(game), orders(game, 40, generator(0))
    doubt = 4 * sampled.standard_error + 1e-6
    assert bool(((sampled.credit - exact.credit).abs() <= doubt).all())
    assert_close(float(sampled.credit.sum()), float(exact.credit.sum()), atol=1e-4, rtol=1e-4)


def test_a_step_is_shared_by_turns_and_a_budget_that_ends_is_undetermined(monkeypatch):
    """An answer that jumps between two α: gradients see nothing there, turns do."""
    trace = small()
    play, gradients = HeadGame.play, HeadGame.gradients

    def stepping(self, shares, **how):
        played = play(self, shares, **how)
        jumped = 50.0 * (shares.mean(1) > 0.6180339)
        return type(played)(played.margins + jumped, played.probabilities)

    def with_gradients(self, alphas, weights):
        margins, steepness, sums = gradients(self, alphas, weights)
        return margins + 50.0 * (torch.tensor(alphas) > 0.6180339), steepness, sums

    monkeypatch.setattr(HeadGame, "play", stepping)
    monkeypatch.setattr(HeadGame, "gradients", with_gradients)
    result = reliance(trace, by="path", budget=45)
    assert result.way == "path and orders"
    ((start, stop, change),) = result.checks["jumps"]
    assert start < 0.6180339 < stop
    assert change == pytest.approx(50, abs=3)
    assert abs(result.gap) < 0.05 * abs(result.whole)
    assert max(float(error.amax()) for error in result.standard_error) > 0


def test_bad_requests_have_one_line():
    trace = capture(opinionated(), TEXT)
    with pytest.raises(BadRequestError, match="There is no by 'x'"):
        reliance(trace, by="x")
    with pytest.raises(BadRequestError, match="budget of 2 is too small"):
        reliance(trace, budget=2)
    large = planted("random", 7)
    with pytest.raises(NotComputableError, match="at most 12 heads"):
        reliance(capture(large.subject, large.inputs), by="coalitions")
