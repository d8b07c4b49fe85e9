"""A real browser, without a network: Debian's chromium, driven by Playwright.

Where there is none the tests that need it are skipped and say so; with EXHIBIT_A_BROWSER=required,
as on the build server, its absence is a failure.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from support.waiting import PATIENCE

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PIXELS = "canvas => canvas.toDataURL()"
# A page is still when three frames have passed in which it waited for no frame and no stream.
WATCHED = """(() => {
  let waiting = 0;
  const frame = requestAnimationFrame.bind(window);
  window.requestAnimationFrame = run =>
    (waiting++, frame(now => { waiting--; run(now); }));
  for (const [kind, name] of [
    [ReadableStreamDefaultReader, 'read'],
    [WritableStreamDefaultWriter, 'write'],
    [WritableStreamDefaultWriter, 'close'],
  ]) {
    const step = kind.prototype[name];
    kind.prototype[name] = function (...given) {
      waiting++;
      return step.apply(this, given).finally(() => waiting--);
    };
  }
  window.becomeStill = async () => {
    for (let still = 0; still < 3; still = waiting ? 0 : still + 1) await new Promise(frame);
  };
})()"""


@contextmanager
def chromium() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        told = "there is no chromium here: apt-get install chromium"
        if os.environ.get("EXHIBIT_A_BROWSER") == "required":
            pytest.fail(told)
        pytest.skip(told)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page that is open, and everything it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __getitem__(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate("() => becomeStill()")

    def pixels(self, selector: str = "section.head .frame canvas") -> str:
        self.settle()
        return self.page.locator(selector).first.evaluate(PIXELS)

    def text(self, selector: str) -> str:
        self.settle()
        return self.page.locator(selector).first.inner_text()


@contextmanager
def visit(browser: Browser, address: str, width: int = 1280, **options) -> Iterator[Visit]:
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, **{"offline": True} | options)
    context.add_init_script(WATCHED)
    page = context.new_page()
    seen = Visit(page)
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda problem: seen.complaints.append(str(problem)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(address)
    try:
        yield seen
    finally:
        context.close()
