"""Whatever torch's modes are outside, every method gives the same numbers and leaves them so."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event

import pytest
import torch
from support.every_method import TEXT, of_a_trace, same, works
from support.modes import KEPT, MODES, fresh_subject, state, together, under, usual_results
from support.words import marked_tokenizer
from support.zoo import FAMILIES

import exhibit_a as xa
from exhibit_a.errors import BadRequestError
from exhibit_a.methods.registry import methods


@pytest.fixture(scope="module")
def subject():
    return fresh_subject()


@pytest.fixture(scope="module")
def earliest(subject):
    """A trace from before anything was computed."""
    return xa.capture(subject, TEXT, keep=KEPT)


@pytest.fixture(scope="module")
def usual(subject, earliest):  # the trace comes first
    return usual_results(subject)


@pytest.mark.parametrize(
    "modes",
    [
        tuple(MODES),
        # a few together, so that none hides what another does; `make trust` tries each alone
        pytest.param(("inference_mode", "autocast"), marks=pytest.mark.slow),
        pytest.param(("no_grad", "default_dtype"), marks=pytest.mark.slow),
        pytest.param(("default_device", "deterministic"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_every_method_gives_the_same_numbers_in_every_mode(modes, subject, usual):
    assert set(usual) == set(methods())
    outcomes = under(together(*modes), subject, usual)
    assert outcomes.counts == {"same": len(usual)}, outcomes.examples


@pytest.mark.slow
def test_every_method_gives_the_same_numbers_for_a_model_in_training(subject, usual):
    model = subject.model.train()
    try:
        outcomes = under(nullcontext(), subject, usual)
        assert outcomes.counts == {"same": len(usual)}, outcomes.examples
        assert all(module.training for module in model.modules())
    finally:
        model.eval()


@pytest.mark.parametrize("mode", MODES)
def test_loading_and_replaying_are_the_same_in_every_mode(mode, subject):
    outside = xa.capture(subject, TEXT)
    silenced = xa.replay(outside, xa.edits.drop_heads([(0, 1)])).logits
    with MODES[mode]():
        inside = xa.load(subject.model, tokenizer=marked_tokenizer())
        assert (inside.anatomy.parity, inside.anatomy.tolerance) == (
            subject.anatomy.parity,
            subject.anatomy.tolerance,
        )
        trace = xa.capture(inside, TEXT)
        again = xa.replay(trace, xa.edits.drop_heads([(0, 1)])).logits
        diagnosis = xa.diagnose(inside, length=8)
    assert not trace.output.logits.is_inference()
    assert torch.equal(trace.output.logits, outside.output.logits)
    assert torch.equal(again, silenced)
    assert diagnosis.parity == subject.anatomy.parity


def test_modes_are_restored_after_an_error(subject):
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = state()
        with pytest.raises(BadRequestError):
            xa.effective_attention(xa.capture(subject, TEXT), value_bias="sometimes")
        with pytest.raises(BadRequestError):
            xa.capture(subject, "")
        assert state() == before


def test_inputs_that_were_encoded_in_inference_mode_are_taken(subject):
    with torch.inference_mode():
        encoded = dict(subject.tokenizer(TEXT, return_tensors="pt"))
    found = xa.self_attribution(xa.capture(subject, encoded))
    assert same(found.scores, xa.self_attribution(xa.capture(subject, TEXT)).scores)


def test_a_model_that_was_built_in_inference_mode_is_refused():
    with torch.inference_mode():
        model = FAMILIES["bert"].build()
        with pytest.raises(BadRequestError, match="inference_mode"):
            xa.load(model)
        assert xa.load("sentiment").labels == ("negative", "positive")  # read from files: normal


# -- weights that changed after the pass --------------------------------------------------------


def scaled(model):
    with torch.no_grad():
        model.classifier.weight.mul_(5)


def scaled_past_torch(model):
    model.classifier.weight.data.mul_(5)


def replaced(model):
    model.classifier.weight.data = model.classifier.weight.data * 5


def another_module(model):
    model.classifier = torch.nn.Linear(
        model.classifier.in_features, model.classifier.out_features
    ).eval()


def trained(model):
    step = torch.optim.AdamW(model.parameters(), lr=0.1)
    ids = torch.tensor([[1, 5, 6, 7, 2]])
    model(input_ids=ids).logits.sum().backward()
    step.step()


def loaded(model):
    model.load_state_dict({name: 2 * weight for name, weight in model.state_dict().items()})


def cast(model):
    model.bfloat16()


@pytest.mark.parametrize(
    "change", [scaled, scaled_past_torch, replaced, another_module, trained, loaded, cast]
)
def test_a_trace_of_other_weights_is_refused(change):
    subject = fresh_subject()
    trace = xa.capture(subject, TEXT, keep=("hidden",))
    xa.replay(trace)
    change(subject.model)
    for rerun in (
        lambda: xa.replay(trace),
        lambda: xa.replay(trace, xa.edits.scale(1, 0.0)),
        lambda: trace.keeping("attention"),
    ):
        with pytest.raises(BadRequestError, match="changed"):
            rerun()
    if change is not cast:
        xa.replay(xa.capture(subject, TEXT, keep=("hidden",)))


def result_or_error(work):
    try:
        return work(), ""
    except BadRequestError as problem:
        return None, str(problem)


# -- a model that answers otherwise than in the pass ---------------------------------------------


def hooked(model):
    model.bert.encoder.layer[1].register_forward_hook(lambda *call: call[2] * 1.1)


def another_epsilon(model):
    model.bert.encoder.layer[0].attention.output.LayerNorm.eps = 0.5


def another_scaling(model):
    model.bert.encoder.layer[1].attention.self.scaling *= 2


def another_forward(model):
    module = model.bert.encoder.layer[1].intermediate
    own = module.forward
    module.forward = lambda states: 1.2 * own(states)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (trained, "changed"),
        *((each, "no longer") for each in (hooked, another_epsilon)),
        *((each, "no longer") for each in (another_scaling, another_forward)),
    ],
)
def test_methods_that_run_a_model_notice_that_it_answers_otherwise(change, word):
    subject = fresh_subject()
    trace = xa.capture(subject, TEXT, keep=KEPT)
    names = of_a_trace()
    before = {name: works(subject, trace)[name]() for name in names}
    change(subject.model)
    refused = []
    for name in names:
        result, problem = result_or_error(works(subject, trace)[name])
        if problem:
            assert word in problem
            refused.append(name)
        else:  # it needs no more than what was kept
            assert same(result, before[name]), name
    assert {"self_attribution", "reliance", "hidden_attribution", "occlusion"} <= set(refused)
    assert len(refused) >= 20
    with pytest.raises(BadRequestError, match=word):
        trace.rerun(("hidden",))


def test_another_thread_may_use_the_model_meanwhile():
    subject = fresh_subject()
    trace = xa.capture(subject, TEXT, keep=KEPT)
    names = [*of_a_trace(), "trial"]
    wanted = {name: works(subject, trace)[name]() for name in names}
    own, ready, over = subject.model(**trace.inputs).logits, Event(), Event()

    def use():
        answers = []
        while not over.is_set() or not answers:
            with torch.no_grad():
                answers.append(subject.model(**trace.inputs).logits)
            ready.set()
        return answers

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(use)
        ready.wait()
        try:
            for name in names:
                again = xa.capture(subject, TEXT, keep=KEPT)
                assert same(works(subject, again)[name](), wanted[name]), name
        finally:
            over.set()
    for answer in other.result():
        torch.testing.assert_close(answer, own)
