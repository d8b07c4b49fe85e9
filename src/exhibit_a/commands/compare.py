"""The verb that puts two texts, two models or two saved results side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from exhibit_a.commands.options import Answer, WithModel, check_place, load_quietly, refuse_beside
from exhibit_a.commands.verb import argument, option

if TYPE_CHECKING:
    from exhibit_a.trials.comparison import Comparison

PAGE = Path("compare.html")
RESULT = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class Compare(WithModel, Answer):
    """Say what differs between two texts, two models on one text, or two saved results."""

    name: ClassVar[str] = "compare"
    first: str = argument(help="A text, or the file of a saved result.")
    second: str | None = argument(None, help="Another text or file; none with --with.")
    with_: str | None = option(
        None, flag="--with", help="Another model or checkpoint that reads the same text."
    )
    html: Path = option(PAGE, help="Write the page to this file.", writes=True)
    no_html: bool = option(False, help="Write no page.")
    seed: int = option(0, help="Same seed, same numbers.")

    def run(self) -> None:
        """Answer."""
        if self.no_html:
            refuse_beside("--no-html", {"--html": self.html != PAGE})
        page = None if self.no_html else self.html
        check_place(page)
        compared = self._compared()
        if page is not None:
            compared.html(page)
        self.answer(compared)
        if page is not None and not self.json:
            from exhibit_a.commands.screen import print_written

            print_written((page,))

    def files(self) -> dict[str, Path]:
        """Saved results are not to be written over; no page, no file of a page."""
        given = {"first": self.first, "second": self.second}
        saved = {n: Path(word) for n, word in given.items() if word and word.endswith(RESULT)}
        named = super().files() | saved
        return {name: named[name] for name in named if name != "html" or not self.no_html}

    def _compared(self) -> "Comparison":
        from exhibit_a.errors import BadRequestError
        from exhibit_a.results.store import read
        from exhibit_a.trials.comparison import compare

        if self.with_ is not None:
            refuse_beside("--with", {"a second text": self.second})
            return compare(
                self.subject(), load_quietly(self.with_), text=self.first, seed=self.seed
            )
        if self.second is None:
            raise BadRequestError("Give a second text or file, or another model with --with MODEL.")
        saved = [text.endswith(RESULT) for text in (self.first, self.second)]
        if all(saved):
            return compare(read(self.first), read(self.second))
        if any(saved):
            raise BadRequestError("Compare two texts or two files of results, not one of each.")
        return compare(self.first, self.second, subject=self.subject(), seed=self.seed)
