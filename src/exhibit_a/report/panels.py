"""What are the parts of a page? Maps, a slider, a token's story, a tree, charts and tables.

Each function turns results into one entry of the header that ``viewer/src/model.ts`` describes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree
from exhibit_a.methods.heads.curve import PruningCurve
from exhibit_a.methods.identifiability.counts import IdentifiabilityByLength
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.report.pack import Blocks, Packed, SiteMaps, pack
from exhibit_a.subject.anatomy import Site

MAPS, STORY = 2_600_000, 220_000  # bytes, before base64
MOST_EDGES = 4000
LOWEST = 0.02  # threshold of the tree below which no edge is offered

Panel = dict[str, Any]
Edges = Float[np.ndarray, "edge number"]  # layer, parent, child, score, share of the largest

_CAPTIONS = {
    "raw": "Raw attention: the weights the model used. Rows sum to one.",
    "effective": "Effective attention: what is left of the weights after removing the part that "
    "the head’s values multiply away. It gives the same output; it may be negative.",
    "attribution": "Attribution: what each weight contributed to the answer, for (orange) or "
    "against it (blue).",
    "difference": "Effective minus raw: the part of attention that cannot be seen in the output.",
}
_NAMES = {
    "raw": "Raw",
    "effective": "Effective",
    "attribution": "Attribution",
    "difference": "Difference",
}


def attention_maps(
    blocks: Blocks, modes: dict[str, SiteMaps], sites: Sequence[Panel], columns: list[Panel]
) -> Panel:
    """Raw, effective and attribution of every head, with their difference."""
    weights = [mode for mode in modes if mode in ("raw", "effective")]
    together = [weights] * bool(weights) + [[mode] for mode in modes if mode not in weights]
    packed = pack(blocks, "maps", modes, together=together, budget=MAPS)
    limits = dict(packed.limits)
    shared = max((limits[mode] for mode in weights), default=0.0)
    limits |= dict.fromkeys((*weights, "difference"), shared)
    minus = {"difference": ("effective", "raw")} if len(weights) == 2 else {}
    return {
        "modes": [
            {
                "key": key,
                "name": _NAMES.get(key, key.replace("_", " ")),
                "caption": _CAPTIONS.get(key, ""),
                "limit": limits[key],
                "signed": key != "raw",
                **({"minus": minus[key]} if key in minus else {}),
            }
            for key in (*modes, *minus)
        ],
        "sites": [
            {**site, **({"visible": block} if block else {})}
            for site, block in zip(sites, packed.visible, strict=True)
        ],
        "heads": [head | {"numbers": {}} for head in packed.heads],
        "columns": columns,
        "words": [],
        "bits": packed.bits,
        "groups": packed.groups,
        "note": left_out(packed),
    }


def left_out(packed: Packed) -> str:
    """What a page says about numbers that are not in it."""
    if packed.groups is None:
        return f"Stored in {packed.bits}-bit steps of each head’s largest value; nothing left out."
    shares = "; ".join(f"{mode} {share:.1%}" for mode, share in packed.kept.items())
    count = packed.groups[0]["count"]
    return (
        f"Long text: the {count} largest entries of every row are stored, in 8-bit steps, and the "
        f"mean of the rest of the row, which is drawn in place of the others. Share of the "
        f"absolute weight that is stored entry by entry: {shares}."
    )


def site_panel(name: str, short: str, queries: str, keys: str, shape: Sequence[int]) -> Panel:
    """A site: its names, whose tokens its axes are, and its shape (head, query, key)."""
    heads, rows, columns = shape
    return {
        "name": name,
        "short": short,
        "queries": queries,
        "keys": keys,
        "rows": rows,
        "columns": columns,
        "heads": heads,
    }


def story(blocks: Blocks, hidden: HiddenAttribution) -> Panel:
    """Who is in every hidden vector, layer by layer; tokens are told apart by stack."""
    shape = hidden.contribution.shape
    modes = {"contribution": tuple(one.unsqueeze(0) for one in hidden.contribution)}
    packed = pack(blocks, "story", modes, together=[["contribution"]], budget=STORY)
    site = site_panel("story", "", hidden.stack, hidden.source, (shape[0], *shape[1:]))
    visible = packed.visible[-1]  # the last layer sees most
    errors = None
    if hidden.stack == hidden.source and bool((hidden.standard_error > 0).any()):
        own = hidden.standard_error.diagonal(dim1=1, dim2=2).contiguous()
        errors = blocks.add("story/errors", _floats(own))
    exact = errors is None
    how = "Exact Jacobians." if exact else "Estimated from random directions; ± says how well."
    return {
        "maps": {
            "modes": [
                {
                    "key": "contribution",
                    "name": "contribution",
                    "caption": "",
                    "limit": 1.0,
                    "signed": False,
                }
            ],
            "sites": [site | ({"visible": visible} if visible else {})],
            "heads": [
                head | {"site": 0, "head": layer, "numbers": {}}
                for layer, head in enumerate(packed.heads)
            ],
            "columns": [],
            "words": [],
            "bits": packed.bits,
            "groups": packed.groups,
            "note": "",
        },
        "targets": hidden.stack,
        "sources": hidden.source,
        "errors": errors,
        "note": how if packed.groups is None else f"{how} {left_out(packed)}",
    }


def tree(blocks: Blocks, found: AttributionTree, attribution: SelfAttribution | None) -> Panel:
    """The tree, with every edge that a slider could let in."""
    parameters = found.provenance.parameters
    stack = str(parameters.get("stack", "tokens"))
    if attribution is None:
        rows = [[e.layer, e.parent, e.child, e.score, 1.0] for e in found.edges]
        edges, lowest = np.array(rows or [[]], dtype="<f8"), float(parameters.get("threshold", 0))
    else:
        edges, lowest = _edges(found, attribution, stack)
    note = f"The {len(edges)} edges above a threshold of {lowest:.3g} are in this page. "
    note += "The tree is the greedy one of the paper"
    if parameters.get("algorithm") == "exact":
        note += ", drawn again here, while the result holds the exact one"
    return {
        "sequence": stack,
        "root": found.root,
        "reader": found.reader,
        "layers": found.layers,
        "threshold": float(parameters.get("threshold", 0.4)),
        "penalty": float(parameters.get("penalty", 0.0)),
        "lowest": lowest,
        "edges": blocks.add("tree", edges.tobytes()),
        "target": found.target,
        "note": note + ".",
    }


def _edges(found: AttributionTree, attribution: SelfAttribution, stack: str) -> tuple[Edges, float]:
    """Edges from the top layer down, then in reading order, with their share of the largest."""
    own = [s.index for s in attribution.sites if s.stack == stack and s.kind == "self"]
    maps = [attribution.scores[site].sum(0) for site in own]
    layers = range(len(maps) if found.reader is None else len(maps) - 1)
    parts = []
    for layer in reversed(layers):
        scores = maps[layer].clone()
        if found.reader is not None:
            scores[found.reader] = 0
        shares = scores / scores.max().abs().clamp_min(1e-30)
        shares.fill_diagonal_(0)
        parent, child = (shares > LOWEST).nonzero(as_tuple=True)
        columns = (torch.full_like(parent, layer), parent, child)
        numbers = (scores[parent, child], shares[parent, child])
        parts.append(torch.stack([one.double() for one in (*columns, *numbers)], -1))
    edges = torch.cat(parts).numpy().astype("<f8")
    if len(edges) <= MOST_EDGES:
        return edges, LOWEST
    lowest = float(np.partition(edges[:, 4], -MOST_EDGES)[-MOST_EDGES])
    return edges[edges[:, 4] > lowest], lowest


def freedom_chart(effective: EffectiveAttention) -> Panel:
    """In how many directions rows could have moved, by how many keys they see."""
    widths = sorted({site.d_head for site in effective.sites})
    series, most = [], 0
    for site, rank, nullity in zip(effective.sites, effective.rank, effective.nullity, strict=True):
        points: dict[int, list[float]] = {}
        real = rank >= 0
        for keys, free in zip((rank + nullity)[real].tolist(), nullity[real].tolist(), strict=True):
            points.setdefault(int(keys), []).append(free)
        most = max(most, *points)
        dots = [[keys, sum(free) / len(free)] for keys, free in sorted(points.items())]
        series.append({"name": _site_name(site), "points": dots, "dots": True})
    for width in widths:
        end = max(most, width) * 1.15
        line = [[0, 0], [width, 0], [end, end - width]]
        name = f"expected of {width} wide heads"
        series.append({"name": name, "points": line, "dashed": True})
    return {
        "title": "From which length on is attention not unique?",
        "x": "keys a row can see",
        "y": "directions in which it can move unseen",
        "series": series,
        "lines": [{"at": width, "name": f"d_head {width}"} for width in widths],
        "caption": "A head passes on d_head numbers. A row over more keys than that can move "
        "without changing them: those moves are counted here, mean over heads, beside what "
        "counting alone expects.",
    }


def length_charts(found: IdentifiabilityByLength) -> list[Panel]:
    """What growing beginnings of one text do to attention."""
    lines = [{"at": width, "name": f"d_head {width}"} for width in sorted(set(found.d_head))]
    told = (
        ("Raw and effective attention drift apart", "Pearson correlation", found.pearson),
        ("What cannot reach the output", "null fraction", found.null_fraction),
        ("Directions in which a row can move unseen", "nullity", found.nullity),
    )
    return [
        {
            "title": title,
            "x": "tokens",
            "y": name,
            "series": [
                {
                    "name": f"site {site}",
                    "points": [
                        [length, float(part[i, site])] for i, length in enumerate(found.lengths)
                    ],
                }
                for site in range(len(found.d_head))
            ],
            "lines": lines,
            "caption": "Means over the heads of a site, for growing beginnings of the text.",
        }
        for title, name, part in told
    ]


def pruning_chart(found: PruningCurve) -> Panel:
    """Accuracy as heads are silenced, with its interval."""
    points = [[float(x), float(y)] for x, y in zip(found.fraction, found.accuracy, strict=True)]
    return {
        "title": "How much is left as heads go?",
        "x": f"share of heads silenced, {found.order} important first, by {found.by}",
        "y": "accuracy",
        "series": [{"name": "accuracy", "points": points, "band": found.interval.tolist()}],
        "lines": [],
        "caption": "The band is the 95 % interval of the accuracy.",
    }


def _site_name(site: Site) -> str:
    return f"{site.stack} layer {site.layer}" + " cross" * (site.kind == "cross")


def _floats(tensor: Tensor) -> bytes:
    return bytes(tensor.detach().cpu().float().numpy().astype("<f4").tobytes())
