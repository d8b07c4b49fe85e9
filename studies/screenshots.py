"""Pictures of the page for the README, the gallery and the pages about the verdict and passages.

    python studies/screenshots.py [--figures docs/figures] [--only NAME …]

Opens pages in chromium with no network: those of the gallery (docs/making/gallery.py) on a desk, in
the dark, on a phone and on paper; three texts for docs/verdict.md; a question with passages for
docs/context.md. The advice about the text of the README is written into it.
"""

import argparse
import importlib.util
import io
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import exhibit_a as xa

ROOT = Path(__file__).parents[1]
TEXT = (
    "the story is thin and the middle drags , the jokes are old , and still , against my better "
    "judgement , i liked it , mostly because the two leads are so good together"
)
JUDGED = ("it 's slow -- very , very slow .", "a gripping , beautifully shot film", TEXT)
PASSAGES = (
    "Tom has a red ball. He is a big boy.",
    "Lily has a blue kite. She likes it very much.",
    "The dog likes to run in the garden. It is brown.",
    "Mom made a big cake for the party.",
)
LARGEST = 300_000  # bytes of a picture
SMALLER = 80_000  # bytes of one of the gallery's
VIEWS = {  # width, height, colours, medium
    "desktop": (1280, 900, "light", "screen"),
    "dark": (1280, 900, "dark", "screen"),
    "phone": (390, 844, "light", "screen"),
    "print": (800, 1130, "light", "print"),
}
VERDICT = (1200, 1706, "light", "screen")
CONTEXT = (1200, 1080, "light", "screen")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
ADVICE = re.compile(r"(<!-- advice -->\n).*?(<!-- /advice -->)", re.S)


def main() -> None:
    """Take every picture, or those of some names."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--figures", type=Path, default=ROOT / "docs/figures")
    asked.add_argument("--only", nargs="*", choices=("readme", "gallery", "verdict", "context"))
    options = asked.parse_args()
    takers = {"readme": readme, "gallery": gallery, "verdict": verdict, "context": context}
    with chromium() as browser:
        for name in options.only or takers:
            takers[name](browser, options.figures)


def readme(browser: Browser, figures: Path) -> None:
    """The page of the README's text, and its advice in words."""
    trial = xa.trial(xa.load("sentiment"), TEXT)
    keep(figures / "page-desktop.png", taken(browser, trial, VIEWS["desktop"]), LARGEST)
    page = ROOT / "README.md"
    sentence = f"> *{trial.advice}*\n"
    page.write_text(ADVICE.sub(lambda found: found[1] + sentence + found[2], page.read_text("utf-8")), "utf-8")


def gallery(browser: Browser, figures: Path) -> None:
    """Every page of the gallery on a desk, in the dark, on a phone and on paper; half as large."""
    path = ROOT / "docs/making/gallery.py"
    spec = importlib.util.spec_from_file_location("gallery", path)
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    made = pages.made()
    for shown in pages.SHOWN:
        name = shown.maker.__name__
        for view in ("desktop", *shown.views):
            picture = taken(browser, made[name], VIEWS[view], ready="footer")
            keep(figures / f"gallery-{name}-{view}.png", picture, SMALLER, 640)


def verdict(browser: Browser, figures: Path) -> None:
    """Three texts for the page about the verdict."""
    for number, text in enumerate(JUDGED, start=1):
        judged = xa.trial(xa.load("sentiment"), text)
        keep(figures / f"verdict-{number}.png", taken(browser, judged, VERDICT), LARGEST)


def context(browser: Browser, figures: Path) -> None:
    """The page of a question with passages."""
    found = xa.context_attribution(
        xa.load("stories"),
        "Lily went to the park. She played with her",
        PASSAGES,
        answer=" blue kite",
        template="{passages}\n\n{question}",
    )
    picture = taken(browser, found, CONTEXT, ready=".passages li")
    keep(figures / "page-context.png", picture, LARGEST)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a network."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


def taken(
    browser: Browser,
    shown: xa.Result | Path,
    how: tuple[int, int, str, str],
    ready: str = "canvas[data-shown]",
) -> bytes:
    """One picture of a page, or of the page of a result."""
    width, height, scheme, medium = how
    size = {"width": width, "height": height}
    opened = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
    with tempfile.TemporaryDirectory() as folder:
        page = opened.new_page()
        place = shown if isinstance(shown, Path) else shown.html(Path(folder) / "page.html")
        page.goto(place.as_uri())
        page.wait_for_selector(ready)
        page.emulate_media(media=medium)
        page.wait_for_timeout(600)
        picture = page.screenshot()
    opened.close()
    return picture


def with_few_colours(image: Image.Image, colours: int) -> Image.Image:
    """The picture with a palette that has its rare colours, and its paper as it was."""
    few = image.quantize(colours, Image.Quantize.MAXCOVERAGE)
    _, paper = max(image.getcolors(image.width * image.height))
    palette = few.getpalette()
    near = range(0, len(palette), 3)
    place = min(near, key=lambda at: sum(abs(a - b) for a, b in zip(palette[at:], paper, strict=False)))
    few.putpalette([*palette[:place], *paper, *palette[place + 3 :]])
    return few


def keep(file: Path, picture: bytes, largest: int, widest: int | None = None) -> None:
    """Write a picture, smaller where it is too large."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(small(picture, largest, widest))


def small(picture: bytes, largest: int = LARGEST, widest: int | None = None) -> bytes:
    """The picture no wider than asked, and with as few colours as it takes."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    if widest is not None and image.width > widest:
        image = image.resize((widest, round(image.height * widest / image.width)), Image.LANCZOS)
    for colours in (None, 256, 192, 128):  # fewer would turn orange into brown
        shown = image if colours is None else with_few_colours(image, colours)
        packed = io.BytesIO()
        shown.save(packed, "PNG", optimize=True)
        if packed.tell() <= largest:
            break
    return packed.getvalue()


if __name__ == "__main__":
    main()
