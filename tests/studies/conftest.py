"""What a study sets for its process does not outlive a test."""

import pytest
import torch
import transformers


@pytest.fixture(autouse=True)
def usual_settings():
    threads, verbosity = torch.get_num_threads(), transformers.logging.get_verbosity()
    yield
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()
