"""What does the model answer, as classes, as a distribution, and in words?

A classifier gives one row of logits for each text, a language model one at every position. Here is
the one way from any of these to a distribution, to right or wrong, and to names with their shares.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.shapes import HasLogits
from exhibit_a.subject.anatomy import ANSWERS
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
    """The logits of every row at so many neighbouring positions, the first of them given."""
    if count == 1 or output.logits.ndim == 2:
        return logits_at(output, position).unsqueeze(1)
    logits = output.logits
    if isinstance(position, int):
        return logits[:, position : position + count]
    assert position is not None  # who answers at every token is asked at a position
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
