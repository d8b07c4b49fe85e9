"""Pages about four tasks, people's marks and larger models are what their scripts give today."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("tasks", "gold", "sizes")
SHOWN = re.compile(r"!\[[^\]]*\]\((figures/[^)]+)\)")


def script(name):
    spec = importlib.util.spec_from_file_location(f"page_{name}", ROOT / f"docs/making/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_its_script_gives_today(name):
    made = script(name)
    page = made.page()
    assert made.PAGE.read_text("utf-8") == page
    assert not re.search(r"\{[A-Z-]+\}", page)  # every mark was filled


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_a_page_is_there(name):
    shown = SHOWN.findall((ROOT / f"docs/{name}.md").read_text("utf-8"))
    assert not [path for path in shown if not (ROOT / "docs" / path).exists()]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_without_data_has_no_measured_number(name, tmp_path, monkeypatch):
    """Numbers of tables and sentences come from the data alone, so without them there are none."""
    made = script(name)
    told = importlib.import_module("told")
    monkeypatch.setattr(told, "DATA", tmp_path)
    page = made.page()
    assert told.MISSING in page
    assert not re.search(r"\d\.\d|\d %(?! )", page.replace("95 %", "").replace("all-", ""))
