"""How do many examples go through a model at once, and again from the middle?

A batch is a trace whose rows are examples: encoded one by one, padded on the right to a common
length, run once and remembered. Rows can be picked and repeated, and what is picked is again a
trace, so that ``replay`` takes it up from any layer. Padding is marked, never guessed.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils._pytree import tree_map_only

from exhibit_a.errors import BadRequestError, BrokenInvariantError, NotComputableError
from exhibit_a.examples import Example, label_names, require_labels
from exhibit_a.shapes import Context
from exhibit_a.subject.guard import floating, frozen_eval, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.layers import LayerRecorder

Maps = Float[Tensor, "batch _head _query _key"]
Averaged = Float[Tensor, "batch _head _key _d_head"]
RowIndex = Int[Tensor, " row"]
Source = str | Path | Iterable[Any]  # of examples
Progress = Callable[[int, int], None] | None  # is told how much is done, and of how much

PADDED_WITH = {"attention_mask": 0, "token_type_ids": 0}
TOKENS_AT_ONCE = 1024  # in one batch: larger ones are no faster on a processor


@dataclass(frozen=True, eq=False)
class Batch:
    """Some examples, run once: what replay needs, and each site's attention and values."""

    trace: Trace
    real: Bool[Tensor, "batch token"]
    attention: tuple[Maps, ...]
    values: tuple[Averaged, ...]

    def __len__(self) -> int:
        return len(self.real)

    def rows(self, index: RowIndex) -> Trace:
        """A trace of the rows asked for, each as often as it is asked for."""
        count = len(self)

        def pick(part: Tensor) -> Tensor:
            if not part.ndim or len(part) != count:
                return part
            if count == 1:
                return part.expand(len(index), *part.shape[1:])
            return part[index.to(part.device)]

        inputs = {
            name: pick(part).contiguous() if isinstance(part, Tensor) else part
            for name, part in self.trace.inputs.items()
        }
        outputs = tree_map_only(Tensor, pick, self.trace.layer_outputs)
        return replace(self.trace, inputs=inputs, layer_outputs=outputs)

    def real_queries(self, site: int) -> Bool[Tensor, "batch query"]:
        """Which queries of a site are not padding."""
        return self._real(self.attention[site].shape[2])

    def real_keys(self, site: int) -> Bool[Tensor, "batch key"]:
        """Which keys of a site are not padding."""
        return self._real(self.attention[site].shape[3])

    def _real(self, count: int) -> Tensor:
        if count == self.real.shape[1]:
            return self.real
        return torch.ones(len(self), count, dtype=torch.bool, device=self.real.device)


def of_one(trace: Trace) -> Batch:
    """A trace as a batch of one row."""
    kept = trace.keeping("attention", "values", "hidden")
    real = kept.queries_of(kept.sites[-1].index).real
    return Batch(
        kept,
        real.unsqueeze(0).to(kept.subject.device),
        tuple(part.unsqueeze(0) for part in kept.attention),
        tuple(part.unsqueeze(0) for part in kept.values),
    )


def encoded(subject: Subject, examples: Sequence[Example]) -> list[dict[str, Any]]:
    """The inputs of every example; what is longer than the model takes is cut."""
    return [subject.encode(one.text, one.pair, truncate=True) for one in examples]


def grouped(
    inputs: Sequence[dict[str, Any]],
    tokens: int = TOKENS_AT_ONCE,
    *,
    alone: bool = False,
    progress: Progress = None,
) -> Iterator[list[int]]:
    """Places of inputs of similar length, as many together as make ``tokens`` tokens."""
    order = sorted(range(len(inputs)), key=lambda place: _length(inputs[place]))
    group: list[int] = []
    for number, place in enumerate(order):
        if group and (alone or (len(group) + 1) * _length(inputs[place]) > tokens):
            yield group
            tell(progress, number, len(order))
            group = []
        group.append(place)
    if group:
        yield group
        tell(progress, len(order), len(order))


def tell(progress: Progress, done: int, total: int) -> None:
    """Say how far it is, if anyone wants to know."""
    if progress is not None:
        progress(done, total)


def stand_alone(subject: Subject) -> bool:
    """Whether examples must go one by one: a causal classifier that knows no padding."""
    causal = subject.anatomy.sites[-1].causal
    padding = getattr(subject.model.config, "pad_token_id", None)
    return causal and subject.anatomy.answers == "classes" and padding is None


def padded(subject: Subject, inputs: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """One set of inputs from several, padded on the right."""
    config, tokenizer = subject.model.config, subject.tokenizer
    padding = getattr(config, "pad_token_id", None)
    if padding is None:
        padding = getattr(tokenizer, "pad_token_id", None) or 0
    longest = max(map(_length, inputs))

    def joined(name: str) -> Tensor:
        parts = [one[name] for one in inputs]
        if parts[0].ndim != 2:
            return torch.cat(parts)
        fill = PADDED_WITH.get(name, padding)
        return torch.cat(
            [torch.nn.functional.pad(p, (0, longest - p.shape[1]), value=fill) for p in parts]
        )

    return {name: joined(name) for name in inputs[0]}


@torch.no_grad()
def answers_of(subject: Subject, inputs: Sequence[dict[str, Any]]) -> Float[Tensor, "row answer"]:
    """The model's logits for every example, at the last token where it answers at every one."""
    found: list[Tensor | None] = [None] * len(inputs)
    model = subject.model
    with frozen_eval(model):
        for group in grouped(inputs, alone=stand_alone(subject)):
            together = without_cache(model, padded(subject, [inputs[place] for place in group]))
            logits = model(**together).logits.float()
            for row, place in enumerate(group):
                found[place] = logits[row]
    return torch.stack([one for one in found if one is not None])


@torch.no_grad()
def run(subject: Subject, inputs: Sequence[dict[str, Any]]) -> Batch:
    """Run several inputs once and remember what replay and attribution need."""
    model, recorder, passage = subject.model, _Recorder(), LayerRecorder()
    together = without_cache(model, padded(subject, inputs))
    layers = subject.anatomy.layers
    with frozen_eval(model), subject.tapping(recorder), passage.watching(model, layers):
        output = model(**together)
    if not all(bool(part.isfinite().all()) for part in floating(output)):
        raise BrokenInvariantError("The model's answer to these inputs is NaN or infinite.")
    trace = Trace(
        subject=subject,
        inputs=together,
        sequences={},
        sites=subject.anatomy.sites,
        layers=layers,
        output=output,
        keep=("attention", "values", "hidden"),
        visible=(),
        layer_inputs=tuple(passage.layer_inputs),
        layer_outputs=tuple(passage.outputs),
        stack_outputs=passage.stack_outputs(layers),
    )
    return Batch(trace, _real(together, recorder), tuple(recorder.maps), tuple(recorder.values_))


def classes_of(subject: Subject, examples: Sequence[Example]) -> Int[Tensor, " row"]:
    """The gold class of every example, by name or by number; anything else is refused."""
    if subject.anatomy.answers != "classes":
        raise NotComputableError(
            f"{type(subject.model).__name__} answers with {subject.anatomy.answers}, and classes "
            "are needed here. Load a model with a classification head."
        )
    require_labels(examples, "The examples")
    label_names(examples)
    labels = list(subject.labels)
    numbers = [str(place) for place in range(len(labels))]
    if {one.label for one in examples} <= set(numbers):
        labels = numbers
    for one in examples:
        if one.label not in labels:
            known = ", ".join(f"{place} {name}" for place, name in enumerate(subject.labels))
            raise BadRequestError(
                f"Example {one.id} has the label {one.label!r}, which the model does not know. "
                f"It knows {known}."
            )
    return torch.tensor([labels.index(str(one.label)) for one in examples], device=subject.device)


def limited(examples: Sequence[Example], limit: int | None) -> list[Example]:
    """The first ``limit`` examples."""
    if limit is not None and limit < 1:
        raise BadRequestError(f"A limit of {limit} leaves no examples; give at least 1.")
    return list(examples[:limit])


def put_aside(
    examples: Sequence[Example], share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Labelled examples to train on, and a random share of them put aside to judge by."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed)).tolist()
    count = max(1, round(share * len(examples)))
    if len(examples) <= count:
        raise BadRequestError("One example cannot both train and judge; give at least two.")
    learn, judge = [examples[i] for i in order[count:]], [examples[i] for i in order[:count]]
    require_variety(learn, "left to train on")
    require_variety(judge, "put aside to judge by")
    return learn, judge


def require_variety(examples: Sequence[Example], purpose: str) -> None:
    """Refuse a part of the labelled examples in which all labels are the same."""
    labels = {one.label for one in examples}
    if len(labels) == 1:
        raise BadRequestError(
            f'Every one of the {len(examples)} examples {purpose} has the label "{labels.pop()}", '
            "so there is nothing to tell apart. Give more, or the same in another order."
        )


def fingerprint(example: Example) -> str:
    """A short name for the text of an example, the same in every file."""
    text = f"{example.text.strip()}\0{(example.pair or '').strip()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class KeptHeads(Edit):
    """Lets only some heads through: 1 or 0 for every copy, site and head."""

    def __init__(self, kept: Float[Tensor, "#copy site head"]) -> None:
        super().__init__((kept != 1).flatten(2).any(-1).any(0).nonzero().flatten().tolist())
        self.kept = kept

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The context with some heads silenced."""
        if call.site not in self.sites:
            return None
        kept = self.kept[:, call.site, : context.shape[1]].to(context)
        return context * kept.unsqueeze(-1).unsqueeze(-1)


def free_bytes(device: torch.device) -> int:
    """How much memory may still be taken on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    told = [_meminfo(), _cgroup()]
    return min((known for known in told if known is not None), default=2**31)


class _Recorder(Tap):
    """Keeps the attention and the values of every call, all rows of them."""

    def __init__(self) -> None:
        self.maps: list[Tensor] = []
        self.values_: list[Tensor] = []

    def weighting(self, call: AttentionCall) -> None:
        """Remember the call."""
        self.maps.append(call.probs)
        self.values_.append(call.values)


def _real(inputs: dict[str, Any], recorder: _Recorder) -> Tensor:
    mask = inputs.get("attention_mask")
    if mask is not None:
        return mask.bool()  # type: ignore[no-any-return]
    rows, _, queries, _ = recorder.maps[-1].shape
    return torch.ones(rows, queries, dtype=torch.bool, device=recorder.maps[-1].device)


def _length(inputs: dict[str, Any]) -> int:
    ids = inputs.get("input_ids")
    return 1 if ids is None else int(ids.shape[1])


def _meminfo() -> int | None:
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    lines = dict(line.split(":", 1) for line in table.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else None


def _cgroup() -> int | None:
    """What a container is still allowed, where it is limited."""
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not (limit.exists() and used.exists()) or limit.read_text().strip() == "max":
        return None
    return max(int(limit.read_text()) - int(used.read_text()), 0)
