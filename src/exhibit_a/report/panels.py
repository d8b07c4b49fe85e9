"""Turns the blocks of a result into the panels of a page, and packs their numbers.

Maps, stories, trees and sliders become packed numbers with an entry in the header; the other blocks
of a page go into the header as they are. Left out are grids, sections (the table in ``blocks.py``)
and what is only for paper (``on_page=False``).
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from exhibit_a.report import blocks as described
from exhibit_a.report import header
from exhibit_a.report.blocks import Blocks, Cell, Figure, Mode, SiteMaps, of_kind
from exhibit_a.report.display_units import TOKEN
from exhibit_a.report.header import Panels
from exhibit_a.report.images import data_uri
from exhibit_a.report.pack import Packed, PackedBlocks, pack
from exhibit_a.report.table import split_intervals
from exhibit_a.results.result import Result
from exhibit_a.subject.images import Scene
from exhibit_a.trace.layout import Layout, Span
from exhibit_a.trace.units import Units, units_of

# Bytes before base64; with the rest, a page of 5 MB.
MOST_OF_ALL = 3_550_000
MOST_OF_MAPS = 2_600_000
MOST_OF_STORY = 220_000
MOST_OF_SLIDER = 1_200_000
LARGEST_IMAGE = 448  # pixels to a side
LONGEST = 400  # rows of a table
FEWEST_ROWS = 8  # of each head that slides; where that does not fit, heads are left out


def panels(description: Blocks, result: Result, packed: PackedBlocks) -> Panels:
    """The panels of a result over the units it is over; their numbers are added to ``packed``."""
    shown: Panels = {"sequences": _sequences(description, result), "charts": [], "tables": []}
    for block in description:
        match block:
            case described.AnswerSummary():
                shown["summary"] = block
            case described.HeatMapPanel():
                shown["heat_maps"] = block
            case described.Passages():
                shown["passages"] = block
            case described.Maps() if "maps" not in shown:
                shown["maps"] = attention_maps(block, packed)
            case described.Story():
                shown["story"] = _story(block, packed)
            case described.Tree():
                shown["tree"] = _tree(block, packed)
            case described.Chart() if block.on_page:
                shown["charts"].append(_chart(block))
            case Figure() if block.on_page:
                charts = of_kind(block.panels, described.Chart)
                shown["charts"] += map(_chart, charts)
            case described.Table() if block.on_page:
                shown["tables"].append(_table(block))
    for slider in of_kind(description, described.Slider):  # last: it takes the room that is left
        left = int(MOST_OF_ALL * packed.share) - packed.length * 3 // 4
        shown["slider"] = _slider(slider, packed, min(left, MOST_OF_SLIDER))
    if result.scene is not None:
        shown["scene"] = _image(result.scene, shown["sequences"])
    return shown


def attention_maps(block: described.Maps, packed: PackedBlocks) -> header.PageMaps:
    """The maps of every head, with the numbers about it."""
    modes: dict[str, SiteMaps] = {
        mode.key: mode.maps for mode in block.modes if mode.maps is not None
    }
    weights = [mode for mode in modes if mode in ("raw", "effective")]
    together = [weights] * bool(weights) + [[mode] for mode in modes if mode not in weights]
    budget = int(MOST_OF_MAPS * packed.share)
    stored = pack(packed, "maps", modes, together=together, budget=budget)
    shared = max((stored.limits[mode] for mode in weights), default=0.0)
    limits = stored.limits | dict.fromkeys((*weights, "difference"), shared)
    shapes = next(iter(modes.values()))
    sites = [_site(site, tuple(maps.shape)) for site, maps in zip(block.sites, shapes, strict=True)]
    for site, visible in zip(sites, stored.visible, strict=True):
        if visible:
            site["visible"] = visible
    shown: header.PageMaps = {
        "modes": [_mode(mode, limits[mode.key]) for mode in block.modes],
        "sites": sites,
        "heads": stored.heads,
        "columns": [],
        "questions": [],
        "words": [{"word": word, "meaning": meaning} for word, meaning in block.meanings],
        "bits": stored.bits,
        "groups": stored.groups,
        "note": _storage_note(stored),
    }
    if block.heads is not None:
        rows = block.heads.rows if isinstance(block.heads.rows, list) else []
        by_head = dict(zip(block.heads.heads, rows, strict=True))
        for column in block.heads.columns:
            values = [row[column.key] for row in rows]
            entry: header.PageColumn = {"key": column.key, "name": column.name, "help": column.help}
            if column.key in ("layer", "head") or any(isinstance(value, str) for value in values):
                continue
            is_question = any(isinstance(value, bool) for value in values)
            shown["questions" if is_question else "columns"].append(entry)
            for head in shown["heads"]:
                value = by_head.get((head["site"], head["head"]), {}).get(column.key)
                if is_question:
                    answer = value if isinstance(value, bool) else None
                    head.setdefault("answers", {})[column.key] = answer
                else:
                    head["numbers"][column.key] = value if isinstance(value, int | float) else None
    for head in shown["heads"]:
        place = (head["site"], head["head"])
        if block.verdicts is not None:
            head["word"], head["reason"] = block.verdicts[place]
    return shown


def _mode(mode: Mode, limit: float) -> header.PageMode:
    entry: header.PageMode = {
        "key": mode.key,
        "name": mode.name,
        "caption": mode.caption,
        "limit": limit,
        "signed": mode.signed,
    }
    return entry if mode.minus is None else {**entry, "minus": mode.minus}


def _site(site: described.MapSite, shape: tuple[int, ...]) -> header.PageSite:
    heads, rows, columns = shape
    entry: header.PageSite = {
        "name": site.name,
        "short": site.short,
        "queries": site.queries,
        "keys": site.keys,
        "rows": rows,
        "columns": columns,
        "heads": heads,
    }
    return {**entry, "foretells": True} if site.foretells else entry


def _storage_note(stored: Packed) -> str:
    """What a page says about how exactly its maps are stored, and what is not in it."""
    if stored.groups is None:
        return f"Stored in {stored.bits}-bit steps of each head’s largest value; nothing left out."
    shares = "; ".join(f"{mode} {share:.1%}" for mode, share in stored.kept.items())
    count = stored.groups[0]["count"]
    return (
        f"Long text: the {count} largest entries of every row are stored, in 8-bit steps, and the "
        f"mean of the rest of the row, which is drawn in place of the others. Share of the "
        f"absolute weight that is stored entry by entry: {shares}."
    )


def _story(block: described.Story, packed: PackedBlocks) -> header.PageStory:
    modes = {"contribution": tuple(layer.unsqueeze(0) for layer in block.contribution)}
    stored = pack(packed, "story", modes, together=[["contribution"]], budget=MOST_OF_STORY)
    place = described.MapSite("story", "", block.targets, block.sources)
    site = _site(place, tuple(block.contribution.shape))
    if visible := stored.visible[-1]:  # the last layer sees most
        site["visible"] = visible
    for layer, head in enumerate(stored.heads):
        head["site"], head["head"] = 0, layer
    errors = None if block.errors is None else packed.add("story/errors", _bytes(block.errors))
    return {
        "maps": {
            "modes": [_mode(Mode("contribution", "contribution", signed=False), 1.0)],
            "sites": [site],
            "heads": stored.heads,
            "columns": [],
            "questions": [],
            "words": [],
            "bits": stored.bits,
            "groups": stored.groups,
            "note": "",
        },
        "targets": block.targets,
        "sources": block.sources,
        "errors": errors,
        "note": block.note if stored.groups is None else f"{block.note} {_storage_note(stored)}",
    }


def _tree(block: described.Tree, packed: PackedBlocks) -> header.PageTree:
    return {
        "sequence": block.sequence,
        "root": block.root,
        "reader": block.reader,
        "layers": block.layers,
        "threshold": block.threshold,
        "penalty": block.penalty,
        "lowest": block.lowest,
        "edges": packed.add("tree", block.edges.tobytes()),
        "target": block.target,
        "note": block.note,
    }


def _chart(block: described.Chart) -> header.PageChart:
    return {
        "title": block.title or block.y,
        "x": block.x,
        "y": block.y,
        "series": list(block.series),
        "lines": list(block.lines),
        "names": list(block.names),
        "caption": block.caption,
    }


def _table(block: described.Table) -> header.PageTable:
    rows = block.first(block.shown) if callable(block.rows) else block.rows[:LONGEST]
    columns = [
        (heading, values)
        for column in block.columns
        for heading, values in split_intervals(column.name, [row[column.key] for row in rows])
    ]
    total = len(rows) if callable(block.rows) else len(block.rows)
    cut = f"The first {len(rows)} of {total} rows." if total > len(rows) else ""
    return {
        "title": block.title[:1].upper() + block.title[1:],
        "columns": [heading for heading, _ in columns],
        "rows": [
            [_cell(value) for value in row]
            for row in zip(*(values for _, values in columns), strict=True)
        ],
        "caption": " ".join(filter(None, (block.caption, cut))),
    }


def _cell(value: Cell) -> str | float | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _slider(block: described.Slider, packed: PackedBlocks, budget: int) -> header.PageSlider:
    """As many heads and rows as fit; in long texts only those that carry most."""
    if not block.heads:
        return {"heads": [], "note": block.note}
    bits, most, offered = _plan(block.heads, budget)
    entries = [_slide(packed, slide, most, bits) for slide in offered]
    if len(offered) == len(block.heads) and most >= max(len(slide.rows) for slide in block.heads):
        return {"heads": entries, "note": block.note}
    note = (
        f"To keep the page small, {len(offered)} of the {len(block.heads)} heads that can slide "
        f"are in it, those that carry most, each with at most {most} rows and {bits}-bit values."
    )
    return {"heads": entries, "note": note}


def _plan(
    slides: tuple[described.Slide, ...], budget: int
) -> tuple[header.Bits, int, list[described.Slide]]:
    """How fine the values are, how many rows a head gets, and which heads."""
    sizes: tuple[header.Bits, ...] = (32, 16)
    for bits in sizes:
        share = budget // len(slides)
        most = min(
            (share - bits // 8 * slide.values.numel()) // (8 * slide.values.shape[0])
            for slide in slides
        )
        if most >= FEWEST_ROWS:
            return bits, int(most), list(slides)
    offered, spent = list[described.Slide](), 0
    for slide in slides:
        cost = 2 * slide.values.numel() + FEWEST_ROWS * 8 * slide.values.shape[0]
        if not offered or spent + cost <= budget:
            offered.append(slide)
            spent += cost
    return 16, FEWEST_ROWS, offered


def _slide(
    packed: PackedBlocks, slide: described.Slide, most: int, bits: header.Bits
) -> header.PageSlide:
    rows = slide.rows[:most].sort().values
    raw, alternative = (maps[rows] for maps in (slide.raw, slide.alternative))
    values = slide.values.detach().cpu().float()
    scale = float(values.abs().amax())
    if bits == 32:
        last = _bytes(values)
    else:
        last = (values / (scale or 1.0) * 32767).round().numpy().astype("<i2").tobytes()
    first = torch.cat([rows.float(), raw.reshape(-1).cpu(), alternative.reshape(-1).cpu()])
    return {
        "site": slide.site,
        "head": slide.head,
        "block": packed.add(f"slide/{slide.site}/{slide.head}", _bytes(first) + last),
        "rows": len(rows),
        "keys": int(values.shape[0]),
        "width": int(values.shape[1]),
        "bits": bits,
        "scale": scale,
    }


def _bytes(numbers: Tensor) -> bytes:
    array: np.ndarray = numbers.detach().cpu().float().contiguous().numpy().astype("<f4")
    return array.tobytes()


def _sequences(description: Blocks, result: Result) -> dict[str, header.Sequence]:
    """The tokens by stack, with their words where the result knows the places of its tokens."""
    texts = of_kind(description, described.Texts)
    named = {"tokens": result.tokens or ()} if not texts else {}
    for text in texts:
        named |= text.sequences
    special = next((text.special for text in texts if text.special), ())
    layouts = dict(result.layouts)
    if len(layouts) == 1:
        layouts["tokens"] = next(iter(layouts.values()))  # what a result over one stack calls it
    sequences: dict[str, header.Sequence] = {}
    for name, tokens in named.items():
        marks = list(special) if tokens == result.tokens else []
        sequences[name] = {"tokens": list(tokens), "special": marks}
        if name in layouts and len(layouts[name]) == len(tokens):
            # Tokens that stand in no text, such as those that a tokenizer adds, are words of their
            # own; what is over words or sentences already stands for itself.
            layout = layouts[name]
            same = Units(layout, tuple(range(len(layout))))
            units = units_of(layout, "word") if layout.unit == TOKEN else same
            spans = units.layout.spans
            gaps = [" ", *(_between(units.layout, *spans) for spans in pairwise(spans))]
            sequences[name] = {
                **sequences[name],
                "words": list(units.layout.names),
                "of": list(units.of),
                "gaps": gaps[: len(spans)],
            }
    return sequences


def _between(layout: Layout, first: Span | None, second: Span | None) -> str:
    """What stands between two words: a line where another text begins."""
    if first is None or second is None:
        return " "
    if first[0] != second[0]:
        return "\n"
    return layout.texts[first[0]][first[2] : second[1]]


def _image(scene: Scene, sequences: dict[str, header.Sequence]) -> described.Image:
    """The image that was looked at, no larger than a page needs, and its grids by sequence."""
    height, width = scene.pixels.shape[:2]
    grids = {stack: grids[0].tolist() for stack, grids in scene.grids.items()}
    for name, sequence in sequences.items():  # a result over one stack calls it "tokens"
        for grid in list(grids.values()):
            fits = max(map(max, grid)) < len(sequence["tokens"])
            if name not in grids and name == "tokens" and fits:
                grids[name] = grid
    pixels, factor = scene.pixels.contiguous(), LARGEST_IMAGE / max(height, width)
    if factor < 1:
        colours = scene.pixels.permute(2, 0, 1)[None].float()
        small = interpolate(colours, scale_factor=factor, mode="area")[0]
        pixels = small.permute(1, 2, 0).round().to(torch.uint8).contiguous()
    return described.Image(
        data_uri(pixels.numpy()),
        width,
        height,
        {name: grid for name, grid in grids.items() if name in sequences},
        f"{scene}, as the model was given it.",
    )
