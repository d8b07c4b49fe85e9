"""Modules that only make attention weights are found in any family, and are not missed."""

import pytest
import torch
from support.subjects import subject_of
from support.zoo import CONTRACT, FAMILIES, HYBRID
from torch.testing import assert_close

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.attribution.head_game import HeadGame
from exhibit_a.subject.subject import load
from exhibit_a.trace import replay as replaying
from exhibit_a.trace.capture import capture
from exhibit_a.trace.targets import chosen_target, margin_of


def makers(subject):
    names = {id(module): name for name, module in subject.model.named_modules()}
    return {names[id(module)] for module in subject.weight_makers}


@pytest.mark.parametrize("name", [*CONTRACT, *HYBRID])
def test_without_them_frozen_heads_give_the_same_answer(name, monkeypatch):
    subject = load(HYBRID[name].build()) if name in HYBRID else subject_of(name)
    trace = capture(subject, (CONTRACT | HYBRID)[name].inputs())
    try:
        target = chosen_target(trace, None)
    except NotComputableError:
        pytest.skip("it answers with states")
    game = HeadGame(trace, margin_of(target))
    settings = [game.setting([0]), game.setting([len(game) - 1]), game.setting(rest=0.3)]
    without = game.margins(torch.stack(settings))
    assert subject.anatomy.tap == "registry" or not subject.weight_makers
    monkeypatch.setattr(replaying, "_idle", lambda *_: ())
    assert_close(without, game.margins(torch.stack(settings)), rtol=1e-5, atol=1e-6)


def test_queries_and_keys_are_found_by_what_they_do():
    expected = {
        f"bert.encoder.layer.{n}.attention.self.{m}" for n in range(3) for m in ("query", "key")
    }
    assert makers(subject_of("bert")) == expected
    assert {name.rpartition(".")[2] for name in makers(subject_of("bart"))} == {"q_proj", "k_proj"}
    assert makers(subject_of("gpt2")) == set()  # one module makes queries, keys and values
    assert makers(subject_of("albert"))  # one layer that is called several times


def test_a_query_that_is_read_elsewhere_is_kept():
    model = FAMILIES["bert"].build()
    attention = model.bert.encoder.layer[1].attention
    seen = []
    attention.self.query.register_forward_hook(lambda _, __, output: seen.append(output))
    attention.output.dense.register_forward_hook(lambda _, __, output: output + seen[-1])
    kept = "bert.encoder.layer.1.attention.self.query"
    assert kept not in makers(load(model))
    assert kept.replace("query", "key") in makers(load(model))


def test_a_model_that_cannot_be_tried_has_none(monkeypatch):
    from exhibit_a.subject import probing as room

    subject = load(FAMILIES["bert"].build())
    assert subject.gradient_obstacle == ""  # this is probed, too
    monkeypatch.setattr(room, "probe", lambda _: {"input_ids": "no ids"})
    assert subject.weight_makers == ()
