"""Verbs that open a page: a saved result, or a server to ask."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exhibit_a.commands.options import check_place, load_quietly
from exhibit_a.commands.screen import console
from exhibit_a.commands.verb import Verb, argument, option

if TYPE_CHECKING:
    import socket


@dataclass(frozen=True, kw_only=True)
class ViewVerb(Verb):
    """Show a saved result as a page."""

    result: Path = argument(help="A saved result.")
    html: Path | None = option(
        None,
        help="Write the page here, not to a temporary file.",
        callback=check_place,
        writes=True,
    )
    words: bool = option(
        True, flag="--words/--tokens", help="Words of the text, or the tokens of the tokenizer."
    )
    open_: bool = option(True, flag="--open/--no-open", help="Open a browser.")

    def run(self) -> None:
        """Write the page and open it."""
        import tempfile
        import webbrowser

        from exhibit_a.report.html import write_page
        from exhibit_a.results.store import read

        result = read(self.result)
        place = self.html
        if place is None:
            place = Path(tempfile.mkdtemp(prefix="exhibit-a-")) / f"{self.result.stem}.html"
        page = write_page(result, place, by=None if self.words else "token")
        console().print(f"written to {page}", soft_wrap=True)
        if self.open_:
            webbrowser.open(page.resolve().as_uri())


@dataclass(frozen=True, kw_only=True)
class Serve(Verb):
    """Answer texts on a page of this machine."""

    model: list[str] = option(
        ("sentiment",), short="-m", help="A model to offer; give it again for more."
    )
    port: int = option(8350, min=1, max=65535, help="Port to listen on.")
    host: str = option("127.0.0.1", help="Address to listen on; others are not reached.")

    def run(self) -> None:
        """Listen, load, and answer until interrupted."""
        from exhibit_a.extras import extra

        extra("uvicorn")
        extra("starlette")
        from exhibit_a.serve.application import application
        from exhibit_a.serve.connections import Server

        with _listening(self.host, self.port) as listening:
            names = distinct_names(self.model)
            subjects = {name: load_quietly(source) for name, source in names.items()}
            console().print(
                f"Exhibit A answers at http://{self.host}:{self.port} (Ctrl-C ends it)",
                soft_wrap=True,
            )
            Server(application(subjects, self._names())).run(sockets=[listening])

    def _names(self) -> frozenset[str]:
        """The names, with the port, that the server answers to."""
        names = {self.host, "127.0.0.1", "localhost", "[::1]"} - {"0.0.0.0", "::"}
        hosts = {f"{name}:{self.port}" for name in names}
        return frozenset(host.lower() for host in hosts | (names if self.port == 80 else set()))


def distinct_names(sources: Iterable[str]) -> dict[str, str]:
    """Models by a short name: the last folder, with as many before it as tell it from others.

    >>> distinct_names(["runs/one/model", "runs/two/model"])
    {'one/model': 'runs/one/model', 'two/model': 'runs/two/model'}
    >>> distinct_names(["sentiment", "runs/model", "sentiment"])
    {'sentiment': 'sentiment', 'model': 'runs/model'}
    """
    paths = {Path(source).parts: source for source in sources}
    names: dict[str, str] = {}
    for path, source in paths.items():
        others = [other for other in paths if other != path]
        length = 1
        while length < len(path) and any(path[-length:] == other[-length:] for other in others):
            length += 1
        names["/".join(path[-length:]) or source] = source
    return names


def _listening(host: str, port: int) -> "socket.socket":
    """A socket that listens already: the address is printed only when there is a server."""
    import socket

    from exhibit_a.errors import BadRequestError

    if not host.strip():
        raise BadRequestError(
            "--host is empty; give 127.0.0.1 for this machine alone, or an address of it."
        )
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise BadRequestError(
            f"No server can listen at {host}, port {port}: {reason}. Choose another --port or "
            "--host."
        ) from problem
