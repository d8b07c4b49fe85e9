"""Requests that no browser sends: answered, refused or cut, and the server lives on."""

import json
import logging
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from exhibit_a.serve import jobs
from exhibit_a.serve.connections import StrictProtocol
from support.cases import tiny_trial
from support.fuzz import hostile
from support.fuzz.damage import damaged
from support.fuzz.outcomes import Outcomes
from support.serving import served

METHODS = ("GET", "POST", "PUT", "HEAD", "OPTIONS", "TRACE", "DELETE", "CONNECT", "BREW", "get", "")
PATHS = (
    *("/", "/explain", "/result/", "/page/", "/result/" + "0" * 32, "/../../etc/passwd", "*"),
    *("/%00", "/%ff%fe", "/explain?x=" + "y" * 3000, "//", "http://other.example/", "/\u00e4", ""),
)
HEADERS = (
    *("Transfer-Encoding: chunked", "Content-Length: -1", "Content-Length: 99999999999999999999"),
    *("Content-Length: 5\r\nContent-Length: 6", "Expect: 100-continue", "Upgrade: websocket"),
    *("Connection: close", "Connection: upgrade", "Host: other.example", "Origin: null"),
    *("Sec-Fetch-Site: cross-site", "X: " + "y" * 5000, ": nameless", "no colon", "A\0B: c"),
    *("Content-Type: APPLICATION/JSON", "Content-Type: text/plain", "Range: bytes=0-1"),
)
SECONDS = 120.0  # after which an attempt counts as hung


def requests(seed: int, attempts: int) -> Outcomes:
    """Send raw requests to a server of a tiny model, whose computation is left out."""
    chance, outcomes = random.Random(seed), Outcomes()
    result = tiny_trial()
    with mock.patch.object(jobs, "trial", return_value=result), _served() as server:
        for _ in range(attempts):
            sent = _request(server.port, chance)
            seen = len(server.problems)
            answer = _answer(server.port, sent, hangs_up=chance.random() < 0.3)
            if len(server.problems) > seen:
                answer = "traceback"
            outcomes.add(answer, sent[:300], "".join(server.problems[seen:])[-300:])
        assert _answer(server.port, _good(server.port)) == "answered"
    return outcomes


@contextmanager
def _served() -> Iterator[SimpleNamespace]:
    problems: list[str] = []
    watcher = logging.Handler(logging.WARNING)
    watcher.emit = lambda record: (  # type: ignore[method-assign]
        problems.append(str(record.exc_info)) if record.exc_info else None
    )
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "exhibit_a.serve", "asyncio")]
    for logger in loggers:
        logger.addHandler(watcher)
    usual, StrictProtocol.arrival = StrictProtocol.arrival, 1.0
    options = {"timeout_keep_alive": 1, "log_config": None}
    try:
        with served(options, per_minute=10**9, waiting=10**9) as server:
            yield SimpleNamespace(port=server.port, problems=problems)
    finally:
        StrictProtocol.arrival = usual
        for logger in loggers:
            logger.removeHandler(watcher)


def _good(port: int, body: bytes = b'{"text": "a fine film", "model": "tiny"}') -> bytes:
    return (
        f"POST /explain HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _request(port: int, chance: random.Random) -> bytes:
    way = chance.random()
    if way < 0.3:
        return damaged(_good(port), chance)[0]
    if way < 0.6:
        return _good(port, _body(chance))
    if way < 0.7:
        return chance.randbytes(chance.randint(0, 2000))
    lines = [f"{chance.choice(METHODS)} {chance.choice(PATHS)} HTTP/1.{chance.choice('0119')}"]
    lines += [f"Host: 127.0.0.1:{port}"] * (chance.random() < 0.9)
    lines += chance.sample(HEADERS, chance.randint(0, 3))
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass") + _body(chance)


def _body(chance: random.Random) -> bytes:
    sent: Any = {"text": hostile.text(chance), "model": "tiny"}
    way = chance.random()
    if way < 0.3:
        sent = {chance.choice(("text", "model", "pair", "")): chance.choice((None, 3, [], {}, "x"))}
    if way > 0.9:
        return b"[" * chance.randint(1, 20000)
    body = json.dumps(sent, ensure_ascii=chance.random() < 0.7).encode("utf-8", "surrogatepass")
    return damaged(body, chance)[0] if way > 0.7 else body


def _answer(port: int, sent: bytes, hangs_up: bool = False) -> str:
    """How the server answers: by its status, or by ending the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        try:
            client.sendall(sent)
            if hangs_up:
                client.shutdown(socket.SHUT_WR)
            head = client.recv(4096)
        except TimeoutError:
            return "hung"
        except OSError:  # reset: cut
            return "cut"
    if not head:
        return "cut"
    status = head[9:12]
    if status.startswith((b"1", b"2")):
        return "answered"
    return "traceback" if status.startswith(b"5") and status != b"503" else "refused"
