"""Makes one prompt of a question and its passages, and finds the tokens of each sentence.

The passages are written one after the other, a blank line between them, in front of the question:
as one message through the tokenizer's chat template where it has one, else as a plain text. A
prompt without some of the passages is written in the same way, as if they had never been there, so
that a passage is left out whole and nothing else changes.

Where a passage or a sentence stands is known by counting characters while the prompt is written; a
token belongs to the sentence in which its first character that is no space stands.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from exhibit_a.errors import BadRequestError
from exhibit_a.subject.encoding import require_text
from exhibit_a.subject.prompts import Ids, prompted, with_places, written_out
from exhibit_a.subject.subject import Subject

PASSAGES, QUESTION = "{passages}", "{question}"
PLAIN = "{passages}\n\nQuestion: {question}\nAnswer:"
IN_CHAT = "{passages}\n\n{question}"
BETWEEN = "\n\n"  # passages

_SENTENCE = re.compile(r"\S.*?(?:[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”]*|$)", re.DOTALL)

Characters = tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """One sentence of one passage, and where it stands in the written prompt."""

    passage: int
    text: str
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class ContextPrompt:
    """A question with passages in front of it, written with all of them or with some."""

    subject: Subject
    question: str
    passages: tuple[str, ...]
    template: str

    def written(self, kept: Iterable[int]) -> str | list[dict[str, str]]:
        """The question and some of the passages: a text, or the one message of a chat."""
        content = self._content(kept)
        return [{"role": "user", "content": content}] if self.in_chat else content

    def ids(self, kept: Iterable[int]) -> Ids:
        """The tokens of the prompt with some of the passages; what may follow it is not there."""
        encoded = prompted(self.subject, self.written(kept)).inputs["input_ids"][0].tolist()
        return tuple(encoded[: len(encoded) - self._closing])

    @property
    def in_chat(self) -> bool:
        """Whether the prompt is a message, written out by a chat template."""
        return getattr(self.subject.tokenizer, "chat_template", None) is not None

    @cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """The sentences of all passages, where they stand when all are written."""
        start, _ = self._around()
        place, sentences = len(start), []
        for number, passage in enumerate(self.passages):
            for low, high in sentence_spans(passage):
                sentences.append(Sentence(number, passage[low:high], place + low, place + high))
            place += len(passage) + len(BETWEEN)
        return tuple(sentences)

    @cached_property
    def sentence_of_token(self) -> tuple[int | None, ...]:
        """The sentence that each of the tokens of the whole prompt belongs to, if to any."""
        ids = self.ids(range(len(self.passages)))
        content = self._content(range(len(self.passages)))
        tokenizer = self.subject.tokenizer
        text = content
        if self.in_chat:
            text = written_out(tokenizer, [{"role": "user", "content": content}])
        before = text.index(content)  # a template that rewrites what is said was refused already
        tokens, places = with_places(tokenizer, text)
        first = next((at for at in range(len(ids)) if ids[at : at + len(tokens)] == tokens), None)
        if first is None:
            raise BadRequestError(
                "This tokenizer reads the prompt in another way than the model is given it, so the "
                "tokens of a passage cannot be found."
            )
        starts = [sentence.start for sentence in self.sentences]
        belongs: list[int | None] = [None] * len(ids)
        for token, (low, high) in enumerate(places, first):
            piece = text[low:high]
            spaces = len(piece) - len(piece.lstrip()) if piece.strip() else 0
            begin = low + spaces - before
            number = bisect_right(starts, begin) - 1
            if number >= 0 and begin < self.sentences[number].stop:
                belongs[token] = number
        return tuple(belongs)

    @cached_property
    def _closing(self) -> int:
        """How many tokens the tokenizer puts after a text; an answer stands in their place."""
        if self.in_chat:
            return 0
        tokenizer = self.subject.tokenizer
        bare, closed = with_places(tokenizer, "a")[0], tuple(tokenizer("a")["input_ids"])
        starts = [at for at in range(len(closed)) if closed[at : at + len(bare)] == bare]
        return len(closed) - starts[0] - len(bare) if starts else 0

    def _content(self, kept: Iterable[int]) -> str:
        """The prompt before any chat template, with some of the passages."""
        start, end = self._around()
        written = BETWEEN.join(self.passages[number] for number in kept)
        return start + written + end if written else (start + end).lstrip()

    def _around(self) -> tuple[str, str]:
        """What stands before the passages and after them."""
        before, _, after = self.template.partition(PASSAGES)
        return before.replace(QUESTION, self.question), after.replace(QUESTION, self.question)


def context_prompt(
    subject: Subject, question: str, passages: Iterable[str], template: str | None
) -> ContextPrompt:
    """A question and its passages, checked."""
    if isinstance(passages, str) or not isinstance(passages, Iterable):
        given = "One text" if isinstance(passages, str) else repr(passages)
        raise BadRequestError(f"{given} was given where a list of passages was expected.")
    require_text(question)
    texts = []
    for passage in passages:
        require_text(passage)
        texts.append(passage.strip())
    if len(texts) < 2:
        raise BadRequestError(
            f"{len(texts)} passages were given; with fewer than two there is nothing to compare."
        )
    chat = getattr(subject.tokenizer, "chat_template", None) is not None
    written = (IN_CHAT if chat else PLAIN) if template is None else template
    if written.count(PASSAGES) != 1 or written.count(QUESTION) != 1:
        raise BadRequestError(
            f"A template names {PASSAGES} and {QUESTION} once each; {written!r} does not."
        )
    return ContextPrompt(
        subject, question.strip(), tuple(texts), written.strip() if chat else written
    )


def sentence_spans(text: str) -> list[Characters]:
    """Where the sentences of a text are, without the spaces between them.

    >>> text = "A cat sat. It slept! 3.5 kg"
    >>> [text[start:stop] for start, stop in sentence_spans(text)]
    ['A cat sat.', 'It slept!', '3.5 kg']
    >>> sentence_spans("no end")
    [(0, 6)]
    """
    return [match.span() for match in _SENTENCE.finditer(text.rstrip())]
