"""How is a map drawn where no script may run? As a small PNG, made here.

Blue against, orange for, white for nothing: the scale of the page, as straight lines between its
anchors. As there, rounding is not painted: what is below ``NOISE`` is nothing, and no scale is
stretched further than ``SMALLEST``.
"""

import base64
import struct
import zlib

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from exhibit_a.report.palette import ANCHORS, OF_WORD, SIGNED

WORD_COLOURS = {word: list(bytes.fromhex(code[1:])) for word, code in OF_WORD.items()}

NOISE, SMALLEST = 1e-6, 1e-5

Picture = UInt8[np.ndarray, "_height _width 3"]


def shaded(numbers: Tensor, limit: float) -> Picture:
    """A map in colours, one pixel a number."""
    scores = numbers.detach().cpu().double().nan_to_num().numpy()
    scores = np.where(np.abs(scores) < NOISE, 0, scores)
    place = np.sign(scores) * np.sqrt(np.clip(np.abs(scores) / max(limit, SMALLEST), 0, 1))
    channels = [np.interp(place, ANCHORS, colour) for colour in SIGNED.T]
    return np.stack(channels, -1).round().astype(np.uint8)


def word_squares(words: list[list[str]]) -> Picture:
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

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (chunk(b"IHDR", size), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return "data:image/png;base64," + base64.b64encode(png).decode()
