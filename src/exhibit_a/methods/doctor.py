"""Says which methods apply to a model, and what each would cost.

Nothing here is guessed from a name: the anatomy was observed when the model was loaded, one pass of
the requested length is run and timed, and every method says for itself what it needs.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import torch

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.registry import Cost, find, methods
from exhibit_a.numerics.memory import BACKWARDS
from exhibit_a.numerics.spilling import copies_at_once
from exhibit_a.shapes import Context
from exhibit_a.subject.anatomy import Anatomy
from exhibit_a.subject.encoding import decoder_limit, probe
from exhibit_a.subject.guard import frozen_eval, method_modes, without_cache
from exhibit_a.subject.images import PIXELS
from exhibit_a.subject.observing import causal_and_window
from exhibit_a.subject.prompts import is_causal_lm
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap, attention_implementation
from exhibit_a.trace.answers import require_distribution
from exhibit_a.trace.budget import pass_size


@dataclass(frozen=True)
class Estimate:
    """Whether a method applies, and why not; what one text costs, in passes, time and memory."""

    method: str
    applies: bool
    reason: str
    passes: float | None  # of the model, and other work in the same unit
    seconds: float | None
    megabytes: float | None  # of what is kept
    peak_megabytes: float | None = None  # at most, above the model itself
    forwards: float | None = None  # passes of the model alone


@dataclass(frozen=True)
class Diagnosis:
    """What a model is made of and what it allows."""

    model: str
    architecture: str
    tap: str
    parity: float
    tolerance: float
    parameters: int
    dtype: str  # of the weights as they are held
    computed_in: str
    answers: str
    labels: tuple[str, ...]
    max_length: int | None
    d_model: int
    stacks: dict[str, int]
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    d_head: tuple[int, ...]
    variants: tuple[str, ...]
    sites_without_projection: tuple[str, ...]
    warnings: tuple[str, ...]  # about the checkpoint: a forgotten token, quantised layers
    identifiable_up_to: int  # visible keys; beyond, other weights give the same head output
    length: int
    pass_seconds: float
    methods: tuple[Estimate, ...]
    rows: int | None = None  # of attention that are kept, if not all

    def to_dict(self) -> dict[str, object]:
        """Everything, for machines."""
        return asdict(self)


@method_modes()
def diagnose(subject: Subject, *, length: int = 32, rows: int | None = None) -> Diagnosis:
    """Say what the model allows, and what each method would cost for a text.

    >>> diagnosis = xa.diagnose(subject, length=16)
    >>> diagnosis.architecture, diagnosis.heads, diagnosis.d_head
    ('BertForSequenceClassification', (12,), (32,))
    >>> [estimate.applies for estimate in diagnosis.methods if estimate.method == "trial"]
    [True]
    >>> few = xa.diagnose(subject, length=64, rows=1)
    >>> [e.peak_megabytes < 5 for e in few.methods if e.method == "effective_attention"]
    [True]

    Args:
        length: the number of tokens for which the costs are estimated.
        rows: the number of rows of attention that are kept; without, all.
    """
    anatomy, limits = subject.anatomy, [subject.anatomy.max_length]
    if subject.model.config.is_encoder_decoder:
        limits.append(decoder_limit(subject.model))
    longest = min((limit for limit in limits if limit is not None), default=length)
    if not 1 <= length <= longest:
        raise BadRequestError(
            f"A length of {length} tokens was requested; this model takes 1 to {longest}."
        )
    if rows is not None and not 1 <= rows <= length:
        raise BadRequestError(
            f"{rows} rows were requested; a text of {length} tokens has 1 to {length}."
        )
    seen = _Sizes(fused=rows is not None and bool(subject.kernels))
    seconds = _timed_pass(subject, length, seen)
    widest = max(site.d_head for site in anatomy.sites)
    asking = _Asking(subject, seen, seconds, rows)
    known = {name: (entry.cost, entry.needs) for name, entry in methods().items()}
    whole = {n for n, m in methods().items() if m.takes == ("trace",) and not m.rows}
    refused = set() if rows is None else whole  # they need every row of attention
    return Diagnosis(
        model=subject.name,
        architecture=type(subject.model).__name__,
        tap=anatomy.tap,
        parity=anatomy.parity,
        tolerance=anatomy.tolerance,
        parameters=sum(weight.numel() for weight in subject.model.parameters()),
        dtype=str(subject.model.dtype).removeprefix("torch."),
        computed_in=str(subject.dtype).removeprefix("torch."),
        answers=anatomy.answers,
        labels=subject.labels,
        max_length=anatomy.max_length,
        d_model=anatomy.d_model,
        stacks={s: sum(layer.stack == s for layer in anatomy.layers) for s in anatomy.stacks},
        heads=_different(site.heads for site in anatomy.sites),
        kv_heads=_different(site.kv_heads for site in anatomy.sites),
        d_head=_different(site.d_head for site in anatomy.sites),
        variants=_variants(anatomy, seen),
        sites_without_projection=tuple(
            f"{site.module}: {site.projection_problem}"
            for site in anatomy.sites
            if site.projection is None
        ),
        warnings=tuple(filter(None, (_beginning(subject), subject.gradient_obstacle))),
        identifiable_up_to=widest,
        length=length,
        pass_seconds=seconds,
        methods=tuple(
            asking.estimate(
                name, cost, "every row of attention is needed" if name in refused else needs
            )
            for name, (cost, needs) in (BEFORE | known).items()
        ),
        rows=rows,
    )


@method_modes()
def estimate(subject: Subject, name: str, *, length: int) -> Estimate:
    """What one method costs for a text: its passes, times what a pass of that length took just now.

    >>> cost = estimate(subject, "trial", length=16)
    >>> cost.passes > cost.forwards > 60, cost.seconds > 0
    (True, True)

    The doctor's table and the bars of the command line both say this.
    """
    sizes, entry = _Sizes(), find(name)
    asking = _Asking(subject, sizes, _timed_pass(subject, length, sizes), None)
    return asking.estimate(name, entry.cost, entry.needs)


class _Sizes(Tap):
    """How large each map is: images and sound have a length of their own."""

    def __init__(self, *, fused: bool = False) -> None:
        self.fused = fused  # whether the model runs on its own kernel, and no map is formed
        self.sizes: list[tuple[int, int]] = []  # queries and keys of every call
        self.maps = 0.0  # entries, over all heads
        self.tokens = 0
        self.windows: list[int | None] = []  # those too long for the short probe show up here

    def result(self, call: AttentionCall, context: Context) -> None:
        """Count the entries of one call."""
        size = (context.shape[2], call.value.shape[2])
        self.sizes.append(size)
        self.maps += len(context) * context.shape[1] * size[0] * size[1]
        self.tokens = max(self.tokens, *size)
        self.windows.append(None if self.fused else causal_and_window(call)[1])


NUMBER, MEGABYTE = 4, 1e6
GRAPH_MAPS, GRAPH_STATES = 3, 12  # sets of maps and states that a pass keeps to run backwards
HOLES = 2  # times what is kept: tensors that pass, and memory that lies idle between them

BEFORE = {  # what runs and remembers a model, before any method
    "capture": (Cost(forwards=1, maps=1, states=1), ()),
    "replay": (Cost(forwards=1, states=1), ()),
    "choose_target": (Cost(), ("target",)),
}


@dataclass(frozen=True, eq=False)
class _Asking:
    """What estimates are made from."""

    subject: Subject
    sizes: _Sizes
    pass_seconds: float
    rows: int | None

    def estimate(self, name: str, cost: Cost, needs: Sequence[str] | str) -> Estimate:
        """One method; ``needs`` is what it needs, or why it does not apply."""
        subject, sizes = self.subject, self.sizes
        if isinstance(needs, str):
            obstacle: str | None = needs
        else:  # the first need that the model does not meet
            unmet = (NEEDS[need](subject) for need in needs if need in NEEDS)
            obstacle = next(filter(None, unmet), None)
        if obstacle is None and cost.backwards and subject.gradient_obstacle:
            obstacle = f"it needs gradients, and {subject.gradient_obstacle}"
        layers = len(subject.anatomy.layers)
        passes = cost.passes(layers, sizes.tokens, subject.anatomy.d_model)
        if obstacle is not None or passes == 0:
            return Estimate(name, obstacle is None, obstacle or "", None, None, None)
        states = (layers + 1) * float(sizes.tokens) * subject.anatomy.d_model
        size = pass_size(subject, sizes.sizes)
        maps = sizes.maps if self.rows is None else self.rows * size.per_row / NUMBER
        megabytes = cost.floats(maps, states) * NUMBER / MEGABYTE
        peak = size.peak(cost.maps, cost.states, rows=self.rows)
        if cost.at_once:
            graph = GRAPH_STATES * size.states + (0 if self.rows else GRAPH_MAPS * size.maps)
            copies = max(1, cost.at_once // sizes.tokens)
            if not self.rows:
                copies = min(copies, copies_at_once(size.maps, size.maps))
            peak += max(graph, min(copies * graph, HOLES * BACKWARDS))
        seconds, forwards = passes * self.pass_seconds, cost.counted(layers, sizes.tokens)
        return Estimate(name, True, "", passes, seconds, megabytes, peak / MEGABYTE, forwards)


def _beginning(subject: Subject) -> str:
    return "" if subject.beginning is None else subject.beginning.warning


def _a_target(subject: Subject) -> str | None:
    if subject.anatomy.answers == "states":
        return "the model answers with hidden states; load it with a head"
    return None


def _a_distribution(subject: Subject) -> str | None:
    try:
        require_distribution(subject)
    except NotComputableError as obstacle:
        return str(obstacle)
    return None


def _classes(subject: Subject) -> str | None:
    if subject.anatomy.answers != "classes":
        return "only a classifier has labels to be right about"
    return _text(subject)


def _an_answer(subject: Subject) -> str | None:
    return None if is_causal_lm(subject) else "only a language model goes on with a text"


def _projections(subject: Subject) -> str | None:
    if all(site.projection is None for site in subject.anatomy.sites):
        return "no output projection was found, so heads cannot be taken apart"
    return None


def _keys(subject: Subject) -> str | None:
    unseen = [site.module for site in subject.anatomy.sites if site.d_query is None]
    return f"the keys of {unseen[0]} were not seen; no key-aware count" if unseen else None


def _text(subject: Subject) -> str | None:
    return None if subject.tokenizer is not None else "no tokenizer; texts cannot be read"


# Why a need is not met, or None; attention, values and hidden states of every model can be had.
NEEDS: dict[str, Callable[[Subject], str | None]] = {
    "keys": _keys,
    "target": _a_target,
    "distribution": _a_distribution,
    "classes": _classes,
    "text": _text,
    "projection": _projections,
    "answer": _an_answer,
}


@torch.no_grad()
def _timed_pass(subject: Subject, length: int, seen: _Sizes) -> float:
    """Seconds for one pass on made-up input: the best of three, after one that is looked at."""
    model = subject.model
    inputs = probe(model)
    if PIXELS not in inputs:
        # Token ids of the requested length; sound has a length of its own.
        inputs = {
            name: part if part.ndim > 2 else part.repeat(1, -(-length // part.shape[1]))[:, :length]
            for name, part in inputs.items()
        }
    inputs = without_cache(model, inputs)
    spent = []
    with frozen_eval(model):
        with subject.tapping(seen, fused=seen.fused):
            model(**inputs)
        kernel = subject.kernels[0] if seen.fused else "eager"
        with attention_implementation(model, kernel):
            for _ in range(3):
                started = time.perf_counter()
                model(**inputs)
                spent.append(time.perf_counter() - started)
    return min(spent)


def _variants(anatomy: Anatomy, seen: _Sizes) -> tuple[str, ...]:
    variants = [variant for site in anatomy.sites for variant in site.variants]
    variants += ["causal"] if any(site.causal for site in anatomy.sites) else []
    variants += ["cross-attention"] if any(site.kind == "cross" for site in anatomy.sites) else []
    for site, window in zip(anatomy.sites, seen.windows, strict=True):
        if window is not None and site.kind == "self":
            variants.append(f"sliding window of {window}")
    return tuple(dict.fromkeys(variants))


def _different(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))
