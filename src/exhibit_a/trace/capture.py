"""What did the model do with this text?

One forward pass is watched and remembered: the attention of every site, the values it averaged,
the hidden states between the layers, and the answer. ``keep`` chooses, because attention alone is
heads × tokens² for every layer; what was not kept can be had later with ``trace.keeping(...)``,
which runs the pass again.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from exhibit_a.errors import BadRequestError, BrokenInvariantError, first_line
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
from exhibit_a.subject.anatomy import Layer, Site, observe, output_weight
from exhibit_a.subject.encoding import (
    decoder_limit,
    own_decoder_ids,
    positions,
    shapes,
)
from exhibit_a.subject.guard import floating, frozen_eval, without_cache
from exhibit_a.subject.subject import TAPS, Subject
from exhibit_a.subject.tap import AttentionCall, Tap, shared_to_all
from exhibit_a.trace.layers import LayerRecorder

KEEPABLE = ("attention", "values", "hidden", "queries", "keys")


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """The positions of one stack's input: their names, and which are special or padding."""

    tokens: tuple[str, ...]
    special: TokenMarks
    real: TokenMarks


@dataclass(frozen=True, eq=False)
class Trace:
    """One forward pass, remembered."""

    subject: Subject
    inputs: dict[str, Any]
    sequences: dict[str, Sequence]  # by stack
    sites: tuple[Site, ...]
    layers: tuple[Layer, ...]
    output: Any
    keep: tuple[str, ...]
    visible: tuple[SiteVisible, ...]
    attention: tuple[SiteMap, ...] = ()
    values: tuple[SiteValues, ...] = ()
    queries: tuple[SiteQueries | None, ...] = ()
    keys: tuple[SiteKeys | None, ...] = ()
    layer_inputs: tuple[Tensor | None, ...] = ()  # the states each layer call was given
    layer_outputs: tuple[Any, ...] = ()  # what it returned, as replay returns it again
    stack_outputs: dict[str, Tensor] = field(
        default_factory=dict
    )  # what each stack gave in the end

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
    def entries(self) -> dict[str, Tensor]:
        """The states that the first layer of each stack was given."""
        found: dict[str, Tensor] = {}
        for layer, given in zip(self.layers, self.layer_inputs, strict=False):
            if given is not None:
                found.setdefault(layer.stack, given)
        return found

    @property
    def _first(self) -> Sequence:
        return self.sequences[self.sites[0].stack]

    def hidden_of(self, stack: str) -> tuple[TokenStates, ...]:
        """Hidden states 0 … layers of one stack."""
        if "hidden" not in self.keep:
            raise BadRequestError('Hidden states were not kept: capture with keep=("hidden", …).')
        if stack not in self.stack_outputs:
            raise BadRequestError(f"There is no stack {stack!r}; found {', '.join(self.outlets)}.")
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
        here = self.sites[site]
        if here.kind == "self":
            return self.sequences[here.stack]
        other = [sequence for stack, sequence in self.sequences.items() if stack != here.stack]
        return other[0] if other else _unnamed(self.visible[site].shape[1])

    def keeping(self, *what: str) -> "Trace":
        """This trace with ``what`` kept too; the pass is run again when it was not."""
        missing = [name for name in what if name not in self.keep]
        if not missing:
            return self
        return _run(self.subject, self.inputs, _checked((*self.keep, *missing)))

    def output_weight(self, site: int) -> Tensor | None:
        """The output projection as each head of a site meets it, where it was found."""
        return output_weight(self.subject.model, self.sites[site])


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
    """
    kept = _checked(keep)
    inputs = subject.encode(text, pair, truncate=truncate)
    if subject.model.config.is_encoder_decoder and "decoder_input_ids" not in inputs:
        inputs["decoder_input_ids"] = _to_say(subject, inputs, target_text)
    elif target_text is not None:
        raise BadRequestError("A target text was given, but this model has no decoder to say it.")
    return _run(subject, without_cache(subject.model, inputs), kept)


def _unnamed(count: int) -> Sequence:
    """Positions of states that came from outside, of which only the number is known."""
    tokens, special = positions(None, None, count)
    return Sequence(tokens, special, torch.ones(count, dtype=torch.bool))


class _Recorder(Tap):
    """Keeps what was asked of every attention call."""

    def __init__(self, keep: tuple[str, ...]) -> None:
        self.keep = keep
        self.kept: dict[str, list[Any]] = {name: [] for name in (*KEEPABLE, "visible")}

    def weighting(self, call: AttentionCall) -> None:
        """Remember the call."""
        if "attention" in self.keep:
            self.kept["attention"].append(call.probs[0])
        if "values" in self.keep:
            self.kept["values"].append(call.values[0])
        if "queries" in self.keep:
            self.kept["queries"].append(None if call.query is None else call.query[0])
        if "keys" in self.keep:
            keys = None if call.key is None else shared_to_all(call.key, call.probs.shape[1])[0]
            self.kept["keys"].append(keys)
        self.kept["visible"].append(self._visible(call))

    def _visible(self, call: AttentionCall) -> Visible:
        """Which keys each query may see; layers with the same mask share one tensor."""
        rows, columns = call.probs.shape[-2:]
        if call.visible is None:
            return torch.ones(1, 1, dtype=torch.bool, device=call.probs.device).expand(
                rows, columns
            )
        seen = call.visible[0].any(0).expand(rows, columns)
        for known in reversed(self.kept["visible"]):
            if known.shape == seen.shape and torch.equal(known, seen):
                same: Visible = known
                return same
        return seen


@torch.no_grad()
def _run(subject: Subject, inputs: dict[str, Any], keep: tuple[str, ...]) -> Trace:
    """One watched pass."""
    model, recorder, passage = subject.model, _Recorder(keep), LayerRecorder()
    sites, layers = subject.anatomy.sites, subject.anatomy.layers
    with frozen_eval(model), _told(model, inputs):
        if _calls_more_than_known(subject, inputs):
            sites, layers, _ = observe(model, inputs, TAPS[subject.anatomy.tap])
        watched = layers if "hidden" in keep else ()
        with subject.tapping(recorder), passage.watching(model, watched):
            output = model(**inputs)
    if not all(bool(part.isfinite().all()) for part in floating(output)):
        raise BrokenInvariantError(
            "The model's answer to this input is NaN or infinite; no numbers are given for it."
        )
    return Trace(
        subject=subject,
        inputs=inputs,
        sequences=_sequences(subject, inputs, sites, recorder.kept["visible"]),
        sites=sites,
        layers=layers,
        output=output,
        keep=keep,
        visible=tuple(recorder.kept["visible"]),
        attention=tuple(recorder.kept["attention"]),
        values=tuple(recorder.kept["values"]),
        queries=tuple(recorder.kept["queries"]),
        keys=tuple(recorder.kept["keys"]),
        layer_inputs=tuple(passage.layer_inputs),
        layer_outputs=tuple(passage.outputs),
        stack_outputs=passage.stack_outputs(layers),
    )


@contextmanager
def _told(model: Any, inputs: dict[str, Any]) -> Iterator[None]:
    """Say in one line that the model does not take these inputs."""
    try:
        yield
    except (ValueError, IndexError, TypeError) as problem:
        reason = first_line(problem)
        raise BadRequestError(
            f"{type(model).__name__} could not run on {shapes(inputs)}: {reason}"
        ) from problem


def _calls_more_than_known(subject: Subject, inputs: dict[str, Any]) -> bool:
    """Inputs such as encoder_hidden_states wake attention that the probe did not see."""
    return "encoder_hidden_states" in inputs and not subject.model.config.is_encoder_decoder


def _sequences(
    subject: Subject, inputs: dict[str, Any], sites: tuple[Site, ...], visible: list[SiteVisible]
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


def _said_by_itself(model: Any, inputs: dict[str, Any], limit: int | None) -> Tensor:
    """What the model generates, or what it makes of its input where it does not generate."""
    if not model.can_generate():
        own = own_decoder_ids(model, inputs)
        if own is None:
            raise BadRequestError(
                f"{type(model).__name__} has a decoder and generates nothing by itself; give it "
                "something to say (target_text=)."
            )
        return own
    most = 64 if limit is None else min(64, limit)  # the last one is said, but never fed
    with torch.no_grad(), frozen_eval(model):
        said: Tensor = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=most)
    return said[:, :-1] if said.shape[1] > 1 else said


def _first_said(model: Any) -> int | None:
    """The token that a decoder starts with."""
    for config in (getattr(model, "generation_config", None), model.config):
        start: int | None = getattr(config, "decoder_start_token_id", None)
        if start is not None:
            return start
    return None


def _checked(keep: Iterable[str]) -> tuple[str, ...]:
    wanted = (keep,) if isinstance(keep, str) else tuple(dict.fromkeys(keep))
    unknown = [name for name in wanted if name not in KEEPABLE]
    if unknown:
        raise BadRequestError(f"Cannot keep {unknown[0]!r}; choose from {', '.join(KEEPABLE)}.")
    return wanted


def expand(tree: Any, copies: int) -> Any:
    """Repeat every one-row tensor of ``tree`` without copying it."""
    return tree_map_only(
        Tensor,
        lambda part: part.expand(copies, *part.shape[1:]) if part.ndim and len(part) == 1 else part,
        tree,
    )
