"""What did the model do with this text?

One forward pass is watched and remembered: the attention of every site, the values it averaged,
the hidden states between the layers, and the answer. ``keep`` says what of it, because attention
alone is heads × tokens² for every layer; ``trace.keeping(...)`` runs the pass again and keeps more.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.shapes import (
    Inputs,
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
from exhibit_a.subject.encoding import decoder_ids, decoder_limit, positions, shapes
from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.modes import usual_modes
from exhibit_a.subject.subject import TAPS, Subject
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.passes import Pass, Recorder, checked_keep, run_pass

GENERATED = 64  # tokens that a model with two stacks generates for itself, at most


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
        return tuple(maps[0] for maps in self.at("attention") if maps is not None)

    @cached_property
    def values(self) -> tuple[SiteValues, ...]:
        """The values of every site, (head, key, d_head), shared ones repeated."""
        return tuple(values[0] for values in self.at("values") if values is not None)

    @cached_property
    def queries(self) -> tuple[SiteQueries | None, ...]:
        """The queries of every site, (head, query, d_query), or None where they are not seen."""
        return tuple(None if rows is None else rows[0] for rows in self.at("queries"))

    @cached_property
    def keys(self) -> tuple[SiteKeys | None, ...]:
        """The keys of every site, (head, key, d_query), or None where they are not seen."""
        return tuple(None if rows is None else rows[0] for rows in self.at("keys"))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The positions of the input (of the encoder, where there are two stacks)."""
        return self._input.tokens

    @property
    def special(self) -> TokenMarks:
        """Which positions the tokenizer added."""
        return self._input.special

    @property
    def real(self) -> TokenMarks:
        """Which positions are not padding."""
        return self._input.real

    @property
    def hidden(self) -> tuple[TokenStates, ...]:
        """Hidden states of the input's stack: the input of its first layer, then each output."""
        return self.hidden_of(self.sites[0].stack)

    @property
    def token_names(self) -> dict[str, tuple[str, ...]]:
        """The tokens of every stack."""
        return {stack: sequence.tokens for stack, sequence in self.sequences.items()}

    @property
    def _input(self) -> Sequence:
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
        # A state is the input of the next layer: a hook or a product may stand between two layers.
        inputs = [
            states[0]
            for layer, states in zip(self.layers, self.layer_inputs, strict=True)
            if layer.stack == stack and states is not None
        ]
        return (*inputs, self.stack_outputs[stack][0])

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

    def rerun(self, keep: tuple[str, ...]) -> "Trace":
        """The same text, run once more."""
        self.require_same_weights()
        return _run(self.subject, self.inputs, checked_keep(keep))


@usual_modes()
def capture(
    subject: Subject,
    text: object,
    *,
    pair: str | None = None,
    target_text: str | None = None,
    keep: Iterable[str] = ("attention", "values", "hidden"),
    truncate: bool = False,
) -> Trace:
    """Run the model once on ``text`` and remember what it did.

    >>> trace = capture(subject, "a gripping , beautifully shot film")
    >>> trace.tokens[:3], len(trace.attention), tuple(trace.attention[0].shape)
    (('[CLS]', 'a', 'gripping'), 6, (12, 8, 8))
    >>> capture(subject, "a film", keep=("hidden",)).attention
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: The attention of this pass were not kept: ...

    Args:
        subject: the model.
        text: a string, an image for a vision model, or encoded inputs (a batch of one).
        pair: the second text, for a model that reads two.
        target_text: the text that the decoder of a model with two stacks is given; without, what
            the model generates itself.
        keep: what is remembered: attention, values, hidden, queries, keys.
        truncate: cut a text that is too long for the model, instead of refusing it.
    """
    kept = checked_keep(keep)
    inputs = subject.encode(text, pair, truncate=truncate)
    if subject.model.config.is_encoder_decoder and "decoder_input_ids" not in inputs:
        inputs["decoder_input_ids"] = _decoder_inputs(subject, inputs, target_text)
    elif target_text is not None:
        raise BadRequestError("A target text was given, but this model has no decoder to read it.")
    return _run(subject, without_cache(subject.model, inputs), kept)


class _TraceRecorder(Recorder):
    """Also keeps which keys each query may see; layers with the same mask share one tensor."""

    def __init__(self, keep: Iterable[str]) -> None:
        super().__init__(keep)
        self.visible: list[SiteVisible] = []

    def weighting(self, call: AttentionCall) -> None:
        """Remember the call and its mask."""
        super().weighting(call)
        self.visible.append(self._mask(call))

    def _mask(self, call: AttentionCall) -> Visible:
        rows, columns = call.probs.shape[-2:]
        if call.visible is None:
            everything = torch.ones(1, 1, dtype=torch.bool, device=call.probs.device)
            return everything.expand(rows, columns)
        mask = call.visible[0].any(0).expand(rows, columns)
        for known in reversed(self.visible):
            if known.shape == mask.shape and torch.equal(known, mask):
                return known
        return mask


def _run(subject: Subject, inputs: Inputs, keep: tuple[str, ...]) -> Trace:
    """One watched pass."""
    recorder, active = _TraceRecorder(keep), None
    with _readable_errors(subject.model, inputs):
        if _uses_unprobed_attention(subject, inputs):
            with torch.no_grad(), frozen_eval(subject.model):
                active = observe(subject.model, inputs, TAPS[subject.anatomy.tap])[:2]
        passed = run_pass(subject, inputs, recorder, keep, active)
    sequences = _sequences(subject, inputs, passed["sites"], recorder.visible)
    return Trace(**passed, sequences=sequences, visible=tuple(recorder.visible))


@contextmanager
def _readable_errors(model: PreTrainedModel, inputs: Inputs) -> Iterator[None]:
    """Say in one line that the model does not take these inputs."""
    try:
        yield
    except (ValueError, IndexError, TypeError) as problem:
        reason = first_line(problem)
        raise BadRequestError(
            f"{type(model).__name__} could not run on {shapes(inputs)}: {reason}"
        ) from problem


def _uses_unprobed_attention(subject: Subject, inputs: Inputs) -> bool:
    """Whether inputs such as encoder_hidden_states turn on attention that the probe did not see."""
    return "encoder_hidden_states" in inputs and not subject.model.config.is_encoder_decoder


def _sequences(
    subject: Subject, inputs: Inputs, sites: tuple[Site, ...], visible: list[SiteVisible]
) -> dict[str, Sequence]:
    """Names and marks for the positions of every stack."""
    sequences: dict[str, Sequence] = {}
    image = any(isinstance(value, Tensor) and value.ndim == 4 for value in inputs.values())
    for site, seen in zip(sites, visible, strict=True):
        if site.stack in sequences:
            continue
        decodes = site.stack == "decoder" and subject.model.config.is_encoder_decoder
        ids = inputs.get("decoder_input_ids" if decodes else "input_ids")
        tokens, special = positions(
            subject.tokenizer, None if ids is None else ids[0], seen.shape[0], image
        )
        mask = inputs.get("decoder_attention_mask" if decodes else "attention_mask")
        real = torch.ones(len(tokens), dtype=torch.bool)
        if mask is not None and mask.shape == (1, len(tokens)):
            real = mask[0].bool().cpu()
        sequences[site.stack] = Sequence(tokens, special, real)
    return sequences


def _unnamed(count: int) -> Sequence:
    """Positions of states that came from outside, of which only the number is known."""
    tokens, special = positions(None, None, count)
    return Sequence(tokens, special, torch.ones(count, dtype=torch.bool))


def _decoder_inputs(subject: Subject, inputs: Inputs, target_text: str | None) -> Tensor:
    """The ids that the decoder is given: of the target text, or of what the model generates."""
    model, limit = subject.model, decoder_limit(subject.model)
    if target_text is None:
        return _generated(model, inputs, limit)
    if subject.tokenizer is None:
        raise BadRequestError("A target text needs a tokenizer: give load(..., tokenizer=...).")
    if not target_text.strip():
        raise BadRequestError("The target text is empty; leave it out to let the model generate.")
    processor = subject.tokenizer
    tokenizer = processor.tokenizer if hasattr(processor, "tokenizer") else processor
    ids = tokenizer(text_target=target_text, return_tensors="pt")["input_ids"].to(model.device)
    if limit is not None and ids.shape[1] > limit:
        raise BadRequestError(
            f"The target text has {ids.shape[1]} tokens and the decoder takes {limit}; shorten it."
        )
    start = _decoder_start(model)
    if start is None:
        raise BadRequestError("The model does not state the token with which its decoder starts.")
    return torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], dim=1)


def _generated(model: PreTrainedModel, inputs: Inputs, limit: int | None) -> Tensor:
    """What the model generates, or what it makes of its input where it does not generate."""
    if not model.can_generate():
        shifted = decoder_ids(model, inputs)
        if shifted is None:
            raise BadRequestError(
                f"{type(model).__name__} has a decoder and does not generate; give a text for the "
                "decoder (target_text=)."
            )
        return shifted
    most = GENERATED if limit is None else min(GENERATED, limit)  # the last is never an input
    with torch.no_grad(), frozen_eval(model):
        generate = cast("Callable[..., Tensor]", model.generate)  # not declared for every model
        ids = generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=most)
    return ids[:, :-1] if ids.shape[1] > 1 else ids


def _decoder_start(model: PreTrainedModel) -> int | None:
    """The token that a decoder starts with."""
    for config in (getattr(model, "generation_config", None), model.config):
        start: int | None = getattr(config, "decoder_start_token_id", None)
        if start is not None:
            return start
    return None
