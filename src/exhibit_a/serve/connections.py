"""The HTTP server: uvicorn with its own limits, and what they leave open.

1. uvicorn limits the number of connections, the pause between two requests, and the time that
   answers under way may take when the server is stopped.
2. A request must have arrived whole within a time limit, however slowly its bytes come.
3. A header that goes on in a second line is refused: proxies do not agree about where it ends.
4. A body that is damaged after its head was good ends the connection.
5. When the server is stopped, clients that wait for the model are informed.
"""

import asyncio
import re
import socket
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

ARRIVING = (h11.IDLE, h11.SEND_BODY)  # states of a client whose request is not here yet
HEAD_END, FOLD = re.compile(rb"\n\r?\n"), re.compile(rb"\n[ \t]")


class StrictConnection(h11.Connection):
    """h11, which by itself joins the lines of a folded header."""

    def next_event(self) -> Any:
        """The next part of a request, or an error where its head has a folded header."""
        if self.their_state is h11.IDLE:
            head = HEAD_END.split(self.trailing_data[0], maxsplit=1)[0]
            if FOLD.search(head):
                raise h11.RemoteProtocolError("folded header")
        return super().next_event()


class StrictProtocol(H11Protocol):
    """HTTP that refuses folded headers, damaged bodies and requests that do not arrive in time."""

    arrival = 10.0  # seconds for all of a request

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.conn = StrictConnection(h11.SERVER)
        self.deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def cut_if_waiting(self) -> None:
        """End the connection at once, if the client's request is not here yet."""
        if self.conn.their_state in ARRIVING:
            if self.cycle is not None:
                self.cycle.disconnected = True
            self.transport.abort()

    def _watch(self) -> None:
        """Cut the connection at the deadline, unless the request is here by then."""
        waits = self.conn.their_state in ARRIVING
        if waits and self.deadline is None:
            self.deadline = self.loop.call_later(self.arrival, self.cut_if_waiting)
        elif not waits and self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        super().connection_lost(exc)
        if self.deadline is not None:
            self.deadline.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; where an answer is under way, it cannot be another one."""
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
            return
        self.cycle.disconnected = True
        self.transport.abort()


class Server(uvicorn.Server):
    """The server of an application, which can be stopped from outside."""

    def __init__(self, app: Starlette, **options: Any) -> None:
        self.jobs = app.state.jobs
        limits = {"limit_concurrency": 64, "timeout_keep_alive": 5, "timeout_graceful_shutdown": 2}
        super().__init__(
            uvicorn.Config(
                app,
                http=StrictProtocol,
                ws="none",
                log_level="warning",
                server_header=False,
                **limits | options,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the jobs that wait for the model, then the connections."""
        self.jobs.close()
        for connection in list(self.server_state.connections):
            if isinstance(connection, StrictProtocol):
                connection.cut_if_waiting()
        await super().shutdown(sockets)
