"""The addresses of the local server.

A page with a form, one address that examines a text, two that give results back.

1. Guard (``guard.py``): requests for other names or from other sites are refused, and requests are
   rate-limited; connections are limited by uvicorn (``connections.py``).
2. Queue (``jobs.py``): one computation at a time; the client is sent its progress.
3. Results are kept in memory, the last few of them, under names that cannot be guessed. No part of
   a request is ever a path.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from html import escape

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from exhibit_a.report.html import STYLE, page_of, script
from exhibit_a.report.view import View
from exhibit_a.serve.guard import Guard, RateLimit
from exhibit_a.serve.jobs import Job, JobQueue
from exhibit_a.subject.subject import Subject

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
class ServerLimits:
    """How much one client, and all clients together, may ask for."""

    text: int = 4000  # characters, of the text and of the pair
    body: int = 32_768  # bytes of a request
    waiting: int = 16  # jobs, the running one included
    per_minute: int = 30  # texts from one address
    kept: int = 16  # results in memory


@dataclass(frozen=True)
class _Question:
    """What a client asks for."""

    model: str
    text: str
    pair: str | None


def application(
    subjects: Mapping[str, Subject],
    hosts: frozenset[str],
    limits: ServerLimits = ServerLimits(),  # noqa: B008 (frozen)
) -> Starlette:
    """The server for these models, answering to these names (``host:port``)."""
    jobs, rate = JobQueue(limits.waiting, limits.kept), RateLimit(limits.per_minute)
    form = _FORM.format(
        style=STYLE, models=escape("\n".join(subjects)), longest=limits.text, script=script()
    )

    async def home(_: Request) -> Response:
        return HTMLResponse(form)

    async def explain(request: Request) -> Response:
        question = await _question(request, limits)
        subject = subjects.get(question.model)
        if subject is None:
            raise HTTPException(400, f"Choose one of these models: {', '.join(subjects)}.")
        if not rate.allows(request.client.host if request.client else ""):
            raise HTTPException(429, "Too many texts in a minute; wait a little.")
        job = Job(subject, question.text, question.pair)
        if not jobs.accept(job):
            raise HTTPException(503, f"{limits.waiting} texts are waiting already; try again soon.")
        return _Messages(jobs, job)

    async def result(request: Request) -> Response:
        kept = _kept_result(jobs, request)
        body = f'{{"header":{kept.header_json()},"blocks":"{kept.blocks}"}}'
        return Response(body, media_type="application/json")

    async def page(request: Request) -> Response:
        return HTMLResponse(page_of(_kept_result(jobs, request)))

    app = Starlette(
        routes=[
            Route("/", home, methods=["GET"]),
            Route("/explain", explain, methods=["POST"]),
            Route("/result/{name}", result, methods=["GET"]),
            Route("/page/{name}", page, methods=["GET"]),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={HTTPException: _refuse},
    )
    app.state.jobs = jobs
    return app


class _Messages(StreamingResponse):
    """The messages of a job. Its place is given up even if the client left before the first one."""

    def __init__(self, jobs: JobQueue, job: Job) -> None:
        super().__init__(jobs.stream(job), media_type="application/x-ndjson")
        self.give_up = partial(jobs.abandon, job)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the messages."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.give_up()


def _kept_result(jobs: JobQueue, request: Request) -> View:
    result = jobs.results.get(request.path_params["name"])
    if result is None:
        raise HTTPException(404, "There is no such result, or it is no longer kept.")
    return result


async def _question(request: Request, limits: ServerLimits) -> _Question:
    """What a request asks for; a body that is too large is refused before it has been read."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind.strip().lower() != "application/json":
        raise HTTPException(415, "Send JSON.")
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.body:
                raise HTTPException(413, f"A request has at most {limits.body} bytes.")
    except ClientDisconnect as problem:
        log.warning("a client has disconnected in the middle of its request")
        raise HTTPException(400, "The request is not whole.") from problem
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise HTTPException(400, "That is not JSON.") from problem
    return _checked(fields, limits)


def _checked(fields: object, limits: ServerLimits) -> _Question:
    """A question with a text, perhaps a pair, and the name of a model."""
    sent = fields if isinstance(fields, dict) else {}
    text, pair, model = sent.get("text"), sent.get("pair"), sent.get("model", "")
    if not isinstance(text, str) or not isinstance(pair, str | None):
        raise HTTPException(400, "Send an object with a text, a model and perhaps a pair.")
    if max(len(text), len(pair or "")) > limits.text:
        raise HTTPException(413, f"A text has at most {limits.text} characters.")
    if not isinstance(model, str):
        raise HTTPException(400, "A model is a name.")
    return _Question(model, text, pair or None)


async def _refuse(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return PlainTextResponse(problem.detail, problem.status_code)
