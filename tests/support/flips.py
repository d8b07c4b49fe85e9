"""Does any number come out of a damaged run folder? Single bits are flipped, and all is read again.

``flip_outcomes`` does so with a seed and a count, and says how often each outcome came.
"""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from exhibit_a import corpus
from exhibit_a.errors import ExhibitError
from support.corpora import contents
from support.fuzz.damage import flipped


def flip_outcomes(folder: Path, *, seed: int = 0, count: int = 100) -> Counter[str]:
    """Flip ``count`` single bits in the files of a finished run, one at a time.

    *named*: some reading was refused, and the message names the damaged file; *not read*: no
    reading needs the file, and ``verify`` names it. A number that differs without a word, an error
    that is not ours or that names another file is an AssertionError. The folder is left as it was.
    """
    chance = random.Random(seed)
    readings = _readings(folder, folder)
    before = {name: read() for name, read in readings.items()}
    sizes = {name: len(data) for name, data in contents(folder).items() if data}
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        name = chance.choice(sorted(sizes))
        place = chance.randrange(8 * sizes[name])
        flip(folder / name, place)
        try:
            outcomes[_outcome(folder, name, readings, before)] += 1
        finally:
            flip(folder / name, place)
    return outcomes


def flip(path: Path, place: int) -> None:
    """Turn one bit of a file over."""
    path.write_bytes(flipped(path.read_bytes(), place))


def silent_differences(folder: Path, whole: Path) -> list[str]:
    """The readings of a damaged folder that give other values than the whole one, silently."""
    readings, wanted = _readings(folder, whole), _readings(whole, whole)
    return [
        name
        for name, read in readings.items()
        if not isinstance(value := _value_or_error(read), ExhibitError) and value != wanted[name]()
    ]


def _outcome(
    folder: Path, name: str, readings: dict[str, Callable[[], str]], before: dict[str, str]
) -> str:
    named = []
    for reading, read in readings.items():
        value = _value_or_error(read)
        if isinstance(value, ExhibitError):
            _require_named(name, reading, value)
            named.append(reading)
        else:
            assert value == before[reading], f"{name}: {reading} differs without a word"
    _require_named(name, "verify", _value_or_error(lambda: corpus.open(folder).verify()))
    return "named" if named else "not read"


def _require_named(name: str, reading: str, error: object) -> None:
    """An error of ours, in one line, with the name of the file."""
    assert isinstance(error, ExhibitError), f"{name} is damaged, and {reading} does not say so"
    assert "\n" not in str(error)
    assert Path(name).name in str(error), f"{name} is damaged, and {reading}: {error}"


def _readings(folder: Path, like: Path) -> dict[str, Callable[[], str]]:
    """Every way to read a finished run that holds what another holds, each giving text."""
    run = corpus.open(like)
    kinds = sorted({name.partition("/")[0] for name in run.manifest["files"]})
    tables = [kind for kind in kinds if kind in ("examples", "heads")]
    readings: dict[str, Callable[[], str]] = {
        "open": lambda: repr(corpus.open(folder).manifest),
        "summary": lambda: repr(corpus.open(folder).summary().rows),
    }
    for kind in tables:
        readings[f"to_pandas {kind}"] = lambda kind=kind: repr(
            corpus.open(folder).to_pandas(kind).to_dict("list")
        )
        readings[f"batches {kind}"] = lambda kind=kind: repr(
            [table.to_pydict() for table in corpus.open(folder).batches(kind)]
        )
    if tables:
        readings["diff"] = lambda: repr(corpus.diff(folder, folder))
    if "dense" in kinds:
        count = run.manifest["counts"]["examples"]
        readings["dense"] = lambda: _maps(corpus.open(folder), count)
    if "result" in kinds:
        readings["result"] = lambda: repr(corpus.open(folder).result.to_pandas().to_dict("list"))
    return readings


def _maps(run: corpus.Run, count: int) -> str:
    return repr([{n: t.tolist() for n, t in run.dense(row).items()} for row in range(count)])


def _value_or_error(read: Callable[[], str | None]) -> str | ExhibitError | None:
    try:
        return read()
    except ExhibitError as problem:
        return problem
