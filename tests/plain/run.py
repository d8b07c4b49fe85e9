"""Does a plain ``pip install`` work? Run by ``make plain``, with the Python of a new environment.

The package is there alone, without any extra: what needs none must work, and what needs one must
say which, in one line.
"""

import os
import re
import subprocess
import sys
import tempfile
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
    exec(compile(snippet, "README.md", "exec"), {})
    print("README's snippet: done")
    with tempfile.TemporaryDirectory() as scratch:
        faults = list(filter(None, [tried(case, scratch) for case in cases(Path(scratch))]))
    print(*faults, sep="\n")
    return len(faults)


def tried(case: Case, folder: str) -> str | None:
    """Run a command line outside the repository, where only the installed package is found."""
    words, needed = case
    command = [sys.executable, "-m", "exhibit_a", *words]
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=folder, env=offline, capture_output=True, encoding="utf-8", timeout=300
    )
    wrong = fault(case, done.returncode, done.stderr)
    print("exhibit-a", *words[:2], f"(needs {needed})" if needed else "", "WRONG" if wrong else "")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
