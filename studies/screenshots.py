"""Pictures of the page for the README.

    python studies/screenshots.py [--figures docs/figures] [--result SAVED]

Examines one sentence with the embedded model (or reads a saved trial), opens its page in chromium
with no network, and takes three pictures: desktop, dark, and the width of a phone. Then the pages
of three texts for docs/verdict.md, and that of a question with passages for docs/context.md
(``--passages`` takes this one alone).
"""

import argparse
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import exhibit_a as xa

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
PICTURES = {
    "page-desktop": (1280, 1080, "light"),
    "page-dark": (1280, 1080, "dark"),
    "page-phone": (390, 1500, "light"),
    "verdict": (1200, 1706, "light"),
    "page-context": (1200, 1080, "light"),
}
SHOWN = "canvas[data-shown]"  # a map that is drawn
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--figures", type=Path, default=Path("docs/figures"))
    asked.add_argument("--result", type=Path, help="a saved trial")
    asked.add_argument("--passages", action="store_true", help="only the page of passages")
    options = asked.parse_args()
    options.figures.mkdir(parents=True, exist_ok=True)
    with_passages(options.figures)
    if options.passages:
        return
    found = xa.read(options.result) if options.result else xa.trial(xa.load("sentiment"), TEXT)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        address = found.html(Path(folder) / "page.html").as_uri()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        best = max(found.verdicts, key=lambda one: (one.distance or 0) * abs(one.reliance or 0))
        for name in list(PICTURES)[:3]:
            data = small(taken(browser, address, name, found.verdicts.index(best)))
            (options.figures / f"{name}.png").write_bytes(data)
            print(f"{name}.png: {len(data) / 1000:.0f} kB")
        for number, text in enumerate(JUDGED, start=1):
            judged = found if text == TEXT else xa.trial(xa.load("sentiment"), text)
            address = judged.html(Path(folder) / f"{number}.html").as_uri()
            data = small(taken(browser, address, "verdict", 0))
            (options.figures / f"verdict-{number}.png").write_bytes(data)
        browser.close()


def with_passages(figures: Path) -> None:
    """The page of a question with passages."""
    found = xa.context_attribution(
        xa.load("stories"),
        "Lily went to the park. She played with her",
        PASSAGES,
        answer=" blue kite",
        template="{passages}\n\n{question}",
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        address = found.html(Path(folder) / "page.html").as_uri()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        data = small(taken(browser, address, "page-context", 0, ready=".passages li"))
        (figures / "page-context.png").write_bytes(data)
        browser.close()


def taken(browser: Browser, address: str, name: str, contested: int, ready: str = SHOWN) -> bytes:
    """One picture; the dark one shows attention away from what the model used."""
    width, height, scheme = PICTURES[name]
    size = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(ready)
    if scheme == "dark":
        page.locator(".cell").nth(contested).click()
        page.wait_for_timeout(500)
        page.locator(".slide input").fill("100")
    page.wait_for_timeout(500)
    picture = page.screenshot()
    context.close()
    return picture


def small(picture: bytes) -> bytes:
    """The picture with fewer colours, as few as it takes."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colours in (None, 256, 128, 64):
        shown = image if colours is None else image.quantize(colours)
        packed = io.BytesIO()
        shown.save(packed, "PNG", optimize=True)
        if packed.tell() <= LARGEST:
            break
    return packed.getvalue()


if __name__ == "__main__":
    main()
