"""A result is stored as one safetensors file with a checksum over all of it.

The tensors are ordinary safetensors entries named after their fields (``effective/0``), so any
safetensors reader can open them. Everything else is one text in the file's metadata:

1. the seal: sha-256 of the whole file, taken with zeros in the seal's own place;
2. JSON with the schema number and the result as a tree. A tensor is named by its entry, and values
   that JSON does not have (tuples, NaN, keys that are not strings, dataclasses) carry a tag.

The seal and the schema number keep their places in every future schema. The same result gives the
same bytes. Nothing in a file names code to run: a class is looked up among the results of the
package and the classes in their annotations.
"""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, get_args, get_type_hints

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from exhibit_a.errors import BadRequestError, ExhibitError
from exhibit_a.numerics.memory import free_bytes
from exhibit_a.results.files import write_whole
from exhibit_a.results.plain import JSON
from exhibit_a.results.providers import provider
from exhibit_a.results.result import Result
from exhibit_a.results.sizes import require_sizes
from exhibit_a.results.types import require_types

SCHEMA = 2  # of result files

_OPENING = b'{"__metadata__":{"exhibit_a":"'  # which safetensors writes between length and seal
_START = 8 + len(_OPENING)
_STOP = _START + 2 * hashlib.sha256().digest_size
_BLANK = b"0" * (_STOP - _START)
_LONGEST_HEADER = 100_000_000  # safetensors refuses to read more
_MOST_TENSORS = 100_000  # a hundred layers times a thousand maps each
DAMAGED = "it is damaged"

Classes = dict[str, type]  # by name


def save(result: Result, path: str | PathLike[str]) -> Path:
    """Write a result to one file; an existing file is replaced when the new one is complete."""
    try:
        parts = _packed(result)
    except (
        ExhibitError,
        SafetensorError,
        LookupError,
        RecursionError,
        RuntimeError,
        ValueError,
    ) as fact:
        raise BadRequestError(f"{type(result).__name__} cannot be saved: {fact}") from fact
    return write_whole(path, *parts)


def read(path: str | PathLike[str]) -> Result:
    """Read a result from a file; a file that is damaged or not a result is refused in one line.

    >>> path = xa.effective_attention(trace).save(tmp_path / "effective.safetensors")
    >>> result = xa.read(path)
    >>> type(result).__name__, result.tokens[:3]
    ('EffectiveAttention', ('[CLS]', 'a', 'gripping'))
    >>> result.provenance.model
    'sentiment'
    >>> xa.read(tmp_path / "nothing.safetensors")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: ...nothing.safetensors cannot be read: there is no such file.
    """
    try:
        data, text = unsealed(Path(path))
        header = json.loads(text)
        if header["schema"] > SCHEMA:
            raise BadRequestError("it was written by a newer version. Upgrade exhibit-a.")
        if header["schema"] != SCHEMA:
            versions = header["result"]["fields"]["provenance"]["fields"]["versions"]
            raise BadRequestError(
                f"it was written by exhibit-a {dict(versions['dict'])['exhibit_a']}, and this "
                "version does not read it. Compute the result again."
            )
        result = _decoded(header["result"], safetensors.torch.load(data), {})
        if not isinstance(result, Result):
            raise BadRequestError("there is no result in it.")
    except ExhibitError as fact:
        raise BadRequestError(f"{path} cannot be read: {fact}") from fact.__cause__
    except OSError as problem:
        raise BadRequestError(f"{path} cannot be read: {problem.strerror}.") from problem
    except MemoryError as problem:
        raise BadRequestError(
            f"{path} cannot be read: it does not fit into the memory that is free."
        ) from problem
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as problem:
        raise BadRequestError(
            f"{path} cannot be read: it is not a well-formed result."
        ) from problem
    return result


def _seal(data: bytes | memoryview) -> bytes:
    view, digest = memoryview(data), hashlib.sha256()
    for part in (view[:_START], _BLANK, view[_STOP:]):
        digest.update(part)
    return digest.hexdigest().encode()


def sealed(tensors: dict[str, Tensor], text: str) -> tuple[memoryview, bytes, memoryview]:
    """The parts of a safetensors file of tensors and a text, with a seal over all of it."""
    data = memoryview(safetensors.torch.save(tensors, {"exhibit_a": _BLANK.decode() + text}))
    return data[:_START], _seal(data), data[_STOP:]


def unsealed(path: Path) -> tuple[bytes, str]:
    """The bytes of a file whose seal is right, and our text in it.

    Nothing is read on the word of the file alone: first its size must be what its header says, and
    small enough for the memory there is.
    """
    if not path.exists():
        raise BadRequestError("there is no such file.")
    if not path.is_file():
        raise BadRequestError("it is not a file.")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        metadata = _metadata(file, size)
        if size > (free := free_bytes(torch.device("cpu"))) // 2:  # once as bytes, once as tensors
            raise BadRequestError(f"it has {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free.")
        file.seek(0)
        data = file.read(size)
    if data[_START:_STOP] != _seal(data):
        raise BadRequestError(f"{DAMAGED}, its checksum does not match. Make the result again.")
    return data, metadata[len(_BLANK) :]


def _metadata(file: BinaryIO, size: int) -> str:
    """Our text in the header of a file, which must account for every byte of it."""
    if file.read(_START)[8:] != _OPENING:  # another kind of file has another opening
        raise BadRequestError("it is not a result of Exhibit A, or its beginning is damaged.")
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > min(_LONGEST_HEADER, size - 8):
        raise BadRequestError(f"{DAMAGED}, its header is longer than it can be.")
    try:
        entries = json.loads(file.read(length))
        metadata: str = entries.pop("__metadata__")["exhibit_a"]
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (LookupError, TypeError, ValueError, RecursionError) as problem:
        raise BadRequestError(f"{DAMAGED}, its header cannot be understood.") from problem
    if len(entries) > _MOST_TENSORS:
        raise BadRequestError(f"it holds {len(entries)} tensors, more than any result has.")
    if 8 + length + end != size:
        raise BadRequestError(
            f"{DAMAGED}: it has {size} bytes, and its header accounts for {8 + length + end}."
        )
    return metadata


def _packed(result: Result) -> tuple[memoryview, bytes, memoryview]:
    """The parts of the file."""
    tensors: dict[str, Tensor] = {}
    tree = _encoded(result, "", tensors, {})
    header = json.dumps({"schema": SCHEMA, "result": tree}, allow_nan=False)
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    parts = sealed(copies, header)
    if int.from_bytes(parts[0][:8], "little") > _LONGEST_HEADER or len(tensors) > _MOST_TENSORS:
        raise BadRequestError("it has too many parts for one file; keep numbers in large tensors.")
    return parts


def _encoded(value: object, path: str, tensors: dict[str, Tensor], classes: Classes) -> JSON:
    """The value as JSON; tensors are collected under the path that leads to them."""

    def within(entry: object, step: object) -> JSON:
        return _encoded(entry, f"{path}/{step}" if path else f"{step}", tensors, classes)

    if isinstance(value, Tensor):
        return {"tensor": _entry_of(value, path, tensors)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        entries = [within(entry, place) for place, entry in enumerate(value)]
        return {"tuple": entries} if type(value) is tuple else entries
    if isinstance(value, dict) and type(value) is dict:
        return {"dict": [[within(key, "key"), within(value[key], key)] for key in value]}
    kind = type(value)
    name = kind.__name__
    if is_dataclass(value) and (
        (isinstance(value, Result) and name in Result.kinds) or classes.get(name) is kind
    ):
        classes = _mentioned(kind)
        names = [field.name for field in fields(value) if field.init]
        return {"class": name, "fields": {n: within(getattr(value, n), n) for n in names}}
    raise BadRequestError(
        f"{path} is a {kind.__module__}.{kind.__qualname__}. Results hold tensors, plain values, "
        f"lists, tuples, dicts, and dataclasses that the field's annotation names."
    )


def _entry_of(tensor: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    """The name of a tensor's entry in the file: one for each tensor, however often it occurs."""
    for name, stored in tensors.items():
        if stored is tensor:  # results inside a result may share what they were made from
            return name
    name = path.encode("ascii", "backslashreplace").decode()
    while name in tensors:
        name += "'"
    tensors[name] = tensor
    return name


def _decoded(node: JSON, tensors: dict[str, Tensor], classes: Classes) -> Any:
    """The value that `_encoded` was given."""
    match node:
        case None | bool() | int() | float() | str():
            return node
        case list():
            return [_decoded(entry, tensors, classes) for entry in node]
        case {"tensor": name}:
            return tensors[name]
        case {"float": text}:
            return float(text)
        case {"tuple": list(entries)}:
            return tuple(_decoded(entry, tensors, classes) for entry in entries)
        case {"dict": list(pairs)}:
            return dict([_decoded(entry, tensors, classes) for entry in pair] for pair in pairs)
        case {"class": str(name), "fields": dict(values)}:
            kind = classes.get(name) or _result_class(name)
            classes = _mentioned(kind)
            return _built(kind, {n: _decoded(values[n], tensors, classes) for n in values})
    raise ValueError(f"no value is written as {node}")


def _built(kind: type, values: dict[str, Any]) -> Any:
    """An object of a dataclass; stored fields that the class lacks, or needs, are an error."""
    known = {field.name: field for field in fields(kind) if field.init}
    needed = {n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING}
    if wrong := sorted((values.keys() - known.keys()) | (needed - values.keys())):
        raise BadRequestError(
            f"its {kind.__name__} differs from that of exhibit-a {version('exhibit-a')} in "
            f"{', '.join(wrong)}. Read it with the version that wrote it."
        )
    require_types(kind, values)
    value = kind(**values)
    if isinstance(value, Result):
        require_sizes(value)
    return value


def _result_class(name: str) -> type[Result]:
    if name not in Result.kinds:
        with contextlib.suppress(AttributeError):
            provider("names")(name)  # results have public names, and importing registers them
    if name in Result.kinds:
        return Result.kinds[name]
    raise BadRequestError(
        f"it holds a {name}, which exhibit-a {version('exhibit-a')} does not know. It was made "
        f"by a newer version or another package: upgrade, or import that package first."
    )


def _mentioned(kind: type) -> Classes:
    """The dataclasses in the annotations of a class, by name."""
    hints = get_type_hints(kind).values()
    return {mention.__name__: mention for hint in hints for mention in _dataclasses(hint)}


def _dataclasses(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for argument in get_args(hint):
        yield from _dataclasses(argument)
