"""Ctrl-C: one line, exit code 130 and nothing half-written, wherever it comes.

A child process runs the command line and presses Ctrl-C itself at a named point, so that no test
depends on the clock.
"""

import contextlib
import os
import pty
import random
import signal
import subprocess
import sys

import pytest
from support.waiting import PATIENCE

TEXT = "a gripping , beautifully shot film"
CHILD = """
import atexit, importlib, os, signal, sys, weakref
from pathlib import Path
from exhibit_a.commands import start

def press():
    signal.raise_signal(signal.SIGINT)

class Thing:
    pass

def press_in_a_callback():
    thing = Thing()
    watched = weakref.ref(thing, lambda _: press())
    del thing

def press_in_a_finaliser():
    class Finalised:
        def __del__(self):
            press()
    Finalised()

def press_in_an_import(press=press):
    class Finder:
        def find_spec(name, path=None, target=None):
            if name == "not_there_yet":
                press()
    sys.meta_path.insert(0, Finder)
    import not_there_yet

def command(run):
    "A command that takes no time, in the place of explain."
    from exhibit_a.commands import main
    main.get_command = lambda app: type("Command", (), {"main": lambda *words, **options: run()})

def stages():
    from exhibit_a.progress import progress_bar
    with progress_bar("") as bar:
        bar.stage("one", 0, 2)
        during()
        bar.stage("two", 1, 2)
        print("went on")

def write():
    from exhibit_a.results.files import write_whole
    write_whole("page.html", b"whole")

def write_folder():
    from exhibit_a.results.files import whole_folder
    with whole_folder(Path("new/folder")) as folder:
        (folder / "file").write_bytes(b"half")
        during()
"""


def started(folder, point, *words, **how):
    words = words or ("explain", TEXT, "--html", "page.html")
    return subprocess.Popen(
        [sys.executable, "-c", f"{CHILD}\n{point}\nstart.main()", *words],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        encoding="utf-8",
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how,
    )


def run(folder, point, *words):
    process = started(folder, point, *words)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, err, out


def assert_interrupted(done, printed=""):
    assert done == (130, "interrupted\n", printed)


PRESSED = ["press", "press_in_a_callback", "press_in_a_finaliser"]


@pytest.mark.parametrize("pressed", PRESSED)
def test_in_an_import(tmp_path, pressed):
    """While the command line itself is imported, and inside a command."""
    first = f"""
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "typer":
            {pressed}()
sys.meta_path.insert(0, Finder)
"""
    assert_interrupted(run(tmp_path, first))
    later = f"during = lambda: press_in_an_import({pressed})\ncommand(stages)"
    assert_interrupted(run(tmp_path, later))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pressed", PRESSED)
def test_during_a_stage(tmp_path, pressed):
    """Where the exception is dropped, the next stage does not begin."""
    assert_interrupted(run(tmp_path, f"during = {pressed}\ncommand(stages)"))


def test_nothing_is_written_after_a_dropped_exception(tmp_path):
    assert_interrupted(run(tmp_path, "command(lambda: (press_in_a_finaliser(), write()))"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pressed", [*PRESSED, "press_in_an_import"])
def test_while_a_file_is_written(tmp_path, pressed):
    point = f"os.fsync = lambda file: {pressed}()\ncommand(write)"
    assert_interrupted(run(tmp_path, point))
    left = [path.name for path in tmp_path.iterdir()]
    if pressed in ("press", "press_in_an_import"):
        assert left == []
    else:  # dropped: the file is completed
        assert left == ["page.html"]
        assert (tmp_path / "page.html").read_bytes() == b"whole"


@pytest.mark.parametrize("pressed", ["press", "press_in_an_import"])
def test_while_a_folder_is_written(tmp_path, pressed):
    assert_interrupted(run(tmp_path, f"during = {pressed}\ncommand(write_folder)"))
    assert list(tmp_path.iterdir()) == []


def test_after_the_answer(tmp_path):
    """Also while the process ends, when Python itself would no longer say 130."""
    point = "atexit.register(press)\ncommand(lambda: (write(), print('the answer')))"
    assert_interrupted(run(tmp_path, point), "the answer\n")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_the_second_ends_the_process_at_once(tmp_path):
    point = """
def stubborn():
    try:
        press()
    finally:
        press_in_a_finaliser()
        print("went on")
command(stubborn)
"""
    assert_interrupted(run(tmp_path, point))


def test_a_library_turns_it_into_another_error(tmp_path):
    point = """
def fails():
    try:
        press()
    except KeyboardInterrupt:
        raise {} from None
command(fails)
"""
    for error in ("ImportError('something else')", "OSError(5, 'something else')"):
        assert_interrupted(run(tmp_path, point.format(error)))
        assert_interrupted(run(tmp_path, point.format(error), "explain", TEXT, "--debug"))


def test_a_bar_is_removed_from_the_screen(tmp_path):
    """The cursor is hidden while there is a bar; it must come back where a process just ends."""
    terminal, screen = pty.openpty()
    process = started(tmp_path, "during = press_in_an_import\ncommand(stages)", stderr=screen)
    os.close(screen)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert shown.endswith(b"\x1b[?25hinterrupted\r\n")


def test_a_stage_of_a_trial(tmp_path):
    """The real command, in the middle of its work."""
    point = """
from exhibit_a.progress import Bar
stage = Bar.stage
def pressing(self, name, done, total):
    if done == 5:
        press_in_a_finaliser()
    stage(self, name, done, total)
Bar.stage = pressing
"""
    assert_interrupted(run(tmp_path, point))
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
    ours = {"exhibit_a", "exhibit_a.commands", "exhibit_a.commands.start", "exhibit_a.interrupts"}
    built_in = {"signal", "atexit", "gc"}  # parts of the interpreter: no file is read for them
    assert set(done.stdout.split()) == ours | built_in | {"collections.abc"}


BEGUN = """
install = start.install
start.install = lambda: (install(), print("begun", flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_at_a_random_moment(tmp_path, seed):
    """The only test here with a clock: a command that ends before its moment is started again, to
    be interrupted earlier. Afterwards there is nothing, or a whole page."""
    moment = random.Random(seed).uniform(0, 4)
    while True:
        process = started(tmp_path, BEGUN)
        assert process.stdout.readline() == "begun\n"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=moment)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        if process.returncode != 0:
            break
        (tmp_path / "page.html").unlink()
        moment *= 0.8
    assert (process.returncode, err) == (130, "interrupted\n")
    assert all(path.read_text("utf-8").endswith("</html>\n") for path in tmp_path.iterdir())
