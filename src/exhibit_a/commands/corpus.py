"""Verbs about many texts: run a method over a data set, go on, sum up, compare."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exhibit_a.commands.options import WithModel, load_quietly, parameters_of
from exhibit_a.commands.screen import Facts, console, print_json, print_table
from exhibit_a.commands.verb import Verb, argument, option
from exhibit_a.errors import BadRequestError
from exhibit_a.progress import Bar, progress_bar

if TYPE_CHECKING:
    from exhibit_a.corpus import Summary as Answered

SHOWN = 12  # statistics of heads in a table
SEED = 0  # unless another is given
NOT_SET = ("subject", "examples", "method", "out", "progress", "unusable")  # taken by a run


@dataclass(frozen=True, kw_only=True)
class _Engine(Verb):
    """A verb that works on an engine."""

    engine: str = option("local", help="Who does the work.", metavar="local|ray")
    workers: int = option(0, short="-w", min=0, help="Processes or actors; 0: this process.")
    address: str | None = option(None, help="A running Ray cluster: auto, or host:port.")
    device: str | None = option(None, help="Where workers put the model: cpu, cuda.")
    json: bool = option(False, help="Answer in JSON, for machines.")

    def where(self) -> Facts:
        """The engine, as the corpus takes it."""
        names = ("engine", "workers", "address", "device")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class RunVerb(WithModel, _Engine):
    """Ask a method about every text of a data set; the answers fill a folder."""

    data: str = argument(help="TSV, CSV, JSONL, Parquet, a pattern, a folder.")
    out: Path = option(short="-o", help="A new folder for the results.")
    method_name: str = option(
        "effective_attention",
        flag="--method",
        help="Any registered method; a name that is none lists them.",
    )
    set_: list[str] | None = option(None, help="name=value: a parameter of the method.")
    text: str | None = option(None, help="Column of the text.")
    pair: str | None = option(None, help="Column of the second text.")
    label: str | None = option(None, help="Column of the label.")
    answer: str | None = option(None, help="Column of the answer of a language model.")
    identity: str | None = option(None, flag="--id", help="Column of the ids.")
    window: int = option(1024, min=1, help="Examples in a shard.")
    tokens: int = option(2048, min=1, help="Tokens in a batch.")
    dense: bool = option(False, help="Also keep whole maps.")
    skip: bool = option(False, help="Leave out rows that cannot be used, and name them.")
    too_long: str = option("truncate", help="What to do.", metavar="truncate|skip|stop")
    seed: int = option(SEED, help="Same seed, same numbers.")

    def run(self) -> None:
        """Run, and show the summary."""
        from exhibit_a.corpus import run
        from exhibit_a.corpus.plan import COLUMNS, PLANNED

        planned = {name: getattr(self, name) for name in (*COLUMNS, *PLANNED) if name != "unusable"}
        with progress_bar("examples") as bar:
            summary = run(
                self.subject(),
                self.data,
                self.method_name,
                self.out,
                progress=_counting(bar, self.data),
                unusable="skip" if self.skip else "stop",
                **self.where(),
                **planned | self._parameters({*planned, *self.where(), *NOT_SET}),
            )
        _show(summary, self.json)

    def _parameters(self, taken: set[str]) -> Facts:
        """What --set says. It may name the seed, and nothing else that the run decides."""
        parameters = parameters_of(self.set_ or [])
        for name in parameters.keys() & taken - {"seed"}:
            raise BadRequestError(
                f"--set {name}: this is no parameter of a method but of the run, which has options "
                "of its own (exhibit-a corpus run --help)."
            )
        if self.seed not in (SEED, parameters.get("seed", self.seed)):
            raise BadRequestError("--seed and --set seed differ; give one of them.")
        return parameters


@dataclass(frozen=True, kw_only=True)
class Resume(_Engine):
    """Go on with a run that was interrupted; nothing is lost and nothing done twice."""

    folder: Path = argument(help="Folder of a run.")

    def run(self) -> None:
        """Go on, and show the summary."""
        from exhibit_a.corpus import resume
        from exhibit_a.corpus.run_folder import Folder

        card = Folder(self.folder).card
        subject = load_quietly(card.model.name)
        with progress_bar("examples") as bar:
            progress = _counting(bar, card.data.source)
            summary = resume(self.folder, subject=subject, progress=progress, **self.where())
        _show(summary, self.json)


@dataclass(frozen=True, kw_only=True)
class SummaryVerb(Verb):
    """Show what a finished run says."""

    folder: Path = argument(help="Folder of a run.")
    json: bool = option(False, help="Answer in JSON, for machines.")
    verify: bool = option(False, help="Check every file's hash.")

    def run(self) -> None:
        """Show it."""
        from exhibit_a.corpus import open

        finished = open(self.folder)
        if self.verify:
            finished.verify()
        _show(finished.summary(), self.json)


@dataclass(frozen=True, kw_only=True)
class Diff(Verb):
    """Show by how much two runs over the same examples differ, with intervals."""

    first: Path = argument(help="Folder of a run.")
    second: Path = argument(help="Folder of another, on the same examples.")
    json: bool = option(False, help="Answer in JSON, for machines.")

    def run(self) -> None:
        """Show it."""
        from exhibit_a.corpus import diff
        from exhibit_a.results.plain import plain

        rows = diff(self.first, self.second)
        if self.json:
            print_json(plain(rows))
            return
        clear = [row for row in rows if row["interval_low"] > 0 or row["interval_high"] < 0]
        title = (
            f"{self.second} minus {self.first}: {len(clear)} of {len(rows)} differences exclude "
            "zero"
        )
        ordered = sorted(clear, key=lambda row: -abs(row["difference"])) or rows
        print_table(title, ordered[:SHOWN], text_of=_cell)


VERBS = (RunVerb, Resume, SummaryVerb, Diff)


def _counting(bar: Bar, source: str | None) -> Callable[[int], None]:
    """What counts the examples that are done; all are counted only on a terminal."""
    import sys

    total = _counted(source) if source is not None and sys.stderr.isatty() else None
    return lambda done: bar(done, total)


def _show(summary: "Answered", json: bool) -> None:
    if json:
        from exhibit_a.results.plain import plain

        about = {"path": str(summary.path), "run": summary.card.model_dump(mode="json")}
        numbers = {"counts": summary.counts, "checks": summary.checks, "rows": summary.rows}
        print_json(plain(about | numbers))
        return
    plan = summary.card.plan
    rows = [row for row in summary.rows if row["site"] is None]
    names = ("statistic", "mean", "interval_low", "interval_high", "q05", "q50", "q95")
    shown = [{name: row[name] for name in names} for row in rows]
    title = f"{plan.method} of {summary.card.model.name}, {summary.counts['examples']} examples"
    print_table(title, shown, text_of=_cell)
    screen = console()
    heads = len(summary.rows) - len(rows)
    checks: Facts = {
        **summary.counts,
        "statistics of single heads (--json)": heads,
        **summary.checks,
    }
    screen.print(" · ".join(f"{n}: {v}" for n, v in checks.items()), style="dim")
    screen.print(f"written to {summary.path}", soft_wrap=True)


def _cell(value: object) -> str:
    from exhibit_a.report.table import cell

    return f"{value:.4g}" if isinstance(value, float) else cell(value)


def _counted(source: str) -> int:
    """How many examples a file has, counted without keeping any."""
    from exhibit_a.examples import Unusable, stream_examples

    return sum(
        not isinstance(example, Unusable) for example in stream_examples(source, unusable="skip")
    )
