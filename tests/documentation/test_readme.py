"""The README is executed: what it shows is what happens."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_snippet_runs():
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["trace"].tokens[:5] == ("[CLS]", "a", "gripping", ",", "beautifully")
    assert names["subject"].anatomy.parity == 0
    assert -1 < float(names["change"]) < 1


def test_every_file_it_points_to_is_there():
    pointed = re.findall(r"\]\(([^)#]+)\)", README.read_text("utf-8"))
    assert pointed
    assert not [path for path in pointed if not (README.parent / path).exists()]
