"""The colours of everything we draw, once: safe for the colour-blind, and readable in grey.

Signed numbers go from blue (against) over paper to orange (for); numbers without a sign go from
light to dark. Each word of a verdict has a colour, and series take the colours of Okabe and Ito in
a fixed order.
"""

import numpy as np

from exhibit_a.trials.verdict import CONTESTED, EVIDENCE, NO_EFFECT, PARTIAL

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY = "#E69F00", "#56B4E9"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
GREY, PALE = "#666666", "#d9d9d9"  # of reference lines, and of what lies behind the marks

OF_WORD = {EVIDENCE: "#14806f", PARTIAL: "#e3b341", CONTESTED: "#c2410c", NO_EFFECT: "#cfcabf"}

# The signed scale, as straight lines between these: where on [-1, 1], and which red, green, blue.
ANCHORS = np.array([-1, -0.66, -0.3, 0, 0.3, 0.66, 1])
SIGNED = np.array(
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
AGAINST, FOR = ("#" + bytes(SIGNED[place].tolist()).hex() for place in (1, 5))

# The scale without a sign, in equal steps from nothing to the most: paper to dark violet.
SEQUENTIAL = np.array(
    [
        (251, 250, 246),
        (214, 212, 226),
        (165, 160, 193),
        (112, 103, 156),
        (66, 52, 112),
        (28, 16, 58),
    ]
)

# Behind words in a terminal, from strong to faint; the strong ones carry white letters.
FOR_SHADES = ("#b84a0c", "#f0a868", "#fbe0c4")
AGAINST_SHADES = (AGAINST, "#8fbfe6", "#d3e6f5")
