"""The colours of everything we draw, once: safe for the colour-blind, and readable in grey.

Signed numbers go from blue (against) over paper to orange (for); numbers without a sign go from
light to dark. Each word of a verdict has a colour, and series take the colours of Okabe and Ito in
a fixed order.
"""

import numpy as np

from exhibit_a.trials.verdict import CONTESTED, EVIDENCE, MISLEADING, NO_EFFECT, UNDETERMINED

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY = "#E69F00", "#56B4E9"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
GREY, PALE = "#666666", "#d9d9d9"  # of reference lines, and of what lies behind the marks

OF_WORD = {
    EVIDENCE: "#14806f",
    CONTESTED: "#e3b341",
    MISLEADING: "#c2410c",
    NO_EFFECT: "#cfcabf",
    UNDETERMINED: "#8f97b8",
}
OF_ADVICE = {"show": "#14806f", "caution": "#9a6b00", "do not show": "#c2410c"}


def _rgb(*colours: str) -> np.ndarray:
    """Red, green and blue of each colour, from 0 to 255."""
    return np.array([list(bytes.fromhex(colour)) for colour in colours])


# The signed scale, as straight lines between these: where on [-1, 1], and which red, green, blue.
ANCHORS = np.array([-1, -0.66, -0.3, 0, 0.3, 0.66, 1])
SIGNED = _rgb("0b2d5b", "1f6db3", "94c1e4", "fbfaf6", "f7c48f", "d8611b", "6d1b05")
AGAINST, FOR = ("#" + bytes(SIGNED[place].tolist()).hex() for place in (1, 5))

# The scale without a sign, in equal steps from nothing to the most: paper to dark violet.
SEQUENTIAL = _rgb("fbfaf6", "d6d4e2", "a5a0c1", "70679c", "423470", "1c103a")

# Behind words in a terminal, from strong to faint; the strong ones carry white letters.
FOR_SHADES = ("#b84a0c", "#f0a868", "#fbe0c4")
AGAINST_SHADES = (AGAINST, "#8fbfe6", "#d3e6f5")
