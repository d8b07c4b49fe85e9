"""Words hidden and words deleted: what docs/verdict.md says of both, from docs/data/hiding.json."""

from collections.abc import Mapping
from typing import Any

from page_tables import read, table

TEXTS = {"sentiment": "sentences of the SST-2 development set"}  # other models are given prompts


def counts() -> str:
    """How many texts each model was given."""
    return ", ".join(
        f"{found['texts']} {TEXTS.get(name, 'of the shortest prompts of our own')} with `{name}` "
        f"(another seed: {found['twice']})"
        for name, found in read("hiding.json").items()
    )


def by_heat_map() -> str:
    """One line for each model and heat map."""
    head = ["model", "heat map", "better, hidden", "better, deleted", "loss, hidden"]
    head += ["loss, deleted", "same advice", "steady, hidden", "steady, deleted"]
    body = []
    for name, found in read("hiding.json").items():
        for heat_map, entry in found["maps"].items():
            ways = entry["hide"], entry["delete"]
            line = [f"`{name}`", f"`{heat_map}`"]
            line += [_percent(way["better"]) for way in ways]
            line += [f"{way['loss']['value']:.2f}" for way in ways]
            line += [_percent(entry["agreement"])] + [_percent(way["steady"]) for way in ways]
            body.append(line)
    return table(head, body)


def _percent(share: Mapping[str, Any]) -> str:
    low, high = share["interval"]
    return f"{share['value']:.0%} ({low:.0%}–{high:.0%})"
