"""Verbs about heads over a data set: which matter, how many can go, and what can be built on it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from exhibit_a.examples import Example
    from exhibit_a.methods.heads.importance import HeadImportance
    from exhibit_a.subject.subject import Subject

By = Annotated[str, typer.Option(help="attribution, taylor, ablation or attention.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    for verb in (heads, prune, triggers):
        app.command()(verb)


def heads(
    data: Data,
    model: Model = "sentiment",
    by: By = "attribution",
    against: Annotated[
        Path | None, typer.Option(help="A second data set: do the same heads matter there?")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Heads to show.")] = 12,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    limit: Limit = 200,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Rank the heads of a classifier by how much its answers owe to them."""
    subject = load_quietly(model)
    sources = [data] if against is None else [data, against]
    read = [_labelled(subject, one, text, pair, label, limit) for one in sources]
    found = _importance(subject, read[0], by)
    if against is not None:
        from exhibit_a.methods.heads.importance import head_similarity

        other = _importance(subject, read[1], by)
        first, second = names = _names(data, against)
        result = head_similarity(found, other, names=names)
        low, high = result.interval
        title = (
            f"importance by {by}: Pearson {result.pearson:.2f} ({low:.2f} to {high:.2f}), "
            f"Spearman {result.spearman:.2f}"
        )
        rows: Rows = [
            {"site": site, "head": head, first: float(found.scores[site, head])}
            | {second: float(other.scores[site, head])}
            for site, head in found.ranking[::-1][:top]
        ]
        present(result, title, rows, json=json, out=out, plot=plot)
        return
    rows = [
        {
            "site": site,
            "head": head,
            "importance": float(found.scores[site, head]),
            "standard_error": float(found.standard_error[site, head]),
        }
        for site, head in found.ranking[::-1][:top]
    ]
    title = f"most important heads by {by}, {found.examples} examples"
    present(found, title, rows, json=json, out=out, plot=plot)


def prune(
    data: Data,
    model: Model = "sentiment",
    by: By = "attribution",
    order: Annotated[str, typer.Option(help="least or most important heads first.")] = "least",
    scope: Annotated[str, typer.Option(help="global, or site: the same share of each.")] = "global",
    rank_on: Annotated[
        int, typer.Option(min=1, help="Rank on so many examples; the others are judged.")
    ] = 200,
    remove: Annotated[
        float | None, typer.Option(min=0, max=1, help="Take this share of heads out for good.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Folder for the smaller model.")] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    limit: Limit = None,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Show how accuracy falls as heads go, or make a model without some of them."""
    from exhibit_a.errors import BadRequestError
    from exhibit_a.methods.heads.curve import check_request, first_heads, pruning_curve
    from exhibit_a.methods.heads.removal import require_savable
    from exhibit_a.results.files import free_folder

    if save is not None and remove is None:
        raise BadRequestError("There is nothing to save yet: say with --remove how much goes.")
    check_request(order, scope)
    if save is not None:
        free_folder(save)
    subject = load_quietly(model)
    if save is not None:
        require_savable(subject)
    examples = _labelled(subject, data, text, pair, label, limit)
    _check_parts(examples, rank_on, judged=remove is None)
    every = [(site.index, head) for site in subject.anatomy.sites for head in range(site.heads)]
    count = round((remove or 0) * len(every))
    if remove is not None and not first_heads(every, count, order, scope):
        raise BadRequestError(
            f"--remove {remove:g} of {len(every)} heads (--scope {scope}) is none of them; "
            "ask for a larger share."
        )
    importance = _importance(subject, examples[:rank_on], by)
    if remove is not None:
        gone = first_heads(importance.ranking, count, order, scope)
        _remove(subject, gone, examples, save, json=json, out=out, plot=plot)
        return
    with working(f"silencing heads, {order} important first"):
        result = pruning_curve(subject, examples, importance, order=order, scope=scope)
    rows: Rows = [
        {
            "heads_gone": int(result.removed[point]),
            "share": float(result.fraction[point]),
            "accuracy": float(result.accuracy[point]),
            "interval": tuple(result.interval[point].tolist()),
            "loss": float(result.loss[point]),
        }
        for point in range(len(result.fraction))
    ]
    title = f"{order} important heads first, by {by}; mean accuracy {result.area:.3f}"
    present(result, title, rows, json=json, out=out, plot=plot)


def triggers(
    data: Data,
    victim: Annotated[
        Path | None, typer.Option("--attack", help="Labelled texts to put the patterns into.")
    ] = None,
    model: Model = "sentiment",
    count: Annotated[int, typer.Option(min=1, help="Patterns for each class.")] = 3,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    limit: Limit = 500,
    seed: Seed = 0,
    json: Json = False,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Find pairs of words that single answers rest on, and see whether they turn others."""
    from exhibit_a.methods.triggers.triggers import attack, find_triggers

    subject, examples = load_quietly(model), read_some(data, text, pair, label, limit)
    victims = victim and _labelled(subject, victim, text, pair, label, None)
    with working("looking for patterns") as progress:
        found = find_triggers(subject, examples, limit=limit or 500, progress=progress)
    if victims is None:
        rows: Rows = [
            {"pattern": one.text, "speaks_for": found.labels[one.predicted]}
            | {"score": sum(one.scores), "site": one.site, "head": one.head}
            for one in found.patterns[: count * len(found.labels)]
        ]
        present(found, "patterns that answers rest on", rows, json=json, out=out, plot=plot)
        return
    with working("attacking"):
        result = attack(subject, victims, found, count=count, seed=seed)
    rows = [
        {
            "pattern": one.text,
            "speaks_for": result.labels[one.predicted],
            "class": name,
            "before": float(result.before[place]),
            "after": float(result.after[number, place]),
            "interval": tuple(result.interval[number, place].tolist()),
            "random": float(result.random[number, place]),
            "attention": float(result.attention[number, place]),
        }
        for number, one in enumerate(result.patterns)
        for place, name in enumerate(result.labels)
        if result.counts[place]
    ]
    present(result, "accuracy of each class", rows, json=json, out=out, plot=plot)


def _names(first: Path, second: Path) -> tuple[str, str]:
    """What two files are called: by their stems, with as many folders as tell them apart."""
    parts = [one.resolve().with_suffix("").parts for one in (first, second)]
    for length in range(1, max(map(len, parts)) + 1):
        short = ["/".join(part[-length:]) for part in parts]
        if short[0] != short[1]:
            return short[0], short[1]
    return first.name, f"{second.name} (again)"


def _labelled(
    subject: "Subject",
    data: Path,
    text: str | None,
    pair: str | None,
    label: str | None,
    limit: int | None,
) -> "list[Example]":
    """The first examples of a file, each with a label that the model knows."""
    from exhibit_a.examples.labels import classes_of

    examples = read_some(data, text, pair, label, limit)
    classes_of(subject, examples)  # refuses what is found wrong before any of it is worked on
    return examples


def _check_parts(examples: "list[Example]", rank_on: int, *, judged: bool) -> None:
    """Refuse examples of which too few are left to rank on, or to judge by."""
    from exhibit_a.errors import BadRequestError
    from exhibit_a.examples import fingerprint
    from exhibit_a.examples.labels import require_variety

    require_variety(examples[:rank_on], "to rank on")
    ranked = {fingerprint(one) for one in examples[:rank_on]}
    others = [one for one in examples if fingerprint(one) not in ranked]
    if judged and not others:
        raise BadRequestError(
            f"--rank-on {rank_on} leaves none of the {len(examples)} examples to judge by. "
            "Give a smaller --rank-on, or more examples."
        )
    if judged:
        require_variety(others, "to judge by")


def _importance(subject: "Subject", examples: "list[Example]", by: str) -> "HeadImportance":
    from exhibit_a.methods.heads.importance import head_importance

    with working(f"heads by {by}") as progress:
        return head_importance(subject, examples, by=by, progress=progress)


def _remove(
    subject: "Subject",
    gone: list[tuple[int, int]],
    examples: "list[Example]",
    folder: Path | None,
    *,
    json: bool,
    out: Path | None,
    plot: Path | None,
) -> None:
    """Take heads out of the model, save what is left, and compare."""
    from exhibit_a.methods.heads.removal import measure_pruning
    from exhibit_a.methods.heads.removal import prune as without
    from exhibit_a.results.files import folder_beside, free_folder

    with working("taking heads out"):
        smaller = without(subject, gone)
    if folder is not None:
        with folder_beside(free_folder(folder)) as beside:
            smaller.model.save_pretrained(beside)
            if smaller.tokenizer is not None:
                smaller.tokenizer.save_pretrained(beside)
    with working("comparing"):
        result = measure_pruning(subject, smaller, gone, examples[:200])
    rows: Rows = [
        {
            "heads_gone": len(gone),
            "parameters": result.parameters[1],
            "of": result.parameters[0],
            "times_faster": result.speed_up,
            "answers_differ_by": result.difference,
            "can_be_saved": result.saves,
        }
    ]
    title = f"without {len(gone)} heads" + (f", saved in {folder}" if folder else "")
    present(result, title, rows, json=json, out=out, plot=plot)
