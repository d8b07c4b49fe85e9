"""Pages that scripts write are what the scripts would write today."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/making/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_methods_are_those_of_the_registry():
    made = script("methods")
    assert made.README.read_text("utf-8") == made.readme()
    assert made.PAGE.read_text("utf-8") == made.page()


def test_the_columns_of_every_table_are_written_down():
    made = script("tables")
    assert made.PAGE.read_text("utf-8") == made.page()
    assert "| `SelfAttribution` | `scores` | site, head, query, key |" in made.page()


def test_the_glossary_is_the_one_that_the_page_shows():
    made = script("glossary")
    assert made.PAGE.read_text("utf-8") == made.page()


def test_the_licences_are_those_of_what_is_installed():
    made = script("licences")
    page = made.page()
    assert made.PAGE.read_text("utf-8") == page
    for name in ("torch", "transformers", "rich", "captum", "starlette", "pytest"):
        assert f"\n| {name} | " in page
    assert "| not stated" not in page


def test_the_page_about_the_verdict_is_what_the_data_of_the_study_give():
    made = script("verdict")
    assert made.PAGE.read_text("utf-8") == made.page()


def test_the_page_about_passages_is_what_the_data_of_the_study_give():
    made = script("context")
    assert made.PAGE.read_text("utf-8") == made.page()


def test_the_page_about_reference_models_is_what_the_package_and_the_study_give():
    made = script("models")
    assert made.PAGE.read_text("utf-8") == made.page()
    assert "# models/sublayers.py\ncontext = weights @ value\n" in made.page()


def test_the_page_of_claims_is_what_the_measurements_give():
    made = script("claims")
    page = made.page()
    assert made.PAGE.read_text("utf-8") == page
    sections = page.split("\n### ")[1:]
    assert len(sections) == len(made.CLAIMS)
    for section in sections:
        assert "\n* `python " in section
    empty = made.page(known={})
    assert empty.count("not measured yet") > page.count("not measured yet")


def test_the_page_about_speed_is_what_the_measurements_give():
    made = script("speed")
    assert made.PAGE.read_text("utf-8") == made.page()


def test_the_picture_of_the_rooms_is_that_of_the_package():
    made = script("architecture")
    assert made.PICTURE.read_text("utf-8") == made.picture()


@pytest.mark.slow
def test_the_page_for_newcomers_is_that_of_the_package():
    """Written in a process of its own: what is imported already is not walked through again."""
    code = "import architecture, sys; sys.stdout.write(architecture.page())"
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "docs/making",
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert made.stdout == (ROOT / "docs/architecture.md").read_text("utf-8")


def test_the_example_of_a_method_of_your_own_runs():
    text = (ROOT / "docs/own-methods.md").read_text("utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    names = {}
    exec(compile(code, "own-methods.md", "exec"), names)
    assert names["judged"].attributions == ("surprise", "raw", "random")
    assert len(names["scores"].scores) == len(names["trace"].tokens)
