"""Tables and numbers of pages come from data; ``make check`` sees that pages are what they give."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"!\[[^\]]*\]\((figures/[^)]+)\)")


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """What cog blocks import, as `make pages` has it; forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(ROOT / "docs/making"))
    yield
    for name in set(sys.modules) - known:
        if str(ROOT / "docs/making") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_table_replaces_the_one_before_it(tmp_path, capsys):
    from study import keep_table as keep
    from study import kept_tables as kept

    path = tmp_path / "tables.jsonl"
    keep("first", ["a", "b"], [[1, 0.25]], path, "python studies/x.py")
    keep("second", ["a"], [[2]], path, "python studies/x.py")
    keep("first", ["a", "b"], [[3, 0.5]], path, "python studies/x.py")
    assert "| 3 | 0.5 |" in capsys.readouterr().out
    assert list(kept(path)) == ["second", "first"]
    assert kept(path)["first"]["rows"] == [["3", "0.5"]]


def test_every_licence_is_known():
    from licences import libraries

    assert "| not stated" not in libraries()
    for name in ("torch", "transformers", "rich", "captum", "starlette", "pytest"):
        assert f"\n| {name} | " in libraries()


def test_every_claim_has_its_command_and_its_word_from_the_measurements():
    from findings import CLAIMS, sections

    said = sections().split("\n### ")[1:]
    assert len(said) == len(CLAIMS)
    for section in said:
        assert "\n* `python " in section
    assert sections(known={}).count("not measured yet") > sections().count("not measured yet")


def test_every_figure_of_a_page_is_there():
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")]
    shown = {path for page in pages for path in SHOWN.findall(page)}
    assert len(shown) > 50
    assert not [path for path in shown if not (ROOT / "docs" / path).exists()]


def test_the_example_of_a_method_of_your_own_runs():
    text = (ROOT / "docs/own-methods.md").read_text("utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    names = {}
    exec(compile(code, "own-methods.md", "exec"), names)
    assert names["judged"].attributions == ("surprise", "raw", "random")
    assert len(names["scores"].scores) == len(names["trace"].tokens)
