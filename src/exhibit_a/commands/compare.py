"""The verb that puts two texts, two models or two saved results side by side."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exhibit_a.commands.options import (
    WithModel,
    WithPage,
    load_quietly,
    refuse_together,
    words_of,
)
from exhibit_a.commands.screen import console, print_table
from exhibit_a.commands.verb import argument, option

if TYPE_CHECKING:
    from exhibit_a.trials.comparison import Comparison

RESULT = ".safetensors"  # what saved results are usually called
SHOWN = 20  # words


@dataclass(frozen=True, kw_only=True)
class Compare(WithModel, WithPage):
    """Say what differs between two texts, two models on one text, or two saved results."""

    first: str = argument(help="A text, or the file of a saved result.")
    second: str | None = argument(None, help="Another text or file; none with --with.")
    with_: str | None = option(
        None, flag="--with", help="Another model or checkpoint that reads the same text."
    )
    html: Path = option(Path("compare.html"), help="Write the page to this file.", writes=True)

    def run(self) -> None:
        """Answer."""
        page = self.page()
        compared = self._compared()
        if page is not None:
            compared.html(page)
        title = None
        if compared.words and not self.json:
            console().print(compared.sentence, style="bold")
            from dataclasses import asdict

            words = compared.words
            changes = [
                abs((word.second_score or 0.0) - (word.first_score or 0.0)) for word in words
            ]
            ranked = sorted(range(len(words)), key=lambda place: -changes[place])
            shown = [asdict(words[place]) for place in sorted(ranked[:SHOWN])]
            part = (
                f", the {len(shown)} that changed most of {len(words)}"
                if len(words) > SHOWN
                else ""
            )
            print_table(f"what each answer took from each word{part}", shown)
            if compared.heads:
                title = "the heads whose share of the margin changed most"
        self.answer(compared, title=title)
        if page is not None and not self.json:
            from exhibit_a.commands.screen import print_written

            print_written((page,))

    def files(self) -> dict[str, Path]:
        """Saved results are not to be written over."""
        given = {"first": self.first, "second": self.second}
        saved = {name: Path(word or "") for name, word in given.items() if _names_a_file(word)}
        return super().files() | saved

    def _compared(self) -> "Comparison":
        from exhibit_a.errors import BadRequestError
        from exhibit_a.results.store import read
        from exhibit_a.trials.comparison import compare

        if self.with_ is not None:
            refuse_together("--with", {"a second text": self.second})
            text = words_of(self.first)
            return compare(self.subject(), load_quietly(self.with_), text=text, seed=self.seed)
        if self.second is None:
            raise BadRequestError("Give a second text or file, or another model with --with MODEL.")
        files = [_names_a_file(given) for given in (self.first, self.second)]
        if all(files):
            return compare(read(self.first), read(self.second))
        if any(files):
            file, other = (self.first, self.second) if files[0] else (self.second, self.first)
            raise BadRequestError(
                f'"{file}" is a file, and "{other}" is none: compare two texts, or the files of '
                "two saved results."
            )
        first, second = words_of(self.first), words_of(self.second)
        return compare(first, second, subject=self.subject(), seed=self.seed)


def _names_a_file(given: str | None) -> bool:
    """Whether a file is meant: one that is there, or one that is called like a saved result."""
    return given is not None and (os.path.isfile(given) or given.endswith(RESULT))  # noqa: PTH113
