"""What methods and rows of a long text cost: tables of docs/speed.md that are more than a file.

python docs/making/speed.py      draws figures/rows.svg from docs/data/rows.json
"""

import math

from page_tables import FIGURES, read

from exhibit_a.trace.replay import LONG as LONG
from exhibit_a.trials.stages import FEWEST, TANGENTS
from exhibit_a.trials.stages import PROBES as PROBES

LAYERS, WIDTH, LENGTHS = 6, 384, ("32", "128", "512")
MIXED = TANGENTS // FEWEST
LITTLE = 0.5  # passes; less is not shown
LONGEST = max(map(int, read("rows.json")))
ALL_MAPS = 12 * 9 * LONGEST**2 * 4 / 1e9


def passes(number: float) -> str:
    """Three digits at most."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def growth(before: dict[str, float] | None, after: dict[str, float] | None) -> str:
    """The exponent of n between the two longest texts, beside that of a pass."""
    if before is None or after is None:
        return ""
    longer = math.log(after["tokens"] / before["tokens"])
    return f"n^{math.log(after['passes'] / before['passes']) / longer:.2f}"


def draw() -> None:
    """The figure: the last row by layer, at every length."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "exhibit-a"}
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
    named = {"nullity": "free dimensions", "null_fraction": "null fraction", "sink": "first token"}
    for panel, (field, name) in zip(panels, named.items(), strict=True):
        for length, row in read("rows.json").items():
            panel.plot(row[field], marker=".", label=f"{int(length):,} tokens")
        panel.set(xlabel="layer", ylabel=name)
        panel.set_yscale("linear" if field == "null_fraction" else "log")
    panels[0].legend(fontsize=7)
    figure.savefig(FIGURES / "rows.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw()
