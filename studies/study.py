"""What all studies share: options, rows that go on where they stopped, measurements, tables, texts,
figures.

A measurement is one line of docs/data/claims.jsonl: an id, the value and its 95 % interval, how
many of what it rests on, the model, the data, the command that measures it again and the versions
it was measured with. A line replaces earlier ones with its id, so a study can be run again with
more examples. ``claims.py`` says which claim rests on which ids. A table is one line of
docs/data/tables.jsonl, printed by the page that names its id.
"""

import argparse
import json
import random
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot
import numpy as np
import torch
import transformers
from rich.progress import track
from scipy import stats

import exhibit_a as xa
from exhibit_a.embedded.weights import EMBEDDED
from exhibit_a.examples import Example, read_examples
from exhibit_a.methods.explanation.erasure import by_presence
from exhibit_a.numerics.intervals import wilson
from exhibit_a.trace.targets import chosen_target

DOCS = Path(__file__).parents[1] / "docs/data"
FILE, TABLES = DOCS / "claims.jsonl", DOCS / "tables.jsonl"
PACKAGES = ("exhibit-a", "torch", "transformers")
DIGITS = 4  # that are kept of every number
Row = dict[str, Any]

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "exhibit-a"  # or every run draws new random identifiers


# Options


def parse(
    doc: str | None,
    need: Sequence[str] = (),
    part: Iterable[str] = (),
    names: Iterable[str] = (),
    **given: Any,
) -> argparse.Namespace:
    """The options of a study, its part or some names, and the usual settings: one thread, no
    chatter.

    An option is given as its default, or as a type where it has none; a tuple is one that takes
    several values.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if part:
        parser.add_argument("part", choices=list(part))
    if names:
        parser.add_argument("names", nargs="*", choices=list(names))
    for name, usual in given.items():
        if usual is False:
            parser.add_argument(f"--{name}", action="store_true")
            continue
        one = usual[0] if isinstance(usual, tuple) else usual
        kind, default = (one, None) if isinstance(one, type) else (type(one), usual)
        several = {"nargs": "+"} if isinstance(usual, tuple) else {}
        parser.add_argument(
            f"--{name}", type=kind, default=default, required=name in need, **several
        )
    parser.add_argument("--ledger", type=Path, default=FILE, help="file for the measurements")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return parser.parse_args()


def spoken(arguments: Sequence[str]) -> str:
    """The command as another person would give it: folders by the name of their option."""
    told, before = ["python", f"studies/{Path(arguments[0]).name}"], ""
    for argument in arguments[1:]:
        if before == "--ledger":
            told.pop()  # where the line went is not part of how it was measured
        elif before == "--base" and Path(argument).is_absolute():
            told.append(f"MODELS/{Path(argument).name}")
        elif Path(argument).is_absolute():
            told.append(
                before.lstrip("-").upper() + ("/SST-2" if Path(argument).name == "SST-2" else "")
            )
        else:
            told.append(argument)
        before = argument
    return shlex.join(told)


# Rows


def rows(path: Path) -> list[Row]:
    """The lines of a file of rows; none where there is no file yet."""
    return (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    )


def append(path: Path, row: Row) -> None:
    """One more line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, separators=(",", ":")) + "\n")


def resumed(
    path: Path,
    work: Iterable[tuple[Row, Callable[[], Row]]],
    kept: Callable[[Row], Row] | None = None,
) -> list[Row]:
    """The rows of all work; what has a row with its key is not measured again, other rows are
    appended."""
    work = list(work)
    keys = [tuple(key.values()) for key, _ in work]
    names = list(work[0][0]) if work else []
    known = {tuple(row[name] for name in names): row for row in rows(path)}
    waiting = [pair for pair, key in zip(work, keys, strict=True) if key not in known]
    for key, measure in track(
        waiting, f"{path.stem}: {len(work) - len(waiting)} of {len(work)} were there"
    ):
        row = key | measure()
        known[tuple(key.values())] = row = kept(row) if kept else row
        append(path, row)
    return [known[key] for key in keys]


def put(path: Path, row: Row, *by: str) -> None:
    """A line of a data file; one that has the same values of these keys makes room for it."""
    same = [row[key] for key in by]
    others = [other for other in rows(path) if [other[key] for key in by] != same]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(each, separators=(",", ":")) for each in (*others, rounded(row))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def digits(number: float | None) -> float | None:
    """A number with as many digits as are kept."""
    return None if number is None else float(f"{number:.{DIGITS}g}")


def rounded(row: Any) -> Any:
    """The same with as many digits as are kept, however deep."""
    if isinstance(row, dict):
        return {name: rounded(value) for name, value in row.items()}
    if isinstance(row, list):
        return [rounded(value) for value in row]
    return digits(row) if isinstance(row, float) else row


def spent(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time, and what they brought."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


# Measurements


@dataclass(frozen=True)
class Measurement:
    """One number and all that is needed to doubt it."""

    id: str
    value: float
    interval: tuple[float, float]  # 95 %; both ends are the value where nothing was sampled
    count: int
    of: str  # what was counted: sentences, heads, ...
    model: str
    data: str
    command: str
    versions: dict[str, str]

    @property
    def exact(self) -> bool:
        """Whether it was counted or calculated, so that another sample would say the same."""
        return self.interval == (self.value, self.value)

    def overlaps(self, other: "Measurement") -> bool:
        """Whether two measurements of the same thing agree within their intervals."""
        return self.interval[0] <= other.interval[1] and other.interval[0] <= self.interval[1]


def kept(path: Path = FILE) -> dict[str, Measurement]:
    """The last measurement of each id."""
    return {
        row["id"]: Measurement(**row | {"interval": tuple(row["interval"])}) for row in rows(path)
    }


def mean_and_half(values: Iterable[Any]) -> tuple[float, float]:
    """A mean and half of Student's 95 % interval, which is honest about few values."""
    each = np.array([float(value) for value in values])
    half = stats.t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / len(each) ** 0.5
    return float(each.mean()), float(half)


class Ledger:
    """The measurements of one study, with one model on one set of data."""

    def __init__(
        self, path: Path, model: str, data: str, command: str | None = None, *, apart: bool = False
    ) -> None:
        self.path, self.model, self.data = path, model, data
        self.command = command or spoken(sys.argv)
        self.suffix = f", {model}" if apart else ""  # beside the model that claims are put to

    def write(
        self, name: str, value: float, interval: Sequence[float], count: int, of: str
    ) -> None:
        """One line."""
        row = {
            "id": name + self.suffix,
            "value": value,
            "interval": list(interval),
            "count": count,
            "of": of,
        }
        row |= {"model": self.model, "data": self.data, "command": self.command}
        row["versions"] = {package: version(package) for package in PACKAGES}
        append(self.path, rounded(row))
        print(
            f"{name}: {value:.4g} [{interval[0]:.4g}, {interval[1]:.4g}] of {count} {of}",
            flush=True,
        )

    def mean(self, name: str, values: Iterable[Any], of: str = "sentences") -> None:
        """A mean over examples; those without a value are left out."""
        each = [value for value in map(float, values) if value == value]
        middle, half = mean_and_half(each)
        self.write(name, middle, (middle - half, middle + half), len(each), of)

    def share(self, name: str, right: int, count: int, of: str = "sentences") -> None:
        """So many of so many, with Wilson's interval."""
        self.write(
            name, right / count, wilson(torch.tensor(right / count), count).tolist(), count, of
        )

    def exact(self, name: str, value: float, count: int, of: str) -> None:
        """A number that was counted or calculated, not estimated from a sample."""
        self.write(name, value, (value, value), count, of)


def ledger_of(options: argparse.Namespace, data: str) -> Ledger:
    """The ledger for the model ``--base``; ids of others than ``sentiment`` name it."""
    name = Path(options.base).name
    return Ledger(options.ledger, f"`{name}`", data, apart=name != "sentiment")


def keep(options: argparse.Namespace, what: str, part: Row) -> None:
    """Put a part of the numbers of a model into docs/data/WHAT-MODEL.json; other parts stay."""
    file = options.docs / f"{what}-{Path(options.base).name}.json"
    whole = json.loads(file.read_text("utf-8")) if file.exists() else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole | rounded(part), indent=1) + "\n", encoding="utf-8")


# Tables of pages


def keep_table(
    name: str,
    heading: Sequence[str],
    body: Iterable[Sequence[Any]],
    path: Path = TABLES,
    command: str | None = None,
) -> None:
    """Print a table and keep it, with the command of this process unless another is given."""
    table: Row = {
        "id": name,
        "heading": list(heading),
        "rows": [[str(cell) for cell in row] for row in body],
    }
    table |= {
        "command": command or spoken(sys.argv),
        "versions": {each: version(each) for each in PACKAGES},
    }
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    lines = [line for line in lines if json.loads(line)["id"] != name] + [
        json.dumps(table, ensure_ascii=False)
    ]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"\n{markdown(table)}\n", flush=True)


def kept_tables(path: Path = TABLES) -> dict[str, Row]:
    """The tables by their ids."""
    return {table["id"]: table for table in rows(path)}


def markdown(table: Row) -> str:
    """The table as a page shows it."""
    heading = table["heading"]
    return "\n".join(
        "| " + " | ".join(row) + " |" for row in [heading, ["---"] * len(heading), *table["rows"]]
    )


# Texts


def read_sst(path: Path) -> list[Example]:
    """SST-2, with words for labels."""
    names = {"0": "negative", "1": "positive"}
    read = read_examples(path, labelled=True)
    return [replace(each, text=each.text.strip(), label=names[str(each.label)]) for each in read]


def read_nli(data: Path, name: str, part: str) -> list[Example]:
    """The subset of MNLI or SNLI."""
    return read_examples(data / f"{name}-subset" / f"{part}_subset.tsv", labelled=True)


def sentences(data: Path, count: int) -> list[str]:
    """Sentences of SST-2's development set; a larger count only adds to a smaller one."""
    texts = [example.text for example in read_sst(data / "SST-2" / "dev.tsv")]
    random.Random(0).shuffle(texts)
    return texts[:count]


def paragraphs(subject: xa.Subject, options: argparse.Namespace, one: int = 256) -> list[str]:
    """The first texts of wikitext-2 with ``--longest`` tokens: paragraphs, or several where none is
    so long."""
    found: list[str] = []
    before = ""
    for line in (options.data / "wikitext-2" / "wiki.test.tokens").read_text("utf-8").splitlines():
        paragraph = " ".join(line.replace("<unk>", " ").split())
        if len(paragraph) <= 1200 or paragraph.startswith("="):
            continue
        text = f"{before} {paragraph}".strip()
        whole = len(
            subject.tokenizer(text, truncation=True, max_length=options.longest)["input_ids"]
        )
        if whole == options.longest:
            found.append(text)
        before = text if options.longest > one and whole < options.longest else ""
        if len(found) == options.texts:
            break
    return found


def cut(subject: xa.Subject, text: str, tokens: int) -> xa.Trace:
    """The pass over the first tokens of a text."""
    given = subject.tokenizer(text, truncation=True, max_length=tokens, return_tensors="pt")
    return xa.capture(subject, {name: given[name] for name in ("input_ids", "attention_mask")})


def lost_without(
    trace: xa.Trace, members: Sequence[Sequence[int]], sets: Sequence[Iterable[int]]
) -> list[float]:
    """What the answer loses without each set of words; ``members`` are the tokens of every word."""
    answer, written = by_presence(trace, chosen_target(trace, None), "delete")
    column = {place: number for number, place in enumerate(written.nonzero()[:, 0].tolist())}
    present = torch.ones(1 + len(sets), len(column))
    for row, gone in zip(present[1:], sets, strict=True):
        row[[column[place] for word in gone for place in members[word]]] = 0
    own, *others = answer(present).flatten().tolist()
    return [own - other for other in others]


# Figures


def save(figure: Any, path: Path) -> None:
    """Write a figure without the date of its making, so that the same numbers give the same
    bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    matplotlib.pyplot.close(figure)


def save_in(folder: Path | None, name: str, figure: Any) -> None:
    """The same in a folder; without one, as in a small run, nothing is kept."""
    if folder is not None:
        save(figure, folder / f"{name}.svg")
    matplotlib.pyplot.close(figure)


def figure_name(options: argparse.Namespace, what: str) -> str:
    """How figures of a model begin; those of all-MiniLM-L6-v2 and its children came first."""
    name = Path(options.base).name
    return what if name in ("sentiment", "all-MiniLM-L6-v2") else f"{what}-{name}"


# Cards of embedded models


def measured_card(name: str, body: Sequence[str], folder: Path, about: str = "") -> None:
    """The card that is in the package, with these rows in its table and this line on the training,
    if given."""
    table = re.compile(r"(?<=\|---\|\n)(\|.*\n)+")
    card = table.sub("\n".join(body) + "\n", (EMBEDDED / name / "README.md").read_text("utf-8"))
    if about:
        card = re.sub(r"^\* Trained from nothing on .*$", about, card, flags=re.MULTILINE)
    (folder / name / "README.md").write_text(card, encoding="utf-8")
    size = sum(file.stat().st_size for file in (folder / name).iterdir())
    print("\n".join(body), f"\n{folder / name}: {size / 1e6:.2f} MB")
