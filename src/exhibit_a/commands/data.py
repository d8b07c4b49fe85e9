"""Verbs about a data set."""

from typing import Annotated

import typer

from exhibit_a.commands.common import (
    Data,
    Json,
    LabelColumn,
    Limit,
    Model,
    Out,
    PairColumn,
    Plot,
    Rows,
    Seed,
    TextColumn,
    load_quietly,
    present,
    read_some,
    working,
)

ATTRIBUTIONS = (
    "raw, rollout, flow, attention_gradient, relevance, norm, norm_residual, alti, value_zeroing, "
    "gradient_input, integrated_gradients, occlusion, lime, kernel_shap, effective, "
    "hidden_attribution, self_attribution"
)


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    for verb in (tokens, permute, faithful):
        app.command()(verb)


def tokens(
    data: Data,
    model: Model = "sentiment",
    maps: Annotated[str, typer.Option(help="identity, rotation, linear, mlp.")] = "identity,linear",
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
    from exhibit_a.methods.mixing.token_identifiability import token_identifiability

    texts = [example.text for example in read_some(data, text, None, None, limit)]
    subject = load_quietly(model)
    with working("looking for tokens"):
        result = token_identifiability(
            subject, texts, maps=_words(maps), metric=metric, candidates=candidates, seed=seed
        )
    rows: Rows = [
        {
            "map": name,
            "layer": layer,
            "found": float(rate[layer]),
            "interval": tuple(result.interval[name][layer].tolist()),
            "control": float(result.control[name][layer]) if name in result.control else None,
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
        str, typer.Option(help="attention (rows), keys (positions) or features (of keys).")
    ] = "attention",
    scope: Annotated[str, typer.Option(help="row, head, example or global.")] = "row",
    repeats: Annotated[int, typer.Option(min=1, help="Shuffles of every layer.")] = 20,
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
    from exhibit_a.methods.explanation.permutation import permutation_test

    examples = read_some(data, text, pair, label, limit)
    subject = load_quietly(model)
    with working("shuffling") as progress:
        result = permutation_test(
            subject,
            examples,
            what=what,
            scope=scope,
            repeats=repeats,
            seed=seed,
            progress=progress,
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
    by: Annotated[str, typer.Option(help=f"With commas: {ATTRIBUTIONS}.")] = "raw,rollout",
    erase: Annotated[str, typer.Option(help="Take tokens away by delete, mask or pad.")] = "delete",
    text: TextColumn = None,
    pair: PairColumn = None,
    limit: Limit = None,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Judge attributions by what erasing the tokens they name does to the answer."""
    from exhibit_a.methods.explanation.faithfulness import faithfulness

    examples = read_some(data, text, pair, None, limit)
    subject = load_quietly(model)
    with working("erasing tokens") as progress:
        result = faithfulness(
            subject, examples, attribution=_words(by), erase=erase, seed=seed, progress=progress
        )
    present(result, "faithfulness", result.table(), json=json, out=out, plot=plot)


def _words(listed: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in listed.split(",") if word.strip())
