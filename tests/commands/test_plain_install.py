"""Without any extra: what needs none works, and what needs one names it in one line.

`make plain` tries the same in a real environment; here the libraries are only hidden.
"""

import json
import os
import subprocess
import sys

from support.plain import ABSENT, cases, fault

HIDING = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder

hidden, listed = json.loads(sys.argv[1]), json.loads(sys.argv[2])
find = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find(name, path, target)
PathFinder.find_spec = staticmethod(find_spec)

from exhibit_a.commands.main import main
for words in listed:
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        try:
            main(words)
        except SystemExit as left:
            code = left.code
    print(json.dumps([code, told.getvalue()]))
"""


def test_every_verb_works_or_names_its_extra(tmp_path):
    asked = [
        case for case in cases(tmp_path) if case[0][0] != "train" or case[1]
    ]  # slow, and in make plain
    lists = [json.dumps(ABSENT), json.dumps([words for words, _ in asked])]
    done = subprocess.run(
        [sys.executable, "-c", HIDING, *lists],
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(asked), done.stderr[-2000:]
    faults = [fault(case, *answer) for case, answer in zip(asked, answers, strict=True)]
    assert list(filter(None, faults)) == []
