"""Packs many maps into one small page.

Every map is stored in whole steps of its own scale, of 16 bits or 8, and every head is one block:
deflated, in base64, and unpacked by the viewer only when it is looked at. Where even that would be
too much, only the largest entries of every row are kept, and of the rest of the row its mean; what
share of the weight that leaves out is written next to the map. ``viewer/src/payload.ts`` reads what
is written here.
"""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.report.blocks import SiteMaps
from exhibit_a.report.header import Group, Head

FEWEST = 2  # entries of a row that are kept however long the text is
INDEX_COST, VALUE_COST = 0.95, 0.85  # bytes after deflate, as measured

Bits = Literal[8, 16]
Modes = dict[str, SiteMaps]
SIZES: tuple[Bits, ...] = (16, 8)


@dataclass
class PackedBlocks:
    """Named bytes, one after the other in one text."""

    share: float = 1.0  # of the bytes that a page may have
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    length: int = 0
    prefix: str = ""  # of all names

    def add(self, name: str, data: bytes) -> str:
        """Put bytes in, and give their name back."""
        name, text = self.prefix + name, base64.b64encode(zlib.compress(data, 6)).decode()
        self.places[name] = (self.length, len(text))
        self.texts.append(text)
        self.length += len(text)
        return name

    def extend(self, others: "PackedBlocks") -> None:
        """Put other blocks behind these, under their own names."""
        for name, (start, length) in others.places.items():
            self.places[name] = (self.length + start, length)
        self.texts += others.texts
        self.length += others.length

    def text(self) -> str:
        """All blocks as one text."""
        return "".join(self.texts)


@dataclass(frozen=True)
class Packed:
    """Maps as they stand in the header: by head, and how they were written."""

    heads: list[Head]
    bits: Bits
    groups: list[Group] | None
    visible: list[str | None]  # block of every site
    kept: dict[str, float]  # share of absolute weight, of every mode
    limits: dict[str, float]  # largest absolute value, of every mode


def pack(
    blocks: PackedBlocks, name: str, modes: Modes, *, together: Sequence[Sequence[str]], budget: int
) -> Packed:
    """Write maps into blocks, as finely as ``budget`` bytes allow.

    ``together`` names the modes that keep the same entries where not all can be kept.
    """
    shapes = [tuple(maps.shape) for maps in next(iter(modes.values()))]
    entries = len(modes) * sum(heads * rows * columns for heads, rows, columns in shapes)
    for bits in SIZES:
        if entries * bits // 8 <= budget:
            return _dense(blocks, name, modes, bits)
    rows = sum(heads * rows for heads, rows, _ in shapes)
    per_entry = sum(INDEX_COST + VALUE_COST * len(group) for group in together)
    count = max(int((budget / rows - len(modes)) / per_entry), FEWEST)
    return _sparse(blocks, name, modes, together, count)


@dataclass
class _HeadBytes:
    """The maps of one head in bytes, and what a reader needs to scale them back, by mode."""

    data: bytes = b""
    scales: dict[str, float] = field(default_factory=dict)
    rests: dict[str, float] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)

    def entry(self, blocks: PackedBlocks, name: str, site: int, head: int) -> Head:
        """Write the bytes into a block, and describe it."""
        return {
            "site": site,
            "head": head,
            "block": blocks.add(f"{name}/{site}/{head}", self.data),
            "scales": self.scales,
            "rests": self.rests,
            "kept": self.kept,
            "numbers": {},
        }


def _dense(blocks: PackedBlocks, name: str, modes: Modes, bits: Bits) -> Packed:
    """Every entry of every map."""
    heads = []
    for site, maps in enumerate(zip(*modes.values(), strict=True)):
        scales = [_largest(scores) for scores in maps]
        steps = [_steps(scores, scale, bits) for scores, scale in zip(maps, scales, strict=True)]
        for head in range(maps[0].shape[0]):
            data = b"".join(values[head].tobytes() for values in steps)
            scaled = {mode: float(scale[head]) for mode, scale in zip(modes, scales, strict=True)}
            heads.append(_HeadBytes(data, scaled).entry(blocks, name, site, head))
    sites = len(next(iter(modes.values())))
    return Packed(heads, bits, None, [None] * sites, dict.fromkeys(modes, 1.0), _limits(heads))


def _sparse(
    blocks: PackedBlocks, name: str, modes: Modes, together: Sequence[Sequence[str]], count: int
) -> Packed:
    """The ``count`` largest entries of every row, and the mean of the others."""
    heads, visible = [], list[str | None]()
    count = min(count, *(int(maps.shape[-1]) for maps in next(iter(modes.values()))))
    weights = {mode: [0.0, 0.0] for mode in modes}  # kept, of
    for site in range(len(next(iter(modes.values())))):
        maps = {mode: of_sites[site].detach().cpu().float() for mode, of_sites in modes.items()}
        # The first and the last column in which any head's row has a weight.
        used = (next(iter(maps.values())) != 0).any(0)
        used[~used.any(-1)] = True
        first = used.int().argmax(-1)
        last = used.shape[-1] - 1 - used.flip(-1).int().argmax(-1)
        range_of = torch.stack([first, last], -1).numpy().astype("<u2").tobytes()
        visible.append(blocks.add(f"{name}/{site}/visible", range_of))
        rows = _RowMaxima(count, (last - first + 1 - count).clamp_min(1), len(maps[together[0][0]]))
        for group in together:
            rows.add({mode: maps[mode] for mode in group}, weights)
        for head, packed in enumerate(rows.heads):
            heads.append(packed.entry(blocks, name, site, head))
    groups: list[Group] = [{"modes": list(group), "count": count} for group in together]
    shares = {mode: held / whole if whole else 1.0 for mode, (held, whole) in weights.items()}
    return Packed(heads, 8, groups, visible, shares, _limits(heads))


class _RowMaxima:
    """The largest entries of every row of one site, head by head."""

    def __init__(self, count: int, others: Int[Tensor, " row"], heads: int) -> None:
        self.count, self.others = count, others  # entries kept, and how many are not
        self.heads = [_HeadBytes() for _ in range(heads)]

    def add(self, maps: dict[str, Tensor], weights: dict[str, list[float]]) -> None:
        """Write maps that keep the same entries; ``weights`` counts what is kept of each."""
        places = _strongest(list(maps.values()), self.count)
        gaps = torch.diff(places, dim=-1, prepend=torch.zeros_like(places[..., :1])).numpy()
        high, low = (gaps >> 8).astype(np.uint8), (gaps & 255).astype(np.uint8)
        for head, packed in enumerate(self.heads):
            packed.data += high[head].tobytes() + low[head].tobytes()
        for mode, scores in maps.items():
            held = scores.gather(-1, places)
            rest = ((scores.sum(-1) - held.sum(-1)) / self.others).unsqueeze(-1)
            scale, rest_scale = _largest(held), _largest(rest)
            steps, rest_steps = _steps(held, scale, 8), _steps(rest, rest_scale, 8)
            kept, whole = held.abs().sum((1, 2)), scores.abs().sum((1, 2))
            weights[mode][0] += float(kept.sum())
            weights[mode][1] += float(whole.sum())
            for head, packed in enumerate(self.heads):
                packed.data += steps[head].tobytes() + rest_steps[head].tobytes()
                packed.scales[mode] = float(scale[head])
                packed.rests[mode] = float(rest_scale[head])
                packed.kept[mode] = float(kept[head] / whole[head]) if whole[head] else 1.0


def _limits(heads: list[Head]) -> dict[str, float]:
    modes = heads[0]["scales"] if heads else {}
    return {mode: max(head["scales"][mode] for head in heads) for mode in modes}


def _largest(maps: Float[Tensor, "head row column"]) -> Float[Tensor, " head"]:
    """The largest finite absolute value of every head."""
    finite = maps.detach().cpu().float().nan_to_num(0.0, 0.0, 0.0)
    return finite.abs().amax((1, 2)) if finite.numel() else finite.new_zeros(len(finite))


def _steps(
    maps: Float[Tensor, "head row column"], scale: Float[Tensor, " head"], bits: Bits
) -> Int[np.ndarray, "head row column"]:
    """Whole steps of each head's scale; the lowest step of all stands for what is no number."""
    most = 2 ** (bits - 1) - 1
    safe = torch.where(scale > 0, scale, 1.0)[:, None, None]
    scores = maps.detach().cpu().float()
    steps = (scores / safe * most).round().nan_to_num(-most - 1).clamp(-most - 1, most)
    whole: Int[np.ndarray, "head row column"] = steps.numpy().astype("<i2" if bits == 16 else "i1")
    return whole


def _strongest(
    maps: list[Float[Tensor, "head row column"]], count: int
) -> Int[Tensor, "head row kept"]:
    """Where the largest entries of every row are, any of the maps considered, in order."""
    size = maps[0].abs()
    for scores in maps[1:]:
        size = torch.maximum(size, scores.abs())
    return size.topk(count, dim=-1).indices.sort(-1).values
