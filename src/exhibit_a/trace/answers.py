"""What the model answers: as classes, as a distribution, in words; and whether it is right.

A classifier gives one row of logits for each text, a language model one at every position. Here is
the one way from any of these to a distribution, to right or wrong, and to names with their shares.

The right answer is a class, or tokens at neighbouring positions: what a language model is to say,
each token predicted from everything before it. Rows have answers of different lengths, at positions
of their own. A row is *right* if the model's likeliest answer is the right one, at every position:
what it would answer by itself, taking its likeliest token each time. Its *loss* is −log p of the
whole answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.examples import Example
from exhibit_a.examples.labels import classes_of
from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.shapes import HasLogits, Options, Scores
from exhibit_a.subject.anatomy import ANSWERS
from exhibit_a.subject.prompts import Prompt, Reply, is_causal_lm, prompted
from exhibit_a.subject.subject import Subject

LIKELIEST = 5  # tokens of an answer that is a token
NUMBERS = ("value", "outputs")  # kinds of answers that are no distribution

Logits = Float[Tensor, "row answer"]
LogitRows = Float[Tensor, "row place answer"]
Positions = Int[Tensor, " row"] | int | None


def logits_at(output: HasLogits, position: Positions = None) -> Logits:
    """The logits of every row, at a position of its own where the model answers at every token."""
    logits = output.logits
    if logits.ndim == 2 or position is None:
        return logits
    if isinstance(position, int):
        return logits[:, position]
    return logits[torch.arange(len(logits)), position.to(logits.device)]


def logits_along(output: HasLogits, position: Positions, count: int) -> LogitRows:
    """The logits of every row at ``count`` neighbouring positions, the first of them given."""
    if count == 1 or output.logits.ndim == 2:
        return logits_at(output, position).unsqueeze(1)
    logits = output.logits
    if isinstance(position, int):
        return logits[:, position : position + count]
    assert position is not None  # a model that answers at every token has a position
    rows = torch.arange(len(logits)).unsqueeze(1)
    return logits[rows, position.to(logits.device).unsqueeze(1) + torch.arange(count)]


def distribution_at(output: HasLogits, position: Positions = None) -> Logits:
    """The distribution over classes, or over the token after a position."""
    return torch.softmax(logits_at(output, position).float(), -1)


def distributions(subject: Subject, output: HasLogits, lengths: Int[Tensor, " row"]) -> Logits:
    """What the model answers: over the classes, or over the token after the last one.

    A model that answers with a number has no distribution; its number is given as it is.
    """
    logits = logits_at(output, lengths - 1).float()
    return logits if subject.anatomy.answers in NUMBERS else torch.softmax(logits, -1)


def require_distribution(subject: Subject) -> None:
    """Refuse models whose answer to a text is not one distribution."""
    answers = subject.anatomy.answers
    if answers == "classes" or (answers == "tokens" and subject.anatomy.stacks == ("decoder",)):
        return
    raise NotComputableError(
        f"{type(subject.model).__name__} answers with {ANSWERS[answers]}; over a data set only "
        "classifiers and left-to-right language models give one distribution for each text."
    )


def right_and_loss(
    logits: Logits, gold: Int[Tensor, " row"]
) -> tuple[Float[Tensor, " row"], Float[Tensor, " row"]]:
    """Whether each row is right (1 or 0), and its loss."""
    logits = logits.float()
    loss = torch.nn.functional.cross_entropy(logits, gold, reduction="none")
    return (logits.argmax(-1) == gold).float(), loss


def in_words(subject: Subject, output: HasLogits, position: int | None) -> dict[str, float]:
    """The answer to one text, at a position: each label or the likeliest tokens, with its share."""
    answers = subject.anatomy.answers
    logits = logits_at(output, position)[0].float()
    if answers == "value":
        return {"output": float(logits[0])}
    shares = logits if answers == "outputs" else torch.softmax(logits, -1)
    if answers != "tokens":
        return dict(zip(subject.labels, shares.tolist(), strict=True))
    named: dict[str, float] = {}
    for index in shares.topk(min(LIKELIEST, len(shares))).indices.tolist():
        name = token_name(subject, index)
        named[name if name not in named else f"{name} ({index})"] = float(shares[index])
    return named


def token_name(subject: Subject, index: int) -> str:
    """What a token id says, as it would be written in Python; its number without a tokenizer."""
    tokenizer = subject.tokenizer
    return str(index) if tokenizer is None else repr(tokenizer.decode([index]))


NOTHING = -1  # in the place of a token, beyond the end of a shorter answer

Rows = Int[Tensor, " row"]


@dataclass(frozen=True, eq=False)
class Gold:
    """The right answers to the rows of a batch."""

    tokens: Int[Tensor, "row place"]  # or the class of each row
    starts: Rows | None = None  # the positions where answers begin; None for classes

    @property
    def marks(self) -> Bool[Tensor, "row place"]:
        """Which places belong to the answer of their row."""
        return self.tokens != NOTHING

    def rows(self, index: Rows) -> "Gold":
        """The answers to some rows, in the order requested."""
        starts = None if self.starts is None else self.starts[index.to(self.starts.device)]
        return replace(self, tokens=self.tokens[index.to(self.tokens.device)], starts=starts)

    def logits(self, output: HasLogits) -> LogitRows:
        """The logits at every place of every row; beyond the end of an answer, any."""
        if self.starts is None:
            return logits_at(output).unsqueeze(1)
        logits = output.logits
        places = self.starts.to(logits.device).unsqueeze(1) + torch.arange(
            self.tokens.shape[1], device=logits.device
        )
        rows = torch.arange(len(logits), device=logits.device).unsqueeze(1)
        return logits[rows, places.clamp_max(logits.shape[1] - 1)]

    def right_and_loss(self, output: HasLogits) -> tuple[Float[Tensor, " row"], Scores]:
        """Whether each row is right (1 or 0), and its loss."""
        logits = self.logits(output)
        logits = at_least_float32(logits)
        tokens = self.tokens.to(logits.device)
        right = ((logits.argmax(-1) == tokens) | (tokens == NOTHING)).all(-1)
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens.flatten(), reduction="none", ignore_index=NOTHING
        )
        return right.float(), losses.reshape(tokens.shape).sum(-1)

    def share(self, output: HasLogits) -> Scores:
        """What is attributed: the probability of a class, the log-probability of an answer."""
        _, loss = self.right_and_loss(output)
        return (-loss).exp() if self.starts is None else -loss


def prompt_of(subject: Subject, example: Example, *, truncate: bool) -> Prompt:
    """The inputs of an example, with its answer where it has one and the model goes on with a text.

    Models that do not go on with a text are given the text alone.
    """
    if example.answer is None or not is_causal_lm(subject):
        return Prompt(subject.encode(example.text, example.pair, truncate=truncate))
    return prompted(subject, example.text, example.pair, answer=example.answer, truncate=truncate)


def answered(prompt: Prompt) -> Options:
    """A prompt as what ``capture`` takes: its text as inputs, and the answer apart."""
    if prompt.reply is None:
        return {"text": prompt.inputs}
    requested = {name: row[:, : prompt.reply.position + 1] for name, row in prompt.inputs.items()}
    return {"text": requested, "target_text": prompt.reply.ids}


def gold_of_examples(
    subject: Subject, examples: Sequence[Example], prompts: Sequence[Prompt]
) -> Gold:
    """The right answers to examples: their answers, or the classes of their labels."""
    if not is_causal_lm(subject):
        return Gold(classes_of(subject, examples).unsqueeze(1))
    for example, prompt in zip(examples, prompts, strict=True):
        if prompt.reply is None:
            raise BadRequestError(
                f"Example {example.id} has no answer, and a language model is weighed by what it "
                "is to say. Fill it in, or name the column that holds the answers (--answer, "
                "answer=)."
            )
    return gold_of_replies([prompt.reply for prompt in prompts if prompt.reply], subject.device)


def gold_of_replies(replies: Sequence[Reply], device: torch.device | None = None) -> Gold:
    """The answers that passes contain, side by side."""
    longest = max(len(reply.ids) for reply in replies)
    rows = [[*reply.ids, *[NOTHING] * (longest - len(reply.ids))] for reply in replies]
    starts = torch.tensor([reply.position for reply in replies], device=device)
    return Gold(torch.tensor(rows, device=device), starts)
