"""How is a figure saved, so that the same numbers give the same bytes?"""

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "exhibit-a"  # or every run draws new random identifiers


def save(figure: Any, path: Path) -> None:
    """Write a figure without the date of its making."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    matplotlib.pyplot.close(figure)


def save_in(folder: Path | None, name: str, figure: Any) -> None:
    """The same in a folder; without one, as in a small run, nothing is kept."""
    if folder is not None:
        save(figure, folder / f"{name}.svg")
    matplotlib.pyplot.close(figure)
