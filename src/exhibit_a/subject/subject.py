"""The model that is examined; a watched pass must compute what the model itself computes.

``load`` takes an embedded name, a hub id, a folder or a model object and gives a ``Subject``: the
model, its tokenizer, and what was observed of it. Before anything is measured, a pass through our
tap is compared with the model's own eager pass: both must give the same answer.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from exhibit_a.errors import (
    BrokenInvariantError,
    NotComputableError,
    UnsupportedModelError,
    require_choice,
)
from exhibit_a.numerics.precision import to_float64
from exhibit_a.shapes import Attention, Inputs
from exhibit_a.subject.anatomy import Anatomy, output_weight
from exhibit_a.subject.encoding import Tokenizer, encode, length_limit, probe, shapes
from exhibit_a.subject.fused import fused_tapping, kernels_of
from exhibit_a.subject.guard import (
    default_torch_state,
    floating,
    frozen_eval,
    require_differentiable,
    require_one_device,
    without_cache,
)
from exhibit_a.subject.observing import observe
from exhibit_a.subject.precision import computing_dtype
from exhibit_a.subject.probing import (
    Beginning,
    Hiding,
    gradient_obstacle,
    hiding,
    missing_beginning,
    weight_makers,
)
from exhibit_a.subject.provenance import Provenance, provenance
from exhibit_a.subject.softmax_tap import softmax_tapping
from exhibit_a.subject.sources import accept, fetch
from exhibit_a.subject.tap import (
    AttentionCall,
    Tap,
    Tapping,
    attention_implementation,
    built_on,
    reads_registry,
    registry_tapping,
)

TAPS: dict[str, Tapping] = {"registry": registry_tapping, "softmax": softmax_tapping}
HALF = torch.finfo(torch.float16).eps


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that can be examined."""

    name: str
    model: PreTrainedModel
    tokenizer: Tokenizer  # or None
    anatomy: Anatomy
    revision: str | None = None
    beginning: Beginning | None = None  # a token that its tokenizer forgets

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the output; empty for models without any."""
        if self.anatomy.answers not in ("classes", "outputs", "token classes"):
            return ()
        names = {int(number): name for number, name in (self.model.config.id2label or {}).items()}
        return tuple(names[number] for number in sorted(names))

    @property
    def device(self) -> torch.device:
        """Where the model lives; inputs are moved there, the model never is."""
        device: torch.device = self.model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The number type that passes are computed in: float32 where weights are held in half."""
        return computing_dtype(self.model)

    @cached_property
    def gradient_obstacle(self) -> str:
        """Why no gradients can be had; empty where they can."""
        return gradient_obstacle(self.model)

    @cached_property
    def weight_makers(self) -> tuple[nn.Module, ...]:
        """Modules that only make attention weights: not needed where no weights are."""
        if self.anatomy.tap != "registry" or self.gradient_obstacle:
            return ()
        names = dict.fromkeys(layer.module for layer in self.anatomy.layers)
        layers = [self.model.get_submodule(name) for name in names]
        return weight_makers(self.model, layers, self.tapping)

    @cached_property
    def hiding(self) -> Hiding:
        """How tokens are hidden from this model, or why they cannot be."""
        anatomy = self.anatomy
        first = (anatomy.main_stack, 0)
        attends_first = any((site.stack, site.layer) == first for site in anatomy.sites)
        return hiding(
            self.model, self.tapping, attends_first=attends_first, tolerance=anatomy.tolerance
        )

    def require_gradients(self) -> None:
        """Refuse what needs gradients where they do not pass through the whole model."""
        if self.gradient_obstacle:
            raise NotComputableError(f"Gradients are needed, and {self.gradient_obstacle}.")

    def warnings(self, tokens: Sequence[str]) -> dict[str, str]:
        """What to beware of in any result on these tokens."""
        if self.beginning is None or self.beginning.token in tokens:
            return {}
        return {"beginning token": self.beginning.warning}

    @property
    def kernels(self) -> tuple[str, ...]:
        """The fused kernels that parts of the model can run on; none where it is eager only."""
        return kernels_of(self.model) if self.anatomy.tap == "registry" else ()

    def tapping(
        self, tap: Tap, *, first: int = 0, fused: bool = False
    ) -> AbstractContextManager[None]:
        """Show the attention calls of the model to ``tap`` while a block runs.

        With ``fused``, the model runs on its fused kernels where it has any, and ``tap`` is not
        called for weights there.
        """
        if fused and self.kernels:
            return fused_tapping(self.model, tap, first)
        tapping = TAPS[self.anatomy.tap]
        return tapping(self.model, tap, first=first, scorers=self.anatomy.scorers)

    def encode(self, text: object, pair: str | None = None, *, truncate: bool = False) -> Inputs:
        """Model inputs, a batch of one, for a text, a pair of texts or an image."""
        return encode(self.model, self.tokenizer, text, pair, self.anatomy.max_length, truncate)

    def provenance(self, method: str, seed: int | None = None, **used: object) -> Provenance:
        """Where a result of ``method`` on this model comes from, with the parameters used."""
        return provenance(self.name, method, self.revision, seed, **used)

    def output_weight(self, site: int) -> Tensor | None:
        """The output projection as each head meets it: (head, d_head, d_model), where found."""
        return output_weight(self.model, self.anatomy.sites[site])


@default_torch_state()
def load(
    source: str | Path | PreTrainedModel | nn.Module = "sentiment",
    *,
    tokenizer: Tokenizer = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    tap: str = "auto",
    **from_pretrained: object,
) -> Subject:
    """Load a model so that it can be examined.

    A model object is never moved, re-typed or left changed.

    >>> xa.load("sentiment").labels
    ('negative', 'positive')
    >>> xa.load(subject.model, tokenizer=subject.tokenizer).anatomy.sites[0].heads
    12
    >>> folder = tmp_path / "model"
    >>> subject.model.save_pretrained(folder)
    >>> xa.load(folder, dtype="bfloat16").model.dtype
    torch.bfloat16

    Args:
        source: an embedded name, a folder, a hub id, or a model object of transformers.
        tokenizer: the tokenizer of a model object, or another than the one saved with the model.
        device: where a model that is read from files is put.
        dtype: the number type of a model that is read from files, such as bfloat16.
        tap: how attention is reached: auto, registry or softmax.
        from_pretrained: further options of from_pretrained, such as revision.
    """
    require_choice("tap", tap, ("auto", *TAPS))
    if isinstance(source, nn.Module):
        model = accept(source, device, dtype, from_pretrained)
        require_differentiable(model)
        name = model.name_or_path or type(model).__name__
    else:
        name = str(source)
        wanted = tokenizer is None
        model, saved_tokenizer = fetch(name, device, dtype, from_pretrained, with_tokenizer=wanted)
        tokenizer = tokenizer or saved_tokenizer
    require_one_device(model)
    revision = getattr(model.config, "_commit_hash", None)
    anatomy = examine(model, tokenizer, tap)
    return Subject(name, model, tokenizer, anatomy, revision, missing_beginning(model, tokenizer))


def examine(model: PreTrainedModel, tokenizer: Tokenizer = None, tap: str = "auto") -> Anatomy:
    """Observe a model through the tap that reaches it, and compare our pass with its own."""
    inputs = without_cache(model, probe(model))
    candidates = [tap] if tap != "auto" else _candidates(model)
    with torch.no_grad(), frozen_eval(model):
        native = _native_answer(model, inputs)
        for name in candidates:
            try:
                sites, layers, d_model = observe(model, inputs, TAPS[name])
                break
            except UnsupportedModelError as problem:
                if name != candidates[-1]:
                    continue
                hidden = f"It was built on {built_on(model)!r}, which hides its probabilities"
                remedy = f' {hidden}; build it with attn_implementation="eager".'
                remedy = "" if built_on(model) == "eager" else remedy
                raise UnsupportedModelError(f"{problem}{remedy}") from None
        parity, tolerance = _parity(model, inputs, TAPS[name], native)
    if not parity <= tolerance:
        raise BrokenInvariantError(
            f"{type(model).__name__} changes its answer by {parity:.2g} when its attention is "
            f"handed back unchanged (rounding explains {tolerance:.1g}): it does more with its "
            "probabilities than averaging values. No numbers are given for such a model."
        )
    return Anatomy(
        tap=name,
        parity=parity,
        tolerance=tolerance,
        sites=sites,
        layers=layers,
        d_model=d_model,
        answers=_answers(model, inputs),
        max_length=length_limit(model, tokenizer),
    )


class _PutBack(Tap):
    """Puts the probabilities back unchanged, so that our code multiplies them with the values."""

    def weighting(self, call: AttentionCall) -> Attention:
        """A copy of the probabilities."""
        return call.probs.clone()


def _parity(
    model: PreTrainedModel, inputs: Inputs, tapping: Tapping, native: list[Tensor]
) -> tuple[float, float]:
    """How far our answer is from the model's own, and how far rounding would put it."""
    worst, scale = 0.0, 1.0
    for tap in (Tap(), _PutBack()):
        with tapping(model, tap):
            tapped = floating(model(**inputs))
        for ours, theirs in zip(tapped, native, strict=True):
            worst = max(worst, float((to_float64(ours) - to_float64(theirs)).abs().amax()))
            scale = max(scale, float(theirs.abs().amax()))
    eps = max(torch.finfo(answer.dtype).eps for answer in native)
    # 64 roundings, but 8 in half precision, where 64 would be half of the answer and hide anything.
    return worst, (64 if eps < HALF else 8) * eps * scale


def _native_answer(model: PreTrainedModel, inputs: Inputs) -> list[Tensor]:
    """What the model itself answers on its eager path; it must be finite."""
    with attention_implementation(model, "eager"):
        try:
            answer = floating(model(**inputs))
        except Exception as problem:  # a model can fail in any way
            raise UnsupportedModelError(
                f"{type(model).__name__} could not run on a probe of {shapes(inputs)}: {problem}"
            ) from problem
    if not all(bool(tensor.isfinite().all()) for tensor in answer):
        bad = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
        where = f"the weights of {bad[0]!r} are not finite" if bad else "its weights are finite"
        raise BrokenInvariantError(
            f"{type(model).__name__} answers NaN or infinity to a plain probe ({where}). "
            "Load finite weights, or use a wider dtype."
        )
    return answer


def _answers(model: PreTrainedModel, inputs: Inputs) -> str:
    """What kind of answer the model gives, judged by its shape and what it was trained for."""
    with torch.no_grad(), frozen_eval(model):
        logits = getattr(model(**inputs), "logits", None)
    if logits is None or logits.ndim not in (2, 3):
        return "states"
    width = logits.shape[-1]
    if logits.ndim == 3:
        vocabulary = getattr(model.config.get_text_config(), "vocab_size", None)
        return "token classes" if width == model.config.num_labels != vocabulary else "tokens"
    if width == 1:
        return "value"
    independent = ("regression", "multi_label_classification")
    return "outputs" if getattr(model.config, "problem_type", None) in independent else "classes"


def _candidates(model: PreTrainedModel) -> list[str]:
    """The taps worth trying: the registry where the model reads it, the softmax otherwise."""
    return ["registry", "softmax"] if reads_registry(model) else ["softmax"]
