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


MADE = {  # what a script writes, and lines that must stand there
    "methods": (),
    "tables": ("| `SelfAttribution` | `scores` | site, head, query, key |",),
    "glossary": (),
    "gallery": tuple(
        f"(gallery/{name}.html)"
        for name in ("classifier", "pair", "causal", "translation", "image", "compared")
    ),
    "licences": tuple(
        f"\n| {name} | "
        for name in ("torch", "transformers", "rich", "captum", "starlette", "pytest")
    ),
    "verdict": (),
    "context": (),
    "models": ("# models/sublayers.py\ncontext = weights @ value\n",),
    "speed": (),
    "claims": (),
    "dtypes": ("**0 ranks, words or orders differ**",),
}


@pytest.mark.parametrize("name", MADE)
def test_a_page_is_what_its_script_gives_today(name):
    made = script(name)
    page = made.page()
    assert made.PAGE.read_text("utf-8") == page
    for line in MADE[name]:
        assert line in page


def test_the_table_of_methods_in_the_readme_is_that_of_the_registry():
    made = script("methods")
    assert made.README.read_text("utf-8") == made.readme()


def test_every_licence_is_known():
    assert "| not stated" not in script("licences").page()


def test_every_claim_has_its_command_and_its_word_from_the_measurements():
    made = script("claims")
    page = made.page()
    sections = page.split("\n### ")[1:]
    assert len(sections) == len(made.CLAIMS)
    for section in sections:
        assert "\n* `python " in section
    empty = made.page(known={})
    assert empty.count("not measured yet") > page.count("not measured yet")


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
