"""Writes a result as one file that opens in any browser, without a network.

Everything is inside: the viewer's script, the header, the blocks. Nothing is fetched, and a content
security policy forbids it: only the one script whose hash is named may run. The same result gives
the same bytes.
"""

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path

from exhibit_a.report.view import View, view
from exhibit_a.results.files import write_whole
from exhibit_a.results.result import Result
from exhibit_a.trace.units import UnitSpec

STYLE = "html{color-scheme:light dark;background:Canvas}body{margin:0}"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div data-exhibit-a="page"></div>
<noscript><p>This page draws itself with the script inside it, and scripts are off.</p></noscript>
<script type="application/json" data-part="header">{header}</script>
<script type="text/plain" data-part="blocks">{blocks}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def write_page(result: Result, path: str | PathLike[str], *, by: UnitSpec | None = None) -> Path:
    """Write a result as one page that needs nothing but a browser.

    >>> page = xa.write_page(xa.effective_attention(trace), tmp_path / "effective.html")
    >>> page.name, page.stat().st_size < 5_000_000
    ('effective.html', True)

    A result has the same as a method, and a page is written whole or not at all:

    >>> xa.self_attribution(trace).html(tmp_path / "attribution.html").exists()
    True
    >>> xa.write_page(xa.effective_attention(trace), tmp_path / "missing" / "effective.html")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: ...

    Args:
        by: units of the text to show it over, as in ``Result.by``, or "token"; without, words.
    """
    written = page(result, by).encode(
        "utf-8", "backslashreplace"
    )  # a label may hold half a character
    return write_whole(path, written)


def page(result: Result, by: UnitSpec | None = None) -> str:
    """The page of a result."""
    return page_of(view(result, by))


def page_of(result_view: View) -> str:
    """The page of a view."""
    return _PAGE.format(
        policy=policy(script(), STYLE),
        title=escape(f"{result_view.header['title']} · Exhibit A"),
        style=STYLE,
        header=result_view.header_json(),
        blocks=result_view.blocks,
        script=script(),
    )


@cache
def script() -> str:
    """The viewer, with everything escaped that would end a script element."""
    text = files("exhibit_a.report").joinpath("static", "viewer.js").read_text("utf-8")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def policy(script: str, style: str, connect: str = "'none'") -> str:
    """The content security policy: only this script and this style are allowed."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        f"img-src data: blob:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
