"""What methods and rows of a long text cost: tables of docs/speed.md that are more than a file.

python docs/making/speed.py      draws figures/rows.svg from docs/data/rows.json
"""

import math

from page_tables import FIGURES, read, table

from exhibit_a.methods.registry import methods
from exhibit_a.trace.replay import LONG as LONG
from exhibit_a.trials.stages import FEWEST, PROBES, STAGES, TANGENTS

LAYERS, WIDTH, LENGTHS = 6, 384, ("32", "128", "512")
MIXED = TANGENTS // FEWEST
LITTLE = 0.5  # passes; less is not shown
LONGEST = max(map(int, read("rows.json")))
ALL_MAPS = 12 * 9 * LONGEST**2 * 4 / 1e9


def costs() -> str:
    """A line for every method: what was measured, and what it declares."""
    body, measured = [], read("costs.json")
    for name, entry in sorted(methods().items()):
        directions = PROBES if entry.cost.algebra_per_direction else WIDTH
        declared = entry.cost.passes(LAYERS, int(LENGTHS[1]), directions)
        if entry.room == "yours" or not declared:
            continue
        rows = [measured.get(name, {}).get(length) for length in LENGTHS]
        peak = f"{rows[-1]['megabytes']:,.0f} MB" if rows[-1] else ""
        few = "yes" if entry.rows else "" if entry.takes == ("trace",) else "–"
        cells = [passes(row["passes"]) if row else "" for row in rows]
        cells += [growth(*rows[-2:]), passes(declared), peak, f"{entry.cost.maps:g}", few]
        body.append([f"`{name}`", *cells])
    heads = [f"n = {length}" for length in LENGTHS]
    return table(["method", *heads, "growth", "declared", "peak", "maps", "few rows"], body)


def passes(number: float) -> str:
    """Three digits at most."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def growth(before: dict[str, float] | None, after: dict[str, float] | None) -> str:
    """The exponent of n between the two longest texts, beside that of a pass."""
    if before is None or after is None:
        return ""
    longer = math.log(after["tokens"] / before["tokens"])
    return f"n^{math.log(after['passes'] / before['passes']) / longer:.2f}"


def trial() -> str:
    """What trials of several lengths take, stage by stage."""
    measured = read("trial.json")
    there = [[row["stages"].get(name, 0) for name in STAGES] for row in measured]
    names = [
        n for n, each in zip(STAGES, zip(*there, strict=True), strict=True) if max(each) >= LITTLE
    ]
    body = []
    for row in measured:
        parts = [row["stages"].get(name, 0) for name in names]
        told = [f"{part:.0f}" if part >= LITTLE else "" for part in parts]
        body.append([row["tokens"], f"{row['passes']:.0f}", *told])
    return table(["tokens", "passes", f"of them {names[0]}", *names[1:]], body)


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
