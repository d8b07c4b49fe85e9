"""An error in a worker is the same error outside: its kind, its message."""

import os
import sys
import threading
from pathlib import Path

import pytest
from support.corpora import examples
from support.words import save_tokenizer
from support.zoo import FAMILIES

from exhibit_a import corpus
from exhibit_a.corpus.plan import Card, Data, Model, Window, checked_plan, versions, windows
from exhibit_a.corpus.ray_engine import FILLING, Actor, ActorReply, reply_of
from exhibit_a.corpus.work import Shard
from exhibit_a.errors import KINDS, NotComputableError
from exhibit_a.subject.subject import load

METHOD = "self_attribution"  # which needs one answer a text, and a bare encoder gives none
MESSAGE = "hidden states"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An encoder without a head."""
    folder = tmp_path_factory.mktemp("bare")
    FAMILIES["bert"].build().bert.save_pretrained(folder)
    save_tokenizer(folder)
    return str(folder)


def failing(error):
    def worker():
        raise error

    return worker


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_kind_of_error_arrives_with_its_message(kind):
    reply = reply_of(failing(kind("no such head: \ud800")), Window(0, 0, ()))
    with pytest.raises(kind) as caught:
        reply.opened()
    assert (type(caught.value), str(caught.value)) == (kind, "no such head: \ud800")


def test_a_method_that_does_not_apply_says_so_from_a_worker_process(bare, tmp_path):
    with pytest.raises(NotComputableError, match=MESSAGE) as beside:
        corpus.run(bare, ["a fine film"], METHOD, tmp_path / "beside", workers=1)
    with pytest.raises(NotComputableError) as within:
        corpus.run(bare, ["a fine film"], METHOD, tmp_path / "within")
    assert str(beside.value) == str(within.value)


def test_a_method_that_does_not_apply_says_so_from_a_ray_actor(bare):
    plan = checked_plan(method=METHOD)
    card = Card(plan=plan, model=Model.of(load(bare)), data=Data(), versions=versions())
    (window,) = windows(examples(1), None)
    answer = Actor(card.model_dump_json(), None)({"window": [window.packed()]})
    with pytest.raises(NotComputableError, match=MESSAGE):
        ActorReply(answer["head"][0], answer["files"][0]).opened()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, and it has many
def test_a_method_that_does_not_apply_says_so_through_ray(bare, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    monkeypatch.setenv("PYTHONPATH", paths)  # actors import the package from where this test does
    with pytest.raises(NotComputableError, match=MESSAGE):
        corpus.run(bare, ["a fine film"], METHOD, tmp_path / "run", engine="ray", workers=1)
    # A thread that went on asking would start Ray again.
    assert FILLING not in [thread.name for thread in threading.enumerate()]
    assert not ray.is_initialized()


def test_a_shard_arrives_as_it_was():
    receipt = {"shard": 3, "window": "w", "examples": 1, "unusable": [], "files": {"a": "x"}}
    sent = Shard(receipt, {"examples": b"first", "heads": b"", "dense": b"third"})
    arrived = reply_of(lambda: lambda window: sent, Window(3, 0, ())).opened()
    assert (arrived.receipt, arrived.files) == (sent.receipt, sent.files)
