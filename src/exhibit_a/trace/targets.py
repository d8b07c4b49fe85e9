"""The number of the answer that is explained, and the one way to it from a pass.

A classifier answers with a class, a language model with a token at a position or with a whole
answer, one token after the other, a regressor with a value. A ``Target`` makes one number of any
output, for every copy of a replay at once. All tokens of an answer stand in one pass, each
predicted from what is before it, so a whole answer costs what one of its tokens costs.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.shapes import HasLogits, Options, Scores
from exhibit_a.subject.anatomy import ANSWERS
from exhibit_a.subject.guard import default_torch_state
from exhibit_a.trace.answers import LogitRows, logits_along, logits_at, token_name
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.passes import LATER, Kind, Pass, leaves_answers_out

Scale = Literal["probability", "logit", "log_probability", "log_odds"]
CHOSEN_BY: dict[str, tuple[str, ...]] = {  # what picks a target, for each kind of answer
    "classes": ("label", "against", "scale"),
    "outputs": ("label",),  # several labels that do not exclude each other, or several values
    "value": (),
    "tokens": ("token", "position", "against", "scale"),
    "token classes": ("label", "position", "against", "scale"),
}
ANSWER = "answer"  # the target that is the whole answer in a trace
LONGEST = 40  # characters of an answer in the name of a target


@dataclass(frozen=True, slots=True)
class Target:
    """One number of a model's answer."""

    index: int  # the class, token id or output
    position: int | None = None  # where in the sequence, for models that answer at every token
    scale: str = "probability"
    name: str = ""
    following: tuple[
        int, ...
    ] = ()  # tokens at the next positions, where a whole answer is explained
    against: int | None = None  # the class or token over which the margin is taken

    @property
    def indices(self) -> tuple[int, ...]:
        """The class, or the tokens of the answer at ``position`` and after it."""
        return (self.index, *self.following)

    def __call__(self, output: HasLogits, positions: Int[Tensor, " row"] | None = None) -> Scores:
        """The number, for every row of the batch; each row may have a position of its own."""
        place = self.position if positions is None else positions
        return self.of(logits_along(output, place, len(self.indices)))

    def value(self, passed: Pass, output: HasLogits | None = None) -> Scores:
        """The number in a pass or, given its output, in a replay of it: for every row.

        Both may give the later answers alone; see `narrowed`.
        """
        output = passed.output if output is None else output
        if self.position is None:
            return self(output)
        return replace(self, position=among_answers(passed, self.position))(output)

    def narrowed(self, passed: Kind) -> Kind:
        """The pass with replays that give no answers before the one that is explained.

        Where the model cannot leave the earlier answers out, the pass stays as it is.
        """
        if self.position is None or not leaves_answers_out(passed.subject):
            return passed
        later = passed.output.logits[:, among_answers(passed, self.position) :]
        return replace(
            passed,
            inputs={**passed.inputs, LATER: later.shape[1]},
            output=_Later(later),
            first_logit=self.position,
        )

    def of(self, logits: LogitRows) -> Scores:
        """The number, from the logits at the position and those after it that an answer takes."""
        if self.scale == "logit" or self.against is not None:
            against = 0.0 if self.against is None else at_least_float32(logits[..., self.against])
            return (at_least_float32(self._picked(logits)) - against).sum(-1)
        logits = at_least_float32(logits)
        if self.scale == "log_odds":
            return _log_odds(logits, self._picked(logits), self.indices)
        shares = (self._picked(logits) - logits.logsumexp(-1)).sum(-1)
        return shares if self.scale == "log_probability" else shares.exp()

    def _picked(self, logits: LogitRows) -> Float[Tensor, "row place"]:
        places = torch.arange(len(self.indices), device=logits.device)
        return logits[:, places, torch.tensor(self.indices, device=logits.device)]

    def __str__(self) -> str:
        scale, name = self.scale.replace("_", " "), self.name or self.index
        if self.following:
            return f"{scale} of the answer {name} ({len(self.indices)} tokens)"
        where = "" if self.position is None else f" at position {self.position}"
        return f"{scale} of {name}{where}"


@dataclass(frozen=True)
class _Later:
    """The later answers of a pass."""

    logits: Tensor


def margin_of(target: Target) -> Target:
    """The target as a margin: log-odds for what has a probability, the number itself otherwise."""
    return target if target.scale == "logit" else replace(target, scale="log_odds")


def log_odds(logits: Float[Tensor, "row answer"], index: int) -> Scores:
    """log p/(1 − p) of one answer: how far it is ahead of all others together.

    It does not saturate, and small differences are not lost where p is nearly 1.

    >>> log_odds(torch.tensor([[2.0, 0.0], [40.0, 0.0]]), 0)
    tensor([ 2., 40.])
    """
    return _log_odds(logits.unsqueeze(1), logits[:, [index]], (index,))


def _log_odds(
    logits: LogitRows, picked: Float[Tensor, "row place"], indices: tuple[int, ...]
) -> Scores:
    """log p/(1 − p) of a whole answer, of probability p = Π pₜ.

    1 − p = Σₜ (1 − pₜ) Πₛ₍ₛ﹤ₜ₎ pₛ: the answers that leave it at its t-th token. No difference of
    nearly equal numbers is ever taken.
    """
    chosen = (
        torch.tensor(indices, device=logits.device).reshape(1, -1, 1).expand(len(logits), -1, 1)
    )
    others = logits.scatter(-1, chosen, -torch.inf).logsumexp(-1)
    if len(indices) == 1:
        return (picked - others).squeeze(1)
    whole = logits.logsumexp(-1)
    shares = picked - whole
    before = shares.cumsum(-1) - shares
    return shares.sum(-1) - (before + others - whole).logsumexp(-1)


@default_torch_state()
def choose_target(
    trace: Trace,
    what: str | int | None = None,
    *,
    label: str | int | None = None,
    token: str | int | None = None,
    position: int | None = None,
    against: str | int | None = None,
    scale: str | None = None,
) -> Target:
    """The requested target; by default what the model itself answers.

    A language model is explained by log-probability, a classifier by probability. Where the trace
    holds an answer (``capture(..., target_text=…)`` or ``generate=…``), the target is the
    log-probability of the whole of it, for the price of one token. For regression and for several
    labels at once, the target is the raw output.

    >>> str(xa.choose_target(trace))
    'probability of positive'
    >>> str(xa.choose_target(trace, "negative", scale="logit"))
    'logit of negative'
    >>> round(float(xa.choose_target(trace, label="negative")(trace.output)), 3)
    0.045
    >>> margin = xa.choose_target(trace, "positive", against="negative")  # a difference of logits
    >>> str(margin), round(float(margin(trace.output)), 2)
    ('logit of positive against negative', 3.05)

    Args:
        what: "answer" for the whole answer that the trace holds, or a label or token.
        label: the class to explain, by name or number; without, the predicted class.
        token: the token to explain, as text or id; without, the most likely one.
        position: where the model answers, counted from 0 or, if negative, from the end; without,
            the last token, the mask, or where the answer begins; with "answer", which of its
            tokens.
        against: the label or token over which the margin of the target is taken.
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
    if what is not None and (label is not None or token is not None):
        raise BadRequestError(f"{what!r} was requested, and a label or token too.")
    if what == ANSWER and what not in trace.subject.labels:
        if against is not None:
            raise BadRequestError("A margin is between two tokens; name one of the answer's.")
        return _answer(trace, position, scale or "log_probability")
    if what is not None and answers == "tokens":
        token = what
    elif what is not None:
        label = what
    requested = {"label": label, "token": token, "position": position, "scale": scale}
    # Each kind of answer has options of its own; one that would be ignored is refused.
    for name, value in (requested | {"against": against}).items():
        harmless = name == "scale" and value == "logit"
        if value is not None and name not in CHOSEN_BY[answers] and not harmless:
            choices = ", ".join(CHOSEN_BY[answers]) or "nothing"
            raise BadRequestError(
                f"{name}={value!r} was given, but this model's answer is {ANSWERS[answers]}; what "
                f"can be chosen: {choices}."
            )
    if trace.reply is not None and token is position is against is None:
        return _answer(trace, None, scale or "log_probability")
    if against is not None:
        # How far one class or token is ahead of another, as a difference of logits.
        if requested["scale"] not in (None, "logit"):
            raise BadRequestError("A margin is a difference of logits; it has no other scale.")
        kind = "token" if trace.subject.anatomy.answers == "tokens" else "label"
        chosen, other = _one(trace, requested), _one(trace, requested | {kind: against})
        if chosen.index == other.index:
            raise BadRequestError(f"A margin is between two answers, and both are {chosen.name}.")
        name = f"{chosen.name} against {other.name}"
        return replace(chosen, scale="logit", name=name, against=other.index)
    return _one(trace, requested)


def _one(trace: Trace, requested: Options) -> Target:
    """The requested class, token or output."""
    answers, label = trace.subject.anatomy.answers, requested["label"]
    if answers == "value":
        return Target(0, None, "logit", "output")
    if answers == "outputs":
        return _class(trace, label, None, "logit")
    if answers == "tokens":
        scale = requested["scale"] or "log_probability"
        return _token(trace, requested["token"], requested["position"], scale)
    place = None if answers == "classes" else _place(trace, requested["position"])
    return _class(trace, label, place, requested["scale"] or "probability")


def _answer(trace: Trace, position: int | None, scale: str) -> Target:
    """The whole answer that the trace holds, or one of its tokens."""
    reply = trace.reply
    if reply is None:
        raise BadRequestError(
            "This trace holds no answer: capture it with target_text= or generate= (--answer, "
            "--generate), or name a token."
        )
    if position is None and len(reply.ids) > 1:
        name = repr(reply.text if len(reply.text) <= LONGEST else f"{reply.text[:LONGEST]}…")
        return Target(reply.ids[0], reply.position, scale, name, reply.ids[1:])
    count, place = len(reply.ids), position or 0
    if not -count <= place < count:
        raise BadRequestError(f"There is no token {place} in the answer; it has {count}.")
    index = reply.ids[place]
    return Target(index, reply.position + place % count, scale, token_name(trace.subject, index))


def chosen_target(trace: Trace, target: Target | str | int | None) -> Target:
    """The requested target, checked against what the model answers."""
    if isinstance(target, Target):
        logits = trace.output.logits
        width = logits.shape[-1]
        for index in (*target.indices, *([] if target.against is None else [target.against])):
            if not 0 <= index < width:
                raise BadRequestError(
                    f"There is no answer {index}; the model has 0 to {width - 1}."
                )
        if logits.ndim == 2 and target.position is None:
            return target
        if logits.ndim == 2 or target.position is None:
            at = "gives one answer" if logits.ndim == 2 else "answers at every token"
            raise BadRequestError(
                f"The model {at}; a target at position {target.position} cannot be."
            )
        last, count = target.position + len(target.following), trace.first_logit + logits.shape[1]
        if not 0 <= target.position <= last < count:
            raise BadRequestError(
                f"There is no position {last if target.position >= 0 else target.position}; the "
                f"text has 0 to {count - 1}."
            )
        among_answers(trace, target.position)
        return target
    return choose_target(trace, target)


def among_answers(passed: Pass, position: int) -> int:
    """Where the answer at a position stands among those that a pass gives."""
    if position < passed.first_logit:
        raise BadRequestError(
            f"The answer at position {position} was not kept: only rows from {passed.first_logit} "
            "on were requested."
        )
    return position - passed.first_logit


def _class(trace: Trace, label: str | int | None, position: int | None, scale: str) -> Target:
    labels = trace.subject.labels
    if label is None:
        place = None if position is None else among_answers(trace, position)
        index = int(logits_at(trace.output, place)[0].argmax())
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
    logits = logits_at(trace.output, among_answers(trace, position))[0]
    index = int(logits.argmax()) if token is None else _token_id(trace, token)
    if not 0 <= index < len(logits):
        raise BadRequestError(f"There is no token {index}; the model has 0 to {len(logits) - 1}.")
    return Target(index, position, scale, token_name(trace.subject, index))


def _place(trace: Trace, position: int | None) -> int:
    """The requested position, counted from the start; without, where the model answers."""
    sequence = trace.sequences[trace.sites[-1].stack]
    count, mask = len(sequence.tokens), getattr(trace.subject.tokenizer, "mask_token", None)
    if position is None:
        if trace.reply is not None:
            position = trace.reply.position
        elif trace.subject.anatomy.answers == "token classes":
            raise BadRequestError("This model labels every token; say which position is meant.")
        elif trace.sites[-1].stack == "decoder":
            position = int(sequence.real.nonzero()[-1])
        elif mask in sequence.tokens:
            position = sequence.tokens.index(mask)
        else:
            raise BadRequestError(
                "This model answers at every token; say which position is meant, or put a mask "
                "token there."
            )
    if not -count <= position < count:
        raise BadRequestError(f"There is no position {position}; the text has 0 to {count - 1}.")
    return position % count


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
