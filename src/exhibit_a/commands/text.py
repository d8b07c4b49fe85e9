"""Verbs about one text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exhibit_a.commands.common import (
    Json,
    Model,
    Out,
    Pair,
    Plot,
    Rows,
    Seed,
    Truncate,
    capture_text,
    console,
    load_quietly,
    present,
    read_some,
    refuse_beside,
    working,
)

if TYPE_CHECKING:
    from exhibit_a.examples import Example

Text = Annotated[str, typer.Argument(help="The text to examine.")]
Target = Annotated[
    str | None, typer.Option(help="Label or token to explain; without, what the model answers.")
]

# Where an option leaves another nothing to do, the other must not have been changed from these.
VALUE_BIAS, PROBES, EPSILON, RESTARTS, ALPHA = "include", 16, 0.01, 4, 0.5


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    for verb in (effective, mixing, attribute, tree, adversary):
        app.command()(verb)


def effective(
    text: Text,
    pair: Pair = None,
    model: Model = "sentiment",
    by_length: Annotated[
        bool, typer.Option("--by-length", help="Growing beginnings of the text instead.")
    ] = False,
    value_bias: Annotated[str, typer.Option(help="include or exclude.")] = VALUE_BIAS,
    simplex: Annotated[bool, typer.Option("--simplex", help="Rows keep their sum.")] = False,
    truncate: Truncate = False,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Show how much of attention can reach the output, and where other attention would do."""
    if by_length:
        biased = value_bias != VALUE_BIAS
        idle = {"--pair": pair, "--simplex": simplex, "--value-bias": biased}
        refuse_beside("--by-length", idle)
        _effective_by_length(text, model, json, out, plot)
        return
    from exhibit_a.methods.identifiability.effective import effective_attention

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
    from exhibit_a.methods.identifiability.counts import identifiability_by_length

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


def mixing(
    text: Text,
    pair: Pair = None,
    model: Model = "sentiment",
    probes: Annotated[int, typer.Option(min=2, help="Random directions per token.")] = PROBES,
    exact: Annotated[
        bool, typer.Option("--exact", help="All directions instead; slow but exact.")
    ] = False,
    truncate: Truncate = False,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Show how much of every token is left in its hidden vector, layer by layer."""
    from exhibit_a.methods.mixing.hidden_attribution import hidden_attribution

    if exact:
        refuse_beside("--exact", {"--probes": probes != PROBES})
    trace = capture_text(model, text, pair, truncate=truncate)
    result = hidden_attribution(trace, probes=None if exact else probes, seed=seed)
    own, displaced, rows = result.self_contribution, result.not_own_top, Rows()
    for layer in range(len(own)):
        least = int(own[layer].argmin())
        rows.append(
            {
                "layer": layer,
                "own_share": float(own[layer].median()),
                "not_own_top": float(displaced[layer]),
                "least_of_itself": f"{trace.tokens[least]} ({float(own[layer, least]):.2f})",
            }
        )
    present(result, "what is left of a token", rows, json=json, out=out, plot=plot)


def attribute(
    text: Text,
    pair: Pair = None,
    model: Model = "sentiment",
    target: Target = None,
    rule: Annotated[str, typer.Option(help="gauss, riemann (paper) or left (released).")] = "gauss",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Points; gauss alone can do without: as needed.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Edges to show.")] = 12,
    truncate: Truncate = False,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Show the attention edges that the answer rests on."""
    result = _attribution(text, pair, model, target, rule, steps or "auto", truncate)
    rows: Rows = [
        {
            "site": edge.site,
            "head": edge.head,
            "query": edge.query_token,
            "key": edge.key_token,
            "contribution": edge.score,
        }
        for edge in result.strongest(top)
    ]
    title = f"strongest attention edges for the {result.target}"
    present(result, title, rows, json=json, out=out, plot=plot)


def tree(
    text: Text,
    pair: Pair = None,
    model: Model = "sentiment",
    target: Target = None,
    threshold: Annotated[float, typer.Option(help="Keep edges above this share.")] = 0.4,
    penalty: Annotated[float, typer.Option(help="What an edge must be worth.")] = 0.0,
    algorithm: Annotated[str, typer.Option(help="greedy (released) or exact.")] = "greedy",
    truncate: Truncate = False,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Draw the tree of attention edges that lead to the answer."""
    from exhibit_a.methods.attribution.tree import attribution_tree, check_request

    check_request(threshold, penalty, algorithm)
    attribution = _attribution(text, pair, model, target, "gauss", "auto", truncate)
    result = attribution_tree(
        attribution, threshold=threshold, penalty=penalty, algorithm=algorithm
    )
    tokens = result.tokens or ()
    rows: Rows = [
        {
            "layer": edge.layer,
            "parent": tokens[edge.parent],
            "child": tokens[edge.child],
            "score": edge.score,
        }
        for edge in result.edges
    ]
    if not json:
        console().print(result.text())
    present(result, f"tree for the {result.target}", rows, json=json, out=out, plot=plot)


def adversary(
    text: Annotated[str | None, typer.Argument(help="The text to examine.")] = None,
    pair: Annotated[
        str | None, typer.Option("--pair", help="The second text; with --keys, its column.")
    ] = None,
    model: Model = "sentiment",
    epsilon: Annotated[float, typer.Option(help="How far the answer may move.")] = EPSILON,
    restarts: Annotated[int, typer.Option(min=1, help="Climbs from different starts.")] = RESTARTS,
    compare: Annotated[
        bool, typer.Option("--free", help="Also: how far with every head output as it is?")
    ] = False,
    keys: Annotated[
        Path | None, typer.Option(help="Instead: train adversarial keys on these labelled texts.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="With --keys: weight of the answer.")] = ALPHA,
    limit: Annotated[int | None, typer.Option(min=1, help="With --keys: so many texts.")] = None,
    text_column: Annotated[
        str | None, typer.Option("--text", help="With --keys: column of the text.")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", help="With --keys: column of the label.")
    ] = None,
    truncate: Truncate = False,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Find attention far from the model's own that gives nearly the same answer."""
    from exhibit_a.errors import BadRequestError

    if (text is None) == (keys is None):
        raise BadRequestError("Give either a text, or labelled texts with --keys FILE.")
    if keys is not None:
        moved = {"--epsilon": epsilon != EPSILON, "--restarts": restarts != RESTARTS}
        refuse_beside("--keys", moved | {"--free": compare, "--truncate": truncate})
        examples = read_some(keys, text_column, pair, label, limit)
        _adversarial_keys(examples, model, alpha, seed, json=json, out=out, plot=plot)
        return
    columns = {"--text": text_column, "--label": label}
    refuse_beside("a text", columns | {"--limit": limit, "--alpha": alpha != ALPHA})
    from exhibit_a.methods.explanation.adversarial import adversarial_attention

    trace = capture_text(model, text or "", pair, truncate=truncate)
    with working("climbing"):
        result = adversarial_attention(
            trace, epsilon=epsilon, restarts=restarts, compare=compare, seed=seed
        )
    rows: Rows = [
        {
            "where": name,
            "divergence": float(result.divergence[i]),
            "most_possible": float(result.bound[i]),
            "at_the_answer": float(result.at_answer[i]),
            "same_outputs": float(result.free[i]),
            "answer_moved": float(result.change[i]),
            "exact": bool(result.exact[i]),
        }
        for i, name in enumerate(result.conditions)
    ]
    if not compare:
        rows = [{n: value for n, value in row.items() if n != "same_outputs"} for row in rows]
    title = f"farthest attention found (Jensen–Shannon) for the {result.target}"
    present(result, title, rows, json=json, out=out, plot=plot)


def _adversarial_keys(
    examples: "list[Example]",
    model: str,
    alpha: float,
    seed: int,
    *,
    json: bool,
    out: Path | None,
    plot: Path | None,
) -> None:
    from exhibit_a.methods.explanation.adversarial_keys import adversarial_keys

    subject = load_quietly(model)
    with working("training adversaries") as progress:
        result = adversarial_keys(subject, examples, alpha=alpha, seed=seed, progress=progress)
    rows: Rows = [
        {
            "keys": name,
            "accuracy": float(result.accuracy[i]),
            "interval": tuple(result.accuracy_interval[i].tolist()),
            "same_answer": float(result.agreement[i]),
            "distance": float(result.key_distance[i].mean()),
            "without_shift": float(result.shift_free_distance[i].mean()),
            "divergence": float(result.divergence[i].mean()),
        }
        for i, name in enumerate(result.conditions)
    ]
    present(result, "adversarial keys", rows, json=json, out=out, plot=plot)


def _attribution(
    text: str,
    pair: str | None,
    model: str,
    target: str | None,
    rule: str,
    steps: int | str,
    truncate: bool,
) -> Any:
    from exhibit_a.methods.attribution.self_attribution import self_attribution

    trace = capture_text(model, text, pair, truncate=truncate)
    return self_attribution(trace, target=target, rule=rule, steps=steps)
