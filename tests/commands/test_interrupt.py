"""Ctrl-C: one line and exit code 130, wherever it comes."""

import os
import signal
import subprocess
import sys
import time

import pytest

BEGUN = """
import signal, sys
from exhibit_a.commands import start
install = signal.signal
def begun(*handler):
    install(*handler)
    print("begun", flush=True)
signal.signal = begun
sys.argv = ["exhibit-a", *sys.argv[1:]]
start.main()
"""
START = "exhibit_a.commands.start"
LONG = (
    "a gripping , beautifully shot film , though the plot is thin and some jokes fall flat . " * 9
)


@pytest.mark.parametrize("seconds", [0, 0.3, 1.5, 4])
def test_an_interrupt_is_one_line(tmp_path, seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", BEGUN, "explain", LONG, "--truncate", "--no-html"],
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == []


BEFORE = """
import re, sys
before = set(sys.modules)
import exhibit_a.commands.start
print(*sorted(set(sys.modules) - before))
"""


def test_nearly_nothing_is_imported_before_the_handler_is_there():
    """What comes before it, after the interpreter and the installed script, shows a traceback."""
    done = subprocess.run([sys.executable, "-c", BEFORE], capture_output=True, encoding="utf-8")
    built_in = {"signal", "atexit", "gc"}  # parts of the interpreter: no file is read for them
    assert set(done.stdout.split()) == {"exhibit_a", "exhibit_a.commands", START} | built_in


SWALLOWED = """
import sys
from exhibit_a.commands import start, main as command_line
import signal, os

def fails(*words, **options):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass
    raise ImportError("something else")

command_line.get_command = lambda app: type("Command", (), {"main": fails})
start.main()
"""


def test_an_interrupt_that_a_library_turned_into_another_error_is_still_one():
    done = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
