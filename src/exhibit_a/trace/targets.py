"""Which number of the answer is being explained?

A classifier answers with a class, a language model with a token at a position, a regressor with a
value. A ``Target`` picks that one number out of any output, for every copy of a replay at once.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.shapes import Scores
from exhibit_a.subject.anatomy import ANSWERS
from exhibit_a.trace.capture import Trace

Scale = Literal["probability", "logit", "log_probability"]
NUMBERS = ("value", "outputs")  # kinds of answers that are no distribution
CHOSEN_BY: dict[str, tuple[str, ...]] = {  # what can be said of a target, for each kind of answer
    "classes": ("label", "scale"),
    "outputs": ("label",),  # several labels that do not exclude each other, or several values
    "value": (),
    "tokens": ("token", "position", "scale"),
    "token classes": ("label", "position", "scale"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """One number of a model's answer."""

    index: int  # the class, token id or output
    position: int | None = None  # where in the sequence, for models that answer at every token
    scale: str = "probability"
    name: str = ""

    def __call__(self, output: Any) -> Scores:
        """The number, for every row of the batch."""
        logits: Tensor = output.logits
        if self.position is not None:
            logits = logits[:, self.position]
        if self.scale == "probability":
            logits = torch.softmax(logits.float(), -1)
        elif self.scale == "log_probability":
            logits = torch.log_softmax(logits.float(), -1)
        return logits[:, self.index]

    def __str__(self) -> str:
        where = "" if self.position is None else f" at position {self.position}"
        return f"{self.scale.replace('_', ' ')} of {self.name or self.index}{where}"


def choose_target(
    trace: Trace,
    *,
    label: str | int | None = None,
    token: str | int | None = None,
    position: int | None = None,
    scale: Scale | None = None,
) -> Target:
    """The target asked for; by default what the model itself answers.

    Classifiers: the predicted class or ``label``. Language models: the most likely next token, or
    ``token`` at ``position``. Taggers: the predicted class or ``label`` at ``position``.
    Regression and several labels at once: the raw output. ``scale`` is probability, logit or
    log_probability.
    """
    if scale is not None:
        require_choice("scale", scale, get_args(Scale))
    answers = trace.subject.anatomy.answers
    if answers == "states":
        raise NotComputableError(
            f"{type(trace.subject.model).__name__} answers with hidden states only; there is no "
            "class, token or value to explain. Load it with a head."
        )
    asked = {"label": label, "token": token, "position": position, "scale": scale}
    _require_sense(answers, asked)
    if answers == "value":
        return Target(0, None, "logit", "output")
    if answers == "outputs":
        return _class(trace, label, None, "logit")
    if answers == "tokens":
        return _token(trace, token, position, scale or "probability")
    place = None if answers == "classes" else _place(trace, position)
    return _class(trace, label, place, scale or "probability")


def _require_sense(answers: str, asked: dict[str, str | int | None]) -> None:
    """Refuse what would be ignored: each kind of answer is chosen by words of its own."""
    for name, value in asked.items():
        free = name == "scale" and value == "logit"
        if value is not None and name not in CHOSEN_BY[answers] and not free:
            wanted = ", ".join(CHOSEN_BY[answers]) or "nothing"
            raise BadRequestError(
                f"{name}={value!r} was given, but this model's answer is {ANSWERS[answers]}; what "
                f"can be chosen: {wanted}."
            )


def _class(trace: Trace, label: str | int | None, position: int | None, scale: str) -> Target:
    labels = trace.subject.labels
    if label is None:
        logits = trace.output.logits[0]
        index = int((logits if position is None else logits[position]).argmax())
    elif isinstance(label, str) and label in labels:
        index = labels.index(label)
    elif str(label).isdecimal() and int(label) < len(labels):
        index = int(label)
    else:
        known = ", ".join(f"{i} {name}" for i, name in enumerate(labels))
        raise BadRequestError(f"The model knows no label {label!r}; it knows {known}.")
    return Target(index, position, scale, labels[index])


def _token(trace: Trace, token: str | int | None, position: int | None, scale: str) -> Target:
    position = _place(trace, position)
    logits = trace.output.logits[0, position]
    index = int(logits.argmax()) if token is None else _token_id(trace, token)
    if not 0 <= index < len(logits):
        raise BadRequestError(f"There is no token {index}; the model has 0 to {len(logits) - 1}.")
    tokenizer = trace.subject.tokenizer
    name = str(index) if tokenizer is None else repr(tokenizer.decode([index]))
    return Target(index, position, scale, name)


def _place(trace: Trace, position: int | None) -> int:
    """The position asked for, counted from the start."""
    count = len(trace.sequences[trace.sites[-1].stack].tokens)
    if position is None:
        position = _asked_position(trace)
    if not -count <= position < count:
        raise BadRequestError(f"There is no position {position}; the text has 0 to {count - 1}.")
    return position % count


def _asked_position(trace: Trace) -> int:
    """Where the question is: the last real token, or the mask of a model that fills masks."""
    sequence = trace.sequences[trace.sites[-1].stack]
    if trace.subject.anatomy.answers == "token classes":
        raise BadRequestError("This model labels every token; say which position is meant.")
    if trace.sites[-1].stack == "decoder":
        return int(sequence.real.nonzero()[-1])
    mask = getattr(trace.subject.tokenizer, "mask_token", None)
    if mask in sequence.tokens:
        return sequence.tokens.index(mask)
    raise BadRequestError(
        "This model answers at every token; say which position is meant, or put a mask token there."
    )


def _token_id(trace: Trace, token: str | int) -> int:
    if isinstance(token, int):
        return token
    tokenizer = trace.subject.tokenizer
    if tokenizer is None:
        raise BadRequestError("A token was given as text, but there is no tokenizer; give its id.")
    ids = tokenizer(token, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise BadRequestError(f"{token!r} is {len(ids)} tokens for this model; name exactly one.")
    return int(ids[0])
