"""The numbers of version 0.1.0, method by method, are still the numbers; its verdict is not."""

import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from measured import described, methods, set_methods, subjects

from exhibit_a.errors import ExhibitError
from exhibit_a.results.tables import leaves  # noqa: F401

HERE = Path(__file__).parent
STORED = json.loads((HERE / "numbers.json").read_text())
REFUSED = json.loads((HERE / "refused.json").read_text())
SEARCHES = ("adversarial", "keys")  # a step more or less of a search on another processor
# Paths are walked at other points since. Their sums are those of before as far as both close.
PATHS = ("attribution", "tree", "tree-exact", "importance-attribution", "triggers")
CLOSES = 0.02, 2e-4  # of a change and of the answer: twice the gap at which a path is done
RESIDUE = 1e-4  # a gap is what rounding leaves: another processor leaves something else
QUICK = ("bert",)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in ("bert", "llama", "bart", "mpnet", "sentiment-short", "sentiment-long")
    ],
)
def test_the_numbers_are_those_of_the_first_version(name, tmp_path):
    subject, text = next((s, t) for n, s, t in subjects() if n == name)
    compared = 0
    for method, work in [*methods(name, subject, text), *set_methods(name, subject)]:
        try:
            result = work()
        except ExhibitError:
            assert f"{name}.{method}" in REFUSED
            continue
        for part, found in (result if isinstance(result, dict) else {"": result}).items():
            key = f"{name}.{method}{part and '.' + part}"
            if key in STORED:
                compare(key, found, tmp_path)
                compared += 1
    assert compared == sum(key.startswith(f"{name}.") for key in STORED)


def compare(key, result, folder):
    from safetensors.torch import load_file

    saved = load_file(result.save(folder / "result.safetensors"))
    assert saved.keys() == STORED[key].keys(), key
    method = key.split(".")[1]
    loose = 0.05 if method in SEARCHES else CLOSES[0] if method in PATHS else 1e-3
    least = CLOSES[1] if method in PATHS else 0.0
    for tensor, stored in STORED[key].items():
        if method in PATHS and tensor in ("points", "gap"):
            continue
        now = described(saved[tensor])
        assert now[0] == stored[0], (key, tensor)
        scale = max(1e-6, abs(stored[2]) / max(1, math.prod(stored[0])))
        scale = max(scale, RESIDUE) if tensor == "gap" else scale
        for before, after in zip(stored[1:], now[1:], strict=True):
            allowed = max(least, loose * scale * 10)
            assert after == pytest.approx(before, rel=loose, abs=allowed), (key, tensor)
