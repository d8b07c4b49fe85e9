"""Shared set-up: quiet libraries, no network, and one subject per family."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# A screen is what a test says it is, wherever the tests run.
os.environ.pop("NO_COLOR", None)
os.environ.pop("FORCE_COLOR", None)
os.environ.pop("TTY_COMPATIBLE", None)
os.environ.pop("TTY_INTERACTIVE", None)
os.environ.pop("COLUMNS", None)

import hypothesis
import pytest
import torch
import transformers
from support.subjects import subject_of
from support.zoo import FAMILIES

from exhibit_a.methods import registry

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
# Two processes share two cores: one thread each, or they wait for each other.
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
# The same examples on every run, and no law broken by a busy machine.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(params=sorted(FAMILIES))
def family(request):
    return subject_of(request.param), FAMILIES[request.param].inputs()


@pytest.fixture(autouse=True)
def _methods_of_one_test():
    """What a test registers is gone after it."""
    before = set(registry._known)
    yield
    for name in set(registry._known) - before:
        if registry._known[name].room == registry.YOURS:
            del registry._known[name]
