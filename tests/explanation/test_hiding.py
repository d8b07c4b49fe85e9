"""Hiding a token: no position may look at it, and nothing else changes."""

import pytest
import torch
from support.passes import counting
from support.subjects import opinionated, precise, subject_of
from support.words import marked_tokenizer
from support.zoo import FAMILIES, GPT, Family
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.errors import NotComputableError
from exhibit_a.methods.explanation.erased_texts import ErasedTexts
from exhibit_a.methods.explanation.erasure import erased, readout_position, removable
from exhibit_a.subject.guard import floating, frozen_eval, without_cache
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.trace.edits import Edit

REFUSED = {"bloom", "mobilebert"}  # positions along the mask; neighbours in the embeddings
TEXT = [
    name for name, family in FAMILIES.items() if family.eats in ("text", "two texts")
]  # alone, or from a decoder
HIDDEN = torch.tensor([False, False, True, True, False, True, False])


def answer_of(subject, inputs, tap=None):
    """The model's answer, at the places that are not hidden."""
    with torch.no_grad(), frozen_eval(subject.model):
        given = without_cache(subject.model, dict(inputs))
        if tap is None:
            logits = floating(subject.model(**given))[0]
        else:
            with subject.tapping(tap):
                logits = floating(subject.model(**given))[0]
    along = logits.ndim == 3 and logits.shape[1] == len(HIDDEN)
    return logits[:, ~HIDDEN] if along else logits


def hidden(trace, removed=HIDDEN):
    return erased(trace.subject, trace.inputs, removed, "hide")


class WithoutKeys(Edit):
    """Every softmax over the text without some keys, from the weights with them."""

    def weighting(self, call):
        if call.probs.shape[-1] != len(HIDDEN):
            return None
        rest = 1 - call.probs.sum(-1, keepdim=True)  # of a row that may look at nothing
        rest = rest.where(rest > 1e-5, 0)
        kept = torch.cat([call.probs.masked_fill(HIDDEN, 0), rest], -1).log()
        return kept.softmax(-1)[..., :-1].nan_to_num(0)


@pytest.mark.parametrize("name", [name for name in TEXT if name not in REFUSED])
def test_hiding_takes_keys_out_of_every_softmax(name):
    single = name in ("gpt-oss", "gpt2-upcast")  # parts of them know no float64
    trace = capture(subject_of(name), FAMILIES[name].inputs()) if single else precise(name)
    if not any(site.kind == "self" for site in trace.sites):
        pytest.skip("its words reach each other through states")
    sites = range(len(trace.sites))
    expected = answer_of(trace.subject, trace.inputs, WithoutKeys(sites))
    assert_close(answer_of(trace.subject, hidden(trace)), expected, rtol=1e-4, atol=1e-6)
    assert (expected - answer_of(trace.subject, trace.inputs)).abs().amax() > 1e-4


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "name", ["bert", "roberta", "distilbert", "gpt2", "llama", "opt", "t5", "mistral"]
)
def test_hiding_is_an_additive_mask_at_the_columns_of_the_words(name, kernel):
    subject = load(FAMILIES[name].build(attn_implementation=kernel if name != "t5" else "eager"))
    trace = capture(subject, FAMILIES[name].inputs())
    visible = trace.visible[0][:1] if name == "t5" else trace.visible[0]
    low = torch.finfo(torch.float32).min
    mask = torch.zeros(visible.shape).masked_fill(~visible | HIDDEN, low)[None, None]
    given = dict(trace.inputs) | {"attention_mask": mask}
    if name == "opt":
        given["position_ids"] = torch.arange(len(HIDDEN))[None]
    assert_close(answer_of(subject, hidden(trace)), answer_of(subject, given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in TEXT if name not in REFUSED])
def test_what_stands_in_a_hidden_place_changes_nothing(name):
    trace = capture(subject_of(name), FAMILIES[name].inputs())
    ids = trace.inputs["input_ids"]
    other = ids.where(~HIDDEN, ids.flip(1))
    inputs = hidden(trace)
    assert not torch.equal(ids, other)
    # A mixture of experts adds up in another order.
    assert_close(
        answer_of(trace.subject, inputs | {"input_ids": other}),
        answer_of(trace.subject, inputs),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_models_from_which_nothing_can_be_hidden_say_what_to_do(name):
    trace = capture(subject_of(name), FAMILIES[name].inputs())
    with pytest.raises(NotComputableError, match='erase="delete"'):
        xa.companions(trace, methods=["occlusion"])
    assert xa.companions(trace, methods=["occlusion"], erase="delete")["occlusion"].scores.any()
    assert "hidden" in xa.companions(trace, samples=8)["raw"].checks["left out"]["occlusion"]


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_hidden_from_as_its_weights_in_float32_are(name, dtype):
    half = load(FAMILIES[name].build().to(dtype))
    whole = load(FAMILIES[name].build().to(dtype).float())
    answers = [
        answer_of(subject, hidden(capture(subject, FAMILIES[name].inputs())))
        for subject in (half, whole)
    ]
    assert_close(*answers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_a_whole_window_can_be_hidden(kernel):
    subject = load(FAMILIES["mistral"].build(attn_implementation=kernel))
    trace = capture(subject, FAMILIES["mistral"].inputs())
    removed = torch.tensor([False, True, True, True, True, False, False])
    last = answer_of(subject, hidden(trace, removed))[:, -1]
    ids = trace.inputs["input_ids"]
    window = {"input_ids": ids[:, -2:], "position_ids": torch.tensor([[5, 6]])}
    assert_close(last, answer_of(subject, window)[:, -1], rtol=1e-4, atol=1e-5)


def test_the_sink_and_the_token_that_answers_stay():
    trace = capture(subject_of("llama"), FAMILIES["llama"].inputs())
    assert removable(trace).tolist() == [False, *[True] * 5, False]
    answer = capture(subject_of("llama"), FAMILIES["llama"].inputs(), target_text=(9, 11))
    assert removable(answer).tolist() == [False, *[True] * 5, False, False, False]
    with_pad = Family("GPT2ForSequenceClassification", GPT | {"num_labels": 3, "pad_token_id": 0})
    classifier = load(with_pad.build())
    text = {"input_ids": torch.tensor([[5, 6, 7, 8, 9, 0, 0]])}
    text["attention_mask"] = (text["input_ids"] != 0).long()
    assert removable(capture(classifier, text)).tolist() == [False, True, True, True, *[False] * 3]
    encoder = capture(subject_of("bert"), FAMILIES["bert"].inputs())
    assert removable(encoder).tolist() == [*[True] * 6, False]


def test_hiding_does_not_move_the_position_that_is_read():
    trace = capture(subject_of("gpt2"), FAMILIES["gpt2"].inputs())
    target = xa.choose_target(trace, position=4)
    assert removable(trace, target).tolist() == [False, True, True, True, False, True, False]
    place = readout_position(trace, target, "hide")
    assert place(torch.tensor([7, 7])).tolist() == [4, 4]
    with pytest.raises(NotComputableError, match="move the position"):
        readout_position(trace, target, "delete")
    found = xa.companions(trace, methods=["occlusion"], target=target)["occlusion"]
    assert found.scores[:4].any()
    assert found.scores[4:].abs().amax() < 1e-5  # what stands behind is not seen


def test_hidden_texts_are_of_one_length_and_equal_sets_run_once():
    subject = opinionated()
    trace = capture(load(subject.model, tokenizer=marked_tokenizer()), "w1 w2 w3 w4 w5 w6")
    assert not trace.subject.hiding.obstacle  # found out once, in passes of its own
    places = [(place,) for place in range(1, 7)]
    texts = ErasedTexts(trace, xa.choose_target(trace), places)
    sets = [frozenset(words) for words in ((0,), (1,), (1, 2), (2, 1), (0,), (0, 1, 2, 3, 4))]
    modules = [subject.model.get_submodule(layer.module) for layer in subject.anatomy.layers]
    with counting(modules) as rows:
        texts.without(sets)
        texts.without(sets)
    assert texts.passes == 4
    assert rows == [4] * len(modules)  # one batch, without padding


def test_heat_maps_are_judged_by_the_way_that_is_named():
    trace = capture(opinionated(), "w1 w2 w3 w4 w5 w6 w7 w8")
    judged = {way: xa.heat_maps(trace, methods=["raw"], erase=way) for way in ("hide", "delete")}
    for way, result in judged.items():
        target = xa.choose_target(trace)
        first = torch.zeros(len(trace.tokens), dtype=torch.bool)
        first[1 + result["raw"].ranking[0]] = True
        without = answer_of(trace.subject, erased(trace.subject, trace.inputs, first, way))
        probability = without.softmax(-1)[0, target.index]
        assert_close(float(result.probabilities[0, 0]), float(probability), rtol=1e-4, atol=1e-5)
        assert result.erase == result.checks["words are taken away by"] == way
    assert xa.heat_maps(trace, methods=["raw"]).erase == "hide"
