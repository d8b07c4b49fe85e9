"""Runs the model on an input from which tokens are taken away.

A token can be taken away in three ways, and a result always says which one was used:

``hide``    no position may look at the token; all others stay where they are (the default);
``delete``  the token is gone and the text is shorter;
``mask``    the tokenizer's mask token stands in its place.

What the tokenizer itself added ([CLS], [SEP], …) is never taken away, nor the first token of a
causal stack, on which heads rest that look at nothing, nor the token from which the answer is read,
nor what the decoder of a model with two stacks was given. Answers are compared as distributions:
over the classes, or over the next token. Where a gradient is needed, it is taken by the input of
the first layer and not by the word embeddings: a norm right after the embeddings makes input times
gradient zero for every model.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.shapes import HasLogits, Inputs
from exhibit_a.subject.anatomy import first_hidden, main_stack
from exhibit_a.subject.guard import Forward, frozen_eval, without_cache, wrap_forward
from exhibit_a.subject.images import PIXELS
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.batches import grouped, padded, stand_alone
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.replay import repeated
from exhibit_a.trace.targets import Target

Lengths = Int[Tensor, " row"]
Reader = Callable[[HasLogits, Lengths], Tensor]  # to a number, or several, for every row
Erase = Literal["hide", "delete", "mask"]
TAKING = {"hide": "hiding", "delete": "deleting", "mask": "masking"}
TAKEN = {"hide": "hidden", "delete": "deleted", "mask": "masked"}
DECODER = "decoder_"  # how the inputs of the second stack are called
DECODER_IDS = "decoder_input_ids"


def cut_short(subject: Subject, lengths: Int[Tensor, " text"]) -> int:
    """How many texts are as long as the model takes, so that words were probably cut off."""
    limit = subject.anatomy.max_length
    return 0 if limit is None else int((lengths >= limit).sum())


def require_way(subject: Subject, erase: str) -> None:
    """Refuse an unknown way to take tokens away, and a mask where the tokenizer has none."""
    require_choice("way to take tokens away", erase, get_args(Erase))
    if erase == "mask" and getattr(subject.tokenizer, "mask_token_id", None) is None:
        raise BadRequestError(
            'This tokenizer has no mask token to put in place of others; choose "hide" or "delete".'
        )


def removable(trace: Trace, target: Target | None = None) -> Bool[Tensor, " token"]:
    """The positions of the text itself: neither padding nor special tokens of the tokenizer.

    A causal stack keeps its first token, its sink. The answer must be read from something: the
    token at the position of the target stays, the last one of a causal stack or of a text to which
    the tokenizer added nothing, and an answer with the token before it.
    """
    if "input_ids" not in trace.inputs:
        raise NotComputableError("Only tokens of a text can be taken away; this input is no text.")
    if PIXELS in trace.inputs:
        raise NotComputableError("Only tokens of a text can be taken away; here is a picture too.")
    written = trace.real & ~trace.special
    first, last = trace.real.nonzero()[[0, -1], 0].tolist()
    stack = main_stack(trace.sites)
    causal = any(site.causal for site in trace.sites if site.stack == stack)
    reads_last = causal or trace.subject.anatomy.answers == "tokens"
    if trace.answer is not None:
        written[trace.answer.start - 1 :] = False
    elif reads_last or torch.equal(written, trace.real):
        written[last] = False
    if causal:
        written[first] = False
    if target is not None and target.position is not None and DECODER_IDS not in trace.inputs:
        written[target.position] = False
    if not bool(written.any()):
        raise NotComputableError("There is no token in this text that could be taken away.")
    return written


def erased(
    subject: Subject, encoding: Inputs, removed: Bool[Tensor, " token"], erase: str
) -> Inputs:
    """The encoding with the marked tokens taken away."""
    rows = {k: v for k, v in encoding.items() if isinstance(v, Tensor) and v.ndim == 2}
    removed = removed.to(subject.device)
    if erase == "delete":
        return {
            name: row if name.startswith(DECODER) else row[:, ~removed]
            for name, row in rows.items()
        }
    if erase == "mask":
        mask = subject.tokenizer.mask_token_id
        return {**rows, "input_ids": rows["input_ids"].masked_fill(removed, mask)}
    given_positions, obstacle = subject.hiding
    if obstacle:
        raise NotComputableError(
            f"Nothing can be hidden from {type(subject.model).__name__}: {obstacle}. Take words "
            'away with erase="delete".'
        )
    visible = rows.get("attention_mask", torch.ones_like(rows["input_ids"]))
    if given_positions:
        rows.setdefault("position_ids", (visible.cumsum(-1) - 1).clamp_min(0))
    return {**rows, "attention_mask": visible.masked_fill(removed, 0)}


@torch.no_grad()
def read_from(
    subject: Subject, encodings: Sequence[Inputs], read: Reader
) -> Float[Tensor, "text ..."]:
    """What ``read`` makes of the model's output and the lengths; equal encodings are run once."""
    first: dict[tuple[int, ...], int] = {}
    place_of = [first.setdefault(ids_of(encoding), len(first)) for encoding in encodings]
    different: list[Inputs] = [{} for _ in first]
    for place, encoding in zip(place_of, encodings, strict=True):
        different[place] = encoding
    answers: dict[int, Tensor] = {}
    with frozen_eval(subject.model):
        for group in grouped(different, alone=stand_alone(subject)):
            texts = [different[place] for place in group]
            lengths = torch.tensor([_visible_length(text) for text in texts])
            together = without_cache(subject.model, padded(subject, texts))
            rows = read(subject.model(**together), lengths)
            answers |= dict(zip(group, rows, strict=True))
    return torch.stack([answers[place] for place in place_of])


def ids_of(encoding: Inputs) -> tuple[int, ...]:
    """All numbers of an encoding, by which equal ones are known."""
    return tuple(number for name in sorted(encoding) for number in encoding[name][0].tolist())


def readout_position(
    trace: Trace, target: Target, erase: str
) -> Callable[[Lengths], Lengths | None]:
    """Where the target is read in texts with tokens taken away, by their lengths.

    Only what is deleted moves it, and then it is as far from the end as before. What a decoder
    writes stays where it is. An answer whose place would move otherwise is refused.
    """
    if target.position is None:
        return lambda _: None
    written = target.position
    if erase != "delete" or DECODER_IDS in trace.inputs:
        return lambda lengths: torch.full_like(lengths, written)
    last = int(trace.real.nonzero()[-1])
    read = last if trace.reply is None else trace.reply.position
    if written < read:
        raise NotComputableError("Deleting tokens would move the position that is explained.")
    back = last + 1 - written
    return lambda lengths: lengths - back


def by_presence(
    trace: Trace, target: Target, erase: str
) -> tuple[Callable[[Tensor], Tensor], Bool[Tensor, " token"]]:
    """The target as a function of which tokens of the text are present, and which tokens these are.

    The function takes rows of 1 (present) and 0 (taken away), one entry for each such token.
    """
    written = removable(trace, target)
    trace.require_same_weights()
    require_way(trace.subject, erase)
    place = readout_position(trace, target, erase)
    places = written.nonzero()[:, 0]

    def score(present: Tensor) -> Tensor:
        texts = []
        for row in present.bool():
            removed = torch.zeros_like(written)
            removed[places[~row]] = True
            texts.append(erased(trace.subject, trace.inputs, removed, erase))
        return read_from(
            trace.subject, texts, lambda output, lengths: target(output, place(lengths))
        ).cpu()

    return score, written


@contextmanager
def by_states(trace: Trace, target: Target) -> Iterator[tuple[Callable[[Tensor], Tensor], Tensor]]:
    """The target as a function of the input of the first layer, and that input."""
    trace.subject.require_gradients()
    model = trace.model
    kept = target.narrowed(trace.keeping("hidden"))
    pending: list[Tensor] = []

    def replace_input(forward: Forward) -> Forward:
        def layer(*args: object, **kwargs: object) -> object:
            if not pending:
                return forward(*args, **kwargs)
            old, new = first_hidden(args, kwargs), pending.pop()
            args = tuple(new if value is old else value for value in args)
            return forward(*args, **{k: new if v is old else v for k, v in kwargs.items()})

        return layer

    def score(states: Tensor) -> Tensor:
        pending.append(states)
        return target.value(kept, model(**repeated(kept.inputs, len(states))))

    stack = main_stack(kept.sites)
    first = next(layer.module for layer in kept.layers if layer.stack == stack)
    with frozen_eval(model), wrap_forward([model.get_submodule(first)], replace_input):
        yield score, kept.stack_inputs[stack].detach().clone()


def baseline(trace: Trace) -> tuple[Float[Tensor, "1 token d_model"], str]:
    """The input of the first layer for a text of mask tokens, and a description of it.

    Without a mask token the positions of the text are zero vectors; special tokens always stay, and
    so does an answer.
    """
    kept, stack = trace.keeping("hidden"), main_stack(trace.sites)
    states = kept.stack_inputs[stack].detach()
    if getattr(trace.subject.tokenizer, "mask_token_id", None) is None:
        written = (trace.real & ~trace.special).to(states.device)
        if trace.answer is not None:
            written[trace.answer] = False
        return states.masked_fill(written[:, None], 0), "zero vectors for written tokens"
    masked = erased(trace.subject, trace.inputs, removable(trace), "mask")
    empty = capture(trace.subject, {**trace.inputs, **masked}, keep=("hidden",))
    return empty.stack_inputs[stack], "the mask token for written tokens"


def _visible_length(encoding: Inputs) -> int:
    """One past the last visible token, after which a language model goes on."""
    mask = encoding.get("attention_mask")
    return int(encoding["input_ids"].shape[1] if mask is None else mask[0].nonzero()[-1] + 1)
