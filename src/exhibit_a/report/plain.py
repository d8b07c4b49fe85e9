"""How is a result shown that has no picture of its own?

Its tensors are read off its fields: what has rows and columns becomes maps, what is shorter becomes
tables, and a long table says how much of it is shown.
"""

from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from exhibit_a.report.pack import Blocks
from exhibit_a.report.panels import attention_maps, site_panel
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf, leaves

LONGEST = 400  # rows of a table
SMALLEST = 4  # rows and columns from which numbers are better seen as a map


def plain_panels(blocks: Blocks, result: Result) -> dict[str, Any]:
    """Maps and tables of any result."""
    fields = [
        (name, list(group)) for name, group in groupby(leaves(result), lambda leaf: leaf.field)
    ]
    pictured = next((tensors for _, tensors in fields if all(map(_is_map, tensors))), None)
    found: dict[str, Any] = {"tables": []}
    for name, tensors in fields:
        if tensors is pictured:
            found |= _maps(blocks, result, name, tensors)
        else:
            found["tables"].append(_table(result, name, tensors))
    facts = [
        [name, str(value)]
        for name, value in vars(result).items()
        if isinstance(value, str | int | float | bool)
    ]
    if facts:
        told = {"title": "In short", "columns": ["what", "value"], "rows": facts, "caption": ""}
        found["tables"].insert(0, told)
    return found


def _is_map(leaf: Leaf) -> bool:
    return leaf.tensor.ndim >= 2 and min(leaf.tensor.shape[-2:]) >= SMALLEST


def _maps(blocks: Blocks, result: Result, name: str, leaves: list[Leaf]) -> dict[str, Any]:
    sites, maps, sequences = [], [], dict[str, Any]()
    for place, leaf in enumerate(leaves):
        shape = leaf.tensor.shape
        maps.append(_numbers(leaf.tensor).reshape(-1, *shape[-2:]))
        named = [_known(sequences, result.tokens_along(leaf).get(axis)) for axis in leaf.dims[-2:]]
        where = ", ".join(f"{axis} {label}" for axis, label in leaf.where.items())
        sites.append(site_panel(where or name, str(place), named[0], named[1], maps[-1].shape))
    return {"maps": attention_maps(blocks, {name: tuple(maps)}, sites, []), "sequences": sequences}


def _known(sequences: dict[str, Any], tokens: tuple[str, ...] | None) -> str:
    """The name of a sequence of tokens, which is made known if it was not; "" if there is none."""
    if tokens is None:
        return ""
    for name, known in sequences.items():
        if known["tokens"] == list(tokens):
            return name
    name = f"tokens {len(sequences)}"
    sequences[name] = {"tokens": list(tokens), "special": []}
    return name


def _table(result: Result, name: str, leaves: list[Leaf]) -> dict[str, Any]:
    axes, rows, total = leaves[0].axes, list[list[Any]](), 0
    for leaf in leaves:
        total += leaf.tensor.numel()
        tokens = result.tokens_along(leaf)
        some = _numbers(leaf.tensor).reshape(-1)[: LONGEST - len(rows)].tolist()
        for flat, value in enumerate(some):
            places = torch.unravel_index(torch.tensor(flat), leaf.tensor.shape or (1,))
            inner = [
                f"{int(at)} {tokens[axis][int(at)]}" if axis in tokens else int(at)
                for axis, at in zip(leaf.dims, places, strict=False)
            ]
            rows.append([*map(_label, leaf.where.values()), *inner, value])
    caption = f"The first {len(rows)} of {total} numbers." if total > len(rows) else ""
    title = name.replace("_", " ").capitalize()
    return {"title": title, "columns": [*axes, "value"], "rows": rows, "caption": caption}


def _label(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else str(value)


def _numbers(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().float()
