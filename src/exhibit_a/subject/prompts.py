"""Puts a prompt and the answer to it into one pass, as tokens.

A language model reads a prompt and goes on with an answer. Both are given to it at once: the answer
is a text of ours, or what the model generates, and each of its tokens is predicted from everything
before it. Prompt and answer are tokenised apart where tokenising them together would merge them at
the border; special tokens are added once, in front, and none between the two. A model with two
stacks reads the prompt in its encoder and the answer in its decoder, after the token that a decoder
starts with.

A conversation is a list of messages, each with a role and a content. The tokenizer's own chat
template writes it out as one text, up to where the model goes on; the tokens of every message are
found again by its words, and what the template adds counts as special. Where the model spoke last,
its message is the answer, and no part of the question.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.shapes import Inputs
from exhibit_a.subject.anatomy import ANSWERS
from exhibit_a.subject.encoding import Tokenizer, decoder_ids, decoder_limit, require_text
from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.subject import Subject

Ids = tuple[int, ...]
Characters = tuple[int, int]  # start and stop in a text


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring tokens of the input that belong together."""

    kind: Literal["text", "message", "answer"]
    name: str  # the role of a message; empty otherwise
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Question:
    """A prompt without its answer."""

    ids: Ids
    text: str | None  # as the tokenizer was given it; None where it was encoded already
    spans: tuple[Span, ...]


def with_places(tokenizer: Tokenizer, text: str) -> tuple[Ids, list[Characters]]:
    """The tokens of a text without special ones, and the characters of each."""
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return tuple(encoded["input_ids"]), list(encoded["offset_mapping"])
    ids = ids_of(tokenizer, text)
    ends = [len(tokenizer.decode(ids[:count])) for count in range(len(ids) + 1)]
    return ids, list(pairwise(ends))


def ids_of(tokenizer: Tokenizer, text: str) -> Ids:
    """The tokens of a text without special ones."""
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


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
        if not {"role", "content"} <= set(message):
            found = ", ".join(map(str, message)) or "{}"
            raise BadRequestError(f'A message has a "role" and a "content"; found {found}.')
        if not isinstance(message["role"], str):
            raise BadRequestError(f"The role of a message is a word, not {message['role']!r}.")
        require_text(message["content"])
    requested = list(messages)
    if requested[-1]["role"] == SPOKEN_BY_MODEL:
        if answer is not None or generate is not None:
            raise BadRequestError(
                f"The last message is the {SPOKEN_BY_MODEL}'s, which is an answer; give no other."
            )
        answer = requested.pop()["content"]
    if not requested:
        raise BadRequestError("There is an answer among the messages, but no question.")
    written = written_out(tokenizer, requested)
    ids, places = with_places(tokenizer, written)
    return Question(ids, written, _message_spans(requested, written, places)), answer


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


GENERATED = 64  # tokens that a model with two stacks generates for itself, at most

Texts = dict[str, tuple[str, ...]]  # by the name of the ids that were made from them


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer that a pass contains, token by token."""

    ids: Ids
    position: int  # at which the model predicts the first of them; the others follow
    text: str


@dataclass(frozen=True, eq=False)
class Prompt:
    """What the model is given, and which tokens of it are what."""

    inputs: Inputs
    spans: tuple[Span, ...] = ()
    reply: Reply | None = None
    texts: Texts = field(default_factory=dict)  # as written; of what is no text, none


def prompted(
    subject: Subject,
    text: object,
    pair: str | None = None,
    *,
    answer: str | Ids | None = None,
    generate: int | None = None,
    truncate: bool = False,
) -> Prompt:
    """The inputs for a text or conversation, with the answer that is given or generated."""
    if answer is not None and generate is not None:
        raise BadRequestError("An answer was given and is to be generated as well; choose one.")
    if answer is not None and not isinstance(answer, str):
        _require_ids(answer)
    if answer is not None and not (answer.strip() if isinstance(answer, str) else answer):
        raise BadRequestError("The answer is empty; leave it out, or let the model generate one.")
    if isinstance(answer, str):
        require_text(answer)
    if generate is not None and not (isinstance(generate, int) and generate >= 1):
        raise BadRequestError(f"{generate!r} tokens were to be generated; give 1 or more.")
    texts: Texts = {"input_ids": tuple(read for read in (text, pair) if isinstance(read, str))}
    if subject.model.config.is_encoder_decoder:
        inputs = subject.encode(text, pair, truncate=truncate)
        if isinstance(answer, str):
            texts["decoder_input_ids"] = (answer,)
        return replace(_with_decoder(subject, inputs, answer, generate), texts=texts)
    if is_conversation(text):
        require_language_model(subject, "Messages")
        prompt, answer = read_conversation(
            subject.tokenizer, cast("Sequence[Message]", text), pair, answer, generate
        )
    elif answer is None and generate is None:
        return Prompt(subject.encode(text, pair, truncate=truncate), texts=texts)
    else:
        require_language_model(subject, "An answer")
        prompt = _plain(subject, text, pair, truncate)
    if answer is not None:
        written = answer if isinstance(answer, str) else None
        return _answered(subject, prompt, _answer_ids(subject, prompt, answer), truncate, written)
    if generate is not None:
        return _answered(subject, prompt, _generated_answer(subject, prompt, generate), truncate)
    _require_length(subject, len(prompt.ids), "The conversation")
    texts = {"input_ids": () if prompt.text is None else (prompt.text,)}
    return Prompt(_inputs(subject, prompt.ids), prompt.spans, texts=texts)


def _require_ids(answer: object) -> None:
    if not isinstance(answer, Sequence) or not all(
        isinstance(number, int) and 0 <= number < 2**31 for number in answer
    ):
        raise BadRequestError(f"An answer is a text, or the ids of its tokens; {answer!r} is none.")


def is_causal_lm(subject: Subject) -> bool:
    """Whether the model goes on with the text that it is given, in one stack."""
    anatomy = subject.anatomy
    one_stack = not subject.model.config.is_encoder_decoder
    return one_stack and anatomy.answers == "tokens" and anatomy.sites[-1].causal


def require_language_model(subject: Subject, given: str) -> None:
    """Refuse what only a model that goes on with a text can be given."""
    if not is_causal_lm(subject):
        anatomy = subject.anatomy
        kind = "a token for each mask" if anatomy.answers == "tokens" else ANSWERS[anatomy.answers]
        raise BadRequestError(
            f"{given} can be given to models that go on with a text; "
            f"{type(subject.model).__name__} answers with {kind}."
        )


def _require_length(subject: Subject, count: int, what: str) -> None:
    limit = subject.anatomy.max_length
    if limit is not None and count > limit:
        raise BadRequestError(f"{what} has {count} tokens and the model takes {limit}; shorten it.")


def _plain(subject: Subject, text: object, pair: str | None, truncate: bool) -> Question:
    """A text, with special tokens in front of it only."""
    inputs = subject.encode(text, pair, truncate=truncate)
    ids = tuple(inputs["input_ids"][0].tolist())
    if not isinstance(text, str):
        return Question(ids, None, (Span("text", "", 0, len(ids)),))
    if pair is not None:
        raise BadRequestError("A pair was given with an answer; write both into one prompt.")
    bare = ids_of(subject.tokenizer, text)[: len(ids)]
    start = next((at for at in range(len(ids)) if ids[at : at + len(bare)] == bare), 0)
    stop = min(start + len(bare), len(ids))  # what the tokenizer adds after it would part the two
    return Question(ids[:stop], text, (Span("text", "", start, stop),))


def _answer_ids(subject: Subject, prompt: Question, answer: str | Ids) -> Ids:
    """The tokens of an answer: as they stand after the prompt, or by themselves.

    Some tokenizers put a blank in front of every text; after the prompt there is none.
    """
    if not isinstance(answer, str):
        return tuple(answer)
    if subject.tokenizer is None:
        raise BadRequestError("An answer needs a tokenizer: give load(..., tokenizer=...).")
    if prompt.text is not None:
        before = ids_of(subject.tokenizer, prompt.text)
        joined = ids_of(subject.tokenizer, prompt.text + answer)
        if joined[: len(before)] == before and len(joined) > len(before):
            return joined[len(before) :]
    ids = ids_of(subject.tokenizer, answer)
    if not ids:
        raise BadRequestError(f"This tokenizer finds nothing to read in the answer {answer!r}.")
    return ids


def _generated_answer(subject: Subject, prompt: Question, count: int) -> Ids:
    """What the model goes on with by itself, without the token that ends it."""
    if not subject.model.can_generate():
        raise BadRequestError(
            f"{type(subject.model).__name__} does not generate; give it an answer (target_text=)."
        )
    _require_length(subject, len(prompt.ids) + count, "The prompt with its answer")
    ids = generated(subject.model, _inputs(subject, prompt.ids), count)[0]
    answer = ids[len(prompt.ids) :].tolist()
    stated = getattr(subject.model.generation_config, "eos_token_id", None)
    ends = stated if isinstance(stated, list) else [stated]
    while answer and answer[-1] in ends:
        answer.pop()
    if not answer:
        raise BadRequestError("The model ends at once: it generates no answer to this prompt.")
    return tuple(answer)


def generated(model: PreTrainedModel, inputs: Inputs, count: int) -> Tensor:
    """What the model generates by its own settings, but always its likeliest token."""
    with torch.no_grad(), frozen_eval(model):
        generate = cast("Callable[..., Tensor]", model.generate)  # not declared for every model
        return generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=count)


def _answered(
    subject: Subject, prompt: Question, answer: Ids, truncate: bool, written: str | None = None
) -> Prompt:
    """Prompt and answer in one; a prompt that is too long loses its end, if that was allowed."""
    ids, limit = prompt.ids, subject.anatomy.max_length
    if truncate and limit is not None and prompt.spans[0].kind == "text":
        ids = ids[: max(1, limit - len(answer))]
    _require_length(subject, len(ids) + len(answer), "The prompt with its answer")
    start, stop = len(ids), len(ids) + len(answer)
    spans = [Span(s.kind, s.name, s.start, min(s.stop, start)) for s in prompt.spans]
    tokenizer = subject.tokenizer
    text = str(list(answer)) if tokenizer is None else tokenizer.decode(list(answer))
    read = () if prompt.text is None else (prompt.text, text if written is None else written)
    return Prompt(
        _inputs(subject, ids + answer),
        (*spans, Span("answer", "", start, stop)),
        Reply(answer, start - 1, text),
        {"input_ids": read},
    )


def _inputs(subject: Subject, ids: Ids) -> Inputs:
    row = torch.tensor([ids], device=subject.device)
    return {"input_ids": row, "attention_mask": torch.ones_like(row)}


def _with_decoder(
    subject: Subject, inputs: Inputs, answer: str | Ids | None, generate: int | None
) -> Prompt:
    """The inputs of both stacks: the answer is given to the decoder, or generated for it."""
    if "decoder_input_ids" in inputs:
        if answer is not None or generate is not None:
            raise BadRequestError("The inputs hold ids for the decoder; give no answer with them.")
        return Prompt(inputs)
    if answer is not None:
        ids, start = _decoder_target(subject, answer)
        reads = torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], dim=1)
    elif not subject.model.can_generate():
        shifted = decoder_ids(subject.model, inputs)
        if shifted is None or generate is not None:
            raise BadRequestError(
                f"{type(subject.model).__name__} has a decoder and does not generate; give a text "
                "for the decoder (target_text=)."
            )
        return Prompt({**inputs, "decoder_input_ids": shifted})
    else:
        limit = decoder_limit(subject.model)
        most = generate or (GENERATED if limit is None else min(GENERATED, limit))
        whole = generated(subject.model, inputs, most)
        if whole.shape[1] < 2:
            return Prompt({**inputs, "decoder_input_ids": whole})
        reads, ids = whole[:, :-1], whole[:, 1:]  # the last one is never an input
    reply = tuple(ids[0].tolist())
    return Prompt(
        {**inputs, "decoder_input_ids": reads}, (), Reply(reply, 0, _read(subject, reply))
    )


def _decoder_target(subject: Subject, answer: str | Ids) -> tuple[Tensor, int]:
    """The ids of a target text, and the token that the decoder starts with."""
    model, limit = subject.model, decoder_limit(subject.model)
    if not isinstance(answer, str):
        ids = torch.tensor([answer], device=model.device)
    elif subject.tokenizer is None:
        raise BadRequestError("A target text needs a tokenizer: give load(..., tokenizer=...).")
    else:
        tokenizer = _of_words(subject.tokenizer)
        ids = tokenizer(text_target=answer, return_tensors="pt")["input_ids"].to(model.device)
    if limit is not None and ids.shape[1] > limit:
        raise BadRequestError(
            f"The target text has {ids.shape[1]} tokens and the decoder takes {limit}; shorten it."
        )
    for config in (getattr(model, "generation_config", None), model.config):
        start: int | None = getattr(config, "decoder_start_token_id", None)
        if start is not None:
            return ids, start
    raise BadRequestError("The model does not state the token with which its decoder starts.")


def _read(subject: Subject, ids: Ids) -> str:
    """What tokens say; their numbers without a tokenizer."""
    tokenizer = _of_words(subject.tokenizer)
    if tokenizer is None or not hasattr(tokenizer, "decode"):
        return str(list(ids))
    return str(tokenizer.decode(list(ids), skip_special_tokens=True))


def _of_words(processor: Tokenizer) -> Tokenizer:
    """The tokenizer of a processor that has one besides its images or sounds."""
    return getattr(processor, "tokenizer", processor)
