"""Exhibit A: attention, on the stand.

>>> import exhibit_a as xa
>>> subject = xa.load("sentiment")
>>> trace = xa.capture(subject, "a gripping , beautifully shot film")

Names are imported when they are first used, so that the command line answers at once.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exhibit_a import corpus as corpus
    from exhibit_a.doctor import Diagnosis as Diagnosis
    from exhibit_a.doctor import diagnose as diagnose
    from exhibit_a.errors import BadRequestError as BadRequestError
    from exhibit_a.errors import BrokenInvariantError as BrokenInvariantError
    from exhibit_a.errors import ExhibitError as ExhibitError
    from exhibit_a.errors import NotComputableError as NotComputableError
    from exhibit_a.errors import UnsupportedModelError as UnsupportedModelError
    from exhibit_a.examples import Example as Example
    from exhibit_a.examples import read_examples as read_examples
    from exhibit_a.methods.adversarial import AdversarialAttention as AdversarialAttention
    from exhibit_a.methods.adversarial import adversarial_attention as adversarial_attention
    from exhibit_a.methods.adversarial_keys import AdversarialKeys as AdversarialKeys
    from exhibit_a.methods.adversarial_keys import adversarial_keys as adversarial_keys
    from exhibit_a.methods.alternatives import AlternativeAttention as AlternativeAttention
    from exhibit_a.methods.alternatives import alternative_attention as alternative_attention
    from exhibit_a.methods.companions import TokenAttribution as TokenAttribution
    from exhibit_a.methods.companions import companions as companions
    from exhibit_a.methods.effective import EffectiveAttention as EffectiveAttention
    from exhibit_a.methods.effective import effective_attention as effective_attention
    from exhibit_a.methods.faithfulness import Faithfulness as Faithfulness
    from exhibit_a.methods.faithfulness import faithfulness as faithfulness
    from exhibit_a.methods.head_mixing import HeadMixing as HeadMixing
    from exhibit_a.methods.head_mixing import head_mixing as head_mixing
    from exhibit_a.methods.heads import HeadImportance as HeadImportance
    from exhibit_a.methods.heads import HeadSimilarity as HeadSimilarity
    from exhibit_a.methods.heads import head_importance as head_importance
    from exhibit_a.methods.heads import head_similarity as head_similarity
    from exhibit_a.methods.hidden_attribution import HiddenAttribution as HiddenAttribution
    from exhibit_a.methods.hidden_attribution import hidden_attribution as hidden_attribution
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
    from exhibit_a.methods.permutation import PermutationTest as PermutationTest
    from exhibit_a.methods.permutation import permutation_test as permutation_test
    from exhibit_a.methods.pruning import PruningCurve as PruningCurve
    from exhibit_a.methods.pruning import effectiveness as effectiveness
    from exhibit_a.methods.pruning import pruning_curve as pruning_curve
    from exhibit_a.methods.removal import Pruning as Pruning
    from exhibit_a.methods.removal import measure_pruning as measure_pruning
    from exhibit_a.methods.removal import prune as prune
    from exhibit_a.methods.self_attribution import SelfAttribution as SelfAttribution
    from exhibit_a.methods.self_attribution import self_attribution as self_attribution
    from exhibit_a.methods.token_identifiability import TokenIdentifiability as TokenIdentifiability
    from exhibit_a.methods.token_identifiability import (
        token_identifiability as token_identifiability,
    )
    from exhibit_a.methods.tree import AttributionTree as AttributionTree
    from exhibit_a.methods.tree import attribution_tree as attribution_tree
    from exhibit_a.methods.triggers import Attack as Attack
    from exhibit_a.methods.triggers import Triggers as Triggers
    from exhibit_a.methods.triggers import attack as attack
    from exhibit_a.methods.triggers import find_triggers as find_triggers
    from exhibit_a.report.html import write_page as write_page
    from exhibit_a.report.notebook import static_html as static_html
    from exhibit_a.report.notebook import widget as widget
    from exhibit_a.report.terminal import show as show
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
    from exhibit_a.trial import Trial as Trial
    from exhibit_a.trial import trial as trial
    from exhibit_a.verdict import HeadVerdict as HeadVerdict
    from exhibit_a.verdict import Thresholds as Thresholds

_HOME = {
    "AdversarialAttention": "methods.adversarial",
    "AdversarialKeys": "methods.adversarial_keys",
    "AlternativeAttention": "methods.alternatives",
    "Attack": "methods.triggers",
    "AttentionCall": "subject.tap",
    "AttentionIdentifiability": "methods.identifiability",
    "AttributionTree": "methods.tree",
    "BadRequestError": "errors",
    "BrokenInvariantError": "errors",
    "Diagnosis": "doctor",
    "EffectiveAttention": "methods.effective",
    "Example": "examples",
    "ExhibitError": "errors",
    "Faithfulness": "methods.faithfulness",
    "HeadImportance": "methods.heads",
    "HeadMixing": "methods.head_mixing",
    "HeadSimilarity": "methods.heads",
    "HeadVerdict": "verdict",
    "HiddenAttribution": "methods.hidden_attribution",
    "IdentifiabilityByLength": "methods.identifiability",
    "NotComputableError": "errors",
    "PermutationTest": "methods.permutation",
    "Provenance": "results",
    "Pruning": "methods.removal",
    "PruningCurve": "methods.pruning",
    "Result": "results",
    "SelfAttribution": "methods.self_attribution",
    "Subject": "subject.subject",
    "Tap": "subject.tap",
    "Target": "trace.targets",
    "Thresholds": "verdict",
    "TokenAttribution": "methods.companions",
    "TokenIdentifiability": "methods.token_identifiability",
    "Trace": "trace.capture",
    "Trial": "trial",
    "Triggers": "methods.triggers",
    "UnsupportedModelError": "errors",
    "adversarial_attention": "methods.adversarial",
    "adversarial_keys": "methods.adversarial_keys",
    "alternative_attention": "methods.alternatives",
    "attack": "methods.triggers",
    "attention_identifiability": "methods.identifiability",
    "attribution_tree": "methods.tree",
    "capture": "trace.capture",
    "choose_target": "trace.targets",
    "companions": "methods.companions",
    "corpus": "",
    "diagnose": "doctor",
    "edits": "trace",
    "effective_attention": "methods.effective",
    "effectiveness": "methods.pruning",
    "faithfulness": "methods.faithfulness",
    "find_triggers": "methods.triggers",
    "head_importance": "methods.heads",
    "head_mixing": "methods.head_mixing",
    "head_similarity": "methods.heads",
    "hidden_attribution": "methods.hidden_attribution",
    "identifiability_by_length": "methods.identifiability",
    "load": "subject.subject",
    "measure_pruning": "methods.removal",
    "permutation_test": "methods.permutation",
    "prune": "methods.removal",
    "pruning_curve": "methods.pruning",
    "read": "store",
    "read_examples": "examples",
    "replay": "trace.replay",
    "self_attribution": "methods.self_attribution",
    "show": "report.terminal",
    "static_html": "report.notebook",
    "token_identifiability": "methods.token_identifiability",
    "train": "train",
    "trial": "trial",
    "widget": "report.notebook",
    "write_page": "report.html",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name not in _HOME:
        raise AttributeError(f"exhibit_a has no {name!r}")
    home = import_module(f"exhibit_a.{_HOME[name]}".rstrip("."))
    found = vars(home).get(name) or import_module(f"{home.__name__}.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """This package, whose functions `trial` and `train` are not hidden by their own files."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):  # set by every import of the file
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
