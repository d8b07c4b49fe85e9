"""Shared set-up: quiet libraries, no network, and one subject per family."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import hypothesis
import pytest
import torch
import transformers
from zoo import FAMILIES

from exhibit_a.subject.subject import Subject, load

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(2)
# The same examples on every run, and no law broken by a busy machine.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")

_subjects: dict[str, Subject] = {}


def subject_of(name: str) -> Subject:
    """One subject per family, observed once for the whole session."""
    if name not in _subjects:
        _subjects[name] = load(FAMILIES[name].build())
    return _subjects[name]


@pytest.fixture(params=sorted(FAMILIES))
def family(request):
    return subject_of(request.param), FAMILIES[request.param].inputs()
