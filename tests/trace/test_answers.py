"""From an output to classes, distributions and words: one way for every kind of model."""

from types import SimpleNamespace

import pytest
import torch
from support.subjects import opinionated, talking
from support.words import marked_tokenizer as tokenizer
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.errors import NotComputableError
from exhibit_a.examples import Example
from exhibit_a.subject.subject import load
from exhibit_a.trace.answers import (
    distribution_at,
    distributions,
    in_words,
    logits_at,
    require_distribution,
    token_name,
)
from exhibit_a.trace.batches import answers_of, encoded
from exhibit_a.trace.capture import capture


def test_every_row_is_read_at_its_own_position():
    logits = torch.arange(24.0).reshape(2, 3, 4)
    output = SimpleNamespace(logits=logits)
    assert_close(logits_at(output, 1), logits[:, 1])
    assert_close(logits_at(output, -1), logits[:, 2])
    both = torch.stack([logits[0, 2], logits[1, 0]])
    assert_close(logits_at(output, torch.tensor([2, 0])), both)
    assert_close(distribution_at(output, torch.tensor([2, 0])), both.softmax(-1))


def test_a_number_is_no_distribution():
    subject = load(FAMILIES["bert"].build(num_labels=1), tokenizer=tokenizer())
    trace = capture(subject, "w1 w2")
    number = distributions(subject, trace.output, torch.tensor([len(trace.tokens)]))
    assert_close(number, trace.output.logits)
    assert in_words(subject, trace.output, None) == {"output": float(trace.output.logits)}
    with pytest.raises(NotComputableError, match="answers with one number"):
        require_distribution(subject)


def test_words_name_every_class_and_the_likeliest_tokens():
    classifier, speaker = opinionated(), talking("gpt2")
    trace = capture(classifier, "w1 w2 w3")
    shares = trace.output.logits[0].softmax(-1).tolist()
    words = in_words(classifier, trace.output, None)
    assert words == pytest.approx(dict(zip(classifier.labels, shares, strict=True)))
    spoken = capture(speaker, "w1 w2 w3")
    chances = spoken.output.logits[0, -1].softmax(-1)
    named = in_words(speaker, spoken.output, len(spoken.tokens) - 1)
    assert list(named.values()) == pytest.approx(chances.topk(5).values.tolist())
    assert next(iter(named)) == token_name(speaker, int(chances.argmax()))


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_padded_batch_gives_the_answers_of_its_texts(name):
    subject = opinionated() if name == "bert" else talking(name)
    texts = ["w1 w2 w3 w4 w5", "w6", "w7 w8"]
    examples = [Example(text, text, None, None) for text in texts]
    together = answers_of(subject, encoded(subject, examples))
    position = None if name == "bert" else -1
    alone = [logits_at(capture(subject, text).output, position)[0] for text in texts]
    assert_close(together, torch.stack(alone), rtol=1e-4, atol=1e-5)
