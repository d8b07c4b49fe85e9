"""Where do the numbers of docs/claims.md come from? From lines that studies write here.

A line is one measurement: an id, the value and its 95 % interval, how many of what it rests on,
the model, the data, the command that measures it again and the versions it was measured with.
A line replaces earlier ones with its id, so a study can be run again with more examples.
``claims.py`` says which claim rests on which ids; ``docs/making/claims.py`` writes the page.
"""

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import words
from measurements import FILE
from scipy import stats

from exhibit_a.numerics.intervals import wilson

PACKAGES = ("exhibit-a", "torch", "transformers")


class Ledger:
    """The measurements of one study, with one model on one set of data."""

    def __init__(self, path: Path, model: str, data: str, command: str | None = None, *, apart: bool = False) -> None:
        self.path, self.model, self.data = path, model, data
        self.command = command or spoken(sys.argv)
        self.suffix = f", {model}" if apart else ""  # beside the model that claims are put to

    def write(self, name: str, value: float, interval: Sequence[float], count: int, of: str) -> None:
        """One line."""
        low, high = interval
        row = {
            "id": name + self.suffix,
            "value": value,
            "interval": [low, high],
            "count": count,
            "of": of,
            "model": self.model,
            "data": self.data,
            "command": self.command,
            "versions": {package: version(package) for package in PACKAGES},
        }
        words.append(self.path, words.rounded(row))
        print(f"{name}: {value:.4g} [{low:.4g}, {high:.4g}] of {count} {of}", flush=True)

    def mean(self, name: str, values: Iterable[float], of: str = "sentences") -> None:
        """A mean over examples, with Student's interval, which is honest about few of them."""
        each = np.array([float(value) for value in values])
        each = each[~np.isnan(each)]
        middle, count = float(each.mean()), len(each)
        error = each.std(ddof=1) / count**0.5
        half = float(stats.t.ppf(0.975, count - 1) * error)
        self.write(name, middle, (middle - half, middle + half), count, of)

    def share(self, name: str, right: int, count: int, of: str = "sentences") -> None:
        """So many of so many, with Wilson's interval."""
        ends = wilson(torch.tensor(right / count), count).tolist()
        self.write(name, right / count, ends, count, of)

    def exact(self, name: str, value: float, count: int, of: str) -> None:
        """A number that was counted or calculated, not estimated from a sample."""
        self.write(name, value, (value, value), count, of)


def of_sentences(description: str, folder: str, sentences: int, kept_in: Path) -> argparse.ArgumentParser:
    """The options of a study that keeps a line for each sentence of some data."""
    asked = argparse.ArgumentParser(description=description.splitlines()[0])
    asked.add_argument("--data", type=Path, required=True, help=f"folder with {folder}")
    asked.add_argument("--sentences", type=int, default=sentences)
    asked.add_argument("--out", type=Path, default=kept_in, help="file of the sentences")
    add_option(asked)
    return asked


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option of every study that says which file it writes."""
    parser.add_argument("--ledger", type=Path, default=FILE, help="file for the measurements")


def spoken(arguments: Sequence[str]) -> str:
    """The command as another person would give it: folders by the name of their option."""
    script = Path(arguments[0])
    told = ["python", f"studies/{script.name}"]
    before = ""
    for argument in arguments[1:]:
        if before == "--ledger":
            told.pop()  # where the line went is not part of how it was measured
        elif before == "--base" and Path(argument).is_absolute():
            told.append(f"MODELS/{Path(argument).name}")
        elif Path(argument).is_absolute():
            part = "/SST-2" if Path(argument).name == "SST-2" else ""
            told.append(before.lstrip("-").upper() + part)
        else:
            told.append(argument)
        before = argument
    return shlex.join(told)
