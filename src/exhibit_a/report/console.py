"""A console that prints words as they are.

In texts and paths ``[bold]`` is no markup, and an escape sequence is shown instead of obeyed (see
``control_characters``).
"""

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment
from rich.text import Text

from exhibit_a.control_characters import escape_controls


class Screen(Console, RenderHook):
    """A console for words of any origin."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)
        self.push_render_hook(self)

    def render_str(self, text: str, **options: Any) -> Text:
        """Words as text, shown before their width is measured."""
        return super().render_str(escape_controls(text), **options)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Whatever is printed, shown."""
        return [Visible(content) for content in renderables]


class Visible:
    """Anything that can be printed, with the control characters in its words shown."""

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """The same segments; rich's own orders (where the cursor goes) pass."""
        yield from map(_shown, console.render(self.content, options))


def words(text: str, **style: Any) -> Text:
    """Foreign words as a text of rich's, which would drop some of what is to be shown."""
    return Text(escape_controls(text), **style)


def _shown(segment: Segment) -> Segment:
    if segment.control:
        return segment
    return Segment(escape_controls(segment.text), segment.style)
