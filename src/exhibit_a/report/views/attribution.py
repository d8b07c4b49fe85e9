"""How did the words reach the answer? The pages of self-attribution and of its tree."""

import numpy as np
import torch
from jaxtyping import Float

from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree
from exhibit_a.numerics.precision import to_float64
from exhibit_a.report.header import Column, Panels, Table, Tree
from exhibit_a.report.pack import Blocks
from exhibit_a.report.panels import attention_maps, sequence, site_entries
from exhibit_a.report.views.dispatch import panels_of
from exhibit_a.subject.site_names import layer_name

MOST_EDGES = 4000
LOWEST = 0.02  # threshold of the tree below which no edge is offered
SHARE = "The head’s share of all absolute attribution."

Edges = Float[np.ndarray, "edge number"]  # layer, parent, child, score, share of the largest


@panels_of.register
def attribution_panels(result: SelfAttribution, blocks: Blocks) -> Panels:
    """The attribution of every head, and what every site changed."""
    columns: list[Column] = [
        {"key": "share", "name": "attribution", "help": SHARE},
        {"key": "largest", "name": "largest", "help": "Largest entry, by which heads are ranked."},
    ]
    sites = site_entries(result, result.scores)
    maps = attention_maps(blocks, {"attribution": result.scores}, sites, columns)
    total = sum(float(scores.abs().sum()) for scores in result.scores) or 1.0
    for entry in maps["heads"]:
        scores = result.scores[entry["site"]][entry["head"]]
        entry["numbers"] = {
            "share": float(scores.abs().sum()) / total,
            "largest": float(scores.amax()),
        }
    return {
        "sequences": {stack: sequence(tokens) for stack, tokens in result.sequences.items()},
        "maps": maps,
        "tables": [_changes(result)],
    }


@panels_of.register
def tree_panels(result: AttributionTree, blocks: Blocks) -> Panels:
    """The tree alone."""
    stack = str(result.provenance.parameters.get("stack", "tokens"))
    tokens = {stack: sequence(result.tokens or ())}
    return {"sequences": tokens, "tree": tree(result, None, blocks)}


def tree(result: AttributionTree, attribution: SelfAttribution | None, blocks: Blocks) -> Tree:
    """The tree, with every edge that a slider could let in."""
    parameters = result.provenance.parameters
    stack = str(parameters.get("stack", "tokens"))
    if attribution is None:
        rows = [[edge.layer, edge.parent, edge.child, edge.score, 1.0] for edge in result.edges]
        edges, lowest = np.array(rows or [[]], dtype="<f8"), float(parameters.get("threshold", 0))
    else:
        edges, lowest = _edges(result, attribution, stack)
    note = f"The {len(edges)} edges above a threshold of {lowest:.3g} are in this page. "
    note += "The tree is the greedy one of the paper"
    if parameters.get("algorithm") == "exact":
        note += ", drawn again here, while the result holds the exact one"
    return {
        "sequence": stack,
        "root": result.root,
        "reader": result.reader,
        "layers": result.layers,
        "threshold": float(parameters.get("threshold", 0.4)),
        "penalty": float(parameters.get("penalty", 0.0)),
        "lowest": lowest,
        "edges": blocks.add("tree", edges.tobytes()),
        "target": result.target,
        "note": note + ".",
    }


def _changes(result: SelfAttribution) -> Table:
    return {
        "title": "What every layer changed",
        "columns": ["layer", "change", "gap"],
        "rows": [
            [layer_name(site, result.sites), float(change), float(gap)]
            for site, change, gap in zip(result.sites, result.change, result.gap, strict=True)
        ],
        "caption": f"Of the {result.target}: what silencing the whole layer takes away, and how "
        "far the entries of its maps miss it.",
    }


def _edges(
    result: AttributionTree, attribution: SelfAttribution, stack: str
) -> tuple[Edges, float]:
    """Edges from the top layer down, then in reading order, with their share of the largest."""
    sites = [
        site.index for site in attribution.sites if site.stack == stack and site.kind == "self"
    ]
    maps = [attribution.scores[site].sum(0) for site in sites]
    layers = range(len(maps) if result.reader is None else len(maps) - 1)
    tables = []
    for layer in reversed(layers):
        scores = maps[layer].clone()
        if result.reader is not None:
            scores[result.reader] = 0
        shares = scores / scores.max().abs().clamp_min(1e-30)
        shares.fill_diagonal_(0)
        parent, child = (shares > LOWEST).nonzero(as_tuple=True)
        places = (torch.full_like(parent, layer), parent, child)
        numbers = (scores[parent, child], shares[parent, child])
        tables.append(torch.stack([to_float64(column) for column in (*places, *numbers)], -1))
    edges = torch.cat(tables).numpy().astype("<f8")
    if len(edges) <= MOST_EDGES:
        return edges, LOWEST
    lowest = float(np.partition(edges[:, 4], -MOST_EDGES)[-MOST_EDGES])
    return edges[edges[:, 4] > lowest], lowest
