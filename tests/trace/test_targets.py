"""One number of the answer, by every name it has."""

import pytest
import torch
import transformers as hf
from support.subjects import subject_of
from support.words import tokenizer
from support.zoo import ENCODER, FAMILIES
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.trace.targets import choose_target


def traced(name, **options):
    subject = load(FAMILIES[name].build(**options), tokenizer=tokenizer())
    return capture(subject, FAMILIES[name].inputs())


def test_the_predicted_class_is_the_default():
    trace = traced("bert")
    target = choose_target(trace)
    shares = trace.output.logits.softmax(-1)[0]
    assert target.index == int(shares.argmax())
    assert_close(target(trace.output)[0], shares.max())
    assert str(target) == f"probability of LABEL_{target.index}"


@pytest.mark.parametrize("label", ["LABEL_2", 2, "2"])
def test_a_class_by_name_or_number(label):
    trace = traced("bert")
    target = choose_target(trace, label=label, scale="logit")
    assert_close(target(trace.output), trace.output.logits[:, 2])


def test_the_next_token_is_the_default_of_a_language_model():
    trace = traced("llama")
    target = choose_target(trace)
    last = trace.output.logits[0, -1]
    assert (target.position, target.index) == (6, int(last.argmax()))
    assert_close(target(trace.output)[0], last.log_softmax(-1).max())


def test_a_padded_text_is_asked_at_its_last_real_token():
    inputs = FAMILIES["llama"].inputs()
    inputs = {name: torch.nn.functional.pad(part, (0, 2)) for name, part in inputs.items()}
    trace = capture(subject_of("llama"), inputs)
    assert choose_target(trace).position == 6


def test_the_log_probability_of_a_token_at_a_position():
    trace = traced("llama")
    target = choose_target(trace, token="film", position=2, scale="log_probability")
    assert_close(target(trace.output)[0], trace.output.logits[0, 2].log_softmax(-1)[target.index])
    assert target.name == "'film'"


def test_a_regression_is_its_output():
    trace = traced("bert", num_labels=1)
    target = choose_target(trace)
    assert_close(target(trace.output), trace.output.logits[:, 0])


def test_the_decoder_is_asked_where_there_are_two_stacks():
    trace = traced("bart")
    assert choose_target(trace).position == 4


def test_mistakes_list_what_there_is():
    classifier, speaker = traced("bert"), traced("llama")
    with pytest.raises(BadRequestError, match="0 LABEL_0, 1 LABEL_1, 2 LABEL_2"):
        choose_target(classifier, label="good")
    with pytest.raises(BadRequestError, match="no label 3"):
        choose_target(classifier, label=3)
    with pytest.raises(BadRequestError, match="probability, logit"):
        choose_target(classifier, scale="odds")
    with pytest.raises(BadRequestError, match="0 to 6"):
        choose_target(speaker, position=7)
    with pytest.raises(BadRequestError, match="0 to 79"):
        choose_target(speaker, token=80)
    with pytest.raises(BadRequestError, match="2 tokens"):
        choose_target(speaker, token="dull film")
    with pytest.raises(NotComputableError, match="hidden states only"):
        choose_target(capture(subject_of("clip-text"), FAMILIES["clip-text"].inputs()))


@pytest.fixture(scope="module")
def tagged():
    model = hf.BertForTokenClassification(hf.BertConfig(**ENCODER)).eval()
    return capture(load(model, tokenizer=tokenizer()), "a fine film")


def test_a_tagger_answers_with_classes_at_a_position(tagged):
    target = choose_target(tagged, position=2)
    shares = tagged.output.logits[0, 2].softmax(-1)
    assert str(target) == f"probability of LABEL_{int(shares.argmax())} at position 2"
    assert_close(target(tagged.output)[0], shares.max())
    named = choose_target(tagged, label="LABEL_1", position=-1, scale="logit")
    assert_close(named(tagged.output), tagged.output.logits[:, -1, 1])
    with pytest.raises(BadRequestError, match="say which position"):
        choose_target(tagged)


@pytest.mark.parametrize("kind", ["multi_label_classification", "regression"])
def test_outputs_that_are_no_distribution_have_no_probability(kind):
    trace = traced("bert", problem_type=kind)
    target = choose_target(trace, label="LABEL_1")
    assert_close(target(trace.output), trace.output.logits[:, 1])
    with pytest.raises(BadRequestError, match="several numbers that are no distribution"):
        choose_target(trace, scale="probability")


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("bert", {"token": "film"}),
        ("bert", {"position": 1}),
        ("llama", {"label": "LABEL_1"}),
    ],
)
def test_what_would_be_ignored_is_refused(name, asked):
    with pytest.raises(BadRequestError, match="what can be chosen"):
        choose_target(traced(name), **asked)
