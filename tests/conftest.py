"""Shared set-up: quiet libraries and no network.

Large libraries are imported once the session starts: a process that only hands tests out to workers
needs none of them.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# A screen is what a test says it is, wherever the tests run.
os.environ.pop("NO_COLOR", None)
os.environ.pop("FORCE_COLOR", None)
os.environ.pop("TTY_COMPATIBLE", None)
os.environ.pop("TTY_INTERACTIVE", None)
os.environ.pop("COLUMNS", None)

import pytest
import xdist
from support import typed

typed.install()


def pytest_sessionstart(session):
    if xdist.is_xdist_controller(session):
        return
    import hypothesis
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # Two processes share two cores: one thread each, or they wait for each other.
    torch.set_num_threads(1 if xdist.is_xdist_worker(session) else 2)
    # The same examples on every run, and no law broken by a busy machine.
    hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _methods_of_one_test():
    """What a test registers is gone after it."""
    from exhibit_a.methods import registry

    before = set(registry._known)
    yield
    for name in set(registry._known) - before:
        if registry._known[name].room == registry.YOURS:
            del registry._known[name]
