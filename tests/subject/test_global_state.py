"""What belongs to the process is left as it was: random streams, warnings, the registry."""

import threading
import warnings

import numpy
import pytest
import torch
from support.subjects import opinionated
from support.waiting import PATIENCE
from support.words import NUMBERED, save_tokenizer
from support.zoo import FAMILIES
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

import exhibit_a as xa
from exhibit_a.embedded.weights import quietly
from exhibit_a.subject.fused import FUSED
from exhibit_a.subject.tap import NAME, attend

TEXTS = [" ".join(NUMBERED[n : n + 6]) for n in range(0, 48, 3)]


def examples(subject):
    labels = (subject.labels[:2] * len(TEXTS))[: len(TEXTS)]
    return [xa.Example(str(n), text, None, labels[n]) for n, text in enumerate(TEXTS)]


def streams():
    """Of torch and numpy; from Python's own, beartype draws what it looks at in these tests."""
    return torch.get_rng_state().tolist(), str(numpy.random.get_state())


def on_trace(function, **options):
    return lambda subject: function(xa.capture(subject, TEXTS[0]), **options)


def on_data(function, **options):
    return lambda subject: function(subject, examples(subject), **options)


ASKED = {
    "capture": on_trace(lambda trace: trace),
    "effective_attention": on_trace(xa.effective_attention),
    "alternative_attention": on_trace(xa.alternative_attention, site=0, head=0),
    "attention_identifiability": on_trace(xa.attention_identifiability),
    "hidden_attribution": on_trace(xa.hidden_attribution, probes=2),
    "head_mixing": on_trace(xa.head_mixing, probes=2),
    "self_attribution": on_trace(xa.self_attribution),
    "adversarial_attention": on_trace(xa.adversarial_attention),
    "companions": on_trace(xa.companions),
    "trial": lambda subject: xa.trial(subject, TEXTS[0]),
    "head_importance": on_data(xa.head_importance),
    "permutation_test": on_data(xa.permutation_test, repeats=2),
    "faithfulness": on_data(xa.faithfulness, attribution="raw"),
    "adversarial_keys": on_data(xa.adversarial_keys, hidden=4, epochs=1),
    "find_triggers": on_data(xa.find_triggers),
}


@pytest.mark.parametrize("name", ASKED)
def test_no_method_draws_from_a_stream_of_the_caller(name):
    subject = opinionated()
    before, filters = streams(), list(warnings.filters)
    ASKED[name](subject)
    assert streams() == before
    assert warnings.filters == filters


def test_loading_draws_nothing(tmp_path):
    FAMILIES["bert"].build().save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    before = streams()
    xa.load(tmp_path)
    assert streams() == before


def crossing(change):
    """Two threads inside a change at the same time; the one that came first leaves first."""
    inside, left = threading.Event(), threading.Event()

    def first():
        change(lambda: inside.set() or second.start() or came.wait(PATIENCE))
        left.set()

    came = threading.Event()
    second = threading.Thread(target=lambda: change(lambda: came.set() or left.wait(PATIENCE)))
    one = threading.Thread(target=first)
    one.start()
    one.join()
    second.join()


def test_threads_leave_the_messages_of_transformers_on():
    level = logging.get_verbosity()
    logging.set_verbosity_info()

    def change(wait):
        with quietly():
            wait()

    try:
        crossing(change)
        assert logging.get_verbosity() == logging.INFO
    finally:
        logging.set_verbosity(level)


def test_our_names_stay_in_the_registry_and_do_no_harm():
    """They are registered once, with the import, and for good: names that nobody asks for."""
    assert ALL_ATTENTION_FUNCTIONS[NAME] is attend
    names = {NAME, *(f"{NAME}_{kernel}" for kernel in FUSED)}
    others = {key: ALL_ATTENTION_FUNCTIONS[key] for key in ALL_ATTENTION_FUNCTIONS.keys() - names}
    assert not [key for key, function in others.items() if "exhibit_a" in str(function)]
    family = FAMILIES["bert"]
    model, inputs = family.build(), family.inputs()
    before = model.config._attn_implementation
    xa.capture(xa.load(model), inputs)
    assert model.config._attn_implementation == before
    model.set_attn_implementation("eager")
    expected = model(**inputs).logits
    model.set_attn_implementation(NAME)  # also by name, and without a tap, it changes nothing
    assert torch.equal(model(**inputs).logits, expected)
    model.set_attn_implementation("sdpa")
    expected = model(**inputs).logits
    model.set_attn_implementation(f"{NAME}_sdpa")
    assert torch.equal(model(**inputs).logits, expected)
