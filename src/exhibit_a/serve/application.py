"""Who may ask, and how do many who ask share one model?

A local server: a page with a form, one address that examines a text, two that give results back.

1. Guard: the Host header must name this server (so that no foreign name can be bound to it), a
   request sent by another site's page is refused, bodies are small, clients are not too eager.
2. Line: one computation at a time, first come, first served, a bounded number waiting. Everyone is
   told how many are ahead and which stage is running. Whoever leaves gives up the place; a running
   computation stops when its next stage would begin.
3. Results live in memory, the last few of them, under names nobody can guess. No part of a request
   is ever a path.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from html import escape
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exhibit_a.errors import ExhibitError
from exhibit_a.report.html import STYLE, page_of, policy, script
from exhibit_a.report.view import View, view
from exhibit_a.subject.subject import Subject
from exhibit_a.trials.trial import trial

log = logging.getLogger(__name__)

_FORM = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Exhibit A</title>
<style>{style}</style>
</head>
<body>
<div data-exhibit-a="serve" data-models="{models}" data-longest="{longest}"></div>
<script type="module">{script}</script>
</body>
</html>
"""


@dataclass(frozen=True)
class Limits:
    """How much anyone may ask for."""

    text: int = 4000  # characters, of the text and of the pair
    body: int = 32_768  # bytes of a request
    waiting: int = 16  # in line, the one at work included
    per_minute: int = 30  # texts from one address
    kept: int = 16  # results in memory


@dataclass(eq=False)
class _Job:
    """One text in line."""

    subject: Subject
    text: str
    pair: str | None
    news: "asyncio.Queue[dict[str, Any] | None]" = field(default_factory=asyncio.Queue)
    left: bool = False  # the client is gone


class _Left(Exception):  # noqa: N818 (not an error: nobody is waiting for the answer)
    """Ends a computation that nobody is waiting for."""


class JobQueue:
    """The line before the one who computes, and the last results."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.line: list[_Job] = []
        self.results: OrderedDict[str, View] = OrderedDict()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="exhibit-a")

    @property
    def is_full(self) -> bool:
        """Whether nobody else may stand in line."""
        return len(self.line) >= self.limits.waiting

    async def hear(self, job: _Job) -> AsyncIterator[str]:
        """Stand in line and tell, line by line, what happens to a job."""
        loop = asyncio.get_running_loop()
        self.line.append(job)
        future = self._worker.submit(self._examine, job, loop)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._finish, job))
        try:
            async for news in self._news(job):
                yield json.dumps(news) + "\n"
        finally:
            self._forget(job, future)

    async def _news(self, job: _Job) -> AsyncIterator[dict[str, Any]]:
        ahead = -1
        while True:
            if job in self.line and job.news.empty() and ahead != (now := self.line.index(job)):
                ahead = now
                yield {"state": "waiting", "ahead": ahead}
            with contextlib.suppress(TimeoutError):
                news = await asyncio.wait_for(job.news.get(), 0.25)
                if news is None:
                    return
                yield news

    def _forget(self, job: _Job, future: "Future[None]") -> None:
        job.left = True
        if future.cancel():
            self._finish(job)

    def _finish(self, job: _Job) -> None:
        if job in self.line:
            self.line.remove(job)
        job.news.put_nowait(None)

    def _examine(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        """Do the work, in the one thread that does any."""

        def tell(news: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(job.news.put_nowait, news)

        def progress(stage: str, step: int, steps: int) -> None:
            if job.left:
                raise _Left
            tell({"state": "working", "stage": stage, "step": step, "steps": steps})

        try:
            found = view(trial(job.subject, job.text, pair=job.pair, progress=progress))
            name = secrets.token_hex(16)
            loop.call_soon_threadsafe(self._keep, name, found)
            tell({"state": "done", "id": name})
        except _Left:
            log.info("a client left; its computation was stopped")
        except ExhibitError as mistake:
            tell({"state": "failed", "error": " ".join(str(mistake).split())})
        except Exception:
            log.exception("an examination failed")
            tell({"state": "failed", "error": "It failed; the server's log says why."})

    def _keep(self, name: str, found: View) -> None:
        self.results[name] = found
        while len(self.results) > self.limits.kept:
            self.results.popitem(last=False)


def application(
    subjects: Mapping[str, Subject],
    hosts: frozenset[str],
    limits: Limits = Limits(),  # noqa: B008
) -> Starlette:
    """The server for these models, answering to these names (``host:port``)."""
    bench, eager = JobQueue(limits), _Eagerness(limits.per_minute)
    form = _FORM.format(
        style=STYLE,
        models=escape("\n".join(subjects)),
        longest=limits.text,
        script=script(),
    )

    async def home(_: Request) -> Response:
        return HTMLResponse(form)

    async def explain(request: Request) -> Response:
        asked = await _asked(request, limits)
        subject = subjects.get(asked.get("model", ""))
        if subject is None:
            raise HTTPException(400, f"Choose one of these models: {', '.join(subjects)}.")
        text, pair = asked["text"], asked.get("pair") or None
        if not eager.allows(request.client.host if request.client else ""):
            raise HTTPException(429, "Too many texts in a minute; wait a little.")
        if bench.is_full:
            raise HTTPException(503, f"{limits.waiting} texts are waiting already; try again soon.")
        job = _Job(subject, text, pair)
        return StreamingResponse(bench.hear(job), media_type="application/x-ndjson")

    async def result(request: Request) -> Response:
        found = _found(bench, request)
        body = f'{{"header":{found.header_json()},"blocks":"{found.blocks}"}}'
        return Response(body, media_type="application/json")

    async def page(request: Request) -> Response:
        return HTMLResponse(page_of(_found(bench, request)))

    app = Starlette(
        routes=[
            Route("/", home, methods=["GET"]),
            Route("/explain", explain, methods=["POST"]),
            Route("/result/{name}", result, methods=["GET"]),
            Route("/page/{name}", page, methods=["GET"]),
        ],
        middleware=[Middleware(_Guard, hosts=hosts)],
        exception_handlers={HTTPException: _refused},
    )
    app.state.bench = bench
    return app


def _found(bench: JobQueue, request: Request) -> View:
    found = bench.results.get(request.path_params["name"])
    if found is None:
        raise HTTPException(404, "There is no such result, or it is no longer kept.")
    return found


async def _asked(request: Request, limits: Limits) -> dict[str, Any]:
    """What a request asks for, refused while it is still small if it is wrong."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise HTTPException(415, "Send JSON.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limits.body:
            raise HTTPException(413, f"A request has at most {limits.body} bytes.")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise HTTPException(400, "That is not JSON.") from problem
    texts = [asked.get(name) for name in ("text", "pair")] if isinstance(asked, dict) else [None]
    if not isinstance(texts[0], str) or not all(isinstance(t, str | None) for t in texts):
        raise HTTPException(400, "Send an object with a text, a model and perhaps a pair.")
    if any(len(one or "") > limits.text for one in texts):
        raise HTTPException(413, f"A text has at most {limits.text} characters.")
    if not isinstance(asked.get("model", ""), str):
        raise HTTPException(400, "A model is a name.")
    return dict(asked)


async def _refused(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return PlainTextResponse(problem.detail, problem.status_code)


class _Eagerness:
    """How many texts came from each address in the last minute."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.times: dict[str, deque[float]] = {}

    def allows(self, client: str) -> bool:
        now = time.monotonic()
        self.times = {who: t for who, t in self.times.items() if t and now - t[-1] < 60}
        times = self.times.setdefault(client, deque())
        while times and now - times[0] > 60:
            times.popleft()
        if len(times) >= self.most:
            return False
        times.append(now)
        return True


class _Guard:
    """Turns away who does not mean this server, and tells browsers what its pages may do."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts
        self.headers = _headers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self.headers]
            await send(message)

        refusal = self._refusal(Request(scope))
        answer = self.app if refusal is None else PlainTextResponse(*refusal)
        await answer(scope, receive, dressed)

    def _refusal(self, request: Request) -> tuple[str, int] | None:
        host = request.headers.get("host", "").lower()
        if host not in self.hosts or len(request.headers.getlist("host")) != 1:
            return "This server does not answer to that name.", 421
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            return "Requests from other sites are refused.", 403
        visits = request.headers.get("sec-fetch-mode") == "navigate" and request.url.path == "/"
        foreign = request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign and not (visits and request.method == "GET"):
            return "Requests from other sites are refused.", 403
        return None


def _headers() -> list[tuple[bytes, bytes]]:
    told = {
        "content-security-policy": policy(script(), STYLE, connect="'self'")
        + "; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-store",
    }
    return [(name.encode(), value.encode()) for name, value in told.items()]
