"""Every example in a docstring is run, and every public function has some."""

import doctest
import importlib
import inspect
import pkgutil
from functools import cache

import pytest
import torch

import exhibit_a as xa

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
FEWEST = 2  # examples of a public function
TEXTS = (
    ("a gripping , beautifully shot film", "positive"),
    ("dull and far too long", "negative"),
    ("the acting saves a thin plot", "positive"),
    ("nothing here is worth your time", "negative"),
    ("a warm , funny and moving story", "positive"),
    ("the jokes fall flat", "negative"),
    ("an old tale told with new eyes", "positive"),
    ("a mess from start to end", "negative"),
)


def modules():
    found = pkgutil.walk_packages(xa.__path__, "exhibit_a.")
    return [name for _, name, _ in found if not name.endswith("__main__")]


@cache
def ready():
    subject = xa.load("sentiment")
    examples = [xa.Example(str(n), text, None, label) for n, (text, label) in enumerate(TEXTS)]
    trace = xa.capture(subject, TEXTS[0][0])
    return {"xa": xa, "torch": torch, "subject": subject, "examples": examples, "trace": trace}


@pytest.mark.parametrize("name", modules())
def test_examples_say_what_happens(name, tmp_path, monkeypatch):
    module = importlib.import_module(name)
    finder, runner = (
        doctest.DocTestFinder(exclude_empty=True),
        doctest.DocTestRunner(optionflags=OPTIONS),
    )
    monkeypatch.chdir(tmp_path)
    for case in finder.find(module, name):
        if case.examples:
            case.globs |= ready() | {"tmp_path": tmp_path}
            runner.run(case)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", sorted(n for n in xa.__all__ if n.islower()))
def test_public_functions_teach_by_example(name):
    function = getattr(xa, name)
    if inspect.ismodule(function):
        pytest.skip("a module; its functions speak for themselves")
    shown = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
    assert len(shown) >= FEWEST, f"{name} has {len(shown)} examples"
