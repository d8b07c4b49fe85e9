"""Turns a conversation into a prompt, and finds the tokens of each message.

A conversation is a list of messages, each with a role and a content. The tokenizer's own chat
template writes it out as one text, up to where the model goes on; the tokens of every message are
found again by its words, and what the template adds counts as special. Where the model spoke last,
its message is the answer, and no part of the question.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.subject.encoding import Tokenizer, require_text
from exhibit_a.subject.spans import Characters, Ids, Question, Span, with_places

LONGEST_CONVERSATION = 10_000_000  # bytes of a file, more than any model reads
SPOKEN_BY_MODEL = "assistant"  # the role whose last message is the answer

Message = Mapping[str, Any]


def read_messages(file: Path) -> list[Message]:
    """The messages of a JSON file: a list of {"role": …, "content": …}."""
    try:
        if not file.is_file():  # a pipe would have to be waited for
            found = "it is a folder; name a JSON file" if file.is_dir() else "there is no such file"
            raise OSError(found)
        if file.stat().st_size > LONGEST_CONVERSATION:
            raise OSError(f"it has more than {LONGEST_CONVERSATION:,} bytes")
        messages = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise BadRequestError(
            f"{str(file)!r} holds no messages: {first_line(problem)}"
        ) from problem
    if not is_conversation(messages):
        raise BadRequestError(
            f'{str(file)!r} holds no messages: a list of {{"role": …, "content": …}} was expected.'
        )
    checked: list[Message] = messages
    return checked


def is_conversation(text: object) -> bool:
    """Whether messages were given, and not a text, an image or encoded inputs."""
    return (
        isinstance(text, list | tuple)
        and bool(text)
        and all(isinstance(message, Mapping) for message in text)
    )


def read_conversation(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    pair: str | None,
    answer: str | Ids | None,
    generate: int | None,
) -> tuple[Question, str | Ids | None]:
    """Messages as one prompt, and the answer: the last of them, where the model speaks it."""
    if pair is not None:
        raise BadRequestError("A pair was given with messages; write it into one of them.")
    for message in messages:
        _require_message(message)
    asked = list(messages)
    if asked[-1]["role"] == SPOKEN_BY_MODEL:
        if answer is not None or generate is not None:
            raise BadRequestError(
                f"The last message is the {SPOKEN_BY_MODEL}'s, which is an answer; give no other."
            )
        answer = asked.pop()["content"]
    if not asked:
        raise BadRequestError("There is an answer among the messages, but nothing that was asked.")
    written = written_out(tokenizer, asked)
    ids, places = with_places(tokenizer, written)
    return Question(ids, written, _message_spans(asked, written, places)), answer


def written_out(tokenizer: Tokenizer, messages: list[Message]) -> str:
    """The conversation as the tokenizer's template writes it, up to where the model goes on."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise BadRequestError(
            "Messages were given, but this tokenizer has no chat template; give one text."
        )
    try:
        written: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
    except Exception as problem:  # a template is code of its own, and can fail in any way
        raise BadRequestError(
            f"The chat template does not take these messages: {first_line(problem)}"
        ) from problem
    return written


def _require_message(message: Message) -> None:
    if not {"role", "content"} <= set(message):
        raise BadRequestError(
            f'A message has a "role" and a "content"; found {", ".join(map(str, message)) or "{}"}.'
        )
    if not isinstance(message["role"], str):
        raise BadRequestError(f"The role of a message is a word, not {message['role']!r}.")
    require_text(message["content"])


def _message_spans(
    messages: Sequence[Message], written: str, places: Sequence[Characters]
) -> tuple[Span, ...]:
    """The tokens of every message, found by its words; a template may trim or rewrite them."""
    spans, reached = [], 0
    for message in messages:
        content = message["content"].strip()
        start = written.find(content, reached)
        if start < 0:
            raise BadRequestError(
                f"The chat template rewrites what the {message['role']} says, so its tokens cannot "
                "be found again; write the conversation out as one text."
            )
        reached = start + len(content)
        inside = [
            token for token, (low, high) in enumerate(places) if low < reached and high > start
        ]
        spans.append(Span("message", message["role"], inside[0], inside[-1] + 1))
    return tuple(spans)
