"""Result files that were changed and sealed again, and what becomes of them when they are read.

Run as a program (``python -m support.resealed FOLDER``), so that what is tried is the package as
users have it: in a test, beartype would find wrong types first.
"""

import copy
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors.torch

import exhibit_a as xa
from exhibit_a.errors import ExhibitError
from exhibit_a.results import store
from support.cases import tiny_trial
from support.corpora import examples, sentences
from support.subjects import speaker

NAMES = ("alti", "by-length", "effective", "importance", "tokens", "tree", "trial")
WRONG = [5, -1, "x", None, True, [], {"tuple": []}, {"dict": []}, {"float": "nan"}, {"tensor": "?"}]
CHANGES = 30  # in each file


def save_results(folder: Path) -> list[Path]:
    """A result of several kinds each, computed with a tiny model."""
    subject = speaker()
    text = "a fine film saves the plot"
    trace = xa.capture(subject, text)
    results = {
        "alti": xa.companions(trace, methods=["alti"])["alti"],
        "by-length": xa.identifiability_by_length(subject, text, lengths=[4, 6]),
        "effective": xa.effective_attention(trace),
        "importance": xa.head_importance(subject, examples(4), by="taylor"),
        "tokens": xa.token_identifiability(subject, sentences(12), maps=("identity",)),
        "tree": xa.attribution_tree(xa.self_attribution(trace)),
        "trial": tiny_trial(),
    }
    return [results[name].save(folder / f"{name}.safetensors") for name in NAMES]


def opened(data: bytes) -> tuple[dict[str, Any], Any]:
    """The header of a file and the tree in it."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["exhibit_a"][len(store._BLANK) :])


def resealed(data: bytes, tree: Any, **entries: Any) -> bytes:
    """The same tensors with another tree, and a seal that is right."""
    length = int.from_bytes(data[:8], "little")
    header = opened(data)[0] | entries
    header["__metadata__"]["exhibit_a"] = store._BLANK.decode() + json.dumps(tree)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    whole = len(text).to_bytes(8, "little") + text + data[8 + length :]
    return whole[: store._START] + store._seal(whole) + whole[store._STOP :]


def changed(data: bytes, seed: str) -> Iterator[bytes]:
    """The file with a wrong value at one place of its tree, again and again."""
    tree = opened(data)[1]["result"]
    every = [(place, value) for place in _places(tree) for value in WRONG]
    for place, value in random.Random(seed).sample(every, CHANGES):
        result = _replaced(tree, place, value)
        yield resealed(data, {"schema": store.SCHEMA, "result": result})


def shorter(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The file with one token or site less, or with a tensor that lacks the last row of an axis."""
    tree = opened(data)[1]
    for name, value in tree["result"]["fields"].items():
        if name in ("tokens", "sites") and value is not None:
            yield (
                name,
                resealed(data, _replaced(tree, ("result", "fields", name, "tuple", -1), ...)),
            )
    tensors = safetensors.torch.load(data)
    for name, tensor in tensors.items():
        for axis in range(tensor.ndim):
            cut = tensor.narrow(axis, 0, tensor.shape[axis] - 1).contiguous()
            note = opened(data)[0]["__metadata__"]
            changed = safetensors.torch.save(tensors | {name: cut}, note)
            yield f"{name} {axis}", resealed(changed, tree)


def outcome(data: bytes) -> tuple[str, str]:
    """What comes of reading a file, and the line that is said about it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.safetensors"
        path.write_bytes(data)
        try:
            store.read(path).summary()  # where the type happens to be right, it can be looked at
        except ExhibitError as line:
            return "refused", str(line)
        except Exception as problem:
            return "traceback", repr(problem)
    return "opened", ""


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every node, and to the first few of a list."""
    yield path
    if not isinstance(tree, dict | list):
        return
    for step in tree if isinstance(tree, dict) else range(min(len(tree), 3)):
        yield from _places(tree[step], (*path, step))


def _replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    whole = {"root": copy.deepcopy(tree)}
    node, last = whole, "root"
    for step in path:
        node, last = node[last], step
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return whole["root"]


def main() -> None:
    """Say, as JSON, what came of every changed file, and of those that are wrong in one thing."""
    folder = Path(sys.argv[1])
    files = sorted(folder.glob("*.safetensors"))
    tried = {
        path.stem: [outcome(d) for d in changed(path.read_bytes(), path.stem)] for path in files
    }
    data = (folder / "effective.safetensors").read_bytes()
    tree = opened(data)[1]
    tree["result"]["fields"]["tokens"] = {"tuple": ["a", 5]}
    tried["a token that is a number"] = [outcome(resealed(data, tree))]
    data = (folder / "by-length.safetensors").read_bytes()
    header, tree = opened(data)
    turned = header["nullity"] | {"shape": header["nullity"]["shape"][::-1]}
    tried["axes of other sizes"] = [outcome(resealed(data, tree, nullity=turned))]
    lengths = {
        path.stem: {name: outcome(d) for name, d in shorter(path.read_bytes())} for path in files
    }
    print(json.dumps({"types": tried, "lengths": lengths}))  # noqa: T201 - it is a program


if __name__ == "__main__":
    main()
