"""What is a result? Numbers, the names of their axes, their origin, and how far to trust them.

Every method returns a frozen dataclass that extends `Result`. Its tensor fields say their axes in
their annotations, and the tables are read off those:

    @dataclass(frozen=True, kw_only=True, eq=False)
    class EffectiveAttention(Result):
        effective: tuple[Float[Tensor, "head query key"], ...]   # site, head, query, key
        hidden: tuple[Float[Tensor, "token d_model"], ...] = field(metadata={"over": "layer"})
        rate: dict[str, Float[Tensor, " layer"]]                 # name, layer

A tuple or list adds the axis ``site`` in front and a dict adds ``name``, unless the metadata says
what the field is over. An entry may be None. Where shapes may differ between sites, write the axes
as ``"_head _query _key"``: named all the same, but not held to be equal.
"""

import importlib
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from html import escape
from importlib.metadata import version
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

import numpy as np
import torch
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

TOKEN_AXES = ("query", "key", "token", "source", "target")
SHOWN = 400  # characters of one text in a summary


@dataclass(frozen=True)
class Provenance:
    """Where a result came from: enough to make it again."""

    model: str
    method: str
    revision: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)


def provenance(
    model_name: str, method: str, revision: str | None = None, seed: int | None = None, **used: Any
) -> Provenance:
    """Provenance of a result made here and now, by the installed versions."""
    versions = {name: version(name) for name in ("exhibit_a", "torch", "transformers")}
    versions["python"] = platform.python_version()
    return Provenance(model_name, method, revision, used, seed, versions)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """What every method returns; a subclass adds its numbers as fields.

    ``checks`` holds the doubts about them (parity, tolerance, gap …), stored and shown beside them.
    """

    kinds: ClassVar[dict[str, type["Result"]]] = {}
    tokens: tuple[str, ...] | None = None
    provenance: Provenance
    checks: dict[str, Any] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        """Make the class known to `exhibit_a.read`, by its name."""
        Result.kinds[cls.__name__] = cls
        if "__repr__" not in vars(cls):  # or @dataclass writes one, with all the numbers in it
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the result to one file that `exhibit_a.read` gives back."""
        from exhibit_a.results.store import save

        return save(self, path)

    def html(self, path: str | PathLike[str]) -> Path:
        """Write the result as one page that needs nothing but a browser."""
        import exhibit_a  # its table of names is the one place that knows what stands to the right

        written: Path = exhibit_a.write_page(self, path)
        return written

    def to_pandas(self) -> "pandas.DataFrame":
        """All tensors as one long table: field, a column per axis, value.

        Axes are positions; where a token stands at the position, ``<axis>_token`` names it. Values
        keep their dtype when all fields share it and are float64 otherwise.
        """
        pd, leaves = extra("pandas"), _some_leaves(self)
        frames = [pd.DataFrame(_columns(leaf, self.tokens_along(leaf))) for leaf in leaves]
        if len({frame["value"].dtype for frame in frames}) > 1:
            frames = [frame.astype({"value": "float64"}) for frame in frames]
        table: pandas.DataFrame = pd.concat(frames, ignore_index=True)
        axes = dict.fromkeys(axis for leaf in leaves for axis in leaf.axes)
        for axis in axes:
            if pd.api.types.is_numeric_dtype(table[axis]):
                table[axis] = table[axis].astype("Int64")  # whole, though some fields lack the axis
        named = [column for axis in axes for column in (axis, f"{axis}_token") if column in table]
        return table[["field", *named, "value"]]

    def to_xarray(self) -> "xarray.Dataset":
        """All tensors as variables of one data set, with positions and tokens as coordinates.

        What does not exist, where shapes differ, is NaN; booleans beside it are 0 and 1.
        """
        xr, leaves = extra("xarray"), _some_leaves(self)
        variables = groupby(leaves, lambda leaf: leaf.field)
        arrays = [_stacked(list(group)).rename(name) for name, group in variables]
        dataset: xarray.Dataset = xr.merge(arrays, join="outer", compat="no_conflicts")
        dataset = dataset.map(lambda one: one.astype(float) if one.dtype == object else one)
        for axis in list(dataset.dims):
            tokens = {self.tokens_along(leaf).get(axis) for leaf in leaves if axis in leaf.dims}
            if len(tokens) == 1 and (labels := tokens.pop()) is not None:
                dataset = dataset.assign_coords({f"{axis}_token": (axis, list(labels))})
        return dataset

    def tokens_along(self, leaf: "Leaf") -> dict[str, tuple[str, ...]]:
        """The tokens along each axis of a tensor; override where several sequences are in play."""
        tokens, sizes = self.tokens or (), zip(leaf.dims, leaf.tensor.shape, strict=True)
        return {axis: tokens for axis, n in sizes if axis in TOKEN_AXES and n == len(tokens) > 0}

    def plot(self) -> "matplotlib.figure.Figure":
        """Draw the result; results that have a picture override this."""
        raise BadRequestError(f"{type(self).__name__} has no plot. Draw from to_pandas() instead.")

    def summary(self) -> str:
        """One paragraph of plain text: what was done to what, what is inside, how sure it is."""
        about = f"{type(self).__name__}: {self.provenance.method} on {self.provenance.model}"
        if self.tokens is not None:
            about += f", {len(self.tokens)} tokens ({_text(self.tokens)})"
        holds = {leaf.field: f"{leaf.field}[{', '.join(leaf.axes)}]" for leaf in _leaves(self)}
        checks = [f"{name} {_text(value)}" for name, value in self.checks.items()]
        tensors, doubts = (", ".join(said) or "none" for said in (holds.values(), checks))
        return f"{about}. Tensors: {tensors}. Checks: {doubts}."

    __repr__ = summary

    def _repr_html_(self) -> str:
        source, checks = self.provenance, self.checks.items()
        origin = " · ".join(filter(None, (source.method, source.model, source.revision)))
        kind, origin, tokens = map(escape, (type(self).__name__, origin, _text(self.tokens or ())))
        rows = [f"<tr><th>{escape(n)}</th><td>{escape(_text(v))}</td></tr>" for n, v in checks]
        return (
            f"<div><p><b>{kind}</b> · {origin}</p><p><code>{tokens}</code></p>"
            f"<table><caption>checks</caption>{''.join(rows)}</table></div>"
        )


@dataclass(frozen=True, eq=False)
class Leaf:
    """One tensor of a result: its field, where in the field it sits, and the names of its axes."""

    field: str
    where: dict[str, Any]
    dims: tuple[str, ...]
    tensor: Tensor

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes in front of the tensor, then its own."""
        return (*self.where, *self.dims)


def _leaves(result: Result) -> Iterator[Leaf]:
    hints = get_type_hints(type(result))
    for item in fields(result):
        declared = _declared(hints[item.name])
        for front, tensor in _tensors(getattr(result, item.name), item.metadata.get("over")):
            own = declared if len(declared) == tensor.ndim else ["axis"] * tensor.ndim
            axes = _numbered([*(axis for axis, _ in front), *own])
            where = {axis: label for axis, (_, label) in zip(axes, front, strict=False)}
            yield Leaf(item.name, where, axes[len(front) :], tensor)


def _some_leaves(result: Result) -> list[Leaf]:
    if leaves := list(_leaves(result)):
        return leaves
    raise NotComputableError(f"{type(result).__name__} holds no tensors to put in a table.")


def _tensors(value: Any, over: str | None = None) -> Iterator[tuple[list[tuple[str, Any]], Tensor]]:
    """Every tensor in a field, after its places on the axes in front of it."""
    if isinstance(value, Tensor):
        yield [], value
    if isinstance(value, tuple | list | dict):
        axis = over or ("name" if isinstance(value, dict) else "site")
        for label, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from (([(axis, label), *front], tensor) for front, tensor in _tensors(entry))


def _declared(hint: Any) -> list[str]:
    """The axes in the first shape annotation inside a type hint; "layer+1" is a layer."""
    if hasattr(hint, "dim_str"):
        words = [re.search(r"[^\W\d_]\w*", axis) for axis in hint.dim_str.split()]
        return [word[0] if word else "axis" for word in words]
    return next(filter(None, map(_declared, get_args(hint))), [])


def _numbered(names: list[str]) -> tuple[str, ...]:
    """Names made different: a square of tokens is (token, token_2)."""
    uses = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return tuple(f"{name}_{n}" if n > 1 else name for name, n in zip(names, uses, strict=True))


def _columns(leaf: Leaf, tokens: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    shape, columns = leaf.tensor.shape, dict[str, Any](field=leaf.field, **leaf.where)
    for axis, places in zip(leaf.dims, np.indices(shape, sparse=True), strict=True):
        columns[axis] = np.broadcast_to(places, shape).reshape(-1)
        if axis in tokens:
            columns[f"{axis}_token"] = np.array(tokens[axis], object)[columns[axis]]
    return {**columns, "value": _numbers(leaf.tensor).reshape(-1)}


def _stacked(leaves: list[Leaf]) -> Any:
    """The tensors of a field as one labelled array, joined along the axes in front of them."""
    xr, first = extra("xarray"), leaves[0]
    if any(leaf.axes != first.axes for leaf in leaves):
        raise NotComputableError(f"The entries of {first.field} do not have the same axes.")
    if not first.where:
        places = {axis: range(n) for axis, n in zip(first.dims, first.tensor.shape, strict=True)}
        return xr.DataArray(_numbers(first.tensor), places, first.dims)
    axis, *inner = first.where
    parts = {
        label: _stacked([replace(leaf, where={n: leaf.where[n] for n in inner}) for leaf in group])
        for label, group in groupby(leaves, lambda leaf: leaf.where[axis])
    }
    return xr.concat(parts.values(), xr.Variable(axis, list(parts)), join="outer")


def _numbers(tensor: Tensor) -> Any:
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy(force=True)


def _text(value: object) -> str:
    words = map(str, value) if isinstance(value, tuple) else [str(value)]
    text = f"{value:.4g}" if isinstance(value, float) else " ".join(words)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"


def extra(module: str, name: str = "viz") -> Any:
    """A library that an extra of this package brings, or an error that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise BadRequestError(f"{module} is missing: pip install 'exhibit-a[{name}]'") from missing
