"""How many forward passes does a method really run?"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

import exhibit_a as xa
from exhibit_a.methods.custom_methods import result_of
from exhibit_a.methods.registry import Method
from exhibit_a.subject.anatomy import first_hidden
from exhibit_a.subject.replay_skips import replay_skips

WORDS = "a gripping , beautifully shot film , though the plot is thin at the end and the jokes"
TEXTS = [
    WORDS,
    "dull and far too long for what it has to say about people , places and time itself",
]


@dataclass(frozen=True)
class Passes:
    """Forward passes of the whole model for one text, and the tokens of the text."""

    forwards: float
    tokens: int


def counted_passes(method: Method) -> Passes | None:
    """Run a method and count; None where it is not asked of texts."""
    subject = xa.load("sentiment")
    labels = ("positive", "negative")
    examples = [xa.Example(str(n), TEXTS[n % 2], None, labels[n % 2]) for n in range(12)]

    modules = [subject.model.get_submodule(layer.module) for layer in subject.anatomy.layers]
    trace = xa.capture(subject, WORDS)
    work, texts = _work(method, subject, trace, examples)
    if work is None:
        return None
    with counting(modules) as rows:
        work()
    return Passes(sum(rows) / len(modules) / texts, len(trace.tokens))


@contextmanager
def counting(modules: list[nn.Module]) -> Iterator[list[float]]:
    """The rows of every layer call that is really computed; what a replay recalls is not."""
    kind, rows = type(modules[0]), list[float]()
    forward = kind.forward

    def counted(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        hidden = first_hidden(args, kwargs)
        known = bool(replay_skips().known)  # its attention was computed, and counted, before
        kept = replay_skips().kept
        part = 1.0 if kept is None else kept.part
        rows.append(0 if hidden is None or known else len(hidden) * part)
        return forward(self, *args, **kwargs)

    kind.forward = counted
    try:
        yield rows
    finally:
        kind.forward = forward


def _work(method: Method, subject: xa.Subject, trace: xa.Trace, examples: list[xa.Example]) -> Any:
    """What is run, and over how many texts."""
    match method.takes:
        case ("trace",) | ("trace", "target"):
            options = {"site": 0, "head": 0} if "site" in method.options else {}
            other = WORDS.replace("gripping", "terrible")
            options |= {"counterfactual": other} if "counterfactual" in method.options else {}
            options |= {"probes": 2} if "probes" in method.options else {}
            return lambda: (xa.capture(subject, WORDS), _asked(method, trace, options)), 1
        case ("subject", "text"):
            return lambda: method.function(subject, WORDS), 1
        case ("subject", "texts"):
            return lambda: method.function(subject, [e.text for e in examples]), len(examples)
        case ("subject", "examples"):
            options = {"attribution": "raw"} if "attribution" in method.options else {}
            return lambda: method.function(subject, examples, **options), len(examples)
        case ("subject", "examples", "importance"):
            ranked = xa.head_importance(subject, examples[:2], by="attention")
            return lambda: method.function(subject, examples, ranked, overlap=True), len(examples)
    return None, 0


def _asked(method: Method, trace: xa.Trace, options: dict[str, Any]) -> Any:
    return (
        method.function(trace)
        if method.name == "companions"
        else result_of(method, trace, **options)
    )
