"""Ctrl-C during a command: one line, exit code 130 and nothing half-written, at any moment.

Python raises an exception wherever the main thread happens to be. A finaliser drops it; inside an
import it may come out as another error, or abort the process. Therefore:

1. The handler notes the interrupt. If the exception is dropped, the note ends the command after the
   running stage (``raise_if_interrupted``) or, at the latest, when the command is done (``leave``).
2. During an import, before and after the command itself, and at a second Ctrl-C, the handler does
   not raise: it ends the process at once.
3. No ``finally`` runs in a process that is ended, so writers register how to remove what is not yet
   complete (``undone``).

Only the command line installs the handler; a program that imports the package keeps its own. This
file imports next to nothing, because Ctrl-C is Python's until the handler is installed.
"""

import atexit
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130
IMPORT = "<frozen importlib._bootstrap>"  # the file of the outermost frame of every import

_noted: list[int] = []  # the interrupts so far
_unfinished: list[Callable[[], object]] = []  # functions that remove what is not complete


def install() -> None:
    """Handle interrupts from here on."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable


def guarded(command: Callable[[], object]) -> None:
    """Run a command. The handler raises only in here, so the caller can catch every interrupt."""
    command()


def was_interrupted() -> bool:
    """Whether there was an interrupt, even if its exception was dropped."""
    return bool(_noted)


def raise_if_interrupted() -> None:
    """Raise an interrupt again whose exception was dropped."""
    if _noted:
        raise KeyboardInterrupt


class undone:  # noqa: N801 (used like a function)
    """Call ``undo`` when the block ends, and also if the process is ended inside it."""

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        _unfinished.append(self._undo)

    def __exit__(self, *problem: object) -> None:
        self._undo()
        _unfinished.remove(self._undo)


def leave(code: int) -> None:
    """End the process with this exit code, or as interrupted if there was an interrupt.

    The system gets the code directly. Python's own shutdown takes a while, handles no interrupts,
    and ends by the signal where an interrupt passed through the C code of a library.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # not there, closed, or without a reader
            continue
    if was_interrupted() or code == INTERRUPTED:
        _end()
    os._exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    again = was_interrupted()
    _noted.append(number)
    if again or not _may_raise(frame):
        _end()
    raise KeyboardInterrupt


def _may_raise(frame: FrameType | None) -> bool:
    """Whether the frame belongs to the command and to no import."""
    while frame is not None and frame.f_code.co_filename != IMPORT:
        if frame.f_code is guarded.__code__:
            return True
        frame = frame.f_back
    return False


def _end() -> None:
    """Remove what is not complete, print the one line, and end the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for last in (*reversed(_unfinished), _print_interrupted):
        try:
            last()
        except Exception:  # the others still have to be called, and there is no one to tell
            continue
    os._exit(INTERRUPTED)


def _print_interrupted() -> None:
    """Print past the buffer of stderr, which the interrupted code may be writing to."""
    if sys.__stderr__ is not None:
        os.write(sys.__stderr__.fileno(), b"interrupted\n")


def _unraisable(problem: "sys.UnraisableHookArgs") -> None:
    """Report errors of finalisers, except after an interrupt: then they follow from it."""
    if not was_interrupted():
        sys.__unraisablehook__(problem)
