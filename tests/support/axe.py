"""Does a page keep out people who hear it or use no mouse? axe-core looks, in the browser."""

from pathlib import Path

import pytest

AXE = Path(__file__).parents[2] / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
  .filter(found => ['serious', 'critical'].includes(found.impact))
  .map(found => [found.id, ...found.nodes.slice(0, 3).map(node => node.html.slice(0, 120))])"""


def examined_by_axe(seen):
    """The serious violations of an open page."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make viewer")
    seen.page.evaluate(AXE.read_text("utf-8"))
    return seen.page.evaluate(SERIOUS)
