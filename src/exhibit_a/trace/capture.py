"""What did the model do with this text?

One forward pass is watched and remembered: the attention of every site, the values it averaged,
the hidden states between the layers, and the answer. ``keep`` chooses, because attention alone is
heads × tokens² for every layer; what was not kept can be had later with ``trace.keeping(...)``,
which runs the pass again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from exhibit_a.errors import BadRequestError, BrokenInvariantError
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
from exhibit_a.subject.anatomy import Layer, Site, first_hidden, observe, output_weight
from exhibit_a.subject.care import Forward, around, floating, undisturbed, without_cache
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.subject import TAPS, Subject
from exhibit_a.subject.tap import AttentionCall, Tap, shared_to_all

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
    entries: dict[str, Tensor] = field(
        default_factory=dict
    )  # what each stack's first layer was given
    layer_outputs: tuple[Any, ...] = ()

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
    def _first(self) -> Sequence:
        return self.sequences[self.sites[0].stack]

    def hidden_of(self, stack: str) -> tuple[TokenStates, ...]:
        """Hidden states 0 … layers of one stack."""
        if "hidden" not in self.keep:
            raise BadRequestError('Hidden states were not kept: capture with keep=("hidden", …).')
        if stack not in self.entries:
            raise BadRequestError(f"There is no stack {stack!r}; found {', '.join(self.entries)}.")
        outputs = [
            leading(output)[0]
            for layer, output in zip(self.layers, self.layer_outputs, strict=True)
            if layer.stack == stack
        ]
        return (self.entries[stack][0], *outputs)

    def queries_of(self, site: int) -> Sequence:
        """The positions that look at this site."""
        return self.sequences[self.sites[site].stack]

    def keys_of(self, site: int) -> Sequence:
        """The positions that are looked at: the other stack's, where attention crosses over."""
        here = self.sites[site]
        if here.kind == "self":
            return self.sequences[here.stack]
        return next((s for name, s in self.sequences.items() if name != here.stack), self._first)

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


def leading(output: Any) -> Tensor:
    """The hidden states in what a layer returned."""
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found


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
    model, recorder = subject.model, _Recorder(keep)
    sites, layers = subject.anatomy.sites, subject.anatomy.layers
    outputs: list[Any] = []
    inlets: list[Tensor | None] = []

    def remember(forward: Forward) -> Forward:
        def layer(*args: Any, **kwargs: Any) -> Any:
            inlets.append(first_hidden(args, kwargs))
            output = forward(*args, **kwargs)
            outputs.append(output)
            return output

        return layer

    with undisturbed(model):
        if _calls_more_than_known(subject, inputs):
            sites, layers, _ = observe(model, inputs, TAPS[subject.anatomy.tap])
        modules = {layer.module: model.get_submodule(layer.module) for layer in layers}
        watched = list(modules.values()) if "hidden" in keep else []
        with subject.tapping(recorder), around(watched, remember):
            output = model(**inputs)
    if not all(bool(part.isfinite().all()) for part in floating(output)):
        raise BrokenInvariantError(
            "The model's answer to this input is NaN or infinite; no numbers are given for it."
        )
    entries: dict[str, Tensor] = {}
    for layer, given in zip(layers, inlets, strict=False):
        if layer.stack not in entries and given is not None:
            entries[layer.stack] = given
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
        entries=entries,
        layer_outputs=tuple(outputs),
    )


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
    model = subject.model
    if target_text is None:
        with torch.no_grad(), undisturbed(model):
            said: Tensor = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=64)
        return said[:, :-1] if said.shape[1] > 1 else said
    if subject.tokenizer is None:
        raise BadRequestError("A target text needs a tokenizer: give load(..., tokenizer=...).")
    if not target_text.strip():
        raise BadRequestError("The target text is empty; leave it out to let the model generate.")
    tokenizer = getattr(subject.tokenizer, "tokenizer", subject.tokenizer)
    said = tokenizer(text_target=target_text, return_tensors="pt")["input_ids"].to(model.device)
    start = model.generation_config.decoder_start_token_id
    if start is None:
        raise BadRequestError("The model does not say with which token its decoder starts.")
    return torch.cat([torch.full_like(said[:, :1], start), said[:, :-1]], dim=1)


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
