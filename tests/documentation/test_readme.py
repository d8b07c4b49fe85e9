"""The README is executed: what it shows is what happens."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
MOST_QUESTIONS = 12


def test_the_snippet_runs(tmp_path, monkeypatch):
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(snippet, "README.md", "exec"), names)
    trial = names["trial"]
    assert "how" in trial.advice  # Show …, Do not show …
    assert len(trial.to_pandas()) == len(trial.verdicts) == 72
    assert trial.advice in (tmp_path / "report.html").read_text("utf-8")


def test_the_questions_are_a_dozen_at_most():
    table = README.read_text("utf-8").split("| question | function ")[1]
    table = "\n".join(line for line in table.split("[[[end]]]")[0].splitlines() if "|" in line)
    assert 8 <= len(table.strip().splitlines()) - 2 <= MOST_QUESTIONS


def test_one_advice_is_shown_and_is_a_real_one():
    text = README.read_text("utf-8")
    advice = text.split("<!-- advice -->")[1].split("<!-- /advice -->")[0]
    assert re.search(r"[Ss]how .*: (it|without) ", advice)  # written by studies/screenshots.py


def test_every_file_it_points_to_is_there():
    pointed = re.findall(r"\]\(([^)#]+)\)", README.read_text("utf-8"))
    assert pointed
    assert not [path for path in pointed if not (README.parent / path).exists()]
