"""Ctrl-C during `explain`: at random moments, and inside finalisers, where Python drops exceptions.

Each attempt is a process of its own. It must print one line, end with 130, and leave no file or a
whole one. A command that was done before its moment came is tried again with an earlier one.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from support.fuzz.outcomes import Outcomes
from support.waiting import PATIENCE

WORDS = ("explain", "a gripping , beautifully shot film", "--html", "page.html")
LATEST = 4.0  # seconds after the start
EVENTS = 60_000  # that Python reports to audit hooks; an `explain` has more
BEGUN = "install = start.install; start.install = lambda: (install(), print('begun', flush=True))"
FORCED = """
import signal, sys, weakref

class Finalised:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def press():
    if {callback}:
        thing = type("Thing", (), {{}})()
        watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
        del thing
    else:
        Finalised()

def count(*_, left=[{event}]):
    left[0] -= 1
    if left[0] == 0:
        press()

install = start.install
start.install = lambda: (install(), sys.addaudithook(count))
"""


def interrupts(seed: int, attempts: int) -> Outcomes:
    """Interrupt commands: one in five inside a finaliser or a callback of a weak reference."""
    chance, outcomes = random.Random(seed), Outcomes()
    for number in range(attempts):
        forced = number % 5 == 0
        moment = chance.randint(1, EVENTS) if forced else chance.uniform(0, LATEST)
        with tempfile.TemporaryDirectory() as place:
            code, problem = (_forced if forced else _at)(Path(place), moment, chance)
            pages = [path.read_bytes() for path in Path(place).iterdir()]
        whole = all(page.endswith(b"</html>\n") for page in pages)
        outcome = (
            "interrupted" if (code, problem, whole) == (130, "interrupted\n", True) else "lost"
        )
        outcomes.add(outcome, (forced, moment), f"{code} {problem} {len(pages)} files")
    return outcomes


def _forced(folder: Path, moment: float, chance: random.Random) -> tuple[int, str]:
    """Interrupt at an event inside a finaliser, where the exception is dropped."""
    point = FORCED.format(callback=chance.random() < 0.5, event=moment)
    process = _started(folder, point)
    _, problem = process.communicate(timeout=PATIENCE)
    return process.returncode, problem


def _at(folder: Path, moment: float, _: random.Random) -> tuple[int, str]:
    """Interrupt some seconds after the start."""
    while True:
        process = _started(folder, BEGUN)
        assert process.stdout is not None
        process.stdout.readline()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=moment)
        process.send_signal(signal.SIGINT)
        _, problem = process.communicate(timeout=PATIENCE)
        if process.returncode != 0:
            return process.returncode, problem
        (folder / "page.html").unlink()
        moment *= 0.8


def _started(folder: Path, point: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"from exhibit_a.commands import start\n{point}\nstart.main()",
            *WORDS,
        ],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        encoding="utf-8",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
