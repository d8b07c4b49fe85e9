"""What does the model say when the input is another?

A token can be taken away in three ways, and a result always says which one was used:

``delete``  the token is gone and the text is shorter;
``mask``    the tokenizer's mask token stands in its place;
``pad``     the token stays where it is, but nobody may see it.

What the tokenizer itself added ([CLS], [SEP], …) is never taken away, nor the token at which a
language model is asked to go on. Answers are compared as
distributions: over the classes, or over the next token. Where a gradient is wanted, what changes
is the input of the first layer: the word embeddings themselves will not do, since a norm right
after them makes input times gradient zero whatever the model does.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.guard import Forward, frozen_eval, without_cache, wrap_forward
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import NUMBERS, distributions
from exhibit_a.trace.batches import grouped, padded, stand_alone
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.targets import Target

Erase = Literal["delete", "mask", "pad"]

Encoding = dict[str, Any]


def cut_short(subject: Subject, lengths: Int[Tensor, " text"]) -> int:
    """How many texts fill the model to the brim, so that words were probably cut off."""
    limit = subject.anatomy.max_length
    return 0 if limit is None else int((lengths >= limit).sum())


def require_way(subject: Subject, how: str) -> None:
    """Refuse an unknown way to take tokens away, and a mask where the tokenizer has none."""
    require_choice("way to take tokens away", how, get_args(Erase))
    if how == "mask" and getattr(subject.tokenizer, "mask_token_id", None) is None:
        raise BadRequestError(
            'This tokenizer has no mask token to put in place of others; choose "delete" or "pad".'
        )


def removable(trace: Trace) -> Bool[Tensor, " token"]:
    """The positions that somebody wrote: neither padding nor the tokenizer's own marks.

    Something must be left to read the answer from: a language model keeps the last token, and so
    does a text to which the tokenizer added nothing.
    """
    if "input_ids" not in trace.inputs:
        raise NotComputableError("Only tokens of a text can be taken away; this input is no text.")
    written = trace.real & ~trace.special
    if trace.subject.anatomy.answers == "tokens" or torch.equal(written, trace.real):
        written[trace.real.nonzero()[-1]] = False
    if not bool(written.any()):
        raise NotComputableError("There is no token in this text that could be taken away.")
    return written


def erased(
    subject: Subject, encoding: Encoding, gone: Bool[Tensor, " token"], how: str
) -> Encoding:
    """The encoding with the marked tokens taken away."""
    texts = {k: v for k, v in encoding.items() if isinstance(v, Tensor) and v.ndim == 2}
    gone = gone.to(subject.device)
    if how == "delete":
        return {name: part[:, ~gone] for name, part in texts.items()}
    if how == "mask":
        mark = subject.tokenizer.mask_token_id
        return {**texts, "input_ids": texts["input_ids"].masked_fill(gone, mark)}
    seen = texts.get("attention_mask", torch.ones_like(texts["input_ids"]))
    return {**texts, "attention_mask": seen.masked_fill(gone, 0)}


@torch.no_grad()
def answers_to(subject: Subject, encodings: Sequence[Encoding]) -> Float[Tensor, "text answer"]:
    """The model's own distribution for every encoding; equal encodings are asked once."""
    first: dict[tuple[int, ...], int] = {}
    place_of = [first.setdefault(_fingerprint(one), len(first)) for one in encodings]
    different: list[Encoding] = [{} for _ in first]
    for place, one in zip(place_of, encodings, strict=True):
        different[place] = one
    found: list[Tensor] = [torch.empty(0)] * len(different)
    with frozen_eval(subject.model):
        for group in grouped(different, alone=stand_alone(subject)):
            some = [different[place] for place in group]
            lengths = torch.tensor([_reach(one) for one in some])
            together = without_cache(subject.model, padded(subject, some))
            answers = distributions(subject, subject.model(**together), lengths)
            for place, answer in zip(group, answers, strict=True):
                found[place] = answer
    return torch.stack(found)[place_of]


def by_presence(
    trace: Trace, target: Target, how: str
) -> tuple[Callable[[Tensor], Tensor], Bool[Tensor, " token"]]:
    """The target as a function of which written tokens are there, and which tokens are written.

    The function takes rows of 1 (there) and 0 (taken away), one entry for each written token.
    """
    written = removable(trace)
    require_way(trace.subject, how)
    if target.scale != ("logit" if trace.subject.anatomy.answers in NUMBERS else "probability"):
        raise NotComputableError("Taking tokens away is scored by probability; give such a target.")
    if "decoder_input_ids" in trace.inputs or target.position not in (None, len(written) - 1):
        raise NotComputableError("Taking tokens away would move the position that is explained.")
    places = written.nonzero()[:, 0]

    def score(present: Tensor) -> Tensor:
        texts = []
        for row in present.bool():
            gone = torch.zeros_like(written)
            gone[places[~row]] = True
            texts.append(erased(trace.subject, trace.inputs, gone, how))
        return answers_to(trace.subject, texts)[:, target.index].cpu()

    return score, written


@contextmanager
def by_states(trace: Trace, target: Target) -> Iterator[tuple[Callable[[Tensor], Tensor], Tensor]]:
    """The target as a function of the input of the first layer, and that input."""
    model, kept = trace.subject.model, trace.keeping("hidden")
    waiting: list[Tensor] = []

    def put(forward: Forward) -> Forward:
        def layer(*args: Any, **kwargs: Any) -> Any:
            if not waiting:
                return forward(*args, **kwargs)
            old, new = first_hidden(args, kwargs), waiting.pop()
            args = tuple(new if one is old else one for one in args)
            return forward(*args, **{k: new if v is old else v for k, v in kwargs.items()})

        return layer

    def score(states: Tensor) -> Tensor:
        waiting.append(states)
        inputs = {
            name: part.repeat_interleave(len(states), 0) if isinstance(part, Tensor) else part
            for name, part in trace.inputs.items()
        }
        return target(model(**inputs))

    first = model.get_submodule(kept.layers[0].module)
    with frozen_eval(model), wrap_forward([first], put):
        yield score, kept.stack_inputs[kept.layers[0].stack].detach().clone()


def nothing_said(trace: Trace) -> tuple[Float[Tensor, "1 token d_model"], str]:
    """The input of the first layer for a text of masks, and what it is called.

    Without a mask token the written positions are zero vectors; special tokens always stay.
    """
    kept, stack = trace.keeping("hidden"), trace.layers[0].stack
    states = kept.stack_inputs[stack].detach()
    if getattr(trace.subject.tokenizer, "mask_token_id", None) is None:
        written = (trace.real & ~trace.special).to(states.device)
        return states.masked_fill(written[:, None], 0), "zero vectors for written tokens"
    masked = erased(trace.subject, trace.inputs, removable(trace), "mask")
    silent = capture(trace.subject, {**trace.inputs, **masked}, keep=("hidden",))
    return silent.stack_inputs[stack], "the mask token for written tokens"


def _reach(encoding: Encoding) -> int:
    """One past the last token that is seen, where a language model is asked to go on."""
    seen = encoding.get("attention_mask")
    return int(encoding["input_ids"].shape[1] if seen is None else seen[0].nonzero()[-1] + 1)


def _fingerprint(encoding: Encoding) -> tuple[int, ...]:
    return tuple(number for name in sorted(encoding) for number in encoding[name][0].tolist())
