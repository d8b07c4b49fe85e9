"""Verbs about one text."""

from pathlib import Path
from typing import Annotated

import typer

from exhibit_a.commands.common import (
    Json,
    Model,
    Out,
    Pair,
    Plot,
    Rows,
    Truncate,
    capture_text,
    load_quietly,
    present,
)

Text = Annotated[str, typer.Argument(help="The text to examine.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command()(effective)


def effective(
    text: Text,
    pair: Pair = None,
    model: Model = "sentiment",
    by_length: Annotated[
        bool, typer.Option("--by-length", help="Growing beginnings of the text instead.")
    ] = False,
    value_bias: Annotated[str, typer.Option(help="include or exclude.")] = "include",
    simplex: Annotated[bool, typer.Option("--simplex", help="Rows keep their sum.")] = False,
    truncate: Truncate = False,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Show how much of attention can reach the output, and where other attention would do."""
    if by_length:
        _effective_by_length(text, model, json, out, plot)
        return
    from exhibit_a.methods.effective import effective_attention

    trace = capture_text(model, text, pair, truncate=truncate)
    result = effective_attention(trace, value_bias=value_bias, simplex=simplex)
    rows: Rows = [
        {
            "site": f"{here.stack} {here.layer}" + " cross" * (here.kind == "cross"),
            "not_unique": float((result.verdict[i] == 2).double().mean()),
            "nullity": int(result.nullity[i].amax()),
            "pearson": float(result.pearson[i].mean()),
            "null_fraction": float(result.null_fraction[i].nanmean()),
            "moved": float(result.moved[i].nanmean()),
            "special_raw": float(result.special_raw[i].mean()),
            "special_effective": float(result.special_effective[i].mean()),
            "first_raw": float(result.first_raw[i].mean()),
            "first_effective": float(result.first_effective[i].mean()),
        }
        for i, here in enumerate(result.sites)
    ]
    title = f"raw and effective attention, {len(trace.tokens)} tokens, means over heads and rows"
    present(result, title, rows, json=json, out=out, plot=plot)


def _effective_by_length(
    text: str, model: str, json: bool, out: Path | None, plot: Path | None
) -> None:
    from exhibit_a.methods.identifiability import identifiability_by_length

    result = identifiability_by_length(load_quietly(model), text)
    rows: Rows = [
        {
            "tokens": length,
            "pearson": float(result.pearson[i].mean()),
            "null_fraction": float(result.null_fraction[i].mean()),
            "nullity": float(result.nullity[i].mean()),
            "special_raw": float(result.special_raw[i].mean()),
            "special_effective": float(result.special_effective[i].mean()),
        }
        for i, length in enumerate(result.lengths)
    ]
    widths = ", ".join(map(str, sorted(set(result.d_head))))
    present(result, f"by length; heads are {widths} wide", rows, json=json, out=out, plot=plot)
