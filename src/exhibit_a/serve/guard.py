"""Which requests are answered, and what may a browser do with the answers?

The Host header must name this server (so that no foreign name can be bound to it), a request sent
by another site's page is refused, and requests are rate-limited. Every answer carries the headers
that forbid a page everything but its own script.
"""

import time
from collections import deque

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exhibit_a.report.html import STYLE, policy, script

MINUTE = 60.0  # seconds


class RateLimit:
    """At most so many texts a minute from one address."""

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
        self.headers = _headers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self.headers]
            await send(message)

        refusal = self._refusal(Request(scope))
        answer = self.app if refusal is None else PlainTextResponse(*refusal)
        await answer(scope, receive, send_with_headers)

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
    return [(name.encode(), value.encode()) for name, value in headers.items()]
