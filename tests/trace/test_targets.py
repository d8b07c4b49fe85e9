"""One number of the answer, by every name it has."""

import pytest
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
    with pytest.raises(BadRequestError, match="distribution"):
        choose_target(trace, scale="probability")


@pytest.mark.parametrize(
    ("name", "asked", "word"),
    [
        ("bert", {"label": "good"}, "LABEL_2"),
        ("bert", {"label": 3}, "3"),
        ("bert", {"scale": "odds"}, "probability"),
        ("bert", {"token": "film"}, "token"),
        ("bert", {"position": 1}, "position"),
        ("llama", {"label": "LABEL_1"}, "label"),
        ("llama", {"position": 7}, "0 to 6"),
        ("llama", {"token": 80}, "0 to 79"),
        ("llama", {"token": "dull film"}, "2 tokens"),
    ],
)
def test_a_target_that_is_not_there_is_refused(name, asked, word):
    with pytest.raises(BadRequestError, match=word):
        choose_target(traced(name), **asked)


def test_hidden_states_have_no_target():
    with pytest.raises(NotComputableError, match="hidden states"):
        choose_target(capture(subject_of("clip-text"), FAMILIES["clip-text"].inputs()))
