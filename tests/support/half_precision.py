"""Models held in half precision, beside the same stored weights held in float32."""

import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import exhibit_a as xa
from exhibit_a.errors import ExhibitError
from exhibit_a.methods.registry import methods
from support.every_method import call, parts, works
from support.words import marked_tokenizer
from support.zoo import CONTRACT

KEPT = ("attention", "values", "hidden", "queries", "keys")
HELD = ("float32", "bfloat16", "float16", "mixed")
FAMILIES = ("bert", "llama", "gpt2", "gemma2", "t5", "bart", "vit", "mpnet")
TOLERANCE = 1e-3  # of the largest number of a tensor; what differs are sums in another order


def held_in(model: nn.Module, how: str) -> nn.Module:
    """A model in another precision; mixed: norms in float32, the others in turn in both halves."""
    if how != "mixed":
        return model.to(getattr(torch, how))
    for number, module in enumerate(model.modules()):
        for weight in module.parameters(recurse=False):
            halves = (torch.bfloat16, torch.float16)
            weight.data = weight.data.to(torch.float32 if weight.ndim < 2 else halves[number % 2])
    return model


def inputs_of(name: str, how: str) -> dict[str, Tensor]:
    """A family's inputs; pictures and sound with no more digits than the model has."""
    dtype = torch.bfloat16 if how == "mixed" else getattr(torch, how)
    return {
        key: value.to(dtype).float() if value.is_floating_point() else value
        for key, value in CONTRACT[name].inputs().items()
    }


def both(name: str, how: str) -> tuple[xa.Subject, xa.Subject]:
    """A family as it is held, and the same stored weights in float32."""
    model = held_in(CONTRACT[name].build(), how)
    wide = copy.deepcopy(model).float()
    return tuple(xa.load(each, tokenizer=marked_tokenizer()) for each in (model, wide))


def traces(name: str, how: str) -> tuple[xa.Trace, xa.Trace]:
    held, wide = both(name, how)
    inputs = inputs_of(name, how)
    return xa.capture(held, inputs, keep=KEPT), xa.capture(wide, inputs, keep=KEPT)


@dataclass
class Compared:
    """How far two results are apart: by numbers, and by what is no number."""

    difference: float = 0.0  # the largest, as a share of the largest number of its tensor
    place: str = ""
    others: list[str] = field(default_factory=list)  # ranks, words, orders that differ


def compared(result: object, wanted: object) -> Compared:
    """Compare all numbers, ranks, words and orders of two results, but for their checks."""
    found = Compared()
    ours, theirs = (dict(parts(each)) for each in (result, wanted))
    for place in ours.keys() | theirs.keys():
        if ".checks" in place:
            continue
        if place not in ours or place not in theirs:
            found.others.append(f"{place}: only in one")
        else:
            _compare(found, place, ours[place], theirs[place])
    return found


def _compare(found: Compared, place: str, ours: Any, theirs: Any) -> None:
    numbers = isinstance(ours, Tensor) and isinstance(theirs, Tensor)
    if numbers and ours.shape == theirs.shape and ours.is_floating_point():
        ours, theirs = ours.double().nan_to_num(), theirs.double().nan_to_num()
        size = float(theirs.abs().amax()) if theirs.numel() else 0.0
        apart = float((ours - theirs).abs().amax()) / size if size else 0.0
        if place.endswith(".scores") and ours.ndim == 1 and not _same_order(ours, theirs, size):
            found.others.append(f"{place}: another order")
    elif isinstance(ours, float) and isinstance(theirs, float):
        apart = abs(ours - theirs) / max(1.0, abs(theirs))
    else:
        equal = torch.equal(ours, theirs) if numbers else repr(ours) == repr(theirs)
        apart = 0.0
        if not equal:
            found.others.append(f"{place}: {str(ours)[:60]} and {str(theirs)[:60]}")
    if apart > found.difference:
        found.difference, found.place = apart, place


def _same_order(ours: Tensor, theirs: Tensor, size: float) -> bool:
    """Whether tokens come in the same order, as far as their scores are really different."""
    sorted_scores = theirs[ours.argsort(descending=True)]
    return bool((sorted_scores.diff() <= TOLERANCE * size).all())


def every_method(name: str, how: str) -> dict[str, Compared | str]:
    """Every method on a family; where both refuse, in the same words, the words."""
    ours, theirs = (
        works(trace.subject, trace) | _patching(trace, name, how) for trace in traces(name, how)
    )
    return {method: _outcome(ours[method], theirs[method]) for method in methods()}


def _patching(trace: xa.Trace, name: str, how: str) -> dict[str, Any]:
    """Patching from a text of the same length, where the input is one."""
    inputs = inputs_of(name, how)
    if "input_ids" not in inputs:
        return {}
    ids = inputs["input_ids"].roll(1, dims=1)
    options = {"counterfactual": xa.capture(trace.subject, inputs | {"input_ids": ids}, keep=KEPT)}
    return {"head_patching": partial(call, "head_patching", trace.subject, trace, options)}


def _outcome(ours: Any, theirs: Any) -> Compared | str:
    results = []
    for work in (ours, theirs):
        try:
            results.append(work())
        except ExhibitError as refusal:
            results.append(str(refusal))
    if all(isinstance(result, str) for result in results):
        return results[0] if results[0] == results[1] else Compared(others=results)
    return compared(*results)
