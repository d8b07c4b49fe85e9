"""Verbs about many texts: run a method over a data set, go on, sum up, compare."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import JSONDecodeError, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exhibit_a.commands.common import Json, Model, Seed, console, load_quietly, plain, print_json
from exhibit_a.errors import BadRequestError

if TYPE_CHECKING:
    from exhibit_a.corpus import Summary

Folder = Annotated[Path, typer.Argument(help="Folder of a run.")]
Engine = Annotated[str, typer.Option(help="local or ray.")]
Workers = Annotated[
    int, typer.Option("--workers", "-w", min=0, help="Processes or actors; 0: this process.")
]
Address = Annotated[str | None, typer.Option(help="A running Ray cluster: auto, or host:port.")]
Device = Annotated[str | None, typer.Option(help="Where workers put the model: cpu, cuda.")]
SHOWN = 12  # statistics of heads in a table
METHODS = (
    "effective_attention, attention_identifiability, hidden_attribution, self_attribution, "
    "permutation, head_importance, pruning_curve, permutation_test, token_identifiability"
)

app = typer.Typer(help="A method over a data set, on one machine or many.", no_args_is_help=True)


def register(main: typer.Typer) -> None:
    """Add the verbs of this file."""
    for verb in (run, resume, summary, diff):
        app.command()(verb)
    main.add_typer(app, name="corpus")


def run(
    data: Annotated[str, typer.Argument(help="TSV, CSV, JSONL, Parquet, a pattern, a folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder for the results.")],
    method: Annotated[str, typer.Option(help=f"What is asked: {METHODS}.")] = "effective_attention",
    model: Model = "sentiment",
    engine: Engine = "local",
    workers: Workers = 0,
    address: Address = None,
    device: Device = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="name=value: a parameter of the method.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second text.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    identity: Annotated[str | None, typer.Option("--id", help="Column of the ids.")] = None,
    window: Annotated[int, typer.Option(min=1, help="Examples in a shard.")] = 1024,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens in a batch.")] = 2048,
    dense: Annotated[bool, typer.Option("--dense", help="Also keep whole maps.")] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave out rows that cannot be used, and name them.")
    ] = False,
    too_long: Annotated[str, typer.Option(help="truncate, skip or stop.")] = "truncate",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Ask a method about every text of a data set; the answers fill a folder."""
    from exhibit_a.corpus import run

    with _bar(lambda: _counted(data)) as progress:
        found = run(
            load_quietly(model),
            data,
            method,
            out,
            engine=engine,
            workers=workers,
            address=address,
            device=device,
            progress=progress,
            text=text,
            pair=pair,
            label=label,
            identity=identity,
            window=window,
            tokens=tokens,
            dense=dense,
            unusable="skip" if skip else "stop",
            too_long=too_long,
            seed=seed,
            **_parameters(set_ or []),
        )
    _show(found, json)


def resume(
    folder: Folder,
    engine: Engine = "local",
    workers: Workers = 0,
    address: Address = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Go on with a run that was interrupted; nothing is lost and nothing done twice."""
    from exhibit_a.corpus import resume
    from exhibit_a.corpus.sink import Folder

    card = Folder(folder).card
    quiet = load_quietly(card.model.name)
    source = card.data.source
    with _bar(lambda: _counted(source) if source else None) as progress:
        found = resume(
            folder,
            subject=quiet,
            engine=engine,
            workers=workers,
            address=address,
            device=device,
            progress=progress,
        )
    _show(found, json)


def summary(
    folder: Folder,
    json: Json = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every file's hash.")] = False,
) -> None:
    """Show what a finished run says."""
    from exhibit_a.corpus import open

    found = open(folder)
    if verify:
        found.verify()
    _show(found.summary(), json)


def diff(
    first: Annotated[Path, typer.Argument(help="Folder of a run.")],
    second: Annotated[Path, typer.Argument(help="Folder of another, on the same examples.")],
    json: Json = False,
) -> None:
    """Show by how much two runs over the same examples differ, with intervals."""
    from exhibit_a.corpus import diff

    rows = diff(first, second)
    if json:
        print_json(plain(rows))
        return
    clear = [row for row in rows if row["interval_low"] > 0 or row["interval_high"] < 0]
    title = f"{second} minus {first}: {len(clear)} of {len(rows)} differences exclude zero"
    ordered = sorted(clear, key=lambda row: -abs(row["difference"])) or rows
    _table(title, ordered[:SHOWN])


def _show(found: "Summary", json: bool) -> None:
    if json:
        told = {"path": str(found.path), "run": found.card.model_dump(mode="json")}
        about = {"counts": found.counts, "checks": found.checks, "rows": found.rows}
        print_json(plain(told | about))
        return
    plan = found.card.plan
    rows = [row for row in found.rows if row["site"] is None]
    names = ("statistic", "mean", "interval_low", "interval_high", "q05", "q50", "q95")
    shown = [{name: row[name] for name in names} for row in rows]
    title = f"{plan.method} of {found.card.model.name}, {found.counts['examples']} examples"
    _table(title, shown)
    screen = console()
    heads = len(found.rows) - len(rows)
    doubts: dict[str, Any] = {
        **found.counts,
        "statistics of single heads (--json)": heads,
        **found.checks,
    }
    screen.print(" · ".join(f"{n}: {v}" for n, v in doubts.items()), style="dim")
    screen.print(f"written to {found.path}", soft_wrap=True)


def _table(title: str, rows: list[dict[str, Any]]) -> None:
    from exhibit_a.report.table import cell, table

    def told(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else cell(value)

    screen = console()
    screen.print(table(title, rows, width=screen.width, told=told))


def _parameters(listed: list[str]) -> dict[str, Any]:
    """name=value, where the value is JSON or else plain text."""
    found: dict[str, Any] = {}
    for one in listed:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise BadRequestError(f"A parameter is set as name=value, not {one!r}.")
        try:
            found[name] = loads(value)
        except JSONDecodeError:
            found[name] = value
    return found


@contextmanager
def _bar(count: Callable[[], int | None]) -> Iterator[Callable[[int], None] | None]:
    """A progress bar with an estimate, on stderr and only where somebody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), "examples", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("examples", total=count())
        yield lambda done: bar.update(task, completed=done)


def _counted(source: str) -> int:
    """How many examples a file has, counted without keeping any."""
    from exhibit_a.examples import Unusable, stream_examples

    return sum(not isinstance(one, Unusable) for one in stream_examples(source, unusable="skip"))
