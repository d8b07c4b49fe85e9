"""Reference models are ordinary models: saved, loaded by name, pruned; and imported on demand."""

import subprocess
import sys

import pytest
import torch
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.subject.guard import floating
from exhibit_a.subject.subject import load

NAMES = ["transformer", "identifiable", "additive", "recurrent"]


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_is_loaded_as_it_was(name, tmp_path):
    model, inputs = FAMILIES[name].build(), FAMILIES[name].inputs()
    model.save_pretrained(tmp_path)
    subject = load(tmp_path)
    assert type(subject.model) is type(model)
    with torch.no_grad():
        ours, theirs = floating(model(**inputs))[0], floating(subject.model(**inputs))[0]
    assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_importing_the_package_registers_nothing():
    program = (
        "import exhibit_a, sys; assert 'transformers' not in sys.modules;"
        "from transformers import AutoConfig;"
        "from transformers.models.auto.configuration_auto import CONFIG_MAPPING as known;"
        "assert 'exhibit-transformer' not in known;"
        "exhibit_a.models.Transformer; assert 'exhibit-transformer' in known"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
