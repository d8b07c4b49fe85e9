"""Waiting for what another thread or process does, however long that takes on a busy machine."""

import threading
import time
from collections.abc import Callable

PATIENCE = 120.0  # seconds; only a test that fails waits so long


def until(met: Callable[[], object], what: str) -> None:
    """Look again and again until a condition is met; fail where it never is."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while not met():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s in vain: {what}"
        pause.wait(0.01)
