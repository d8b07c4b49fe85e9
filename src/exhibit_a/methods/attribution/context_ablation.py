"""Writes prompts with some of the passages, and scores the answer after each of them.

**Prompts.** The passages are written one after the other, a blank line between them, in front of
the question: as one message through the tokenizer's chat template where it has one, else as a plain
text. A prompt without some of the passages is written in the same way, as if they had never been
there, so that a passage is left out whole and nothing else changes. Where a passage or a sentence
stands is known by counting characters while the prompt is written; a token belongs to the sentence
in which its first character that is no space stands.

**Ablations.** The only truth there is about a passage: leave it out and read the answer's
log-probability again.

leave one out    what the answer loses without each passage alone. Two passages that say the same
                 stand in for each other, and neither seems to matter.
regression       the answer with random halves of the passages, and a sparse linear model of what
                 each of them adds (ContextCite: Lasso over random subsets; Cohen-Wang et al.,
                 2024). It sees passages that stand in for each other. Where there are no more
                 subsets than samples, all of them are evaluated.

The tokens of the answer are the same in every prompt. Prompts of similar length share a batch,
padded on the right, which a left-to-right model does not see.
"""

import inspect
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.extras import extra
from exhibit_a.numerics.correlation import spearman
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Progress, tell
from exhibit_a.shapes import Inputs
from exhibit_a.subject.encoding import require_text
from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.prompts import Ids, prompted, with_places, written_out
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.batches import lengths_of, padded_groups
from exhibit_a.trace.passes import require_finite
from exhibit_a.trace.targets import Target

PASSAGES, QUESTION = "{passages}", "{question}"
PLAIN = "{passages}\n\nQuestion: {question}\nAnswer:"
IN_CHAT = "{passages}\n\n{question}"
BETWEEN = "\n\n"  # passages

_SENTENCE = re.compile(r"\S.*?(?:[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”]*|$)", re.DOTALL)

Characters = tuple[int, int]

Subsets = Bool[Tensor, "sample passage"]
Values = Float[Tensor, " sample"]
PassageScores = Float[Tensor, " passage"]

PENALTY = 0.01  # of the Lasso, as in ContextCite, on passages of unit spread, per answer token
FOLDS = 5  # in which the linear model predicts what it was not fitted to


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
        before = text.index(content)  # a template that rewrites the words was refused already
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


@dataclass(eq=False)
class Ablations:
    """The answer with any of the passages; what was evaluated once is remembered."""

    prompt: ContextPrompt
    target: Target  # the log-probability of the answer
    passes: int = 0  # forward passes so far, one for each prompt
    known: dict[tuple[bool, ...], float] = field(default_factory=dict)

    def __call__(self, kept: Subsets, progress: Progress | None = None) -> Values:
        """The log-probability of the answer with some of the passages, for every row."""
        requested = list(dict.fromkeys(tuple(row) for row in kept.tolist()))
        new = [row for row in requested if row not in self.known]
        inputs = [self._inputs(row) for row in new]
        done = 0
        subject = self.prompt.subject
        with torch.no_grad(), frozen_eval(subject.model):
            for group, together in padded_groups(subject, inputs):
                values = self._log_probabilities([inputs[place] for place in group], together)
                self.known |= {
                    new[place]: value for place, value in zip(group, values, strict=True)
                }
                done += len(group)
                tell(progress, done, len(new))
        self.passes += len(new)
        return torch.tensor([self.known[tuple(row)] for row in kept.tolist()])

    def _inputs(self, kept: tuple[bool, ...]) -> Inputs:
        places = [number for number, stays in enumerate(kept) if stays]
        ids = self.prompt.ids(places) + self.target.indices
        row = torch.tensor([ids], device=self.prompt.subject.device)
        return {"input_ids": row, "attention_mask": torch.ones_like(row)}

    def _log_probabilities(self, rows: Sequence[Inputs], together: Inputs) -> list[float]:
        model, count = self.prompt.subject.model, len(self.target.indices)
        starts = lengths_of(rows) - count - 1  # where the first token of the answer is predicted
        given, dropped = without_cache(model, together), 0
        if "logits_to_keep" in inspect.signature(model.forward).parameters:
            dropped = int(starts.min())
            given = {**given, "logits_to_keep": int(together["input_ids"].shape[1]) - dropped}
        output = model(**given)
        require_finite(output)
        return to_float64(self.target(output, starts - dropped)).tolist()


def all_but_one(count: int) -> Subsets:
    """Every passage left out alone.

    >>> all_but_one(2)
    tensor([[False,  True],
            [ True, False]])
    """
    return ~torch.eye(count, dtype=torch.bool)


def random_halves(count: int, samples: int, seed: int) -> Subsets:
    """Random subsets, each passage kept with probability ½; all there are, if they are few.

    >>> random_halves(2, 8, seed=0).int().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> tuple(random_halves(12, 8, seed=0).shape)
    (8, 12)
    """
    if 2**count <= samples:
        numbers = torch.arange(2**count).unsqueeze(1)
        return (numbers >> torch.arange(count)) % 2 == 1
    return torch.rand(samples, count, generator=generator(seed)) < 0.5


def lasso(kept: Subsets, values: Values, tokens: int) -> tuple[PassageScores, float]:
    """What each passage adds, by a sparse linear model, and how well it predicts.

    The second number is the rank correlation of the values with predictions of models that were
    fitted without them.
    """
    places = np.arange(len(values))
    scores = _fitted(kept, values, tokens)[0]
    predicted = torch.zeros_like(values)
    for fold in range(FOLDS):
        held_out = torch.from_numpy(places % FOLDS == fold)
        if not bool(held_out.any()) or int((~held_out).sum()) < 2:
            return scores, float("nan")
        weights, constant = _fitted(kept[~held_out], values[~held_out], tokens)
        predicted[held_out] = kept[held_out].to(weights) @ weights + constant
    everywhere = torch.ones(len(values), dtype=torch.bool)
    return scores, float(spearman(predicted, values, everywhere))


def predicts(scores: PassageScores, kept: Subsets, values: Values) -> float:
    """Rank correlation of the answers with what the scores of the passages kept add up to."""
    everywhere = torch.ones(len(values), dtype=torch.bool)
    return float(spearman(kept.to(scores) @ scores, values.to(scores), everywhere))


def _fitted(kept: Subsets, values: Values, tokens: int) -> tuple[PassageScores, float]:
    linear = extra("sklearn.linear_model")
    presence = to_float64(kept).numpy()
    centre, spread = presence.mean(0), presence.std(0)
    spread[spread == 0] = 1.0  # a passage that was always there, or never, gets no weight
    model = linear.Lasso(alpha=PENALTY, max_iter=10_000)
    model.fit((presence - centre) / spread, to_float64(values).numpy() / tokens)
    weights = model.coef_ / spread * tokens
    constant = float(model.intercept_) * tokens - float(centre @ weights)
    return torch.from_numpy(weights).float(), constant
