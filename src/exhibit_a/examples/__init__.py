"""Labelled and unlabelled text in: from files, data sets, lists and iterators."""

from exhibit_a.examples.columns import (
    Example,
    iterate_examples,
    label_names,
    read_examples,
    require_known_labels,
    require_labels,
)
from exhibit_a.examples.files import Unusable
from exhibit_a.examples.stream import fingerprint, stream_examples

__all__ = [
    "Example",
    "Unusable",
    "fingerprint",
    "iterate_examples",
    "label_names",
    "read_examples",
    "require_known_labels",
    "require_labels",
    "stream_examples",
]
