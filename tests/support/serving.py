"""A server of a tiny model, whose socket listens already: nobody need wait for its start."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from exhibit_a.serve.application import ServerLimits, application
from exhibit_a.serve.connections import Server
from support.subjects import speaker
from support.waiting import PATIENCE

AT_ONCE = 60  # clients that may wait to be let in


@contextmanager
def served(server: dict[str, Any] | None = None, **limits: int) -> Iterator[SimpleNamespace]:
    """Its port and its jobs; with options of uvicorn, and limits of ours."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=AT_ONCE)
    port = listening.getsockname()[1]
    app = application({"tiny": speaker()}, frozenset({f"127.0.0.1:{port}"}), ServerLimits(**limits))
    running = Server(app, timeout_graceful_shutdown=1, **server or {})
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield SimpleNamespace(port=port, jobs=app.state.jobs)
    finally:
        running.should_exit = True
        thread.join(PATIENCE)
