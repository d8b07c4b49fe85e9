"""Messages become one prompt, whose tokens know their roles; what is no conversation is refused."""

import json

import pytest
from support.conversations import TALK, talking_subject
from support.words import plain_tokenizer
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.errors import BadRequestError
from exhibit_a.subject.prompts import read_messages


@pytest.fixture(scope="module")
def speaker():
    return talking_subject()


def test_a_conversation_keeps_its_roles(speaker):
    trace = xa.capture(speaker, TALK)
    said = {span.name or span.kind: trace.tokens[span.start : span.stop] for span in trace.spans}
    assert said == {
        "system": ("really",),
        "user": ("a", "fine", "film"),
        "answer": ("not", "the", "plot"),
    }
    added = [token for token, mark in zip(trace.tokens, trace.special, strict=True) if mark]
    assert added == ["very", ",", "very", ",", "it"]  # the template's, which no method takes away
    unanswered = xa.capture(speaker, TALK[:2])
    assert unanswered.reply is None
    assert unanswered.tokens == trace.tokens[:-3]
    assert_close(unanswered.output.logits, trace.output.logits[:, :-3])


@pytest.mark.parametrize(
    ("talk", "options", "message"),
    [
        (TALK, {"target_text": "fine"}, "give no other"),
        (TALK[-1:], {}, "no question"),
        (TALK[:2], {"pair": "fine"}, "A pair was given"),
        ([{"role": "user"}], {}, 'a "role" and a "content"'),
        ([{"role": "user", "content": 3}], {}, "Text was expected, int"),
        ([{"role": "pirate", "content": "a"}], {}, "no pirates"),
    ],
)
def test_what_is_no_conversation_is_said(speaker, talk, options, message):
    with pytest.raises(BadRequestError, match=message):
        xa.capture(speaker, talk, **options)


def test_no_template_no_messages(speaker):
    plain = xa.load(speaker.model, tokenizer=plain_tokenizer())
    with pytest.raises(BadRequestError, match="no chat template"):
        xa.capture(plain, TALK)
    with pytest.raises(BadRequestError, match="go on with a text"):
        xa.capture(xa.load(), TALK)


def test_messages_are_read_from_a_file(tmp_path):
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(TALK))
    assert read_messages(file) == TALK


@pytest.mark.parametrize("written", ["[{", "[]", '"a fine film"', "[1]", "[" * 100_000])
def test_a_file_without_messages_is_refused_in_one_line(tmp_path, written):
    file = tmp_path / "talk.json"
    file.write_text(written)
    with pytest.raises(BadRequestError, match=r"^'.*talk\.json' holds no messages: .*$"):
        read_messages(file)


def test_a_template_that_rewrites_what_was_said_is_refused(speaker):
    tokenizer = plain_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] | upper }} {% endfor %}"
    loud = xa.load(speaker.model, tokenizer=tokenizer)
    with pytest.raises(BadRequestError, match="rewrites what the user says"):
        xa.capture(loud, [{"role": "user", "content": "a fine film"}])
