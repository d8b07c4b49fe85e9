"""Many examples through a model at once, and again from the middle.

A batch is a pass whose rows are examples: encoded one by one, padded on the right to a common
length, run once and remembered. Rows can be picked and repeated, and the picked rows are a batch
too, so that ``replay`` can start from any layer. Padding is marked, never guessed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils._pytree import tree_map, tree_map_only

from exhibit_a.examples import Example
from exhibit_a.progress import Progress, tell
from exhibit_a.shapes import Context, Inputs
from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.answers import logits_at
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import Edit
from exhibit_a.trace.passes import Pass, Recorder, run_pass
from exhibit_a.trace.replay import repeated

Maps = Float[Tensor, "batch _head _query _key"]
Averaged = Float[Tensor, "batch _head _key _d_head"]
RowIndex = Int[Tensor, " row"]
Source = str | Path | Iterable[object]  # of examples

PADDED_WITH = {"attention_mask": 0, "token_type_ids": 0}
TOKENS_AT_ONCE = 1024  # in one batch: larger ones are no faster on a processor


@dataclass(frozen=True, eq=False, repr=False)
class Batch(Pass):
    """Some examples, run once, padded on the right to one length."""

    real: Bool[Tensor, "batch token"]

    def __len__(self) -> int:
        return len(self.real)

    @property
    def attention(self) -> Sequence[Maps]:
        """The attention of every site, (batch, head, query, key)."""
        return cast(Sequence[Maps], self.at("attention"))

    @property
    def values(self) -> Sequence[Averaged]:
        """The values of every site, (batch, head, key, d_head)."""
        return cast(Sequence[Averaged], self.at("values"))

    def rows(self, index: RowIndex) -> "Batch":
        """The rows requested, each as often as requested; attention and values are dropped."""
        count = len(self)

        def pick(tensor: Tensor) -> Tensor:
            if not tensor.ndim or len(tensor) != count:
                return tensor
            if count == 1:
                return tensor.expand(len(index), *tensor.shape[1:])
            return tensor[index.to(tensor.device)]

        inputs = repeated(self.inputs, len(index))
        if count > 1:
            inputs = {k: pick(v) if isinstance(v, Tensor) else v for k, v in self.inputs.items()}
        given, gave = tree_map_only(Tensor, pick, (self.layer_inputs, self.layer_outputs))
        return replace(
            self,
            inputs=inputs,
            layer_inputs=given,
            layer_outputs=gave,
            keep=("hidden",),
            at_sites={},
            real=pick(self.real),
            texts=index if self.texts is None else self.texts[index.to(self.texts.device)],
        )

    def rerun(self, keep: tuple[str, ...]) -> "Batch":
        """The same rows, run once more."""
        self.require_same_weights()
        return _run(self.subject, self.inputs, keep)

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
    real = kept.sequences[kept.sites[-1].stack].real.unsqueeze(0).to(kept.subject.device)
    shared = {field.name: getattr(kept, field.name) for field in fields(Pass)}
    return Batch(**shared, real=real)


def alike(traces: Sequence[Trace]) -> bool:
    """Whether rows of all traces see the same keys of as many heads, and none is padding."""
    first = traces[0]
    return all(
        trace.sites == first.sites
        and trace.partial is None
        and trace.weights == first.weights
        and trace.inputs.keys() == first.inputs.keys()
        and all(sequence.real.all() for sequence in trace.sequences.values())
        and all(map(torch.equal, trace.visible, first.visible))
        for trace in traces
    )


def of_several(traces: Sequence[Trace]) -> Batch:
    """Traces that are ``alike`` as a batch of a row each."""
    rows = [of_one(trace) for trace in traces]
    if len(rows) == 1:
        return rows[0]

    def joined(*parts: Tensor) -> Tensor:
        return torch.cat(parts) if parts[0].ndim and len(parts[0]) == 1 else parts[0]

    def together(name: str) -> Any:
        parts = [getattr(row, name) for row in rows]
        return tree_map(
            lambda *leaves: joined(*leaves) if isinstance(leaves[0], Tensor) else leaves[0], *parts
        )

    names = ("inputs", "output", "at_sites", "layer_inputs", "layer_outputs", "stack_outputs")
    return replace(rows[0], real=together("real"), **{name: together(name) for name in names})


def encoded(subject: Subject, examples: Sequence[Example]) -> list[Inputs]:
    """The inputs of every example; what is longer than the model takes is cut."""
    return [subject.encode(example.text, example.pair, truncate=True) for example in examples]


def grouped(
    inputs: Sequence[Inputs],
    tokens: int = TOKENS_AT_ONCE,
    *,
    alone: bool = False,
    progress: Progress | None = None,
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


def padded_groups(
    subject: Subject, inputs: Sequence[Inputs]
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Inputs that are run together, as one: their places, and what the model is given."""
    for group in grouped(inputs, alone=stand_alone(subject)):
        yield group, padded(subject, [inputs[place] for place in group])


def lengths_of(inputs: Sequence[Inputs]) -> RowIndex:
    """How many tokens each of several inputs has."""
    return torch.tensor([_length(encoding) for encoding in inputs])


def stand_alone(subject: Subject) -> bool:
    """Whether examples must run one by one: a causal classifier that knows no padding."""
    causal = subject.anatomy.sites[-1].causal
    padding = getattr(subject.model.config, "pad_token_id", None)
    return causal and subject.anatomy.answers == "classes" and padding is None


def padded(subject: Subject, inputs: Sequence[Inputs]) -> dict[str, Tensor]:
    """One set of inputs from several, padded on the right."""
    config, tokenizer = subject.model.config, subject.tokenizer
    padding = getattr(config, "pad_token_id", None)
    if padding is None:
        padding = getattr(tokenizer, "pad_token_id", None) or 0
    return padded_with(padding, inputs)


def padded_with(padding: int, inputs: Sequence[Inputs]) -> dict[str, Tensor]:
    """One set of inputs from several, padded on the right; ``padding`` is the padding token."""

    def joined(name: str) -> Tensor:
        rows: list[Tensor] = [encoding[name] for encoding in inputs]
        if rows[0].ndim != 2:
            return torch.cat(rows)
        longest = max(row.shape[1] for row in rows)  # a decoder may be given another number
        fill, pad = PADDED_WITH.get(name, padding), torch.nn.functional.pad
        return torch.cat([pad(row, (0, longest - row.shape[1]), value=fill) for row in rows])

    return {name: joined(name) for name in inputs[0]}


@torch.no_grad()
def answers_of(subject: Subject, inputs: Sequence[Inputs]) -> Float[Tensor, "row answer"]:
    """The model's logits for every example, after the last token where it answers at every one."""
    answers: dict[int, Tensor] = {}
    model = subject.model
    with frozen_eval(model):
        for group in grouped(inputs, alone=stand_alone(subject)):
            encodings = [inputs[place] for place in group]
            lengths = lengths_of(encodings)
            output = model(**without_cache(model, padded(subject, encodings)))
            answers |= dict(zip(group, logits_at(output, lengths - 1).float(), strict=True))
    return torch.stack([answers[place] for place in range(len(inputs))])


def run(subject: Subject, inputs: Sequence[Inputs]) -> Batch:
    """Run several inputs once and remember what replay and attribution need."""
    together = without_cache(subject.model, padded(subject, inputs))
    return _run(subject, together, ("attention", "values", "hidden"))


def _run(subject: Subject, inputs: Inputs, keep: tuple[str, ...]) -> Batch:
    passed = run_pass(subject, inputs, Recorder(keep), keep)
    mask = inputs.get("attention_mask")
    if mask is not None:
        return Batch(**passed, real=mask.bool())
    rows, _, queries, _ = passed["at_sites"]["attention"][-1].shape
    return Batch(**passed, real=torch.ones(rows, queries, dtype=torch.bool, device=subject.device))


class KeptHeads(Edit):
    """Lets only some heads through: 1 or 0 for every copy, site and head."""

    context_only = True

    def __init__(self, kept: Float[Tensor, "#copy site head"]) -> None:
        super().__init__((kept != 1).flatten(2).any(-1).any(0).nonzero().flatten().tolist())
        self.kept = kept

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The context with some heads silenced."""
        if call.site not in self.sites:
            return None
        kept = self.kept[:, call.site, : context.shape[1]].to(context)
        return context * kept.unsqueeze(-1).unsqueeze(-1)


def kept_but(subject: Subject, silenced: Iterable[tuple[int, int]]) -> Float[Tensor, "1 site head"]:
    """A mask for `KeptHeads` with 0 where a (site, head) is silenced."""
    sites = subject.anatomy.sites
    kept = torch.ones(1, len(sites), max(site.heads for site in sites), device=subject.device)
    for site, head in silenced:
        kept[0, site, head] = 0
    return kept


def _length(inputs: Inputs) -> int:
    ids = inputs.get("input_ids")
    return 1 if ids is None else int(ids.shape[1])
