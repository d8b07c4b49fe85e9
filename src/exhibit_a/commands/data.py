"""Verbs about a data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exhibit_a.commands.common import Json, Model, Out, Plot, Rows, Seed, load_quietly, present

if TYPE_CHECKING:
    from exhibit_a.examples import Example

Data = Annotated[Path, typer.Argument(help="TSV, CSV, JSONL or Parquet file of texts.")]
TextColumn = Annotated[str | None, typer.Option("--text", help="Column of the text.")]
PairColumn = Annotated[str | None, typer.Option("--pair", help="Column of the second text.")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Column of the label.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many texts.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    for verb in (tokens, permute, faithful):
        app.command()(verb)


def tokens(
    data: Data,
    model: Model = "sentiment",
    maps: Annotated[str, typer.Option(help="identity, linear, mlp.")] = "identity,linear",
    metric: Annotated[str, typer.Option(help="cosine or l2.")] = "cosine",
    candidates: Annotated[str, typer.Option(help="sequence, dataset or vocab.")] = "sequence",
    text: TextColumn = None,
    limit: Limit = None,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Show how often a token can be found again from its hidden vector, layer by layer."""
    from exhibit_a.methods.token_identifiability import token_identifiability

    texts = [example.text for example in _examples(data, text, None, None, limit)]
    result = token_identifiability(
        load_quietly(model),
        texts,
        maps=_words(maps),
        metric=metric,
        candidates=candidates,
        seed=seed,
    )
    rows: Rows = [
        {
            "map": name,
            "layer": layer,
            "found": float(rate[layer]),
            "interval": tuple(result.interval[name][layer].tolist()),
            "control": float(result.control[name][layer]),
            "chance": result.chance,
        }
        for name, rate in result.rate.items()
        for layer in range(len(rate))
    ]
    present(result, f"tokens found again ({metric})", rows, json=json, out=out, plot=plot)


def permute(
    data: Data,
    model: Model = "sentiment",
    what: Annotated[
        str, typer.Option(help="attention, key positions or key features.")
    ] = "attention",
    scope: Annotated[str, typer.Option(help="row, head, example or global.")] = "row",
    repeats: Annotated[int, typer.Option(min=1)] = 20,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    limit: Limit = None,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Show what shuffling attention does to the answers, layer by layer."""
    from exhibit_a.methods.permutation import permutation_test

    examples = _examples(data, text, pair, label, limit)
    result = permutation_test(
        load_quietly(model), examples, what=what, scope=scope, repeats=repeats, seed=seed
    )
    rows: Rows = [
        {
            "shuffled": name,
            "accuracy": float(result.accuracy[i]),
            "interval": tuple(result.accuracy_interval[i].tolist()),
            "drop": float(result.drop[i]),
            "p": float(result.p_value[i]),
            "change": float(result.mean_change[i]),
            "flips": float(result.flip_rate[i]),
            "uniform": float(result.uniform_accuracy[i]),
        }
        for i, name in enumerate(result.conditions)
    ]
    title = f"{what} permuted by {scope}; own accuracy {result.own_accuracy:.3f}"
    present(result, title, rows, json=json, out=out, plot=plot)


def faithful(
    data: Data,
    model: Model = "sentiment",
    by: Annotated[str, typer.Option(help="Attributions to judge, with commas.")] = "raw,rollout",
    text: TextColumn = None,
    pair: PairColumn = None,
    limit: Limit = None,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Judge attributions by what erasing the tokens they name does to the answer."""
    from exhibit_a.methods.faithfulness import faithfulness

    examples = _examples(data, text, pair, None, limit)
    result = faithfulness(load_quietly(model), examples, attribution=_words(by), seed=seed)
    present(result, "faithfulness", result.table(), json=json, out=out, plot=plot)


def _examples(
    data: Path, text: str | None, pair: str | None, label: str | None, limit: int | None
) -> "list[Example]":
    from exhibit_a.examples import read_examples

    return read_examples(data, text=text, pair=pair, label=label)[:limit]


def _words(listed: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in listed.split(",") if word.strip())
