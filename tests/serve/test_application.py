"""The server: which requests it refuses, how ten clients share one model, what leaving frees."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from support.cases import TEXT, tiny_trial
from support.chromium import chromium, visit
from support.command import run
from support.corpora import save_model
from support.serving import served
from support.waiting import PATIENCE, until

from exhibit_a.serve import guard
from exhibit_a.serve import jobs as serve_jobs
from exhibit_a.serve.connections import StrictProtocol


@pytest.fixture(scope="module")
def tiny():
    return tiny_trial()


class Worker:
    """Stands in for the computation, so that only the queue is under test.

    While ``is_causal_lm`` is not set, the first stage lasts.
    """

    def __init__(self, found, stages=3):
        self.found, self.stages, self.is_causal_lm = found, stages, threading.Event()
        self.is_causal_lm.set()
        self.running = self.most = self.finished = self.stopped = 0
        self.texts: list[str] = []

    def __call__(self, subject, text, *, pair=None, progress):
        self.running += 1
        self.most = max(self.most, self.running)
        self.texts.append(text)
        try:
            for stage in range(self.stages):
                progress(f"stage {stage}", stage, self.stages)
                assert self.is_causal_lm.wait(PATIENCE)
            self.finished += 1
            return self.found
        except BaseException:
            self.stopped += 1
            raise
        finally:
            self.running -= 1


@pytest.fixture
def worker(monkeypatch, tiny):
    stand_in = Worker(tiny)
    monkeypatch.setattr(serve_jobs, "trial", stand_in)
    return stand_in


def request(port, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    sent = {"content-type": "application/json"} if body is not None else {}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, sent)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer, data


def explain(port, text="a fine film", **more):
    asked = {"text": text, "model": "tiny"} | more
    answer, data = request(port, "POST", "/explain", json.dumps(asked))
    if answer.status != 200:
        return answer.status, data.decode()
    return 200, [json.loads(line) for line in data.splitlines() if line]


def test_a_sentence_typed_into_the_page_is_examined(monkeypatch):
    examined, was_seen = serve_jobs.trial, threading.Event()

    def waits_to_be_seen(*given, progress, **options):
        def told(stage, step, steps):
            progress(stage, step, steps)
            if step == 1:
                was_seen.wait(PATIENCE)

        return examined(*given, progress=told, **options)

    monkeypatch.setattr(serve_jobs, "trial", waits_to_be_seen)
    with served() as server, chromium() as browser:
        port = server.port
        address = f"http://127.0.0.1:{port}/"
        with visit(browser, address, offline=False) as seen:
            seen["textarea"].fill(TEXT)
            seen["button[type=submit]"].click()
            seen.page.wait_for_selector(".status:has-text('Working')")
            was_seen.set()
            seen.page.wait_for_selector("canvas[data-shown]")
            assert "fine" in seen.text(".text")
            assert seen[".cell"].count() == 12
            assert seen.text(".status") == "Done."
            with seen.page.expect_download() as taken:
                seen["a:text-is('Save this page')"].click()
            assert taken.value.suggested_filename == "exhibit-a.html"
            assert seen.complaints == []
            assert {url.split("/")[2] for url in seen.requests if url.startswith("http")} == {
                f"127.0.0.1:{port}"
            }


def test_other_names_and_other_sites_are_refused(worker):
    asked = json.dumps({"text": "a", "model": "tiny"})
    with served() as server:
        port = server.port
        own = f"127.0.0.1:{port}"
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", ""):
            assert request(port, "GET", "/", host=host)[0].status == 421
        for origin in ("http://evil.example", "null", f"http://localhost:{port}", f"https://{own}"):
            answer, _ = request(port, "POST", "/explain", asked, origin=origin)
            assert answer.status == 403
        answer, _ = request(port, "POST", "/explain", asked, sec_fetch_site="cross-site")
        assert answer.status == 403
        assert worker.texts == []
        answer, _ = request(port, "POST", "/explain", asked, origin=f"http://{own}")
        assert answer.status == 200


def test_no_path_reaches_the_files(worker):
    with served() as server:
        port = server.port
        for path in (
            "/../../../../etc/passwd",
            "/page/../../../../etc/passwd",
            "/page/..%2f..%2f..%2fetc%2fpasswd",
            "/result/%2e%2e/%2e%2e/etc/passwd",
            "/result/%00",
            "/static/viewer.js",
            "/web.py",
            "//etc/passwd",
            "/page/",
            "/result/" + "a" * 32,
        ):
            answer, data = request(port, "GET", path)
            assert answer.status == 404, path
            assert b"root:" not in data
        assert request(port, "GET", "/explain")[0].status == 405
        assert request(port, "DELETE", "/")[0].status == 405


def test_every_answer_carries_the_headers_that_guard_it():
    with served() as server:
        port = server.port
        for path, host in (("/", None), ("/nothing", None), ("/", "evil.example")):
            answer, _ = request(port, "GET", path, **({"host": host} if host else {}))
            policy = answer.getheader("content-security-policy")
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.getheader("x-content-type-options") == "nosniff"
            assert answer.getheader("cross-origin-resource-policy") == "same-origin"
            assert answer.getheader("access-control-allow-origin") is None


def test_what_is_wrong_with_a_request_is_said(worker):
    with served(body=2000, text=50) as server:
        port = server.port
        cases = {
            413: [json.dumps({"text": "a" * 3000, "model": "tiny"})],
            400: ["{", "[]", '"text"', "{}", '{"text": 3}', '{"text": "a", "model": "other"}'],
        }
        cases[413].append(json.dumps({"text": "a" * 51, "model": "tiny"}))
        cases[400].append('{"text": "a", "model": ["tiny"]}')
        cases[400].append('{"text": "a", "model": "../../etc"}')
        for status, bodies in cases.items():
            for body in bodies:
                assert request(port, "POST", "/explain", body)[0].status == status, body
        answer, _ = request(port, "POST", "/explain", "{}", content_type="text/plain")
        assert answer.status == 415
        assert worker.texts == []


def test_requests_are_rate_limited(worker, monkeypatch):
    minutes = iter([0.0, 0.0, 0.0, 59.0, 59.0, 61.0])
    monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic=lambda: next(minutes)))
    with served(per_minute=3) as server:
        port = server.port
        assert [explain(port)[0] for _ in range(6)] == [200, 200, 200, 429, 429, 200]


def test_ten_clients_wait_and_all_are_answered(worker):
    worker.is_causal_lm.clear()
    first, rest = {}, {}
    all_are_told = threading.Barrier(11)
    with served() as server:
        port = server.port

        def ask(number):
            client = leaving(port, f"text {number}")
            with client.makefile("rb") as answer:
                lines = (json.loads(line) for line in answer if line.startswith(b"{"))
                first[number] = next(lines)
                all_are_told.wait(PATIENCE)
                rest[number] = list(lines)
            client.close()

        clients = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
        for client in clients:
            client.start()
        all_are_told.wait(PATIENCE)
        worker.is_causal_lm.set()
        for client in clients:
            client.join(PATIENCE)
        assert sorted(told.get("ahead", 0) for told in first.values()) == list(range(10))
        assert all(rest[number][-1]["state"] == "done" for number in range(10))
        assert len({rest[number][-1]["id"] for number in range(10)}) == 10
        assert worker.most == 1
        assert sorted(worker.texts) == sorted(f"text {number}" for number in range(10))
        until(lambda: server.jobs.jobs == [], "an empty queue")


def leaving(port, text):
    """A client that asks and can be gone at once."""
    asked = json.dumps({"text": text, "model": "tiny"}).encode()
    head = (
        f"POST /explain HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(asked)}\r\nConnection: close\r\n\r\n"
    )
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    client.sendall(head.encode() + asked)
    assert client.recv(12) == b"HTTP/1.1 200"
    return client


def test_a_client_that_disappears_frees_the_worker(worker):
    worker.is_causal_lm.clear()
    with served() as server:
        port = server.port
        gone, waiting = leaving(port, "gone"), leaving(port, "waiting")
        until(lambda: worker.texts == ["gone"] and len(server.jobs.jobs) == 2, "two jobs")
        waiting.close()
        until(lambda: len(server.jobs.jobs) == 1, "one job")
        gone.close()
        until(lambda: server.jobs.jobs[0].is_abandoned, "a server that has noticed")
        worker.is_causal_lm.set()
        until(lambda: server.jobs.jobs == [], "no job")
        assert (worker.stopped, worker.finished) == (1, 0)
        assert worker.texts == ["gone"]  # a client that only waited costs nothing
        assert explain(port, "next")[1][-1]["state"] == "done"


def test_an_unexpected_failure_is_reported_without_details(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("/secret/place")

    monkeypatch.setattr(serve_jobs, "trial", broken)
    with served() as server:
        port = server.port
        status, messages = explain(port)
        assert status == 200
        assert messages[-1]["state"] == "failed"
        assert "secret" not in json.dumps(messages)


def half_open(port, sent=b"POST /explain HTTP/1.1\r\nHost: 127.0.0.1"):
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    with contextlib.suppress(ConnectionError):  # where it was cut before it could send
        client.sendall(sent)
    return client


def mid_body(port):
    """A client that promises more than it sends."""
    head = (
        f"POST /explain HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Content-Length: 1000\r\n\r\n"
    )
    return half_open(port, head.encode() + b'{"text": "a')


def test_a_client_that_vanishes_in_mid_body_is_one_line_of_log(worker, caplog, capfd):
    with served() as server:
        port = server.port
        mid_body(port).close()
        until(lambda: "disconnected in the middle" in caplog.text, "a line of log")
        assert explain(port)[0] == 200
    assert len(caplog.records) == 1
    assert "Traceback" not in caplog.text + capfd.readouterr().err


def test_a_body_that_is_damaged_after_good_headers_is_no_traceback(worker, capfd, caplog):
    with served() as server:
        port = server.port
        host = f"Host: 127.0.0.1:{port}\r\n"
        for line in (f"TRACE * HTTP/1.1\r\n{host}", "GET / HTTP/1.1\r\nHost: other\r\n"):
            sent = f"{line}Transfer-Encoding: chunked\r\n\r\n[[[[[[\r\n"
            with half_open(port, sent.encode()) as client, contextlib.suppress(ConnectionError):
                client.recv(1000)
        assert explain(port)[0] == 200
    assert not [record for record in caplog.records if record.exc_info]
    assert "Traceback" not in capfd.readouterr().err


def test_a_request_must_arrive_in_time_however_slowly(worker, monkeypatch):
    monkeypatch.setattr(StrictProtocol, "arrival", 0.5)
    with served() as server:
        port = server.port
        clients = [half_open(port, b""), mid_body(port), half_open(port)]

        def drips():
            try:
                clients[-1].sendall(b"x")
            except ConnectionError:
                return False
            return True

        until(lambda: not drips(), "an end for who never ends to send")
        for client in clients[:-1]:
            with contextlib.suppress(ConnectionResetError):  # an end is as good as a reset
                assert client.recv(10) == b""

        def is_answered():  # one that is too slow itself, on a busy machine, comes again
            try:
                return explain(port)[0] == 200
            except (ConnectionError, http.client.HTTPException):
                return False

        until(is_answered, "an answer to who comes in time")
        for client in clients:
            client.close()


LONG_WORK = """
import threading
from exhibit_a.serve import jobs

def trial(subject, text, *, pair=None, progress):
    progress("a stage", 0, 1)
    threading.Event().wait()  # a stage that looks at nothing else, and never ends

jobs.trial = trial
from exhibit_a.commands.start import main
main()
"""


def test_ctrl_c_ends_the_server_in_the_middle_of_a_computation(tmp_path):
    held = socket.socket()  # so that no other process gets this port meanwhile
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    words = ["serve", "--model", save_model(tmp_path / "tiny"), "--port", str(port)]
    server = subprocess.Popen(
        [sys.executable, "-c", LONG_WORK, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert "answers at" in server.stdout.readline()
    client = leaving(port, "a fine film")  # the folder's name is the model's
    waiting, half = leaving(port, "another"), mid_body(port)
    try:
        until(lambda: b"a stage" in client.recv(1000), "the stage")
        server.send_signal(signal.SIGINT)
        _, problems = server.communicate(timeout=PATIENCE)
        assert server.returncode == 130
        assert "Traceback" not in problems
        assert problems.strip().splitlines()[-1] == "interrupted"
        assert b"The server was stopped." in b"".join(iter(lambda: client.recv(1000), b""))
    finally:
        server.kill()
        server.communicate()
        for connection in (client, waiting, half, held):
            connection.close()


def test_a_saved_result_is_shown(tiny, tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    saved = tiny.save(tmp_path / "tiny.safetensors")
    code, out, _ = run(capsys, "view", saved, "--html", tmp_path / "a.html", "--no-open")
    assert code == 0
    assert "a.html" in out
    assert (tmp_path / "a.html").read_bytes().startswith(b"<!doctype html>")
    assert opened == []
    run(capsys, "view", saved)
    assert opened[0].startswith("file:///")


def test_a_text_that_cannot_be_examined_gets_the_reason():
    with served() as server:
        port = server.port
        status, messages = explain(port, "very " * 100)
        assert status == 200
        assert messages[-1]["state"] == "failed"
        assert "102 tokens" in messages[-1]["error"]


def test_only_the_last_results_are_kept(worker):
    with served(kept=2) as server:
        port = server.port
        names = [explain(port)[1][-1]["id"] for _ in range(3)]
        found = [request(port, "GET", f"/result/{name}")[0].status for name in names]
        assert found == [404, 200, 200]
