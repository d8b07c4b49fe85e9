"""The verb about a question with passages: which of them the answer rests on."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exhibit_a.commands.options import AnswerVerb, WithModel, check_place, words_of
from exhibit_a.commands.screen import print_json, print_table, print_written
from exhibit_a.commands.verb import argument, option
from exhibit_a.progress import progress_bar

if TYPE_CHECKING:
    from exhibit_a.methods.attribution.context import ContextAttribution

NUMBERS = ("question", "answer", "verdict", "rests_on", "need", "log_probability", "passes")


@dataclass(frozen=True, kw_only=True)
class Context(WithModel, AnswerVerb):
    """Say which passage in front of a question the answer to it rests on."""

    model: str = option(
        "stories", short="-m", help="A language model: one inside (stories), a folder or a hub id."
    )
    question: str = argument(help="The question.")
    passages: list[str] = argument(
        help="Two or more passages, or one file of them (txt with blank lines, tsv, csv, jsonl, "
        "parquet)."
    )
    column: str | None = option(None, flag="--text", help="Column of the passages in a table.")
    reply: str | None = option(
        None, flag="--answer", help="The answer to explain; without, what the model answers."
    )
    generate: int = option(32, min=1, help="The largest number of tokens, where the model answers.")
    methods: str | None = option(
        None, help="Attributions to compare, with commas; without, the usual four."
    )
    samples: int = option(64, min=0, help="Random halves of the passages for the regression.")
    template: str | None = option(
        None, help="How the prompt is written, with {passages} and {question}; \\n is a new line."
    )
    seed: int = option(0, help="Same seed, same numbers.")
    html: Path | None = option(
        None, help="Write the page to this file.", callback=check_place, writes=True
    )

    def run(self) -> None:
        """Answer."""
        from exhibit_a.methods.attribution.context import context_attribution

        words_of(self.question)
        passages = self._read()
        names = None if self.methods is None else _words(self.methods)
        with progress_bar("leaving passages out") as bar:
            result = context_attribution(
                self.subject(),
                self.question,
                passages,
                answer=self.reply,
                generate=self.generate,
                methods=names,
                samples=self.samples,
                template=None if self.template is None else self.template.replace("\\n", "\n"),
                seed=self.seed,
                progress=bar,
            )
        if self.html is not None:
            result.html(self.html)
        self._show(result)

    def files(self) -> dict[str, Path]:
        """Also the file of the passages, which is not to be written over."""
        alone = {"passages": Path(self.passages[0])} if len(self.passages) == 1 else {}
        return super().files() | alone

    def _read(self) -> list[str]:
        """The passages that were given, or those of the one file that was."""
        from exhibit_a.commands.options import refuse_together
        from exhibit_a.examples.passages import read_passages

        if len(self.passages) == 1:
            return read_passages(self.passages[0], column=self.column)
        refuse_together("passages on the command line", {"--text": self.column})
        return [words_of(passage) for passage in self.passages]

    def _show(self, result: "ContextAttribution") -> None:
        from exhibit_a.report.describe import summary_table

        if self.json:
            self.write(result)
            print_json(_facts(result, summary_table(result).first()))
            return
        self.answer(result)
        rows: list[dict[str, object]] = [
            {
                "method": name.replace("_", " "),  # as in the table above
                "with leave one out, ρ": referees["leave_one_out"].spearman,
                "same first": referees["leave_one_out"].same_first,
                "predicts, ρ": result.predicts.get(name),
                "forwards": result.passes[name][0],
                "backwards": result.passes[name][1],
            }
            for name, referees in result.agreement.items()
        ]
        print_table("Do the methods agree with leaving passages out?", rows)
        print_written((self.html,))


def _words(listed: str) -> list[str]:
    return [word.strip() for word in listed.split(",") if word.strip()]


def _facts(result: "ContextAttribution", rows: object) -> dict[str, object]:
    """Everything a machine may want to know."""
    from exhibit_a.results.plain import plain

    sentences = [
        {
            "passage": place + 1,
            "text": text,
            **{name: float(scores[number]) for name, scores in result.sentence_scores.items()},
        }
        for number, (text, place) in enumerate(
            zip(result.sentences, result.passage_of, strict=True)
        )
    ]
    about = {name: getattr(result, name) for name in NUMBERS}
    about |= {
        "result": type(result).__name__,
        "rests_on": [place + 1 for place in result.rests_on],
        "agreement": {
            name: {referee: asdict(pair) for referee, pair in pairs.items()}
            for name, pairs in result.agreement.items()
        },
        "predicts": result.predicts,
        "rows": rows,
        "sentences": sentences,
        "provenance": asdict(result.provenance),
        "checks": result.checks,
    }
    facts: dict[str, object] = plain(about)
    return facts
