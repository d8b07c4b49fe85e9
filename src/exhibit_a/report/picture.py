"""How is a map drawn where no script may run? As a small PNG, made here.

Blue against, orange for, white for nothing: the scale of the page, as straight lines between its
anchors.
"""

import base64
import struct
import zlib
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from exhibit_a.trials.verdict import COLOURS

WORD_COLOURS = {word: list(bytes.fromhex(code[1:])) for word, code in COLOURS.items()}
_ANCHORS = np.array([-1, -0.66, -0.3, 0, 0.3, 0.66, 1])
_COLOURS = np.array(
    [
        (11, 45, 91),
        (31, 109, 179),
        (148, 193, 228),
        (251, 250, 246),
        (247, 196, 143),
        (216, 97, 27),
        (109, 27, 5),
    ]
)

Picture = UInt8[np.ndarray, "_height _width 3"]


def shaded(numbers: Tensor, limit: float) -> Picture:
    """A map in colours, one pixel a number."""
    ours = numbers.detach().cpu().double().nan_to_num().numpy()
    place = np.sign(ours) * np.sqrt(np.clip(np.abs(ours) / (limit or 1.0), 0, 1))
    parts = [np.interp(place, _ANCHORS, _COLOURS[:, part]) for part in range(3)]
    return np.stack(parts, -1).round().astype(np.uint8)


def judged(words: list[list[str]]) -> Picture:
    """A square for every word, row by row; rows may differ in length."""
    most = max(map(len, words))
    blank = [[255, 255, 255]]
    rows = [[WORD_COLOURS[word] for word in row] + blank * (most - len(row)) for row in words]
    return np.array(rows, dtype=np.uint8)


def enlarged(picture: Picture, side: int, gap: int = 0) -> Picture:
    """Every pixel as a square, with white between them."""
    large = picture.repeat(side, 0).repeat(side, 1)
    for cut in range(gap):
        large[side - 1 - cut :: side] = 255
        large[:, side - 1 - cut :: side] = 255
    return large


def data_uri(picture: Picture) -> str:
    """The picture as a PNG that an img element can carry."""
    height, width, _ = picture.shape
    lines = b"".join(b"\0" + picture[row].tobytes() for row in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b""))
    png: Any = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    return "data:image/png;base64," + base64.b64encode(png).decode()
