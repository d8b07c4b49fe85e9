"""The README is executed: what it shows is what happens."""

import re
from pathlib import Path

import pytest
import torch

from exhibit_a.trace.capture import capture

README = Path(__file__).parents[2] / "README.md"


def test_the_snippet_runs():
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["trace"].tokens[:5] == ("[CLS]", "a", "gripping", ",", "beautifully")
    assert names["subject"].anatomy.parity == 0
    trace, target = names["trace"], names["target"]
    # The same by hand: the head's rows of the output projection are zero.
    projection = trace.subject.model.get_submodule(trace.sites[5].projection)
    kept = projection.weight.detach().clone()
    width = trace.sites[5].d_head
    with torch.no_grad():
        projection.weight[:, 2 * width : 3 * width] = 0
        silenced = capture(trace.subject, trace.inputs)
        projection.weight.copy_(kept)
    expected = float(target(silenced.output) - target(trace.output))
    assert float(names["change"]) == pytest.approx(expected, abs=1e-6)
    assert abs(expected) > 1e-4


def test_every_file_it_points_to_is_there():
    pointed = re.findall(r"\]\(([^)#]+)\)", README.read_text("utf-8"))
    assert pointed
    assert not [path for path in pointed if not (README.parent / path).exists()]
