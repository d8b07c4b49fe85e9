"""Which number of the answer is being explained?

A classifier answers with a class, a language model with a token at a position, a regressor with a
value. A ``Target`` picks that one number out of any output, for every copy of a replay at once.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.shapes import HasLogits, Scores
from exhibit_a.subject.anatomy import ANSWERS
from exhibit_a.subject.modes import usual_modes
from exhibit_a.trace.answers import logits_at, token_name
from exhibit_a.trace.capture import Trace

Scale = Literal["probability", "logit", "log_probability", "log_odds"]
CHOSEN_BY: dict[str, tuple[str, ...]] = {  # what picks a target, for each kind of answer
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

    def __call__(self, output: HasLogits) -> Scores:
        """The number, for every row of the batch."""
        logits = logits_at(output, self.position)
        if self.scale == "probability":
            logits = torch.softmax(logits.float(), -1)
        elif self.scale == "log_probability":
            logits = torch.log_softmax(logits.float(), -1)
        elif self.scale == "log_odds":
            return log_odds(logits.float(), self.index)
        return logits[:, self.index]

    def __str__(self) -> str:
        where = "" if self.position is None else f" at position {self.position}"
        return f"{self.scale.replace('_', ' ')} of {self.name or self.index}{where}"


def log_odds(logits: Float[Tensor, "row answer"], index: int) -> Scores:
    """log p/(1 − p) of one answer: how far it is ahead of all others together.

    It does not saturate, and small differences are not lost where p is nearly 1.

    >>> log_odds(torch.tensor([[2.0, 0.0], [40.0, 0.0]]), 0)
    tensor([ 2., 40.])
    """
    others = torch.cat([logits[:, :index], logits[:, index + 1 :]], -1)
    return logits[:, index] - others.logsumexp(-1)


@usual_modes()
def choose_target(
    trace: Trace,
    *,
    label: str | int | None = None,
    token: str | int | None = None,
    position: int | None = None,
    scale: str | None = None,
) -> Target:
    """The target asked for; by default what the model itself answers.

    For regression and for several labels at once, the target is the raw output.

    >>> str(xa.choose_target(trace))
    'probability of positive'
    >>> str(xa.choose_target(trace, label="negative", scale="logit"))
    'logit of negative'
    >>> round(float(xa.choose_target(trace, label="negative")(trace.output)), 3)
    0.045

    Args:
        label: the class to explain, by name or number; without, the predicted class.
        token: the token to explain, as text or id; without, the most likely one.
        position: where the model answers, counted from 0 or, if negative, from the end; without,
            the last token or the mask.
        scale: probability, logit, log_probability or log_odds.
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
    _require_meaningful(answers, asked)
    if answers == "value":
        return Target(0, None, "logit", "output")
    if answers == "outputs":
        return _class(trace, label, None, "logit")
    if answers == "tokens":
        return _token(trace, token, position, scale or "probability")
    place = None if answers == "classes" else _place(trace, position)
    return _class(trace, label, place, scale or "probability")


def chosen_target(trace: Trace, target: Target | str | int | None) -> Target:
    """The target asked for, checked against what the model answers."""
    if isinstance(target, Target):
        return _existing(target, trace.output.logits)
    if trace.subject.anatomy.answers == "tokens":
        return choose_target(trace, token=target)
    return choose_target(trace, label=target)


def _existing(target: Target, logits: Tensor) -> Target:
    width = logits.shape[-1]
    if not 0 <= target.index < width:
        raise BadRequestError(f"There is no answer {target.index}; the model has 0 to {width - 1}.")
    if logits.ndim == 2 and target.position is None:
        return target
    if logits.ndim == 2 or target.position is None:
        at = "gives one answer" if logits.ndim == 2 else "answers at every token"
        raise BadRequestError(f"The model {at}; a target at position {target.position} cannot be.")
    if not 0 <= target.position < logits.shape[1]:
        raise BadRequestError(
            f"There is no position {target.position}; the text has 0 to {logits.shape[1] - 1}."
        )
    return target


def _require_meaningful(answers: str, asked: dict[str, str | int | None]) -> None:
    """Refuse an option that would be ignored: each kind of answer has options of its own."""
    for name, value in asked.items():
        harmless = name == "scale" and value == "logit"
        if value is not None and name not in CHOSEN_BY[answers] and not harmless:
            choices = ", ".join(CHOSEN_BY[answers]) or "nothing"
            raise BadRequestError(
                f"{name}={value!r} was given, but this model's answer is {ANSWERS[answers]}; what "
                f"can be chosen: {choices}."
            )


def _class(trace: Trace, label: str | int | None, position: int | None, scale: str) -> Target:
    labels = trace.subject.labels
    if label is None:
        index = int(logits_at(trace.output, position)[0].argmax())
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
    logits = logits_at(trace.output, position)[0]
    index = int(logits.argmax()) if token is None else _token_id(trace, token)
    if not 0 <= index < len(logits):
        raise BadRequestError(f"There is no token {index}; the model has 0 to {len(logits) - 1}.")
    return Target(index, position, scale, token_name(trace.subject, index))


def _place(trace: Trace, position: int | None) -> int:
    """The position asked for, counted from the start."""
    count = len(trace.sequences[trace.sites[-1].stack].tokens)
    if position is None:
        position = _default_position(trace)
    if not -count <= position < count:
        raise BadRequestError(f"There is no position {position}; the text has 0 to {count - 1}.")
    return position % count


def _default_position(trace: Trace) -> int:
    """Where the model is asked: at the last real token, or at the mask if it fills masks."""
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
