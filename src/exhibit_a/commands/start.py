"""How does a command begin, and how does it end when somebody presses Ctrl-C?

One line and exit code 130, from the first moment that is ours:

1. this file imports next to nothing, and the command line is imported inside the guard, because
   that already takes a moment. Before it, while the interpreter itself starts, Ctrl-C is Python's;
2. an interrupt inside a library's own import may come out as any other error, so it is remembered;
3. the exit code is given to the system directly: Python would end itself by the signal where an
   interrupt went through the C code of a library.

Libraries make some hundred thousand objects that live as long as the command. Looking for garbage
among them again and again, and once more at the end, took a sixth of a short command.

Torch's threads wait for each other by turning in a loop. That is quick on a machine of one's own;
where others compute too, a thread turns while the one that it waits for is not even running, and a
trial of two seconds took ninety. Here they sleep instead, unless the user has said otherwise.
"""

import atexit
import gc
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
OBJECTS = 50_000  # made and not dropped, between two looks for garbage among the newest

_seen: list[int] = []  # the interrupts that have come


def main() -> None:
    """The command ``exhibit-a``."""
    signal.signal(signal.SIGINT, _interrupt)
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported
    try:
        from exhibit_a.commands.main import main as run

        run()
    except KeyboardInterrupt:
        _leave()
    except SystemExit as exit_:
        if exit_.code == INTERRUPTED:
            _leave()
        raise


def was_interrupted() -> bool:
    """Whether an interrupt has come, whatever became of it."""
    return bool(_seen)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    signal.default_int_handler(number, frame)


def _leave() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr.write("interrupted\n")
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(INTERRUPTED)
