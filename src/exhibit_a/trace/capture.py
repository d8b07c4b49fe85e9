"""What did the model do with this text?

One forward pass is watched and remembered: the attention of every site, the values it averaged,
the hidden states between the layers, and the answer. ``keep`` chooses, because attention alone is
heads × tokens² for every layer; what was not kept can be had later with ``trace.keeping(...)``,
which runs the pass again.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.shapes import (
    SiteKeys,
    SiteMap,
    SiteQueries,
    SiteValues,
    SiteVisible,
    TokenMarks,
    TokenStates,
    Visible,
)
from exhibit_a.subject.anatomy import Site, key_stack, observe
from exhibit_a.subject.encoding import decoder_limit, own_decoder_ids, positions, shapes
from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.subject import TAPS, Subject
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.passes import Pass, Recorder, checked_keep, run_pass

GENERATED = 64  # tokens that a model with two stacks says by itself, at most


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """The positions of one stack's input: their names, and which are special or padding."""

    tokens: tuple[str, ...]
    special: TokenMarks
    real: TokenMarks


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Pass):
    """One forward pass over one text, remembered."""

    sequences: dict[str, Sequence]  # by stack
    visible: tuple[SiteVisible, ...] = field(repr=False)

    @cached_property
    def attention(self) -> tuple[SiteMap, ...]:
        """The attention of every site, (head, query, key)."""
        return tuple(part[0] for part in self.at("attention") if part is not None)

    @cached_property
    def values(self) -> tuple[SiteValues, ...]:
        """The values of every site, (head, key, d_head), shared ones repeated."""
        return tuple(part[0] for part in self.at("values") if part is not None)

    @cached_property
    def queries(self) -> tuple[SiteQueries | None, ...]:
        """The queries of every site, (head, query, d_query), or None where they are not seen."""
        return tuple(None if part is None else part[0] for part in self.at("queries"))

    @cached_property
    def keys(self) -> tuple[SiteKeys | None, ...]:
        """The keys of every site, (head, key, d_query), or None where they are not seen."""
        return tuple(None if part is None else part[0] for part in self.at("keys"))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The positions of the input (of the encoder, where there are two stacks)."""
        return self._first.tokens

    @property
    def special(self) -> TokenMarks:
        """Which positions the tokenizer added."""
        return self._first.special

    @property
    def real(self) -> TokenMarks:
        """Which positions are not padding."""
        return self._first.real

    @property
    def hidden(self) -> tuple[TokenStates, ...]:
        """Hidden states of the input's stack: the input of its first layer, then each output."""
        return self.hidden_of(self.sites[0].stack)

    @property
    def token_names(self) -> dict[str, tuple[str, ...]]:
        """The tokens of every stack."""
        return {stack: sequence.tokens for stack, sequence in self.sequences.items()}

    @property
    def _first(self) -> Sequence:
        return self.sequences[self.sites[0].stack]

    def __repr__(self) -> str:
        kept = ", ".join(self.keep) or "nothing"
        return f"Trace: {self.subject.name}, {len(self.tokens)} tokens; kept: {kept}."

    def hidden_of(self, stack: str) -> tuple[TokenStates, ...]:
        """Hidden states 0 … layers of one stack."""
        self.require("hidden")
        if stack not in self.stack_outputs:
            raise BadRequestError(
                f"There is no stack {stack!r}; found {', '.join(self.stack_outputs)}."
            )
        # A state is what the next layer is given: a hook or a product may stand between two layers.
        given = [
            states[0]
            for layer, states in zip(self.layers, self.layer_inputs, strict=True)
            if layer.stack == stack and states is not None
        ]
        return (*given, self.stack_outputs[stack][0])

    def queries_of(self, site: int) -> Sequence:
        """The positions that look at this site."""
        return self.sequences[self.sites[site].stack]

    def keys_of(self, site: int) -> Sequence:
        """The positions that are looked at: the other stack's, where attention crosses over."""
        crossing = self.sites[site].kind == "cross"
        stack = key_stack(self.sites[site], self.sequences)
        if crossing and stack == self.sites[site].stack:
            return _unnamed(self.visible[site].shape[1])
        return self.sequences[stack]

    def again(self, keep: tuple[str, ...]) -> "Trace":
        """The same text, run once more."""
        return _run(self.subject, self.inputs, checked_keep(keep))


def capture(
    subject: Subject,
    text: Any,
    *,
    pair: str | None = None,
    target_text: str | None = None,
    keep: Iterable[str] = ("attention", "values", "hidden"),
    truncate: bool = False,
) -> Trace:
    """Run the model once on ``text`` and remember what it did.

    ``text`` is a string, an image for a vision model, or encoded inputs (a batch of one). A model
    with two stacks also needs something to say: ``target_text``, or what it generates itself.

    >>> trace = capture(subject, "a gripping , beautifully shot film")
    >>> trace.tokens[:3], len(trace.attention), tuple(trace.attention[0].shape)
    (('[CLS]', 'a', 'gripping'), 6, (12, 8, 8))
    >>> capture(subject, "a film", keep=("hidden",)).attention
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: The attention of this pass were not kept: ...
    """
    kept = checked_keep(keep)
    inputs = subject.encode(text, pair, truncate=truncate)
    if subject.model.config.is_encoder_decoder and "decoder_input_ids" not in inputs:
        inputs["decoder_input_ids"] = _to_say(subject, inputs, target_text)
    elif target_text is not None:
        raise BadRequestError("A target text was given, but this model has no decoder to say it.")
    return _run(subject, without_cache(subject.model, inputs), kept)


class _TraceRecorder(Recorder):
    """Also keeps which keys each query may see; layers with the same mask share one tensor."""

    def __init__(self, keep: Iterable[str]) -> None:
        super().__init__(keep)
        self.visible: list[Visible] = []

    def weighting(self, call: AttentionCall) -> None:
        """Remember the call and its mask."""
        super().weighting(call)
        self.visible.append(self._mask(call))

    def _mask(self, call: AttentionCall) -> Visible:
        rows, columns = call.probs.shape[-2:]
        if call.visible is None:
            everything = torch.ones(1, 1, dtype=torch.bool, device=call.probs.device)
            return everything.expand(rows, columns)
        seen = call.visible[0].any(0).expand(rows, columns)
        for known in reversed(self.visible):
            if known.shape == seen.shape and torch.equal(known, seen):
                return known
        return seen


def _run(subject: Subject, inputs: dict[str, Any], keep: tuple[str, ...]) -> Trace:
    """One watched pass."""
    recorder, made_of = _TraceRecorder(keep), None
    with _one_line(subject.model, inputs):
        if _wakes_more_than_known(subject, inputs):
            with torch.no_grad(), frozen_eval(subject.model):
                made_of = observe(subject.model, inputs, TAPS[subject.anatomy.tap])[:2]
        ran = run_pass(subject, inputs, recorder, keep, made_of)
    sequences = _sequences(subject, inputs, ran["sites"], recorder.visible)
    return Trace(**ran, sequences=sequences, visible=tuple(recorder.visible))


@contextmanager
def _one_line(model: PreTrainedModel, inputs: dict[str, Any]) -> Iterator[None]:
    """Say in one line that the model does not take these inputs."""
    try:
        yield
    except (ValueError, IndexError, TypeError) as problem:
        reason = first_line(problem)
        raise BadRequestError(
            f"{type(model).__name__} could not run on {shapes(inputs)}: {reason}"
        ) from problem


def _wakes_more_than_known(subject: Subject, inputs: dict[str, Any]) -> bool:
    """Inputs such as encoder_hidden_states wake attention that the probe did not see."""
    return "encoder_hidden_states" in inputs and not subject.model.config.is_encoder_decoder


def _sequences(
    subject: Subject, inputs: dict[str, Any], sites: tuple[Site, ...], visible: list[Visible]
) -> dict[str, Sequence]:
    """Names and marks for the positions of every stack."""
    found: dict[str, Sequence] = {}
    image = any(isinstance(part, Tensor) and part.ndim == 4 for part in inputs.values())
    for site, seen in zip(sites, visible, strict=True):
        if site.stack in found:
            continue
        says = site.stack == "decoder" and subject.model.config.is_encoder_decoder
        ids = inputs.get("decoder_input_ids" if says else "input_ids")
        tokens, special = positions(
            subject.tokenizer, None if ids is None else ids[0], seen.shape[0], image
        )
        mask = inputs.get("decoder_attention_mask" if says else "attention_mask")
        real = torch.ones(len(tokens), dtype=torch.bool)
        if mask is not None and mask.shape == (1, len(tokens)):
            real = mask[0].bool().cpu()
        found[site.stack] = Sequence(tokens, special, real)
    return found


def _unnamed(count: int) -> Sequence:
    """Positions of states that came from outside, of which only the number is known."""
    tokens, special = positions(None, None, count)
    return Sequence(tokens, special, torch.ones(count, dtype=torch.bool))


def _to_say(subject: Subject, inputs: dict[str, Any], target_text: str | None) -> Tensor:
    """What the decoder is fed: the given text, or what the model says by itself."""
    model, limit = subject.model, decoder_limit(subject.model)
    if target_text is None:
        return _said_by_itself(model, inputs, limit)
    if subject.tokenizer is None:
        raise BadRequestError("A target text needs a tokenizer: give load(..., tokenizer=...).")
    if not target_text.strip():
        raise BadRequestError("The target text is empty; leave it out to let the model generate.")
    tokenizer = getattr(subject.tokenizer, "tokenizer", subject.tokenizer)
    said = tokenizer(text_target=target_text, return_tensors="pt")["input_ids"].to(model.device)
    if limit is not None and said.shape[1] > limit:
        raise BadRequestError(
            f"The target text has {said.shape[1]} tokens and the decoder takes {limit}; shorten it."
        )
    start = _first_said(model)
    if start is None:
        raise BadRequestError("The model does not say with which token its decoder starts.")
    return torch.cat([torch.full_like(said[:, :1], start), said[:, :-1]], dim=1)


def _said_by_itself(model: PreTrainedModel, inputs: dict[str, Any], limit: int | None) -> Tensor:
    """What the model generates, or what it makes of its input where it does not generate."""
    if not model.can_generate():
        own = own_decoder_ids(model, inputs)
        if own is None:
            raise BadRequestError(
                f"{type(model).__name__} has a decoder and generates nothing by itself; give it "
                "something to say (target_text=)."
            )
        return own
    most = GENERATED if limit is None else min(GENERATED, limit)  # the last is said, but never fed
    with torch.no_grad(), frozen_eval(model):
        said: Tensor = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=most)
    return said[:, :-1] if said.shape[1] > 1 else said


def _first_said(model: PreTrainedModel) -> int | None:
    """The token that a decoder starts with."""
    for config in (getattr(model, "generation_config", None), model.config):
        start: int | None = getattr(config, "decoder_start_token_id", None)
        if start is not None:
            return start
    return None
