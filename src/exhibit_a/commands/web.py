"""Verbs that open a page: a saved result, or a server to ask."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exhibit_a.commands.common import check_place, console, load_quietly

if TYPE_CHECKING:
    import socket


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command()(view)
    app.command()(serve)


def view(
    result: Annotated[Path, typer.Argument(help="A saved result.")],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write the page here, not to a temporary file.", callback=check_place
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Show a saved result as a page."""
    import tempfile
    import webbrowser

    from exhibit_a.report.html import write_page
    from exhibit_a.results.store import read

    found = read(result)
    where = html or Path(tempfile.mkdtemp(prefix="exhibit-a-")) / f"{result.stem}.html"
    page = write_page(found, where)
    console().print(f"written to {page}", soft_wrap=True)
    if open_:
        webbrowser.open(page.resolve().as_uri())


def serve(
    model: Annotated[
        list[str], typer.Option("--model", "-m", help="A model to offer; give it again for more.")
    ] = ["sentiment"],  # noqa: B006 - typer reads it, nobody changes it
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8350,
    host: Annotated[str, typer.Option(help="Address to listen on; others are not reached.")] = (
        "127.0.0.1"
    ),
) -> None:
    """Answer texts on a page of this machine."""
    from exhibit_a.errors import BadRequestError

    try:
        import uvicorn

        from exhibit_a.serve.application import application
    except ImportError as missing:
        raise BadRequestError(
            f"{missing.name} is missing: pip install 'exhibit-a[web]'"
        ) from missing
    with _listening(host, port) as listening:
        subjects = {Path(name).name or name: load_quietly(name) for name in model}
        names = {host, "127.0.0.1", "localhost", "[::1]"} - {"0.0.0.0", "::"}
        hosts = {f"{name}:{port}" for name in names} | (names if port == 80 else set())
        app = application(subjects, frozenset(one.lower() for one in hosts))
        console().print(
            f"Exhibit A answers at http://{host}:{port} (Ctrl-C ends it)", soft_wrap=True
        )
        config = uvicorn.Config(
            app,
            log_level="warning",
            server_header=False,
            limit_concurrency=64,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=3,
        )
        uvicorn.Server(config).run(sockets=[listening])


def _listening(host: str, port: int) -> "socket.socket":
    """A socket that listens already: nobody is told of a server before there can be one."""
    import socket

    from exhibit_a.errors import BadRequestError

    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise BadRequestError(
            f"Nobody can listen at {host}, port {port}: {reason}. Choose another --port or --host."
        ) from problem
