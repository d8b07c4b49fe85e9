"""Screenshots of the page for the README, the gallery and the pages about the verdict and passages.

    python studies/screenshots.py [--figures docs/figures] [readme gallery verdict context]

Opens pages in chromium with no network: those of the gallery (docs/making/gallery.py) on a desk, in
the dark, on a phone and on paper; three texts for docs/verdict.md; a question with passages for
docs/context.md. The advice about the text of the README is written into it.
"""

import io
import re
import runpy
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from study import parse

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
LARGEST, SMALLER = 300_000, 80_000  # bytes of an image; of one of the gallery's
VIEWS = {  # width, height, colours, medium
    "desktop": (1280, 900, "light", "screen"),
    "dark": (1280, 900, "dark", "screen"),
    "phone": (390, 844, "light", "screen"),
    "print": (800, 1130, "light", "print"),
    "verdict": (1200, 1706, "light", "screen"),
    "context": (1200, 1080, "light", "screen"),
}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
ADVICE = re.compile(r"(<!-- advice -->\n).*?(<!-- /advice -->)", re.S)


def main() -> None:
    """Take every screenshot, or those of some names."""
    takers = {"readme": readme, "gallery": gallery, "verdict": verdict, "context": context}
    options = parse(__doc__, names=takers, figures=ROOT / "docs/figures")
    options.figures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name in options.names or takers:
            takers[name](browser, options.figures)
        browser.close()


def readme(browser: Browser, figures: Path) -> None:
    """The page of the README's text, and its advice in words."""
    trial = xa.trial(xa.load("sentiment"), TEXT)
    (figures / "page-desktop.png").write_bytes(small(taken(browser, trial, "desktop")))
    page = ROOT / "README.md"
    said = ADVICE.sub(
        lambda found: f"{found[1]}> *{trial.advice}*\n{found[2]}", page.read_text("utf-8")
    )
    page.write_text(said, "utf-8")


def gallery(browser: Browser, figures: Path) -> None:
    """Every page of the gallery on a desk, in the dark, on a phone and on paper; half as large."""
    made = runpy.run_path(str(ROOT / "docs/making/gallery.py"))["made"]()
    shown = (ROOT / "docs/gallery.md").read_text("utf-8")
    for name, page in made.items():
        for view in VIEWS:
            file = f"gallery-{name}-{view}.png"
            if file in shown:
                image = small(taken(browser, page, view, ready="footer"), SMALLER, 640)
                (figures / file).write_bytes(image)


def verdict(browser: Browser, figures: Path) -> None:
    """Three texts for the page about the verdict."""
    for number, text in enumerate(JUDGED, start=1):
        judged = xa.trial(xa.load("sentiment"), text)
        (figures / f"verdict-{number}.png").write_bytes(small(taken(browser, judged, "verdict")))


def context(browser: Browser, figures: Path) -> None:
    """The page of a question with passages."""
    question, template = "Lily went to the park. She played with her", "{passages}\n\n{question}"
    asked = {"answer": " blue kite", "template": template}
    found = xa.context_attribution(xa.load("stories"), question, PASSAGES, **asked)
    (figures / "page-context.png").write_bytes(
        small(taken(browser, found, "context", ready=".passages li"))
    )


def taken(
    browser: Browser, shown: xa.Result | Path, view: str, ready: str = "canvas[data-shown]"
) -> bytes:
    """A screenshot of a page, or of the page of a result."""
    width, height, scheme, medium = VIEWS[view]
    size = {"width": width, "height": height}
    opened = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
    with tempfile.TemporaryDirectory() as folder:
        page = opened.new_page()
        place = shown if isinstance(shown, Path) else shown.html(Path(folder) / "page.html")
        page.goto(place.as_uri())
        page.wait_for_selector(ready)
        page.emulate_media(media=medium)
        page.wait_for_timeout(600)
        image = page.screenshot()
    opened.close()
    return image


def small(content: bytes, largest: int = LARGEST, widest: int | None = None) -> bytes:
    """The image no wider than asked, and with as few colours as it takes."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    if widest is not None and image.width > widest:
        image = image.resize((widest, round(image.height * widest / image.width)), Image.LANCZOS)
    for colours in (None, 256, 192, 128):  # fewer would turn orange into brown
        shown = image if colours is None else with_few_colours(image, colours)
        packed = io.BytesIO()
        shown.save(packed, "PNG", optimize=True)
        if packed.tell() <= largest:
            break
    return packed.getvalue()


def with_few_colours(image: Image.Image, colours: int) -> Image.Image:
    """The image with a palette that has its rare colours, and its paper as it was."""
    few = image.quantize(colours, Image.Quantize.MAXCOVERAGE)
    _, paper = max(image.getcolors(image.width * image.height))
    palette = few.getpalette()
    places = range(0, len(palette), 3)
    near = min(
        places, key=lambda at: sum(abs(a - b) for a, b in zip(palette[at:], paper, strict=False))
    )
    few.putpalette([*palette[:near], *paper, *palette[near + 3 :]])
    return few


if __name__ == "__main__":
    main()
