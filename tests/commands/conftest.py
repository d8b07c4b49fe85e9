"""A folder with a tiny model, for the commands that read one."""

import pytest
from support.corpora import save_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("bert"))
