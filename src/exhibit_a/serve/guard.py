"""Decides which requests are answered, and what a browser may do with the answers.

The Host header must name this server (so that no foreign name can be bound to it), and so must a
request line with a whole address. A request that states its length in two ways is refused, because
a proxy in front could take it for two requests; so is one sent by another site's page, and requests
are rate-limited. Every answer carries the headers that forbid a page everything but its own script.
"""

import time
from collections import deque
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exhibit_a.report.html import STYLE, policy, script

MINUTE = 60.0  # seconds


class RateLimit:
    """Limits the texts a minute from one address."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.times: dict[str, deque[float]] = {}

    def allows(self, address: str) -> bool:
        """Whether this address may send another text now; if so, it is counted."""
        now = time.monotonic()
        self.times = {
            known: times
            for known, times in self.times.items()
            if times and now - times[-1] < MINUTE
        }
        times = self.times.setdefault(address, deque())
        while times and now - times[0] > MINUTE:
            times.popleft()
        if len(times) >= self.per_minute:
            return False
        times.append(now)
        return True


class Guard:
    """Refuses requests that are not meant for this server, and adds headers to all answers."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts
        headers = {
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
        self.headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self.headers]
            await send(message)

        named, scope = _split_target(scope)
        answer = self._refusal(Request(scope), named) or self.app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request, named: str | None) -> PlainTextResponse | None:
        if "content-length" in request.headers and "transfer-encoding" in request.headers:
            text = "A request has a Content-Length or a Transfer-Encoding, not both."
            return PlainTextResponse(text, 400, {"connection": "close"})
        host = request.headers.get("host", "").lower()
        known = host in self.hosts and len(request.headers.getlist("host")) == 1
        if not known or (named is not None and named not in self.hosts):
            return PlainTextResponse("This server does not answer to that name.", 421)
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            return PlainTextResponse("Requests from other sites are refused.", 403)
        visits = request.headers.get("sec-fetch-mode") == "navigate" and request.url.path == "/"
        foreign = request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign and not (visits and request.method == "GET"):
            return PlainTextResponse("Requests from other sites are refused.", 403)
        return None


def _split_target(scope: Scope) -> tuple[str | None, Scope]:
    """The host that a target such as ``http://host/path`` names, and the request with its path."""
    scheme, whole, rest = scope["raw_path"].partition(b"://")
    if not whole or scheme.startswith(b"/"):
        return None, scope
    host, _, path = rest.partition(b"/")
    inside = {**scope, "raw_path": b"/" + path, "path": "/" + unquote(path.decode("ascii"))}
    return (host if scheme.lower() == b"http" else b"").decode("ascii").lower(), inside
