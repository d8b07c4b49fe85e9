"""The game of levelled heads, its shares, its null and its errors, each from its definition."""

from itertools import permutations

import pytest
import torch
from planted.copiers import counting_sink, twin_steerers
from planted.kinds import planted
from support.subjects import opinionated, precise, speaker, subject_of
from support.zoo import CONTRACT, FAMILIES
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution import head_game
from exhibit_a.methods.attribution.head_game import HeadGame, coalitions, orders
from exhibit_a.methods.attribution.reliance import HeadShares, along_rows, game_rows, reliance
from exhibit_a.numerics import spilling
from exhibit_a.numerics.seeds import generator
from exhibit_a.subject.guard import without_cache
from exhibit_a.subject.subject import load
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.capture import capture
from exhibit_a.trace.targets import choose_target, chosen_target, margin_of

TEXT = "the cat sat on the mat"
FEW = {"num_hidden_layers": 2, "num_attention_heads": 2}


def small(name="bert", **changes):
    """A trace in float64 with four heads in two layers."""
    return precise(name, **(FEW | changes))


def game_of(trace, **how):
    return HeadGame(trace, margin_of(chosen_target(trace, None)), **how)


def sinks_by_hand(trace, site, baseline="levelled"):
    """For every head the keys that take more than an even share of the rows that see them."""
    at, keys, visible = trace.sites[site], trace.keys_of(site), trace.visible[site]
    if baseline == "uniform":
        candidates = []
    elif at.causal and at.kind == "self":
        candidates = [int(keys.real.nonzero()[0])]
    else:
        candidates = (keys.special & keys.real).nonzero().flatten().tolist()
    kept = []
    for maps in trace.attention[site]:
        kept.append([])
        for key in candidates:
            more = 0.0
            for row in trace.queries_of(site).real.nonzero().flatten().tolist():
                if visible[row, key]:
                    more += float(maps[row, key] - maps[row].sum() / visible[row].sum())
            if more > 0:
                kept[-1].append(key)
    return kept


def level_row(weights, seen, sinks):
    """One row with the weight of its sinks as it was, and the rest spread evenly."""
    sinks = [key for key in sinks if seen[key]]
    others = [key for key in seen.nonzero().flatten().tolist() if key not in sinks]
    level = torch.zeros_like(weights)
    for key in sinks:
        level[key] = weights[key]
    for key in others:
        level[key] = (weights.sum() - sum(weights[sink] for sink in sinks)) / len(others)
    return level


class LevelledByHand(Tap):
    """Levels some heads in some rows, row by row, in whatever maps the pass computes."""

    def __init__(self, trace, levelled, *, frozen, baseline="levelled", rows=None):
        self.trace, self.levelled, self.frozen, self.rows = trace, levelled, frozen, rows
        self.sinks = [sinks_by_hand(trace, site.index, baseline) for site in trace.sites]

    def weighting(self, call):
        trace, site = self.trace, call.site
        maps = (trace.attention[site][None] if self.frozen else call.probs).clone()
        own = call.probs if self.rows is not None else maps
        for row, seen in enumerate(trace.visible[site]):
            if self.rows is not None and row not in self.rows:
                maps[0, :, row] = own[0, :, row]
                continue
            for head in range(trace.sites[site].heads):
                if (site, head) in self.levelled:
                    maps[0, head, row] = level_row(maps[0, head, row], seen, self.sinks[site][head])
        return maps


def margin_by_hand(trace, levelled, *, frozen=True, baseline="levelled", rows=None):
    """The margin with some heads levelled, read aloud from the definition."""
    by_hand = LevelledByHand(trace, levelled, frozen=frozen, baseline=baseline, rows=rows)
    with torch.no_grad(), trace.subject.tapping(by_hand):
        output = trace.model(**without_cache(trace.model, trace.inputs))
    target = chosen_target(trace, None)
    logits = output.logits if target.position is None else output.logits[:, target.position]
    others = [value for index, value in enumerate(logits[0]) if index != target.index]
    return float(logits[0, target.index] - torch.stack(others).logsumexp(0))


def marked(name):
    """A trace of a text with special tokens, of a model that looks anywhere sharply."""
    if name == "opinionated":
        return capture(opinionated(), TEXT)
    return capture(subject_of(name), FAMILIES[name].inputs())


@pytest.mark.parametrize("name", ["opinionated", "bert", "llama", "bart", "vit"])
@pytest.mark.parametrize("baseline", ["levelled", "uniform"])
@pytest.mark.parametrize("frozen", [True, False])
def test_the_game_is_what_its_definition_says(name, baseline, frozen):
    trace = marked(name)
    game = game_of(trace, baseline=baseline)
    for levelled in ([], [1], [0, 5, 7], list(range(len(game)))):
        heads = {game.heads[head] for head in levelled}
        by_hand = margin_by_hand(trace, heads, frozen=frozen, baseline=baseline)
        played = game.margins(game.setting(levelled)[None], following=not frozen)
        assert_close(float(played), by_hand, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "gemma2", "opt", "bart", "t5"])
@pytest.mark.parametrize("frozen", [True, False])
def test_in_the_answers_rows_all_others_are_as_they_were(name, frozen):
    """What is computed for the kept rows alone is what a whole pass gives."""
    trace = marked(name)
    target = chosen_target(trace, None)
    few = game_rows(trace, margin_of(target), "answer")
    game = HeadGame(few, margin_of(target))
    stack = trace.sites[-1].stack
    playing = [
        place for place, (site, _) in enumerate(game.heads) if trace.sites[site].stack == stack
    ]
    for levelled in (playing[1:2], playing[::3], playing):
        heads = {game.heads[head] for head in levelled}
        played = game.margins(game.setting(levelled)[None], following=not frozen)
        tap = RowsByHand(trace, few, heads, frozen=frozen)
        with torch.no_grad(), trace.subject.tapping(tap):
            output = trace.model(**without_cache(trace.model, trace.inputs))
        by_hand = float(margin_of(target).value(trace, output))
        assert_close(float(played), by_hand, atol=3e-4, rtol=3e-4)


class RowsByHand(Tap):
    """Freezes and levels the answer's rows alone, of the stack that answers."""

    def __init__(self, trace, few, levelled, *, frozen):
        self.trace, self.few, self.levelled, self.frozen = trace, few, levelled, frozen
        self.game = HeadGame(few, margin_of(chosen_target(trace, None)))

    def weighting(self, call):
        trace, site = self.trace, call.site
        maps = call.probs.clone()
        if trace.sites[site].stack != trace.sites[-1].stack:
            return maps
        for row in self.few.rows:
            for head in range(trace.sites[site].heads):
                if self.frozen:
                    maps[0, head, row] = trace.attention[site][head, row]
                if (site, head) in self.levelled:
                    sinks = self.game.maps.sinks[site]
                    kept = sinks.keys[sinks.kept[head]].tolist()
                    seen = trace.visible[site][row]
                    maps[0, head, row] = level_row(maps[0, head, row], seen, kept)
        return maps


def test_a_sink_is_a_key_with_more_than_an_even_share():
    trace = marked("opinionated")
    game = game_of(trace)
    for site, sinks in enumerate(game.maps.sinks):
        kept = [sinks.keys[marks].tolist() for marks in sinks.kept]
        assert kept == sinks_by_hand(trace, site)
    result = reliance(trace)
    assert "[CLS]" in str(result.checks["weight kept on"])
    named = {int(key) for site in result.sinks for key in site.any(0).nonzero()}
    assert named <= set(trace.special.nonzero().flatten().tolist())
    assert not any(bool(site.any()) for site in reliance(trace, baseline="uniform").sinks)


def test_exact_shares_are_the_shapley_values_of_all_orders():
    trace = small()
    game = game_of(trace)
    players = range(len(game))
    value = {}
    for bits in range(2 ** len(game)):
        levelled = {game.heads[head] for head in players if bits >> head & 1}
        value[bits] = margin_by_hand(trace, levelled)
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
    null, alignment, pointing, coherence = along_rows(own, even, gradients, visible[None])
    assert_close(float(null[0]), float(torch.tensor(shares, dtype=torch.double).std(correction=0)))
    assert abs(sum(shares) / len(shares)) < 1e-12
    assert -1 <= float(alignment[0]) <= 1
    assert -1 <= float(pointing[0]) <= 1
    assert -1 <= float(coherence[0]) <= 1


def test_what_rows_say_is_the_same_a_few_heads_at_a_time(monkeypatch):
    random = torch.Generator().manual_seed(1)
    own = torch.softmax(torch.randn(12, 9, 9, generator=random), -1)
    gradients = torch.randn(12, 9, 9, generator=random)
    seen = torch.ones(1, 9, 9, dtype=torch.bool)
    together = along_rows(own, torch.full_like(own, 1 / 9), gradients, seen)
    monkeypatch.setattr(spilling, "LARGE", 16 * 4 * 81 * 2)  # two heads of float32, eight of marks
    apart = along_rows(own, torch.full_like(own, 1 / 9), gradients, seen)
    for one, other in zip(together, apart, strict=True):
        assert_close(one, other)


def test_a_head_points_where_its_weight_contributes():
    visible = torch.ones(1, 4, dtype=torch.bool)
    gradients = torch.tensor([[[8.0, 0.0, 0.0, 0.0]]])
    even = torch.full((1, 1, 4), 0.25)
    there = torch.tensor([[[0.91, 0.03, 0.03, 0.03]]])
    elsewhere = torch.tensor([[[0.3, 0.64, 0.03, 0.03]]])  # most weight on a key that is not read
    assert float(along_rows(there, even, gradients, visible[None]).pointing) > 0.95
    assert float(along_rows(elsewhere, even, gradients, visible[None]).pointing) < 0.6


def test_orders_agree_with_all_coalitions_within_their_error():
    game = game_of(small())
    exact, sampled = coalitions(game, following=False), orders(game, 40, generator(0))
    error = 4 * sampled.standard_error + 1e-6
    assert bool(((sampled.credit - exact.credit).abs() <= error).all())
    assert_close(float(sampled.credit.sum()), float(exact.credit.sum()), atol=1e-4, rtol=1e-4)


def test_a_step_is_shared_by_turns_and_a_budget_that_ends_is_undetermined(monkeypatch):
    """An answer that jumps between two α: gradients see nothing there, turns do."""
    trace = small()
    play, gradients = HeadGame.play, HeadGame.gradients

    def stepping(self, shares, **how):
        played = play(self, shares, **how)
        jumped = 50.0 * (shares.amin(1) > 0.6180339)
        return type(played)(played.margins + jumped, played.probabilities)

    def with_gradients(self, alphas, weights, first):
        margins, steepness, sums = gradients(self, alphas, weights, first)
        return margins + 50.0 * (torch.tensor(alphas) > 0.6180339), steepness, sums

    def with_margin(self, *given):
        begin(self, *given)
        self.margin += 50.0

    begin = HeadGame.__init__
    monkeypatch.setattr(HeadGame, "__init__", with_margin)
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


# The block, steering, and what cancels


def test_shares_and_the_block_add_up_to_the_whole():
    for name in ("llama", "gemma2", "opinionated"):
        trace = marked(name)
        for rows in (None, "all"):
            result = reliance(trace, by="path", rows=rows)
            shares = sum(float(site.sum()) for site in result.heads)
            total = shares + result.block.worth + result.gap
            assert total == pytest.approx(result.whole, abs=1e-3)
            for layer in result.block.layers:
                assert not result.heads[layer].any()


def test_a_jump_in_the_first_layer_makes_it_a_block(monkeypatch):
    """An answer that turns over when the first layer is nearly as it was, and is smooth behind."""
    trace = marked("opinionated")
    play, gradients = HeadGame.play, HeadGame.gradients

    def stepping(self, shares, **how):
        played = play(self, shares, **how)
        first = shares[:, : self.trace.sites[0].heads].amin(1)
        return type(played)(played.margins + 50.0 * (first > 0.98765), played.probabilities)

    def with_gradients(self, alphas, weights, first):
        margins, steepness, sums = gradients(self, alphas, weights, first)
        turned = torch.tensor(alphas) > 0.98765 if first == 0 else torch.ones(len(alphas))
        return margins + 50.0 * turned, steepness, sums

    monkeypatch.setattr(HeadGame, "play", stepping)
    monkeypatch.setattr(HeadGame, "gradients", with_gradients)
    game = game_of(trace)
    game.margin += 50.0
    shares = HeadShares(game, "path")
    shares.choose_block()
    assert shares.walk.block == (0,)
    assert not shares.walk.path.jumps
    assert shares.walk.start - shares.levelled == pytest.approx(50, abs=5)


def test_steering_is_what_a_share_gains_when_maps_follow():
    trace = small()
    value = {}
    game = game_of(trace)
    players = range(len(game))
    for bits in range(2 ** len(game)):
        levelled = {game.heads[head] for head in players if bits >> head & 1}
        value[bits] = margin_by_hand(trace, levelled, frozen=False)
    shares = torch.zeros(len(game), dtype=torch.double)
    every = list(permutations(players))
    for order in every:
        bits = 0
        for head in order:
            shares[head] += (value[bits] - value[bits | 1 << head]) / len(every)
            bits |= 1 << head
    result = reliance(trace)
    following = torch.cat(result.heads).double() + torch.cat(result.steering).double()
    assert_close(following, shares, atol=2e-5, rtol=1e-4)


def test_without_composition_nobody_steers():
    """In one layer no head stands in front of another one's choice."""
    for name in ("bert", "llama"):
        trace = precise(name, num_hidden_layers=1)
        for by in ("path", "coalitions"):
            result = reliance(trace, by=by, rows="all")
            assert float(torch.cat(result.heads).abs().sum()) > 0
            assert_close(torch.cat(result.steering), torch.zeros(4), atol=1e-5, rtol=0)


def test_a_path_that_follows_is_closed_or_says_so():
    for name in ("llama", "gemma2", "opinionated"):
        result = reliance(marked(name), by="path", rows="all")
        steering = torch.cat(result.steering)
        if result.steering_reason:
            assert bool(steering.isnan().all())
            continue
        following = float((torch.cat(result.heads) + steering).sum())
        assert abs(result.steering_gap) <= 0.05 * max(abs(following), 0.05 * result.size, 0.05)


@pytest.mark.parametrize("kind", ["redundant-same-layer", "redundant-across-layers"])
def test_heads_that_stand_in_for_each_other_share_alike(kind):
    model = planted(kind, 300)
    result = reliance(capture(model.subject, model.inputs))
    shares = [float(result.heads[site][head]) for site, head in model.shared]
    alone = [float(result.one_head[site][head]) for site, head in model.shared]
    assert min(shares) > 0.2 * result.size
    assert max(shares) < 1.5 * min(shares)
    assert max(alone) < 0.5 * min(shares)


@pytest.mark.parametrize("seed", range(3))
def test_a_sink_that_counts_is_a_number_of_its_own(seed):
    """Its weight stays in the levelled baseline; what it does is named, and uniform shares it."""
    model = counting_sink(torch.Generator().manual_seed(seed), seed)
    trace = capture(model.subject, model.inputs)
    ((site, head),) = model.decisive
    levelled, uniform = (reliance(trace, baseline=each) for each in ("levelled", "uniform"))
    assert bool(levelled.sinks[site][head, 0])
    assert abs(levelled.whole) < 0.1 * levelled.size
    assert levelled.sink_effect > 0.5 * levelled.size
    assert uniform.sink_effect == 0
    assert float(uniform.heads[site][head]) > 0.5 * uniform.whole


@pytest.mark.parametrize("seed", range(3))
def test_heads_that_steer_in_each_others_place_share_that(seed):
    """Levelled one by one they do nothing, and together they are what the answer needs."""
    model = twin_steerers(torch.Generator().manual_seed(seed), seed)
    result = reliance(capture(model.subject, model.inputs), rows="all")
    steering = [float(result.steering[site][head]) for site, head in model.through_maps]
    alone = [float(result.steering_alone[site][head]) for site, head in model.through_maps]
    assert min(steering) > 0.1 * result.size
    assert max(steering) < 2 * min(steering)
    assert max(alone) < 0.5 * min(steering)
    trial = xa.trial(model.subject, model.inputs, probes=2, heat_maps=False)
    assert all(trial.of(*head).shared for head in model.through_maps)


def test_shares_that_cancel_are_compared_with_orders():
    trace = capture(
        load("sentiment"), "a gripping , beautifully shot film , though the plot is thin"
    )
    shares = HeadShares(game_of(trace), "path")
    shares.choose_block()
    shares.share_out()
    before = shares.error.clone()
    shares.walk = shares.walk._replace(start=shares.game.margin)  # as if they left nothing
    shares.game.margin *= 0.1
    shares._check_cancelling()
    assert bool((shares.error >= before).all())
    assert shares.game.passes > 0


def test_an_answer_is_shared_out_as_a_whole_and_token_by_token():
    trace = capture(speaker("llama"), TEXT, target_text=" the cat sat")
    count = len(trace.reply.ids)
    result = reliance(trace, each_token=True)
    assert len(result.rows) == len(result.answer_tokens) == count > 1
    shares = sum(site.sum(1) for site in result.heads_by_token)
    total = shares + result.block_by_token + result.gap_by_token
    assert_close(total, result.whole_by_token, atol=1e-3, rtol=1e-3)
    for place in range(count):
        target = choose_target(trace, "answer", position=place)
        alone = reliance(trace, target=target)
        assert alone.rows == (trace.reply.position + place,)
        for site, heads in zip(result.heads_by_token, alone.heads, strict=True):
            assert_close(site[place], heads)
    with pytest.raises(NotComputableError, match="no tokens"):
        reliance(capture(opinionated(), TEXT), each_token=True)


WHOLE = {"llava", "qwen2-vl", "gptj", "gpt-neo", "bloom", "falcon"}  # these run whole


@pytest.mark.parametrize("name", [name for name in CONTRACT if name != "clip-text"])
def test_rows_that_are_computed_alone_are_those_of_a_whole_pass(name, monkeypatch):
    """Every causal family: in both games, from rotary to learned positions, with windows or not."""
    trace = capture(subject_of(name), CONTRACT[name].inputs())
    if not trace.sites[-1].causal or trace.subject.anatomy.answers != "tokens":
        pytest.skip("not a causal language model")
    target = margin_of(chosen_target(trace, None))
    few = game_rows(trace, target, "answer")
    alone = HeadGame(few, target)
    assert (alone.kept is None) == (name in WHOLE)
    monkeypatch.setattr(head_game, "kept_positions", lambda _: None)
    whole = HeadGame(few, target)
    settings = [
        whole.setting(),
        whole.setting([1]),
        whole.setting(rest=0.3),
        whole.setting(rest=0.0),
    ]
    for following in (False, True):
        answers = [
            game.margins(torch.stack(settings), following=following) for game in (alone, whole)
        ]
        assert_close(*answers, atol=1e-5, rtol=1e-5)
