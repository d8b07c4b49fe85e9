"""Does a plain ``pip install`` work? Run by ``make plain``, with the Python of a new environment.

The package is there alone, without any extra: what needs none must work, and what needs one must
say which, in one line.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
from support.plain import ABSENT, Case, cases, fault  # noqa: E402


def main() -> int:
    present = [name for name in ABSENT if find_spec(name)]
    if present:
        sys.exit(f"This environment is not plain: it has {', '.join(present)}.")
    readme = (TESTS.parent / "README.md").read_text("utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        exec(compile(snippet, "README.md", "exec"), {})  # writes report.html where it runs
        print("README's snippet: done")
        asked = cases(Path(scratch))
        # Processes take seconds to start: one that works has its own, and one that lacks an extra.
        alone = [next(case for case in asked if bool(case[1]) == lacks) for lacks in (False, True)]
        ways = [(case, by_process if case in alone else by_call) for case in asked]
        faults = list(filter(None, [tried(case, way) for case, way in ways]))
    print(*faults, sep="\n")
    return len(faults)


def tried(case: Case, way: Callable[[list[str]], tuple[object, str]]) -> str | None:
    """Run a command line outside the repository, where only the installed package is found."""
    words, needed = case
    wrong = fault(case, *way(words))
    print("exhibit-a", *words[:2], f"(needs {needed})" if needed else "", "WRONG" if wrong else "")
    return wrong


def by_process(words: list[str]) -> tuple[object, str]:
    """The exit code and stderr of a new process."""
    command = [sys.executable, "-m", "exhibit_a", *words]
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=offline, capture_output=True, encoding="utf-8", timeout=300)
    return done.returncode, done.stderr


def by_call(words: list[str]) -> tuple[object, str]:
    """The same, asked in this process."""
    from exhibit_a.commands.main import main as command_line

    told, code = io.StringIO(), None
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        try:
            command_line(words)
        except SystemExit as left:
            code = left.code
    return code, told.getvalue()


if __name__ == "__main__":
    sys.exit(main())
