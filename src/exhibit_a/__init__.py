"""Exhibit A: attention, on the stand.

>>> import exhibit_a as xa
>>> subject = xa.load("sentiment")
>>> trace = xa.capture(subject, "a gripping , beautifully shot film")

Names are imported when they are first used, so that the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exhibit_a.doctor import Diagnosis as Diagnosis
    from exhibit_a.doctor import diagnose as diagnose
    from exhibit_a.errors import BadRequestError as BadRequestError
    from exhibit_a.errors import BrokenInvariantError as BrokenInvariantError
    from exhibit_a.errors import ExhibitError as ExhibitError
    from exhibit_a.errors import NotComputableError as NotComputableError
    from exhibit_a.errors import UnsupportedModelError as UnsupportedModelError
    from exhibit_a.examples import Example as Example
    from exhibit_a.examples import read_examples as read_examples
    from exhibit_a.methods.alternatives import AlternativeAttention as AlternativeAttention
    from exhibit_a.methods.alternatives import alternative_attention as alternative_attention
    from exhibit_a.methods.effective import EffectiveAttention as EffectiveAttention
    from exhibit_a.methods.effective import effective_attention as effective_attention
    from exhibit_a.methods.identifiability import (
        AttentionIdentifiability as AttentionIdentifiability,
    )
    from exhibit_a.methods.identifiability import IdentifiabilityByLength as IdentifiabilityByLength
    from exhibit_a.methods.identifiability import (
        attention_identifiability as attention_identifiability,
    )
    from exhibit_a.methods.identifiability import (
        identifiability_by_length as identifiability_by_length,
    )
    from exhibit_a.results import Provenance as Provenance
    from exhibit_a.results import Result as Result
    from exhibit_a.store import read as read
    from exhibit_a.subject.subject import Subject as Subject
    from exhibit_a.subject.subject import load as load
    from exhibit_a.subject.tap import AttentionCall as AttentionCall
    from exhibit_a.subject.tap import Tap as Tap
    from exhibit_a.trace import edits as edits
    from exhibit_a.trace.capture import Trace as Trace
    from exhibit_a.trace.capture import capture as capture
    from exhibit_a.trace.replay import replay as replay
    from exhibit_a.trace.targets import Target as Target
    from exhibit_a.trace.targets import choose_target as choose_target
    from exhibit_a.train import train as train

_HOME = {
    "AlternativeAttention": "methods.alternatives",
    "AttentionCall": "subject.tap",
    "AttentionIdentifiability": "methods.identifiability",
    "BadRequestError": "errors",
    "BrokenInvariantError": "errors",
    "Diagnosis": "doctor",
    "EffectiveAttention": "methods.effective",
    "Example": "examples",
    "ExhibitError": "errors",
    "IdentifiabilityByLength": "methods.identifiability",
    "NotComputableError": "errors",
    "Provenance": "results",
    "Result": "results",
    "Subject": "subject.subject",
    "Tap": "subject.tap",
    "Target": "trace.targets",
    "Trace": "trace.capture",
    "UnsupportedModelError": "errors",
    "alternative_attention": "methods.alternatives",
    "attention_identifiability": "methods.identifiability",
    "capture": "trace.capture",
    "choose_target": "trace.targets",
    "diagnose": "doctor",
    "edits": "trace",
    "effective_attention": "methods.effective",
    "identifiability_by_length": "methods.identifiability",
    "load": "subject.subject",
    "read": "store",
    "read_examples": "examples",
    "replay": "trace.replay",
    "train": "train",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name not in _HOME:
        raise AttributeError(f"exhibit_a has no {name!r}")
    home = import_module(f"exhibit_a.{_HOME[name]}")
    found = getattr(home, name, None) or import_module(f"{home.__name__}.{name}")
    globals()[name] = found  # also undoes what importing a submodule of the same name has set
    return found


def __dir__() -> list[str]:
    return __all__
