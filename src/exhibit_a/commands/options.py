"""The options that verbs share: a model, a text or a data set, and where the answer goes."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecodeError, loads
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from exhibit_a.commands.screen import present, save_figure
from exhibit_a.commands.verb import Verb, argument, option
from exhibit_a.errors import BadRequestError

if TYPE_CHECKING:
    from exhibit_a.examples import Example
    from exhibit_a.progress import Bar
    from exhibit_a.results.result import Result
    from exhibit_a.shapes import Options
    from exhibit_a.subject.prompts import Message
    from exhibit_a.subject.subject import Subject
    from exhibit_a.trace.capture import Trace

Kind = TypeVar("Kind", bound="Result")


def check_place(file: Path | None) -> Path | None:
    """Refuse a file that cannot be written before the work and not after it."""
    if file is not None:
        from exhibit_a.results.files import require_place

        require_place(file)
    return file


def check_picture(file: Path | None) -> Path | None:
    """The same for a picture, which must also be of a kind that can be drawn."""
    if file is not None:
        from exhibit_a.extras import extra

        known = extra("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes()
        if file.suffix.removeprefix(".") not in known:
            raise BadRequestError(
                f"The ending of a plot's name says how it is drawn, and {str(file)!r} has "
                f"{repr(file.suffix) if file.suffix else 'none'}; choose {', '.join(known)}."
            )
    return check_place(file)


def refuse_together(chosen: str, idle: Mapping[str, object]) -> None:
    """Refuse options that were given although what was chosen leaves them nothing to do."""
    from exhibit_a.errors import BadRequestError

    for name in filter(idle.get, idle):
        raise BadRequestError(f"{name} has no meaning with {chosen}; leave one of them out.")


def load_quietly(name: str, **options: Any) -> "Subject":
    """Load a model without the library's own chatter."""
    import logging
    import warnings

    import huggingface_hub
    import transformers

    from exhibit_a.subject.subject import load

    huggingface_hub.logging.set_verbosity(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", "Detected .* protocol")  # of weights that are then refused
    return load(name, **options)


def words_of(text: str) -> str:
    """A text; refused if it is the name of a file.

    >>> words_of("a fine film")
    'a fine film'
    """
    # not by Path, which fails with a text that is too long for a name
    file, folder = os.path.isfile(text), os.path.isdir(text) and os.sep in text  # noqa: PTH112, PTH113
    if file or folder:
        raise BadRequestError(
            f'A text is needed, and "{text}" is a {"file" if file else "folder"}. Give the words '
            "themselves; to have this name examined as a word, put a blank behind it."
        )
    return text


WORTH = 20  # passes from which it is worth running a few more to say how long it takes


def expect(bar: "Bar", subject: "Subject", name: str, length: int) -> None:
    """Tell a bar on a terminal how long a method takes, as the doctor says it."""
    if not bar.watched:
        return
    from exhibit_a.methods.doctor import estimate
    from exhibit_a.methods.registry import find

    anatomy = subject.anatomy
    if find(name).cost.passes(len(anatomy.layers), length, anatomy.d_model) < WORTH:
        return
    seconds = estimate(subject, name, length=length).seconds
    if seconds is not None:
        bar.expect(seconds)


@dataclass(frozen=True, kw_only=True)
class WithModel(Verb):
    """A verb that asks a model."""

    model: str = option(
        "sentiment",
        short="-m",
        help="A model inside (sentiment, nli, stories, translation), a folder or a hub id.",
    )

    def subject(self) -> "Subject":
        """The model, loaded."""
        return load_quietly(self.model)


@dataclass(frozen=True, kw_only=True)
class OneText(WithModel):
    """A verb about one text."""

    text: str | None = argument(None, help="The text to examine.")
    pair: str | None = option(None, help="The second text, for models of pairs.")
    messages: Path | None = option(
        None, help="Instead of a text: a conversation, as JSON [{role, content}, …]."
    )
    reply: str | None = option(
        None, flag="--answer", help="The answer of a language model to explain."
    )
    generate: int | None = option(
        None,
        min=1,
        help="Let a language model generate an answer of at most this number of tokens.",
    )
    truncate: bool = option(False, help="Cut a text that is too long for the model.")
    words: bool | None = option(
        None,
        flag="--words/--tokens",
        help="Show words of the text, or the tokens of the tokenizer; without, words to people and "
        "tokens to machines.",
    )

    @property
    def units(self) -> str | None:
        """What the result is shown over; None for what is usual."""
        return None if self.words is None else "word" if self.words else "token"

    def given_text(self) -> "str | list[Message]":
        """The text, or the messages that stand for it."""
        from exhibit_a.subject.prompts import read_messages

        for text in filter(None, (self.text, self.pair, self.reply)):
            words_of(text)
        if self.text is not None and self.messages is None:
            return self.text
        if self.text is None and self.messages is not None:
            return read_messages(self.messages)
        raise BadRequestError("Give either a text, or a conversation with --messages FILE.")

    def length(self, subject: "Subject") -> int | None:
        """About how many tokens the model reads; None of what is no text."""
        if subject.tokenizer is None or self.text is None:
            return None
        written = " ".join(filter(None, (self.text, self.pair, self.reply)))
        limit = subject.anatomy.max_length or sys.maxsize
        return min(len(subject.tokenizer.tokenize(written)) + (self.generate or 0) + 2, limit)

    def trace(self, *, answer_rows: bool = False, **options: Any) -> "Trace":
        """The model's pass over the text; of a language model perhaps the answer's rows alone."""
        from exhibit_a.subject.prompts import is_causal_lm
        from exhibit_a.trace.capture import capture

        text, subject = self.given_text(), self.subject()
        answer = {"target_text": self.reply, "generate": self.generate}
        options |= answer | {"pair": self.pair, "truncate": self.truncate}
        rows = getattr(self, "rows", None)  # verbs have it whose method needs no others
        if rows not in (None, "all"):
            options["rows"] = read_rows(rows)
        elif answer_rows and is_causal_lm(subject):
            options["rows"] = "answer"
        return capture(subject, text, **options)


def read_rows(text: str) -> "str | slice | list[int]":
    """Rows as they are written: answer, positions with commas between, or start:stop.

    >>> read_rows("0,-1"), read_rows("-16:"), read_rows("answer")
    ([0, -1], slice(-16, None, None), 'answer')
    """
    from exhibit_a.errors import BadRequestError

    if text == "answer":
        return text
    parts = text.split(":") if ":" in text else text.split(",")
    try:
        numbers = [int(number) if number.strip() else None for number in parts]
    except ValueError:
        numbers = []
    if ":" in text and 2 <= len(numbers) <= 3:
        return slice(*numbers)
    places = [number for number in numbers if number is not None]
    if ":" in text or not places or len(places) < len(numbers):
        raise BadRequestError(
            f"Rows are answer, positions such as 0,-1 or a range such as -16:, not {text!r}."
        )
    return places


@dataclass(frozen=True, kw_only=True)
class DataSet(WithModel):
    """A verb about a data set."""

    data: Path = argument(help="TSV, CSV, JSONL or Parquet file of texts.")
    text_column: str | None = option(None, flag="--text", help="Column of the text.")
    pair_column: str | None = option(None, flag="--pair", help="Column of the second text.")
    label_column: str | None = option(None, flag="--label", help="Column of the label.")
    answer_column: str | None = option(
        None, flag="--answer", help="Column of the answer of a language model."
    )
    limit: int | None = option(None, min=1, help="Only the first texts, up to this number.")

    def examples(self, file: Path | None = None, *, limited: bool = True) -> "list[Example]":
        """The first examples of the data, or of another file with the same columns."""
        from exhibit_a.examples import read_examples

        examples = read_examples(
            file or self.data,
            text=self.text_column,
            pair=self.pair_column,
            label=self.label_column,
            answer=self.answer_column,
        )
        return examples[: self.limit if limited else None]

    def right(self, subject: "Subject", file: Path | None = None) -> "list[Example]":
        """The examples with what is right: an answer for a language model, else a label."""
        from exhibit_a.subject.prompts import is_causal_lm

        return self.examples(file) if is_causal_lm(subject) else self.labelled(subject, file)

    def labelled(
        self, subject: "Subject", file: Path | None = None, *, limited: bool = True
    ) -> "list[Example]":
        """The examples, each with a label that the model knows."""
        from exhibit_a.examples.labels import classes_of

        examples = self.examples(file, limited=limited)
        classes_of(subject, examples)  # refuses what is found wrong before any of it is worked on
        return examples


@dataclass(frozen=True, kw_only=True)
class AnswerVerb(Verb):
    """A verb that answers with a result."""

    json: bool = option(False, help="Answer in JSON, for machines.")
    out: Path | None = option(
        None, short="-o", help="Save the result to this file.", callback=check_place, writes=True
    )
    plot: Path | None = option(
        None,
        help="Draw the result into this file (svg, png, pdf).",
        callback=check_picture,
        writes=True,
    )

    def write(self, result: "Result") -> None:
        """Write the files that were requested, whole or not at all."""
        if self.out is not None:
            result.save(self.out)
        if self.plot is not None:
            save_figure(result, self.plot, self.units)

    @property
    def units(self) -> str | None:
        """What the result is shown over; None for what is usual."""
        return None

    def shown(self, result: Kind) -> Kind:
        """The result over what a person reads; a machine gets tokens unless words are requested."""
        from exhibit_a.report.display_units import reading

        return result if self.json and self.units is None else reading(result, self.units)

    def answer(self, result: "Result", *, top: int | None = None, title: str | None = None) -> None:
        """Write what was requested, and show the rest."""
        from dataclasses import replace

        from exhibit_a.report.describe import summary_table

        self.write(result)
        result = self.shown(result)
        summary = summary_table(result, top)
        if title is not None:
            summary = replace(summary, title=title)
        present(result, summary, json=self.json, written=(self.out, self.plot))


@dataclass(frozen=True, kw_only=True)
class WithPage(AnswerVerb):
    """A verb that writes a page next to its answer, unless --no-html is given."""

    html: Path = option(Path("report.html"), help="Write the page to this file.", writes=True)
    no_html: bool = option(False, help="Write no page.")
    seed: int = option(0, help="Same seed, same numbers.")

    def page(self) -> Path | None:
        """Where the page goes; it is seen before the work that it can be written there."""
        if self.no_html:
            usual = type(self).html  # the default of a field is an attribute of its class
            refuse_together("--no-html", {"--html": self.html != usual})
        return check_place(None if self.no_html else self.html)

    def files(self) -> dict[str, Path]:
        """No page, no file of a page."""
        named = super().files()
        return {name: named[name] for name in named if name != "html" or not self.no_html}


def parameters_of(listed: list[str]) -> "Options":
    """name=value, where the value is JSON or else plain text."""
    parameters: Options = {}
    for setting in listed:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise BadRequestError(f"A parameter is set as name=value, not {setting!r}.")
        try:
            parameters[name] = loads(value)
        except JSONDecodeError:
            parameters[name] = value
    return parameters
