"""HTTP with time-outs for slow clients, and a server that ends at once.

1. A request must have arrived whole within a time limit, however slowly its bytes come.
2. A client must read what it is sent within a time limit.
3. The number of connections is limited. When all are taken, the oldest that still waits for its
   client's request gives way to the newest, so that half-open connections keep no client out.
4. When the server is stopped, clients that wait are told so, and what waits for a client is cut.
5. A header that goes on in a second line is refused: proxies do not agree about where it ends.
"""

import asyncio
import logging
import re
import socket
from dataclasses import dataclass
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

Timer = asyncio.TimerHandle | None

log = logging.getLogger(__name__)

HEAD_END, FOLD = re.compile(rb"\n\r?\n"), re.compile(rb"\n[ \t]")
ARRIVING = (h11.IDLE, h11.SEND_BODY)  # states of a client whose request is not here yet


@dataclass(frozen=True)
class Patience:
    """How long a client is waited for, in seconds, and how many clients there may be."""

    request: float = 10.0  # for all of a request
    idle: int = 5  # between two requests
    reading: float = 30.0  # for what was sent to be read
    end: int = 2  # for answers under way, when the server is stopped
    connections: int = 64


class StrictConnection(h11.Connection):
    """h11, which by itself joins the lines of a folded header."""

    def next_event(self) -> Any:
        """The next part of a request, or an error where its head has a folded header."""
        if self.their_state is h11.IDLE:
            head = HEAD_END.split(self.trailing_data[0], maxsplit=1)[0]
            if FOLD.search(head):
                raise h11.RemoteProtocolError("folded header")
        return super().next_event()


class TimedProtocol(H11Protocol):
    """HTTP, for clients that are in good time."""

    def __init__(self, patience: Patience, **given: Any) -> None:
        super().__init__(**given)
        self.conn = StrictConnection(h11.SERVER)
        self.patience = patience
        self.since = 0.0  # when the connection was made
        self.arrival: Timer = None
        self.reading: Timer = None

    @property
    def waits_for_client(self) -> bool:
        """Whether the request is not here yet, or the client does not read the answer."""
        return self.conn.their_state in ARRIVING or self.reading is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; where too many wait already, the oldest gives way."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._expect_request()
        if len(self.connections) > self.patience.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._expect_request()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._expect_request()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self.reading = self.loop.call_later(
            self.patience.reading, self.cut, "did not read its answer"
        )

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self.reading = _no_more(self.reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        super().connection_lost(exc)
        self.arrival, self.reading = _no_more(self.arrival), _no_more(self.reading)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; where an answer is under way, it cannot be another one."""
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
        else:
            self.cut("sent a request that is damaged")

    def cut(self, reason: str) -> None:
        """End the connection at once."""
        log.warning("a client %s; its connection was closed", reason)
        self.connections.discard(self)
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()

    def _expect_request(self) -> None:
        if self.conn.their_state not in ARRIVING:
            self.arrival = _no_more(self.arrival)
        elif self.arrival is None:
            self.arrival = self.loop.call_later(
                self.patience.request, self.cut, "did not send its request in time"
            )

    def _make_room(self) -> None:
        waiting = [
            connection
            for connection in self.connections
            if isinstance(connection, TimedProtocol) and connection.waits_for_client
        ]
        min(waiting, key=lambda connection: connection.since).cut(
            "waited when all places were taken"
        )


class Server(uvicorn.Server):
    """The server of an application, which ends when it is told to."""

    def __init__(self, app: Starlette, patience: Patience = Patience(), **options: Any) -> None:  # noqa: B008 (frozen)
        self.jobs = app.state.jobs
        timed: Any = partial(TimedProtocol, patience)
        super().__init__(
            uvicorn.Config(
                app,
                http=timed,
                ws="none",
                log_level="warning",
                server_header=False,
                timeout_keep_alive=patience.idle,
                timeout_graceful_shutdown=patience.end,
                **options,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what waits: jobs for the model, connections for their clients."""
        self.jobs.close()
        for connection in list(self.server_state.connections):
            if isinstance(connection, TimedProtocol) and connection.waits_for_client:
                connection.cut("waited when the server was stopped")
        await super().shutdown(sockets)


def _no_more(timer: Timer) -> Timer:
    """No timer: one that runs is stopped."""
    if timer is not None:
        timer.cancel()
    return None
