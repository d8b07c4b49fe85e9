"""Every registered method, called once on a tiny model; and its result in comparable parts."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

import exhibit_a as xa
from exhibit_a.methods.custom_methods import result_of
from exhibit_a.methods.registry import methods
from exhibit_a.subject.guard import default_torch_state
from support.corpora import numbered_sentences
from support.subjects import talking

TEXT = "w3 w14 w15 w9 w26 w5 w35 w8"  # for `support.subjects.opinionated`
OPTIONS: dict[str, dict[str, Any]] = {
    "alternative_attention": {"site": 1, "head": 2, "samples": 4},
    "adversarial_attention": {"restarts": 1, "steps": 4},
    "adversarial_keys": {"hidden": 8, "epochs": 1},
    "companions": {"methods": ["raw", "gradient_input"]},
    "lime": {"samples": 16},
    "kernel_shap": {"samples": 16},
    "faithfulness": {"attribution": ("raw",), "samples": 2},
    "permutation_test": {"repeats": 2},
    "token_identifiability": {"maps": ("identity", "linear")},
    "pruning_curve": {"counts": [0, 3], "overlap": True},
    "trial": {"heat_maps": False, "probes": 2},  # heat maps are a method of their own
    "context_attribution": {
        "answer": " w35",
        "template": "{passages} {question}",
        "methods": ["attention_gradient"],
        "samples": 0,
    },
    "head_patching": {"counterfactual": "w3 w14 w15 w9 w26 w5 w35 w2", "verify": 4},
    "effectiveness": {"by": "taylor", "limit": 4},
}


def works(subject: xa.Subject, trace: xa.Trace) -> dict[str, Callable[[], Any]]:
    """A call of each method that is registered, with what it takes."""
    return {name: partial(call, name, subject, trace, OPTIONS.get(name, {})) for name in methods()}


def of_a_trace() -> list[str]:
    """The methods that are given a trace."""
    return [name for name, entry in methods().items() if entry.takes[0] == "trace"]


def parts(result: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Every number, word and tensor of a result, by its place; not when and by what it was made."""
    if isinstance(result, xa.Subject):
        yield from parts(dict(result.model.state_dict()), place)
    elif is_dataclass(result):
        for field in fields(result):
            if field.name not in ("provenance", "seconds"):
                yield from parts(getattr(result, field.name), f"{place}.{field.name}")
    elif isinstance(result, dict):
        for key, value in result.items():
            yield from parts(value, f"{place}[{key}]")
    elif isinstance(result, list | tuple):
        for index, value in enumerate(result):
            yield from parts(value, f"{place}[{index}]")
    else:
        assert not isinstance(result, nn.Module)
        yield place, result


def same(result: object, other: object) -> bool:
    """Whether two results are the same, bit for bit."""
    left, right = dict(parts(result)), dict(parts(other))
    return left.keys() == right.keys() and all(_equal(left[place], right[place]) for place in left)


def _equal(left: object, right: object) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if left.dtype != right.dtype or left.shape != right.shape or left.device != right.device:
            return False
        return torch.equal(left.nan_to_num(), right.nan_to_num())
    return repr(left) == repr(right)


def call(name: str, subject: xa.Subject, trace: xa.Trace, options: dict[str, Any]) -> Any:
    """A method's result, given what it takes and these options."""
    entry = methods()[name]
    if name == "companions":
        return xa.companions(trace, **options)
    if entry.takes[0] == "trace":
        return result_of(entry, trace, **options)
    if "question" in entry.takes:  # which only a model that goes on with a text can answer
        return entry.function(talking("gpt2"), "w3 w14", ["w15 w9", "w26 w5"], **options)
    return entry.function(*(_given(what, subject, trace) for what in entry.takes), **options)


@cache
def _data() -> tuple[xa.Example, ...]:
    with default_torch_state():
        return tuple(numbered_sentences(24))


def _given(what: str, subject: xa.Subject, trace: xa.Trace) -> Any:
    """What a method must be given, by the name of its parameter."""
    data = list(_data())
    if what == "attribution":
        return xa.self_attribution(trace)
    if what == "importance":
        return xa.head_importance(subject, data, by="taylor")
    if what == "triggers":
        return xa.find_triggers(subject, data)
    plain = {"subject": subject, "examples": data, "heads": [(0, 1)], "text": TEXT}
    return [example.text for example in data] if what == "texts" else plain[what]
