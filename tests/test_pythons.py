"""Every Python that the package claims: its syntax, its standard library, its metadata."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/exhibit_a"
FILES = sorted(SOURCE.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CLAIMED = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))


def answer(version, *arguments):
    """What an interpreter of this version says; None where there is none to be had."""
    environment = os.environ | {"PYENV_VERSION": version}  # where pyenv has several
    try:
        return subprocess.run(
            [f"python{version}", *arguments], env=environment, capture_output=True, text=True
        )
    except FileNotFoundError:
        return None


def imported():
    """The modules outside the package that are imported anywhere in it, by their first name."""
    trees = [ast.parse(path.read_text("utf-8")) for path in FILES]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    of = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in plain | of}


def test_the_oldest_one_claimed_is_the_least_required():
    assert PROJECT["requires-python"] == f">={CLAIMED[0]}"
    assert sorted(CLAIMED, key=lambda version: int(version[2:])) == CLAIMED
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in CLAIMED


def is_understood(source, version):
    """Whether a Python of that version can read the source."""
    try:
        ast.parse(source, feature_version=tuple(map(int, version.split("."))))
    except SyntaxError:
        return False
    return True


def test_no_file_needs_a_newer_syntax():
    assert not is_understood("match x:\n    case 1: pass\n", "3.9")  # what it looks for
    assert [path for path in FILES if not is_understood(path.read_text("utf-8"), CLAIMED[0])] == []


@pytest.mark.parametrize("version", CLAIMED)
def test_it_compiles_without_a_warning(version, tmp_path):
    options = ["-W", "error", "-X", f"pycache_prefix={tmp_path}", "-m", "compileall", "-q", "-f"]
    done = answer(version, *options, str(SOURCE))
    if done is None or "command not found" in done.stderr:
        pytest.skip(f"There is no Python {version} here.")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("version", CLAIMED)
def test_its_standard_library_has_what_is_imported(version):
    done = answer(version, "-c", "import sys; print(*sys.stdlib_module_names)")
    if done is None or done.returncode:
        pytest.skip(f"There is no Python {version} here.")
    ours = imported() & sys.stdlib_module_names
    assert {"dataclasses", "hashlib", "json"} <= ours
    assert ours <= set(done.stdout.split())


def test_the_version_stands_in_one_place_and_the_changelog_begins_with_it():
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(r"^## (\S+)", changes, re.M)[1] == PROJECT["version"]
    for path in FILES:
        assert PROJECT["version"] not in path.read_text("utf-8"), path
