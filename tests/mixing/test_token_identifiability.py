"""Finding tokens again: what must hold for every probe, and for the arithmetic behind it."""

import pytest
import torch
from support.subjects import subject_of
from support.zoo import FAMILIES, VOCABULARY
from torch import nn
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.mixing import token_maps
from exhibit_a.methods.mixing.token_identifiability import token_identifiability
from exhibit_a.methods.mixing.token_maps import Moments, ridge, rotation
from exhibit_a.methods.mixing.token_search import Candidates, score_candidates, states
from exhibit_a.report.describe import summary_table
from exhibit_a.results.store import read
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture


def sentences(count, lengths=(4, 9), seed=0, limit=VOCABULARY):
    chance = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        length = int(torch.randint(*lengths, (), generator=chance))
        ids = torch.randint(4, limit, (1, length), generator=chance)
        made.append({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    return made


def images(count):
    chance = torch.Generator().manual_seed(0)
    return [{"pixel_values": torch.randn(1, 3, 16, 16, generator=chance)} for _ in range(count)]


@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit"])
def test_the_input_itself_is_always_found(name, metric):
    texts = images(20) if name == "vit" else sentences(40)
    result = token_identifiability(subject_of(name), texts, maps=["identity"], metric=metric)
    assert result.rate["identity"][0] == 1
    assert result.with_special["identity"][0] == 1
    assert result.mrr["identity"][0] == 1
    assert (result.interval["identity"][0] == 1).all()
    assert (result.rate["identity"] <= result.top["identity"]).all()
    assert (result.rate["identity"] <= result.mrr["identity"]).all()
    assert (result.rate["identity"] <= result.same_token["identity"]).all()


def test_residual_paths_keep_tokens_and_pure_averaging_loses_them():
    kept = token_identifiability(subject_of("gpt2"), sentences(60), maps=["identity", "linear"])
    assert kept.rate["linear"][-1] > 0.8
    model = FAMILIES["bert"].build()
    for layer in model.bert.encoder.layer:
        nn.init.zeros_(layer.attention.self.query.weight)  # everybody looks at everybody
        output = layer.attention.output
        output.forward = lambda hidden, _, module=output: module.LayerNorm(module.dense(hidden))
    lost = token_identifiability(load(model), sentences(60), maps=["identity", "linear"])
    for rate in lost.rate.values():
        assert (rate[1:] < 1.5 * lost.chance).all()


def rows(count=400, width=6, target=4, layers=2):
    chance = torch.Generator().manual_seed(1)
    hidden = torch.randn(layers, count, width, generator=chance, dtype=torch.float64) + 0.3
    wanted = hidden[0] @ torch.randn(width, target, generator=chance, dtype=torch.float64)
    return hidden, wanted + 0.1 * torch.randn(count, target, generator=chance).double() - 1


def moments(hidden, *targets):
    sums = Moments(len(hidden), hidden.shape[-1], len(targets), targets[0].shape[-1])
    for chunk in torch.arange(hidden.shape[1]).split(37):
        sums.add(hidden[:, chunk], torch.stack(targets)[:, chunk])
    return sums


def test_ridge_is_the_minimum_and_its_penalty_the_best_on_held_out_rows():
    hidden, wanted = rows(count=60)
    train, held = moments(hidden[:, :12], wanted[:12]), moments(hidden[:, 12:], wanted[12:])
    fitted = ridge(train, held)
    by_hand = []
    for penalty in token_maps.PENALTIES:
        centred, offset = hidden[1, :12] - hidden[1, :12].mean(0), wanted[:12].mean(0)
        gram = centred.T @ centred
        scale = penalty * torch.linalg.eigvalsh(gram).mean()
        weight = torch.linalg.solve(gram + scale * torch.eye(6), centred.T @ (wanted[:12] - offset))
        guess = (hidden[1, 12:] - hidden[1, :12].mean(0)) @ weight + offset
        by_hand.append((guess - wanted[12:]).square().sum(-1).mean())
    assert_close(fitted.loss[1], torch.stack(by_hand).amin().float(), rtol=1e-4, atol=1e-6)
    guesses = fitted(hidden[:, 12:].float())[1]
    assert_close((guesses - wanted[12:]).square().sum(-1).mean(), fitted.loss[1], check_dtype=False)


def test_a_rotation_is_found_again():
    chance = torch.Generator().manual_seed(2)
    hidden = torch.randn(1, 200, 5, generator=chance, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=chance, dtype=torch.float64))[0]
    fitted = rotation(moments(hidden, 3 * hidden[0] @ turn + 1))
    assert_close(fitted.weight[0], 3 * turn.float(), rtol=1e-4, atol=1e-5)


def test_controls_are_at_chance_and_maps_are_not():
    texts = sentences(400, seed=3)
    result = token_identifiability(
        subject_of("bert"),
        texts,
        maps=["identity", "rotation", "linear", "mlp"],
        epochs=3,
        width=16,
    )
    assert set(result.control) == {"rotation", "linear", "mlp"}
    for name, control in result.control.items():
        assert (control < result.chance + 0.06).all(), name
        assert (result.rate[name][1:] > 2 * control[1:]).all(), name
    assert (result.rate["mlp"] >= result.rate["linear"] - 0.1).all()
    assert result.checks["test_texts"] > 30
    bounds = result.interval["linear"]
    assert (bounds[:, 0] <= result.rate["linear"]).all()
    assert (result.rate["linear"] <= bounds[:, 1]).all()


def test_a_control_that_could_memorise_noise_still_finds_nothing():
    """Few texts and wide vectors: the probe learns its training noise, and no test word."""
    result = token_identifiability(subject_of("bert"), sentences(60, seed=5), maps=["linear"])
    memorised = result.memorised["linear"]
    assert (memorised > 1.5 * result.memorised_chance).all()
    assert (result.control["linear"] < result.chance + 0.1).all()
    assert_close(result.selectivity["linear"], result.rate["linear"] - result.control["linear"])
    (row, *_) = summary_table(result).first()
    assert row["selectivity"] == pytest.approx(float(result.selectivity["linear"][0]))
    assert row["memorised by the control"] == pytest.approx(float(memorised[0]))


@pytest.mark.parametrize("candidates", ["dataset", "vocab"])
def test_larger_fields_are_harder(candidates):
    texts = sentences(120, seed=4)
    near = token_identifiability(subject_of("gpt2"), texts, maps=["linear"])
    far = token_identifiability(subject_of("gpt2"), texts, maps=["linear"], candidates=candidates)
    assert far.chance < near.chance
    assert (far.rate["linear"][1:] <= near.rate["linear"][1:] + 0.02).all()
    if candidates == "dataset":
        assert far.rate["linear"][0] > 0.99
    else:
        assert far.chance == pytest.approx(1 / VOCABULARY)


def test_what_is_counted_is_what_a_loop_counts():
    chance = torch.Generator().manual_seed(5)
    vectors, guess = torch.randn(2, 1, 6, 3, generator=chance)
    ids = torch.tensor([[1, 2, 3, 1, 4, 5]])
    special = torch.tensor([[True, False, False, False, False, True]])
    words, real = ~special, torch.ones_like(special)
    candidates = Candidates(
        vectors, vectors, torch.eye(6).bool()[None], ids[:, :, None] == ids[:, None], real, words
    )
    sums = score_candidates(candidates, guess, "l2", 2, words, special)[:, 0]
    distance = torch.cdist(guess[0], vectors[0])
    hits = top = reciprocal = alike = overall = apart = 0.0
    for i in range(6):
        rivals = [j for j in range(6) if j != i and (bool(special[0, i]) or not special[0, j])]
        rank = 1 + sum(bool(distance[i, j] <= distance[i, i]) for j in rivals)
        rank_overall = 1 + sum(bool(distance[i, j] <= distance[i, i]) for j in range(6) if j != i)
        overall += rank_overall == 1
        if special[0, i]:
            apart += rank_overall == 1
            continue
        hits, top, reciprocal = hits + (rank == 1), top + (rank <= 2), reciprocal + 1 / rank
        best = min(
            [i, *rivals, *[j for j in range(6) if ids[0, j] == ids[0, i]]],
            key=lambda j: distance[i, j],
        )
        alike += bool(ids[0, best] == ids[0, i])
    expected = [hits, top, reciprocal, alike, overall, apart]
    assert_close(sums[[0, 1, 2, 3, 5, 6]], torch.tensor(expected, dtype=torch.float64))


def test_batches_hold_the_states_of_each_text_alone():
    subject, texts = subject_of("bert"), sentences(12)
    seen = 0
    for batch in states(subject, texts):
        for i, ids in enumerate(batch.ids):
            alone = capture(subject, {"input_ids": ids[None], "attention_mask": ids[None] > 0})
            assert_close(batch.hidden[:, i], torch.stack(alone.hidden), rtol=1e-4, atol=1e-4)
            seen += 1
    assert seen == 12


def test_padding_is_nobody():
    plain = sentences(40)
    padded = [
        {
            "input_ids": torch.cat([inputs["input_ids"], torch.zeros(1, 2, dtype=torch.long)], 1),
            "attention_mask": torch.cat([inputs["attention_mask"], torch.zeros(1, 2).long()], 1),
        }
        for inputs in plain
    ]
    a, b = (token_identifiability(subject_of("bert"), t, maps=["linear"]) for t in (plain, padded))
    assert a.chance == pytest.approx(b.chance, abs=1e-12)
    assert_close(a.rate["linear"], b.rate["linear"], rtol=0, atol=0.05)


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    texts = sentences(60)
    first, again = (
        token_identifiability(subject_of("bert"), texts, epochs=1, width=8, seed=4)
        for _ in range(2)
    )
    for name in first.rate:
        assert torch.equal(first.rate[name], again.rate[name])
        assert torch.equal(first.interval[name], again.interval[name])
    kept = read(first.save(tmp_path / "tokens.safetensors"))
    assert torch.equal(kept.rate["mlp"], first.rate["mlp"])
    assert kept.plot().axes[0].get_ylabel() == "identifiable tokens"
    assert set(kept.to_pandas()["name"]) == {"identity", "linear", "mlp"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"maps": ["quadratic"]}, "identity, rotation, linear, mlp"),
        ({"maps": []}, "choose identity"),
        ({"metric": "angle"}, "cosine, l2"),
        ({"candidates": "world"}, "sequence, dataset, vocab"),
    ],
)
def test_bad_requests_are_told_what_exists(asked, message):
    with pytest.raises(BadRequestError, match=message):
        token_identifiability(subject_of("bert"), sentences(3), **asked)


def test_too_little_or_unreadable_data_is_refused():
    subject = subject_of("bert")
    with pytest.raises(BadRequestError, match="give at least 50 texts"):
        token_identifiability(subject, sentences(1), maps=["linear"])
    with pytest.raises(BadRequestError, match="only once"):
        token_identifiability(subject, iter(sentences(3)))
    with pytest.raises(NotComputableError, match="no vocabulary"):
        token_identifiability(subject_of("vit"), images(3), candidates="vocab")
    with pytest.raises(NotComputableError, match="width"):
        token_identifiability(
            subject_of("electra"), sentences(60), maps=["identity"], candidates="vocab"
        )


CHANCE = torch.Generator().manual_seed(0)


def test_learned_maps_do_not_care_how_the_hidden_space_is_turned():
    hidden, wanted = rows()
    turn = torch.linalg.qr(torch.randn(6, 6, generator=CHANCE, dtype=torch.float64))[0]
    plain, turned = moments(hidden, wanted), moments(hidden @ turn, wanted)
    a, b = ridge(plain, plain), ridge(turned, turned)
    assert_close(a(hidden.float()), b((hidden @ turn).float()), rtol=1e-4, atol=1e-4)
