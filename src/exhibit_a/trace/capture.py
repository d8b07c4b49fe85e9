"""One text through the model, watched and remembered.

One forward pass is watched and remembered: the attention of every site, the values it averaged,
the hidden states between the layers, and the answer. ``keep`` says what of it, because attention
alone is heads × tokens² for every layer; ``trace.keeping(...)`` runs the pass again and keeps more.
``rows`` keeps a few rows of attention and forms no others (``rows.py``); what stands at each
position is named in ``positions.py``.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.numerics.precision import to_float64
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
from exhibit_a.subject.anatomy import VISION, key_stack, main_stack
from exhibit_a.subject.encoding import shapes
from exhibit_a.subject.guard import default_torch_state, floating, frozen_eval, without_cache
from exhibit_a.subject.images import Scene, pixels_of
from exhibit_a.subject.observing import observe
from exhibit_a.subject.precision import half_types
from exhibit_a.subject.prompts import Prompt, Reply, Span, prompted
from exhibit_a.subject.subject import TAPS, Subject
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.budget import require_room
from exhibit_a.trace.layout import Layout
from exhibit_a.trace.passes import (
    AT_SITES,
    LATER,
    PartialPass,
    Pass,
    Recorder,
    checked_keep,
    run_pass,
)
from exhibit_a.trace.positions import (
    Grid,
    Positions,
    named_sequences,
    naming_masks,
    patch_grids,
    seen_everywhere,
    unnamed,
)
from exhibit_a.trace.rows import (
    LazySequence,
    RowRecorder,
    RowRequest,
    Rows,
    later_answers,
    row_request,
    written_length,
)

REPEATS = 64  # roundings of the largest number below that two runs of one pass may differ by


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Pass):
    """One forward pass over one text, remembered."""

    sequences: dict[str, Positions]  # by stack
    visible: tuple[SiteVisible, ...] = field(repr=False)
    spans: tuple[Span, ...] = ()  # tokens of the input that are a text, a message or the answer
    reply: Reply | None = None  # the answer that was given or generated, token by token

    @cached_property
    def attention(self) -> Sequence[SiteMap]:
        """The attention of every site, (head, query, key); queries are ``rows``, if not all."""
        return self._of_one("attention")

    @cached_property
    def values(self) -> Sequence[SiteValues]:
        """The values of every site, (head, key, d_head), shared ones repeated."""
        return self._of_one("values")

    @cached_property
    def queries(self) -> Sequence[SiteQueries | None]:
        """The queries of every site, (head, query, d_query), or None where they are not seen."""
        return self._of_one("queries")

    @cached_property
    def keys(self) -> Sequence[SiteKeys | None]:
        """The keys of every site, (head, key, d_query), or None where they are not seen."""
        return self._of_one("keys")

    def _of_one(self, name: str) -> Sequence[Any]:
        """What was kept of the one text; where rows were requested, made when it is used."""
        by_site = LazySequence(self.at(name), lambda rows: None if rows is None else rows[0])
        return by_site if self.partial is not None else tuple(by_site)

    @property
    def rows(self) -> tuple[int, ...] | None:
        """The positions whose rows of attention were kept; None where all were."""
        return None if self.partial is None else self.partial.rows

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
    def answer(self) -> slice | None:
        """The tokens of the input that are the answer, where it stands there."""
        for span in self.spans:
            if span.kind == "answer":
                return slice(span.start, span.stop)
        return None

    @property
    def hidden(self) -> tuple[TokenStates, ...]:
        """Hidden states of the input's stack: the input of its first layer, then each output."""
        return self.hidden_of(main_stack(self.sites))

    @property
    def token_names(self) -> dict[str, tuple[str, ...]]:
        """The tokens of every stack."""
        return {stack: sequence.tokens for stack, sequence in self.sequences.items()}

    @property
    def grids(self) -> dict[str, tuple[Grid, ...]]:
        """For every stack and picture, the position that stands at each row and column of it."""
        first = {site.stack: site for site in reversed(self.sites)}
        masks = naming_masks(self.visible, self.partial)
        seen = {s: seen_everywhere(site, self.sites, masks) for s, site in first.items()}
        return {s: patch_grids(self.subject, self.inputs, s, seen[s]) for s in seen}

    @cached_property
    def scene(self) -> Scene | None:
        """The picture that was looked at and the places of the positions in it, if there is one."""
        pixels = pixels_of(self.subject.model, self.inputs)
        grids = {stack: grids for stack, grids in self.grids.items() if grids}
        return Scene(pixels, grids) if pixels is not None and grids else None

    @property
    def layouts(self) -> dict[str, Layout]:
        """Where the tokens of every stack stand in the text, for stacks that read text."""
        known = {stack: sequence.layout for stack, sequence in self.sequences.items()}
        return {stack: layout for stack, layout in known.items() if layout is not None}

    @property
    def _input(self) -> Positions:
        return self.sequences[main_stack(self.sites)]

    def __repr__(self) -> str:
        kept = ", ".join(self.keep) or "nothing"
        rows = "" if self.rows is None else f" of {len(self.rows)} rows"
        return f"Trace: {self.subject.name}, {len(self.tokens)} tokens; kept{rows}: {kept}."

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

    def queries_of(self, site: int) -> Positions:
        """The positions that look at this site; the requested ones, if not all."""
        stack = self.sites[site].stack
        positions = self.sequences[stack]
        if self.partial is None:
            return positions
        return positions.part(self.partial.rows if stack == self.partial.stack else ())

    def keys_of(self, site: int) -> Positions:
        """The positions that are looked at: the other stack's, where attention crosses over."""
        crossing = self.sites[site].kind == "cross"
        stack = key_stack(self.sites[site], self.sequences)
        if crossing and stack == self.sites[site].stack:
            return unnamed(self.visible[site].shape[1])
        return self.sequences[stack]

    def require_same_answer(self) -> None:
        """Refuse to go on with a model that answers this input otherwise than in this pass.

        Weights are compared elsewhere; a hook, a changed constant or another configuration are
        noticed by the answer.
        """
        self.require_same_weights()
        self._require_answers(_answers(self))

    def _require_answers(self, now: Sequence[Tensor]) -> None:
        pairs = list(zip(now, floating(self.output), strict=False))
        # An answer near zero is a difference of large numbers, and is rounded as they are.
        sizes = [*floating(self.output), *self.stack_outputs.values()]
        size = max((float(then.abs().amax()) for then in sizes if then.numel()), default=0.0)
        moved = max((_difference(*pair) for pair in pairs), default=0.0)
        if len(now) != len(pairs) or not moved <= REPEATS * torch.finfo(torch.float32).eps * size:
            raise BadRequestError(
                f"{self.subject.name} no longer gives the answer of this pass, which moved by "
                f"{moved:.2g}: a hook, a setting or a module was changed after it. Undo that, or "
                "capture the text again."
            )

    @cached_property
    def own_rounding(self) -> dict[str, str]:
        """How far the model's own arithmetic moves its answer, where that is half precision."""
        held = half_types(self.subject.model)
        if not held:
            return {}
        name = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in held))
        try:
            rounded = _answers_as_held(self)
        except RuntimeError as problem:
            effect = f"the model itself does not run in {name} ({first_line(problem)})"
        else:
            effect = _rounding_effect(name, floating(self.output)[0], rounded[0])
        return {"held in half precision": f"weights in {name}, computed in float32; {effect}"}

    @property
    def warnings(self) -> dict[str, str]:
        """What to beware of in any result on this pass."""
        return self.subject.warnings(self.tokens) | self.own_rounding

    def rerun(self, keep: tuple[str, ...]) -> "Trace":
        """The same text, run once more."""
        if self.partial is None:
            again = self._again(keep, None)
        elif self.partial.captured is None:
            again = self._again(keep, RowRequest(self.partial.rows))
        else:
            request = RowRequest(self.partial.captured) if self.partial.captured else None
            again = self._again(keep, request).at_rows(self.partial.rows)
        self._require_answers(floating(again.output))
        return again

    def whole(self) -> "Trace":
        """The same text with all rows of attention kept; the model is run again if they were not.

        >>> last = xa.capture(subject, "a gripping film", rows=[-1])
        >>> last.rows, tuple(last.attention[0].shape), tuple(last.whole().attention[0].shape)
        ((4,), (12, 1, 5), (12, 5, 5))
        """
        return self if self.partial is None else self._again(self.keep, None)

    def at_rows(self, rows: Sequence[int]) -> "Trace":
        """This pass with these rows of attention alone, of the stack that answers.

        >>> last = trace.at_rows([7])
        >>> last.rows, tuple(last.attention[0].shape)
        ((7,), (12, 1, 8))
        """
        wanted, stack = tuple(sorted(rows)), self.sites[-1].stack
        if self.rows == wanted:
            return self
        known = range(len(self.sequences[stack].tokens)) if self.rows is None else self.rows
        missing = [row for row in wanted if row not in known]
        if missing or not wanted:
            raise BadRequestError(
                f"The rows {missing} of this pass were not kept; it has {list(known)}. Capture "
                "those rows too, or fetch all with trace.whole()."
            )
        places = torch.tensor([known.index(row) for row in wanted], dtype=torch.long)

        def cut(kept: Tensor, site: int, axis: int) -> Tensor:
            some = places if self.sites[site].stack == stack else places[:0]
            return kept.index_select(axis, some.to(kept.device))

        def of_rows(name: str) -> Sequence[Tensor | None]:
            kept, sites = self.at_sites[name], range(len(self.sites))
            if name not in ("attention", "queries"):
                return kept

            def at(site: int) -> Tensor | None:
                tensor = kept[site]
                return None if tensor is None else cut(tensor, site, 2)

            return LazySequence(sites, at)

        sizes = tuple((seen.shape[0], seen.shape[1]) for seen in self.visible)
        partial = self.partial or PartialPass((), stack, sizes, 0.0, (), captured=())
        if partial.captured is None:
            partial = replace(partial, captured=partial.rows)
        visible = tuple(cut(seen, site, 0) for site, seen in enumerate(self.visible))
        return replace(
            self,
            at_sites={name: of_rows(name) for name in self.at_sites},
            visible=visible,
            partial=replace(partial, rows=wanted),
        )

    def _again(self, keep: tuple[str, ...], request: RowRequest | None) -> "Trace":
        """The same text, run once more with these rows, or all."""
        self.require_same_weights()
        ours = (LATER,) if self.first_logit else ()
        inputs = {name: given for name, given in self.inputs.items() if name not in ours}
        prompt = Prompt(inputs, self.spans, self.reply)
        again = _run(self.subject, prompt, checked_keep(keep), request)
        return replace(again, sequences=self.sequences)


@torch.no_grad()
def _answers(trace: Trace) -> list[Tensor]:
    """What the model answers now."""
    subject = trace.subject
    with frozen_eval(subject.model), subject.tapping(Tap(), fused=trace.fused):
        return floating(subject.model(**trace.inputs))


@torch.no_grad()
def _answers_as_held(trace: Trace) -> list[Tensor]:
    """What the model answers without us, in the precision it is held in."""
    model = trace.subject.model

    def rounded(given: Tensor) -> Tensor:
        return given.to(model.dtype) if given.is_floating_point() else given

    with frozen_eval(model, as_held=True):
        return floating(model(**tree_map_only(Tensor, rounded, trace.inputs)))


def _difference(now: Tensor, then: Tensor) -> float:
    """How far two answers are apart; infinitely, where they are not of one shape."""
    if now.shape != then.shape:
        return torch.inf
    return float((to_float64(now) - to_float64(then)).abs().amax()) if now.numel() else 0.0


def _rounding_effect(name: str, answer: Tensor, rounded: Tensor) -> str:
    """What the model's own precision does to the last answer that it gives, in words."""
    answer, rounded = (tensor[0].reshape(-1, tensor.shape[-1])[-1] for tensor in (answer, rounded))
    moved = _difference(rounded, answer)
    if not moved < torch.inf:
        return f"in {name} its answer is not finite"
    same = int(answer.argmax()) == int(rounded.argmax())
    return f"in {name} its answer moves by {moved:.2g}" + ("" if same else ", and is another one")


@default_torch_state()
def capture(
    subject: Subject,
    text: object,
    *,
    pair: str | None = None,
    target_text: str | tuple[int, ...] | None = None,
    generate: int | None = None,
    keep: Iterable[str] = ("attention", "values", "hidden"),
    rows: Rows | None = None,
    truncate: bool = False,
) -> Trace:
    """Run the model once on ``text`` and remember what it did.

    A language model may be given the answer that follows the text, or be let generate it: both are
    then one pass, and ``choose_target(trace, "answer")`` is the log-probability of the answer. It
    is tokenised as it stands after the text, or apart where the two would merge at the border.

    With ``rows``, the model runs on its own fused attention and no n × n map is formed: long texts
    fit. The maps of a site are then (head, requested row, key), and a language model gives its
    answers from the first of these rows on. ``trace.whole()`` fetches all rows.

    >>> trace = capture(subject, "a gripping , beautifully shot film")
    >>> trace.tokens[:3], len(trace.attention), tuple(trace.attention[0].shape)
    (('[CLS]', 'a', 'gripping'), 6, (12, 8, 8))
    >>> capture(subject, "a film", keep=("hidden",)).attention
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: The attention of this pass were not kept: ...
    >>> few = capture(subject, "a gripping , beautifully shot film", rows=[0, -1])
    >>> few.rows, tuple(few.attention[0].shape)
    ((0, 7), (12, 2, 8))
    >>> capture(subject, "a film", target_text=" is fine")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: An answer can be given to models that go on with a text; ...

    Args:
        subject: the model.
        text: a string, messages ({"role", "content"}) for a model with a chat template, an image
            for a vision model, or encoded inputs (a batch of one).
        pair: the second text, for a model that reads two.
        target_text: the answer of a language model, as text or token ids, or what the decoder of a
            model with two stacks is given; without, a model with two stacks generates it.
        generate: let a language model generate the answer, of at most this many tokens.
        keep: what is remembered: attention, values, hidden, queries, keys.
        rows: the rows of attention that are kept, and no others: positions (negative ones from the
            end), a slice of them, or "answer" for those that the answer is predicted from.
        truncate: cut a text that is too long for the model, instead of refusing it.
    """
    kept = checked_keep(keep)
    prompt = prompted(subject, text, pair, answer=target_text, generate=generate, truncate=truncate)
    prompt = replace(prompt, inputs=without_cache(subject.model, prompt.inputs))
    return _run(subject, prompt, kept, None if rows is None else row_request(subject, prompt, rows))


def capture_alike(subject: Subject, prompts: Sequence[Prompt]) -> list[Trace]:
    """Passes over texts of one length, without padding, from one run of the model."""
    count, model = len(prompts), subject.model
    joined = {
        name: torch.cat([each.inputs[name] for each in prompts]) for name in prompts[0].inputs
    }
    keep, inputs = ("attention", "values", "hidden"), without_cache(model, joined)
    recorder = _TraceRecorder(keep)
    with _readable_errors(model, inputs):
        passed = run_pass(subject, inputs, recorder, keep)
    traces = []
    for row, prompt in enumerate(prompts):

        def of_text(tensor: Tensor, row: int = row) -> Tensor:
            return tensor[row : row + 1] if tensor.ndim and len(tensor) == count else tensor

        names = ("inputs", "output", "at_sites", "layer_inputs", "layer_outputs", "stack_outputs")
        own = passed | {name: tree_map_only(Tensor, of_text, passed[name]) for name in names}
        visible = tuple(recorder.visible)
        masks = naming_masks(visible, None)
        sequences = named_sequences(subject, prompt, own["layers"], own["sites"], masks)
        traces.append(
            Trace(
                **own, sequences=sequences, visible=visible, spans=prompt.spans, reply=prompt.reply
            )
        )
    return traces


class _TraceRecorder(Recorder):
    """Also keeps which keys each query may see; layers with the same mask share one tensor."""

    def __init__(self, keep: Iterable[str]) -> None:
        super().__init__(keep)
        self.visible: list[SiteVisible] = []
        self.seen: Tensor | None = None  # the last mask of a call,
        self.shared: Visible = torch.ones(0, 0, dtype=torch.bool)  # and what was made of it

    def weighting(self, call: AttentionCall) -> None:
        """Remember the call and its mask."""
        super().weighting(call)
        self.visible.append(self._mask(call))

    def _mask(self, call: AttentionCall) -> Visible:
        rows, columns = call.probs.shape[-2:]
        if call.visible is None:
            everything = torch.ones(1, 1, dtype=torch.bool, device=call.probs.device)
            return everything.expand(rows, columns)
        if call.visible is self.seen and self.shared.shape == (rows, columns):
            return self.shared
        mask = call.visible[0].any(0).expand(rows, columns)
        for known in reversed(self.visible):
            if known.shape == mask.shape and torch.equal(known, mask):
                mask = known
                break
        self.seen, self.shared = call.visible, mask
        return mask


def _run(
    subject: Subject, prompt: Prompt, keep: tuple[str, ...], request: RowRequest | None = None
) -> Trace:
    """One watched pass."""
    active, inputs, first_logit = None, prompt.inputs, 0
    if request is not None:
        inputs, first_logit = later_answers(subject, inputs, request)
        if set(keep) & set(AT_SITES):  # rows are computed from all of these, so they are there
            keep = checked_keep((*keep, *AT_SITES))
    count = written_length(subject, inputs)
    known = None if request is None or count is None else len(request.of(count))
    require_room(subject, inputs, keep, known)
    with _readable_errors(subject.model, inputs):
        # These inputs may turn attention on or off that the probe did not see.
        pictured, sees = "pixel_values" in inputs, VISION in subject.anatomy.stacks
        crossed = "encoder_hidden_states" in inputs and not subject.model.config.is_encoder_decoder
        if ("input_ids" in inputs and pictured != sees) or crossed:
            with torch.no_grad(), frozen_eval(subject.model):
                active = observe(subject.model, inputs, TAPS[subject.anatomy.tap])[:2]
        sites = active[0] if active is not None else subject.anatomy.sites
        recorder = _TraceRecorder(keep) if request is None else RowRecorder(keep, request, sites)
        passed = run_pass(subject, inputs, recorder, keep, active)
    partial = None
    if isinstance(recorder, RowRecorder):
        partial = recorder.partial_pass(subject)
    visible = tuple(recorder.visible)
    masks = naming_masks(visible, partial)
    sequences = named_sequences(subject, prompt, passed["layers"], passed["sites"], masks)
    return Trace(
        **passed,
        sequences=sequences,
        visible=visible,
        spans=prompt.spans,
        reply=prompt.reply,
        partial=partial,
        first_logit=first_logit,
    )


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
