"""Requests as bytes on the wire: which the server refuses, and how many texts it takes at once."""

import asyncio
import json
import socket
import threading
from collections import Counter

import pytest
from support.cases import tiny_trial
from support.serving import AT_ONCE, served
from support.subjects import speaker

from exhibit_a.serve import jobs as serve_jobs
from exhibit_a.serve.application import ServerLimits, application

PLACES = 16
WITHOUT_LIMIT = {"limit_concurrency": None}


@pytest.fixture(scope="module")
def port():
    with pytest.MonkeyPatch.context() as patch, served(WITHOUT_LIMIT) as server:
        patch.setattr(serve_jobs, "trial", lambda *_, **__: tiny_trial())
        yield server.port


def answer(port, *lines, body=b""):
    """Everything that the server sends back before it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return b"".join(iter(lambda: client.recv(65536), b""))


def statuses(sent):
    return [int(part[:3]) for part in sent.split(b"HTTP/1.1 ")[1:]]


SMUGGLED = b"0\r\n\r\nGET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["transfer-encoding: CHUNKED", "CONTENT-LENGTH: 0"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding\t: chunked"],
        ["Transfer-Encoding: \x0bchunked"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 6"],
        ["Content-Length: +5"],
        ["Content-Length : 5"],
        ["Transfer-Encoding:", " chunked"],
        ["X: a", "\tTransfer-Encoding: chunked"],
        ["Content-Length: 5", " 6"],
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused_and_the_connection_closed(port, headers):
    head = ["POST /explain HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    sent = answer(port, *head, *headers, body=SMUGGLED)
    assert statuses(sent) == [400]
    text = sent.partition(b"\r\n\r\n")[2]
    assert b"connection: close" in sent.lower()
    assert b"\n" not in text.strip()


@pytest.mark.parametrize("headers", [["Content-Length: {}"], ["Transfer-Encoding: chunked"]])
def test_a_length_that_is_stated_once_is_taken(port, headers):
    asked = json.dumps({"text": "a\n\n b", "model": "tiny"}).encode()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(asked), asked)
    head = ["POST /explain HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close"]
    stated = [header.format(len(asked)) for header in headers]
    body = chunks if "chunked" in stated[0] else asked
    sent = answer(port, *head, "Content-Type: application/json", *stated, body=body)
    assert statuses(sent) == [200]
    assert b'"state": "done"' in sent


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil.example/", 421),
        ("http://evil.example:{port}/", 421),
        ("HTTP://EVIL.EXAMPLE", 421),
        ("http://127.0.0.1/", 421),
        ("http://user@127.0.0.1:{port}/", 421),
        ("http://127.0.0.1:{port}#.evil.example/", 421),
        ("https://127.0.0.1:{port}/", 421),
        ("http:///", 421),
        ("http://127.0.0.1:{port}/", 200),
        ("HTTP://127.0.0.1:{port}", 200),
        ("http://127.0.0.1:{port}?a=b", 200),
        ("http://127.0.0.1:{port}/result/none", 404),
        ("/http://evil.example/", 404),
    ],
)
def test_a_request_line_with_an_address_must_name_this_server(port, target, status):
    line = f"GET {target.format(port=port)} HTTP/1.1"
    sent = answer(port, line, f"Host: 127.0.0.1:{port}", "Connection: close")
    assert statuses(sent) == [status]


def test_of_many_texts_that_come_at_once_only_so_many_are_taken(monkeypatch):
    """All are sent together, and the model is not done with the first before all are answered."""
    answered = threading.Event()

    def trial(subject, text, *, pair=None, progress):
        answered.wait()
        return tiny_trial()

    monkeypatch.setattr(serve_jobs, "trial", trial)
    asked = json.dumps({"text": "a fine film", "model": "tiny"}).encode()
    found, together = [], threading.Barrier(AT_ONCE)
    with served(WITHOUT_LIMIT, per_minute=AT_ONCE, waiting=PLACES) as server:
        port = server.port
        clients = [
            socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(AT_ONCE)
        ]
        head = (
            f"POST /explain HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(asked)}\r\n\r\n"
        ).encode()

        def ask(client):
            together.wait()
            client.sendall(head + asked)
            found.append(client.recv(100)[9:12])

        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answered.set()
        for client in clients:
            client.close()
    assert Counter(found) == {b"200": PLACES, b"503": AT_ONCE - PLACES}


SCOPE = {
    "type": "http",
    "asgi": {"spec_version": "2.3"},
    "method": "POST",
    "path": "/explain",
    "raw_path": b"/explain",
    "query_string": b"",
    "headers": [(b"host", b"here"), (b"content-type", b"application/json")],
}
BODY = json.dumps({"text": "a fine film", "model": "tiny"}).encode()


def test_places_are_counted_before_any_stream_has_begun(monkeypatch):
    """The worst order of events: all requests are looked at, and only then is one answered."""
    over = threading.Event()

    def trial(subject, text, *, pair=None, progress):
        over.wait()
        return tiny_trial()

    monkeypatch.setattr(serve_jobs, "trial", trial)
    limits = ServerLimits(per_minute=AT_ONCE, waiting=PLACES)
    app = application({"tiny": speaker()}, frozenset({"here"}), limits)
    found = []

    async def ask(answered):
        received = iter([{"type": "http.request", "body": BODY}])

        async def receive():
            if (first := next(received, None)) is not None:
                return first
            await answered.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.start":
                found.append(message["status"])
                if len(found) == AT_ONCE:
                    answered.set()
                    over.set()
                await answered.wait()

        await app(SCOPE, receive, send)

    async def all_at_once():
        answered = asyncio.Event()
        await asyncio.gather(*(ask(answered) for _ in range(AT_ONCE)))

    asyncio.run(all_at_once())
    assert Counter(found) == {200: PLACES, 503: AT_ONCE - PLACES}


def test_a_client_that_leaves_before_the_first_message_keeps_no_place(monkeypatch):
    """Its stream is never begun, and so could not give the place back."""
    begun, over = threading.Event(), threading.Event()

    def trial(subject, text, *, pair=None, progress):
        begun.set()
        over.wait()
        return tiny_trial()

    monkeypatch.setattr(serve_jobs, "trial", trial)
    app = application({"tiny": speaker()}, frozenset({"here"}))
    jobs = app.state.jobs
    received = iter([{"type": "http.request", "body": BODY}])

    async def receive():
        return next(received, {"type": "http.disconnect"})

    async def send(message):
        await asyncio.Event().wait()  # nobody reads

    async def ask():
        first = serve_jobs.Job(speaker(), "keeps the worker busy", None)
        assert jobs.accept(first)
        begun.wait()
        await app(SCOPE, receive, send)
        over.set()
        return jobs.jobs == [first]

    assert asyncio.run(ask())
