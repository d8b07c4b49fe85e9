"""The entry point of the command line, which handles Ctrl-C before it imports anything large.

Libraries make some hundred thousand objects that live as long as the command. Looking for garbage
among them again and again took a sixth of a short command.

Torch's threads wait for each other by turning in a loop. That is quick on a machine of one's own;
where others compute too, a thread turns while the one that it waits for is not even running, and a
trial of two seconds took ninety. Here they sleep instead, unless the user has set it otherwise.
"""

import gc
import os

from exhibit_a.interrupts import INTERRUPTED, guarded, install, leave, was_interrupted

OBJECTS = 50_000  # made and not dropped, between two looks for garbage among the newest


def main() -> None:
    """The command ``exhibit-a``."""
    install()
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported
    code = INTERRUPTED
    try:
        guarded(_command)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        if not was_interrupted():
            raise
    leave(code)


def _command() -> None:
    from exhibit_a.commands.main import main as run

    run()
