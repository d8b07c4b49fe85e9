"""Draws maps as images for places where no script may run: on GitHub, after nbconvert, in a mail.

An image is an SVG inside an ``img`` element: the numbers as a small PNG, the words as text next to
and above it; the text of ``alt`` names the strongest links for those who see no image. Blue is
against, orange for, white nothing: the scale of the page, as straight lines between its anchors.
As there, rounding is not painted: what is below ``NOISE`` is nothing, and no scale is stretched
further than ``FAINTEST``.
"""

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from exhibit_a.control_characters import escape_controls
from exhibit_a.report.blocks import Blocks, Maps, Story, of_kind
from exhibit_a.report.palette import ANCHORS, OF_WORD, SIGNED

WORD_COLOURS = {word: list(bytes.fromhex(code[1:])) for word, code in OF_WORD.items()}

NOISE, FAINTEST = 1e-6, 1e-5
SIDE = 440  # pixels of a map, about
LARGEST_CELL = 26
LETTERS = 14  # of a label
LETTER, LINE = 6.0, 11  # pixels that a letter and a line of labels take
SHOWN = 2  # maps of a result
NAMED = 3  # links that are described in words

Words = Sequence[str]

Pixels = UInt8[np.ndarray, "_height _width 3"]


def shaded(numbers: Tensor, limit: float) -> Pixels:
    """A map in colours, one pixel a number."""
    scores = numbers.detach().cpu().double().nan_to_num().numpy()
    scores = np.where(np.abs(scores) < NOISE, 0, scores)
    place = np.sign(scores) * np.sqrt(np.clip(np.abs(scores) / max(limit, FAINTEST), 0, 1))
    channels = [np.interp(place, ANCHORS, colour) for colour in SIGNED.T]
    return np.stack(channels, -1).round().astype(np.uint8)


def word_squares(words: list[list[str]]) -> Pixels:
    """A square for every word, row by row; rows may differ in length."""
    most = max(map(len, words))
    blank = [[255, 255, 255]]
    rows = [[WORD_COLOURS[word] for word in row] + blank * (most - len(row)) for row in words]
    return np.array(rows, dtype=np.uint8)


def enlarged(picture: Pixels, side: int, gap: int = 0) -> Pixels:
    """Every pixel as a square, with white between them."""
    large = picture.repeat(side, 0).repeat(side, 1)
    for cut in range(gap):
        large[side - 1 - cut :: side] = 255
        large[:, side - 1 - cut :: side] = 255
    return large


def data_uri(picture: Pixels) -> str:
    """The picture as a PNG that an img element can carry."""
    height, width, _ = picture.shape
    lines = b"".join(b"\0" + picture[row].tobytes() for row in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (chunk(b"IHDR", size), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def labelled_map(scores: Tensor, limit: float, words: tuple[Words, Words], name: str) -> str:
    """A map as an ``img`` element, its rows and columns called by their words.

    >>> weights = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    >>> labelled_map(weights, 1.0, (["a", "film"], ["a", "film"]), "raw")[:63]
    '<img alt="raw: a → a 0.9, film → film 0.8, film → a 0.2" src="d'
    """
    strongest = ", ".join(_strongest(scores, words))
    rows, columns = scores.shape
    cell = min(max(SIDE // max(rows, columns), 1), LARGEST_CELL)
    names = [[_short(word) for word in side] for side in words]
    left, top = (8 + LETTER * max(map(len, side), default=0) for side in names)
    width, height = left + cell * columns + 2, top + cell * rows + 2
    picture = data_uri(enlarged(shaded(torch.as_tensor(scores), limit), cell))
    step = -(-LINE // cell)  # where cells are smaller than letters, some words stand for all
    row_names = [
        f'<text x="{left - 5:.0f}" y="{top + (row + 0.5) * cell + 3.5:.1f}" '
        f'text-anchor="end">{escape(names[0][row])}</text>'
        for row in range(0, rows, step)
    ]
    column_names = [
        f'<text transform="translate({left + (column + 0.5) * cell + 3.5:.1f} {top - 5:.0f}) '
        f'rotate(-90)">{escape(names[1][column])}</text>'
        for column in range(0, columns, step)
    ]
    drawing = base64.b64encode(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        'font-family="sans-serif" font-size="10.5" fill="#222">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<image href="{picture}" x="{left:.0f}" y="{top:.0f}" '
        f'width="{cell * columns}" height="{cell * rows}"/>'
        f'<rect x="{left - 0.5:.1f}" y="{top - 0.5:.1f}" width="{cell * columns + 1}" '
        f'height="{cell * rows + 1}" fill="none" stroke="#bbb"/>'
        f"{''.join(row_names)}{''.join(column_names)}</svg>".encode()
    ).decode()
    alt = escape(f"{name}: {strongest}" if strongest else name)
    return f'<img alt="{alt}" src="data:image/svg+xml;base64,{drawing}">'


def labelled_maps(description: Blocks) -> str:
    """The maps of a description with the largest entries in sum; empty where it has none."""
    maps: list[tuple[str, Tensor, tuple[Words, Words]]] = []
    for block in of_kind(description, Maps):
        modes = [mode for mode in block.modes if mode.maps is not None]
        mode = next((mode for mode in modes if mode.key != "raw"), modes[0])  # not the model's own
        for site, heads in enumerate(mode.maps or ()):
            for head, scores in enumerate(heads):
                name = f"{mode.name.lower()}, {block.map_name(site, head)}"
                maps.append((name, scores, block.sites[site].names))
    for story in of_kind(description, Story):
        names = (story.target_names, story.source_names)
        for layer, scores in enumerate(story.contribution):
            maps.append((f"contribution, layer {layer}", scores, names))
    if not maps:
        return ""
    strength = [float(scores.abs().nan_to_num().sum()) for _, scores, _ in maps]
    first = sorted(range(len(maps)), key=lambda place: -round(strength[place], 4))[:SHOWN]
    shown = [maps[place] for place in first]
    limit = max(float(scores.abs().nan_to_num().amax()) for _, scores, _ in shown)
    cells = (
        f"<td>{labelled_map(scores, limit, words, name)}<br>{escape(name)}</td>"
        for name, scores, words in shown
    )
    more = "" if len(maps) <= SHOWN else f", {SHOWN} of {len(maps)}: the largest in sum"
    return (
        f"<table><caption>each row looks at the columns{more}</caption>"
        f"<tr>{''.join(cells)}</tr></table>"
    )


def _strongest(scores: Tensor, words: tuple[Words, Words]) -> list[str]:
    sizes = scores.detach().cpu().abs().nan_to_num().reshape(-1)
    edges = []
    for flat in sizes.topk(min(NAMED, len(sizes))).indices.tolist():
        row, column = divmod(flat, scores.shape[1])
        names = (words[0][row], words[1][column])
        pair = " → ".join(escape_controls(name, lines=False) for name in names)
        edges.append(f"{pair} {float(scores[row, column]):.2g}")
    return edges


def _short(word: str) -> str:
    word = escape_controls(word, lines=False).strip()
    return word if len(word) <= LETTERS else f"{word[: LETTERS - 1]}…"
