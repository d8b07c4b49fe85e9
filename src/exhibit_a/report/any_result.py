"""How is a result shown that has no panels of its own?

Its tensors are read off its fields: the first field whose tensors all have rows and columns becomes
maps, the others become tables, and a long table says how much of it is shown.
"""

from itertools import groupby

import torch
from torch import Tensor

from exhibit_a.report.header import Maps, Panels, Sequence, Table
from exhibit_a.report.header import Site as SiteEntry
from exhibit_a.report.pack import Blocks
from exhibit_a.report.panels import OnSites, attention_maps, sequence, site_entry
from exhibit_a.results.result import Result
from exhibit_a.results.tables import Leaf, leaves
from exhibit_a.subject.site_names import layer_name

LONGEST = 400  # rows of a table
SMALLEST = 4  # rows and columns from which numbers are better seen as a map


def any_panels(result: Result, blocks: Blocks) -> Panels:
    """Maps and tables of any result."""
    fields = [
        (name, list(group)) for name, group in groupby(leaves(result), lambda leaf: leaf.field)
    ]
    mapped = next((tensors for _, tensors in fields if all(map(_is_map, tensors))), None)
    panels: Panels = {"tables": []}
    for name, tensors in fields:
        if tensors is mapped:
            sequences: dict[str, Sequence] = {}
            panels["maps"] = _maps(blocks, result, name, tensors, sequences)
            panels["sequences"] = sequences
        else:
            panels["tables"].append(_table(result, name, tensors))
    facts: list[list[str | float | None]] = [
        [name, str(value)]
        for name, value in vars(result).items()
        if isinstance(value, str | int | float | bool)
    ]
    if facts:
        columns = ["what", "value"]
        in_short: Table = {"title": "In short", "columns": columns, "rows": facts, "caption": ""}
        panels["tables"].insert(0, in_short)
    return panels


def _is_map(leaf: Leaf) -> bool:
    return leaf.tensor.ndim >= 2 and min(leaf.tensor.shape[-2:]) >= SMALLEST


def _maps(
    blocks: Blocks, result: Result, name: str, tensors: list[Leaf], sequences: dict[str, Sequence]
) -> Maps:
    """The maps of a field; the tokens along their axes are added to ``sequences``."""
    sites, maps = list[SiteEntry](), list[Tensor]()
    for place, leaf in enumerate(tensors):
        scores = _numbers(leaf.tensor).reshape(-1, *leaf.tensor.shape[-2:])
        tokens = result.tokens_along(leaf)
        queries, keys = (_sequence_name(sequences, tokens.get(axis)) for axis in leaf.dims[-2:])
        where = ", ".join(_place(result, axis, label) for axis, label in leaf.where.items())
        sites.append(site_entry(where or name, str(place), (queries, keys), tuple(scores.shape)))
        maps.append(scores)
    return attention_maps(blocks, {name: tuple(maps)}, sites, [])


def _place(result: Result, axis: str, label: int | str) -> str:
    """Where a tensor stands: a site is called by its layer, as everywhere."""
    if axis != "site":
        return f"{axis} {label}"
    if isinstance(result, OnSites) and isinstance(label, int):
        return layer_name(result.sites[label], result.sites)
    return f"layer {label}"


def _sequence_name(sequences: dict[str, Sequence], tokens: tuple[str, ...] | None) -> str:
    """The name of these tokens, which are added where they are new; "" if there are none."""
    if tokens is None:
        return ""
    for name, known in sequences.items():
        if known["tokens"] == list(tokens):
            return name
    name = f"tokens {len(sequences)}"
    sequences[name] = sequence(tokens)
    return name


def _table(result: Result, name: str, tensors: list[Leaf]) -> Table:
    rows, total = list[list[str | float | None]](), 0
    for leaf in tensors:
        total += leaf.tensor.numel()
        tokens = result.tokens_along(leaf)
        labels = [
            label if isinstance(label, int | float | str) else str(label)
            for label in leaf.where.values()
        ]
        numbers = _numbers(leaf.tensor).reshape(-1)[: LONGEST - len(rows)].tolist()
        for flat, value in enumerate(numbers):
            places = torch.unravel_index(torch.tensor(flat), leaf.tensor.shape or (1,))
            positions = [
                f"{int(place)} {tokens[axis][int(place)]}" if axis in tokens else int(place)
                for axis, place in zip(leaf.dims, places, strict=False)
            ]
            rows.append([*labels, *positions, value])
    return {
        "title": name.replace("_", " ").capitalize(),
        "columns": ["layer" if axis == "site" else axis for axis in tensors[0].axes] + ["value"],
        "rows": rows,
        "caption": f"The first {len(rows)} of {total} numbers." if total > len(rows) else "",
    }


def _numbers(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().float()
