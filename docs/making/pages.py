"""What the site changes in the pages: notebooks become pages, and links stay inside the site.

Everything in docs reads well where it lies; these hooks of mkdocs do only what a site needs more.
"""

import json
import posixpath
import re
import runpy
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

UPWARD = re.compile(r"\[([^\]]+)\]\((\.\./[^)]*)\)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page in the place of every notebook, and the live pages into the gallery."""
    gallery = runpy.run_path(str(Path(__file__).with_name("gallery.py")))
    for name, page in gallery["made"]().items():
        files.append(File.generated(config, f"gallery/{name}.html", abs_src_path=str(page)))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            text = markdown(json.loads(Path(file.abs_src_path or "").read_text("utf-8")))
            files.remove(file)
            files.append(_NotebookPage.generated(config, file.src_uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Name what lies in the repository but not in the site, without a link to it."""
    folder = posixpath.dirname(page.file.src_uri)

    def kept(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(folder, link[2]))
        return link[1] if place.startswith("..") else link[0]

    return UPWARD.sub(kept, markdown)


def markdown(notebook: dict[str, Any]) -> str:
    """The cells of a notebook as they were written, each with what it said."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        said = filter(None, map(shown, cell.get("outputs", ())))
        parts += [f'<div class="output">{one}</div>' for one in said]
    return "\n\n".join(parts)


def shown(output: dict[str, Any]) -> str:
    """One output, in the best form that needs no script."""
    data = output.get("data", {})
    for kind in ("image/svg+xml", "text/html"):
        if kind in data and "image/png" not in data:
            return "".join(data[kind])
    if "image/png" in data:
        packed = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="What the cell drew" src="data:image/png;base64,{packed}">'
    text = COLOURS.sub("", "".join(output.get("text", data.get("text/plain", "")))).rstrip()
    return f"<pre><code>{escape(text)}</code></pre>" if text else ""


class _NotebookPage(File):
    """A page whose source happens to be called .ipynb."""

    def is_documentation_page(self) -> bool:
        return True

    def _get_stem(self) -> str:
        return Path(self.src_uri).stem
