"""The same sentence in BertViz, Inseq, Captum and here: lines of code, what comes out, screenshots.

    python studies/peers.py [--libraries FOLDER]

Runs the code of docs/peers.md, each tool's as its own documentation says, in an environment that
has them (pip install bertviz inseq captum), and measures lines, bytes, processor time, files that a
page asks a network for and methods that a library has. BertViz's page asks a content delivery
network for its scripts; ``--libraries`` is a folder of npm packages (d3 5.7.0, jquery, requirejs)
that answers in its place. Writes docs/data/side-by-side.json, docs/figures/peer-*.png and the table
of docs/peers.md, and prints what its sentences quote.
"""

import contextlib
import io
import json
import re
import shutil
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import Browser, Route, sync_playwright
from screenshots import FLAGS, small
from study import DOCS, Row, parse

import exhibit_a as xa
from exhibit_a.methods.registry import attributions

ROOT = Path(__file__).parents[1]
PAGE, FIGURES = ROOT / "docs/peers.md", ROOT / "docs/figures"
TEXT = "a gripping and beautifully shot film"
TIMES = 16  # the longer text is the sentence so often
SCRIPTS = {
    "require.min.js": "requirejs/require.js",
    "d3.min.js": "d3/dist/d3.min.js",
    "jquery.min.js": "jquery/dist/jquery.min.js",
}
PACKAGES = {"BertViz": "bertviz", "Captum": "captum", "Inseq": "inseq", "Exhibit A": "exhibit-a"}
# Every snippet leaves an HTML text in ``html``; MODEL and STORIES are folders of saved models.
SNIPPET = re.compile(r"^## (.+?)\n.*?```python\n(.*?)```", re.M | re.S)
TABLE = re.compile(r"(?<=\|---\|\n)(\|.*\n)+")


def main() -> None:
    """Measure, and write what was measured."""
    options = parse(__doc__, libraries=Path)
    page = PAGE.read_text("utf-8")
    codes = dict(SNIPPET.findall(page))
    found = measured(codes, options.libraries)
    stored = {"found": found, "counts": counted()}
    (DOCS / "side-by-side.json").write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
    PAGE.write_text(
        TABLE.sub(
            "\n".join(row(name, codes[name], one) for name, one in found.items()) + "\n", page
        )
    )
    grows = found["BertViz"]["longer"] / max(found["BertViz"]["size"], 1)
    slower = found["Exhibit A"]["seconds"] / min(one["seconds"] for one in found.values())
    print(
        f"BertViz grows {grows:.0f}-fold; ours takes {slower:.0f} times as long as "
        f"the quickest; {stored['counts']}"
    )


def measured(codes: dict[str, str], libraries: Path | None) -> dict[str, Row]:
    """Run every snippet on both texts, and take a picture of what it made of the sentence."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for name in ("sentiment", "stories"):
            subject = xa.load(name)
            subject.model.save_pretrained(Path(folder) / name)
            subject.tokenizer.save_pretrained(Path(folder) / name)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, code in codes.items():
            html, one = ran(name, code, Path(folder))
            if html:
                file = FIGURES / f"peer-{name.lower().replace(' ', '-')}.png"
                one["asked"] = pictured(browser, html, libraries, file)
                one["longer"] = ran(name, code, Path(folder), " ".join([TEXT] * TIMES))[1]["size"]
            found[name] = one
        browser.close()
    return found


def ran(name: str, code: str, folder: Path, text: str = TEXT) -> tuple[str, Row]:
    """What a snippet made and how large that is, or the error it ended with."""
    given = {"MODEL": str(folder / "sentiment"), "STORIES": str(folder / "stories"), "TEXT": text}
    html, problem, started = "", "", time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
            exec(compile(code, name, "exec"), given)
        html = str(given["html"])
    except Exception as error:  # the page tells which peer did not run, and why
        problem = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(":")
    one = {
        "version": version(PACKAGES[name]),
        "seconds": time.process_time() - started,
        "problem": problem,
    }
    return html, one | {"size": len(html.encode()), "longer": 0, "asked": 0}


def counted() -> dict[str, int]:
    """How many attributions two of the libraries have."""
    import captum.attr

    kinds = [kind for kind in vars(captum.attr).values() if isinstance(kind, type)]
    return {
        "captum": sum(issubclass(kind, captum.attr.Attribution) for kind in kinds),
        "ours": len(attributions()),
    }


def pictured(browser: Browser, html: str, libraries: Path | None, file: Path) -> int:
    """A screenshot of what a snippet made, and how many files it asked a network for."""
    asked = set[str]()
    place = file.with_suffix(".html")
    place.write_text(html if "<html" in html else f"<meta charset=utf-8>{html}", encoding="utf-8")
    page = browser.new_page(viewport={"width": 900, "height": 520})

    def answered(route: Route) -> None:
        asked.add(route.request.url)
        script = SCRIPTS.get(route.request.url.rsplit("/", 1)[-1])
        if libraries is None or script is None:
            route.abort()
        else:
            route.fulfill(path=libraries / script)

    page.route(re.compile("^https:"), answered)
    page.goto(place.as_uri())
    page.wait_for_timeout(2500)
    file.write_bytes(small(page.screenshot()))
    place.unlink()
    page.close()
    return len(asked)


def row(name: str, code: str, one: Row) -> str:
    """A tool's line in the table of the page; empty lines of code are not counted."""
    lines = sum(bool(line.strip()) for line in code.splitlines())
    asks = f"for {one['asked']} files" if one["asked"] else "no"
    sizes = [
        f"{n / 1e6:.1f} MB" if n >= 1e6 else f"{n / 1e3:.0f} kB"
        for n in (one["size"], one["longer"])
    ]
    ends = f"did not run: {one['problem']} |" if one["problem"] else " | ".join(sizes)
    return f"| {name} | {one['version']} | {lines} | {one['seconds']:.1f} s | {asks} | {ends} |"


if __name__ == "__main__":
    main()
