"""Verbs about a model: what it allows, and how to get one that knows a task."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exhibit_a.commands.common import (
    Json,
    Pair,
    Seed,
    Truncate,
    console,
    load_quietly,
    print_json,
)
from exhibit_a.errors import BadRequestError

if TYPE_CHECKING:
    from rich.table import Table

    from exhibit_a.methods.doctor import Diagnosis
    from exhibit_a.subject.subject import Subject


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command()(doctor)
    app.command()(train)


def doctor(
    model: Annotated[str, typer.Argument(help="Embedded name, hub id or folder.")] = "sentiment",
    length: Annotated[int, typer.Option(help="Tokens to estimate time and memory for.")] = 32,
    text: Annotated[
        str | None, typer.Option(help="Also say what the model answers to this.")
    ] = None,
    pair: Pair = None,
    truncate: Truncate = False,
    json: Json = False,
) -> None:
    """Say what a model allows, how faithfully it is followed, and what the methods would cost."""
    from exhibit_a.methods.doctor import diagnose

    if text is None and (pair is not None or truncate):
        raise BadRequestError("--pair and --truncate belong to --text, and no text was given.")
    subject = load_quietly(model)
    found = diagnose(subject, length=length)
    answer = None if text is None else _answer(subject, text, pair, truncate)
    if json:
        print_json(found.to_dict() | ({} if answer is None else {"text": text, "answer": answer}))
        return
    screen = console()
    screen.print(_body(found))
    screen.print(_methods(found))
    if answer is not None:
        told = ", ".join(f"{name} {share:.3f}" for name, share in answer.items())
        screen.print(*filter(None, (text, pair)), sep=" | ", style="bold")
        screen.print(f"  {told}")


def train(
    base: Annotated[str, typer.Argument(help="Folder or hub id of the encoder to start from.")],
    data: Annotated[Path, typer.Argument(help="TSV, CSV, JSONL or Parquet file of labelled text.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the model.")],
    dev: Annotated[Path | None, typer.Option(help="Labelled text to choose the epoch by.")] = None,
    teacher: Annotated[
        str | None, typer.Option(help="Folder or hub id of a model to learn from as well.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second text.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    batch_size: Annotated[int, typer.Option(min=1)] = 48,
    learning_rate: Annotated[float, typer.Option()] = 1.5e-4,
    max_length: Annotated[int, typer.Option(min=4, help="Longer texts are cut.")] = 128,
    train_embeddings: Annotated[bool, typer.Option(help="Also train the word vectors.")] = False,
    seed: Seed = 0,
) -> None:
    """Fine-tune an encoder on labelled text or pairs of texts."""
    from exhibit_a.training.train import train as fine_tune

    folder = fine_tune(
        base,
        data,
        dev=dev,
        out=out,
        teacher=teacher,
        text=text,
        pair=pair,
        label=label,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_length=max_length,
        freeze_embeddings=not train_embeddings,
        seed=seed,
    )
    console().print(f"saved in {folder}", soft_wrap=True)


def _answer(subject: "Subject", text: str, pair: str | None, truncate: bool) -> dict[str, float]:
    """The model's answer in words: classes, numbers, a class for each token, or the next token."""
    import torch

    from exhibit_a.trace.capture import capture
    from exhibit_a.trace.targets import choose_target

    trace = capture(subject, text, pair=pair, keep=(), truncate=truncate)
    if subject.labels:
        logits = trace.output.logits[0].float()
        shares = logits if subject.anatomy.answers == "outputs" else torch.softmax(logits, -1)
        if shares.ndim == 1:
            return dict(zip(subject.labels, shares.tolist(), strict=True))
        best = enumerate(zip(trace.tokens, *shares.max(-1), strict=True))
        return {
            f"{place} {token}: {subject.labels[label]}": float(share)
            for place, (token, share, label) in best
        }
    target = choose_target(trace)
    return {str(target): float(target(trace.output)[0])}


def _body(found: "Diagnosis") -> "Table":
    """What the model is made of."""
    from rich.table import Table

    from exhibit_a.subject.anatomy import ANSWERS

    table = Table(show_header=False, box=None, title=f"{found.model} · {found.architecture}")
    table.title_justify = "left"
    table.add_column(style="bold")
    table.add_column()
    stacks = ", ".join(f"{count} {name} layers" for name, count in found.stacks.items())
    shared = "" if found.heads == found.kv_heads else f", {_listed(found.kv_heads)} with own keys"
    rows = {
        "reached by": f"the {found.tap} tap, parity {found.parity:.1e} "
        f"(rounding would explain {found.tolerance:.0e})",
        "made of": f"{stacks}, {_listed(found.heads)} heads{shared} of width "
        f"{_listed(found.d_head)}, d_model {found.d_model}, {found.parameters / 1e6:.1f} M "
        f"parameters, {found.dtype}",
        "attention": ", ".join(found.variants) or "plain softmax, every token sees every token",
        "answers": ", ".join(found.labels) or ANSWERS[found.answers],
        "longest input": str(found.max_length or "no limit stated"),
        "identifiable": f"up to {found.identifiable_up_to} visible keys; from "
        f"{found.identifiable_up_to + 1} on, other weights give the same head output "
        f"(from {found.identifiable_up_to + 2} on, others that sum to one)",
        "output projection": "; ".join(found.sites_without_projection) or "found at every site",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _methods(found: "Diagnosis") -> "Table":
    """What may be asked, and the estimated cost."""
    from rich.table import Table

    table = Table(
        title=f"methods at {found.length} tokens (one pass took {found.pass_seconds:.3f} s)"
    )
    table.title_justify = "left"
    for name in ("method", "applies", "about", "keeps", "note"):
        table.add_column(name, justify="right" if name in ("about", "keeps") else "left")
    for row in found.methods:
        table.add_row(
            row.method,
            "yes" if row.applies else "no",
            "" if row.seconds is None else _duration(row.seconds),
            "" if row.megabytes is None else f"{row.megabytes:.1f} MB",
            row.reason,
        )
    return table


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _listed(numbers: tuple[int, ...]) -> str:
    return "/".join(map(str, numbers))
