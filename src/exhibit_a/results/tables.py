"""Makes a table of the tensors of a result; their axes are in the annotations.

``leaves`` finds every tensor of a result with the names of its axes; a long table has one row for
each number, a data set one variable for each field.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from exhibit_a.errors import NotComputableError
from exhibit_a.extras import extra

if TYPE_CHECKING:
    import pandas
    import xarray

    from exhibit_a.results.result import Result

Place = tuple[str, int | str]  # an axis, and a position or name on it


@dataclass(frozen=True, eq=False)
class Leaf:
    """One tensor of a result: its field, its place in the field, and the names of its axes."""

    field: str
    where: dict[str, int | str]
    dims: tuple[str, ...]
    tensor: Tensor

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes in front of the tensor, then its own."""
        return (*self.where, *self.dims)


def long_table(result: "Result") -> "pandas.DataFrame":
    """One row for each number: field, a column per axis, value."""
    pd, tensors = extra("pandas"), _require_leaves(result)
    frames = [pd.DataFrame(_columns(leaf, result.tokens_along(leaf))) for leaf in tensors]
    if len({frame["value"].dtype for frame in frames}) > 1:
        frames = [frame.astype({"value": "float64"}) for frame in frames]
    table: pandas.DataFrame = pd.concat(frames, ignore_index=True)
    axes = dict.fromkeys(axis for leaf in tensors for axis in leaf.axes)
    for axis in axes:
        if pd.api.types.is_numeric_dtype(table[axis]):
            table[axis] = table[axis].astype("Int64")  # integers, also where a field lacks the axis
    named = [column for axis in axes for column in (axis, f"{axis}_token") if column in table]
    return table[["field", *named, "value"]]


def record_table(
    rows: Iterable[Mapping[str, object]], columns: Iterable[str] = ()
) -> "pandas.DataFrame":
    """One row for each record; columns that are named are there even without any rows."""
    table: pandas.DataFrame = extra("pandas").DataFrame(list(rows), columns=list(columns) or None)
    return table


def data_set(result: "Result") -> "xarray.Dataset":
    """One variable for each field, with positions and tokens as coordinates."""
    xr, tensors = extra("xarray"), _require_leaves(result)
    variables = groupby(tensors, lambda leaf: leaf.field)
    arrays = [_stacked(list(group)).rename(name) for name, group in variables]
    dataset: xarray.Dataset = xr.merge(arrays, join="outer", compat="no_conflicts")
    dataset = dataset.map(lambda array: array.astype(float) if array.dtype == object else array)
    for axis in list(dataset.dims):
        along = {result.tokens_along(leaf).get(axis) for leaf in tensors if axis in leaf.dims}
        if len(along) == 1 and (labels := along.pop()) is not None:
            dataset = dataset.assign_coords({f"{axis}_token": (axis, list(labels))})
    return dataset


def leaves(result: "Result") -> Iterator[Leaf]:
    """Every tensor of a result, in the order of its fields."""
    hints = get_type_hints(type(result))
    for item in fields(result):
        declared = _declared(hints[item.name])
        for front, tensor in _tensors(getattr(result, item.name), item.metadata.get("over")):
            dims = declared if len(declared) == tensor.ndim else ["axis"] * tensor.ndim
            axes = _numbered([*(axis for axis, _ in front), *dims])
            where = {axis: label for axis, (_, label) in zip(axes, front, strict=False)}
            yield Leaf(item.name, where, axes[len(front) :], tensor)


def axes_of(hint: object, over: str | None = None) -> tuple[str, ...]:
    """The axes that the tensors of a field have, from its annotation; none if it holds no tensors.

    >>> from jaxtyping import Float
    >>> axes_of(tuple[Float[torch.Tensor, "head query key"], ...])
    ('site', 'head', 'query', 'key')
    >>> axes_of(dict[str, int])
    ()
    """
    dims = _declared(hint)
    if not dims:
        return ()
    front = next((axis for kind, axis in _FRONT if _inside(hint, kind)), None)
    return _numbered([*([over or front] if front else []), *dims])


def _inside(hint: object, kind: type) -> bool:
    """Whether a type hint is a container of this kind, or one of several things that may be."""
    return get_origin(hint) is kind or any(_inside(part, kind) for part in get_args(hint))


_FRONT = ((dict, "name"), (tuple, "site"), (list, "site"))


def _require_leaves(result: "Result") -> list[Leaf]:
    tensors = list(leaves(result))
    if not tensors:
        raise NotComputableError(f"{type(result).__name__} holds no tensors to put in a table.")
    return tensors


def _tensors(value: object, over: str | None = None) -> Iterator[tuple[list[Place], Tensor]]:
    """Every tensor in a field, after its places on the axes in front of it."""
    if isinstance(value, Tensor):
        yield [], value
    if isinstance(value, tuple | list | dict):
        axis = over or ("name" if isinstance(value, dict) else "site")
        for label, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from (([(axis, label), *front], tensor) for front, tensor in _tensors(entry))


def _declared(hint: object) -> list[str]:
    """The axes in the first shape annotation inside a type hint; "layer+1" is a layer."""
    if hasattr(hint, "dim_str"):
        words = [re.search(r"[^\W\d_]\w*", axis) for axis in hint.dim_str.split()]
        return [word[0] if word else "axis" for word in words]
    return next(filter(None, map(_declared, get_args(hint))), [])


def _numbered(names: list[str]) -> tuple[str, ...]:
    """Names made unique: a square of tokens is (token, token_2)."""
    uses = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return tuple(f"{name}_{n}" if n > 1 else name for name, n in zip(names, uses, strict=True))


def _columns(leaf: Leaf, tokens: dict[str, tuple[str, ...]]) -> dict[str, np.ndarray | int | str]:
    shape = leaf.tensor.shape
    columns: dict[str, np.ndarray | int | str] = {"field": leaf.field, **leaf.where}
    for axis, places in zip(leaf.dims, np.indices(shape, sparse=True), strict=True):
        index = np.broadcast_to(places, shape).reshape(-1)
        columns[axis] = index
        if axis in tokens:
            columns[f"{axis}_token"] = np.array(tokens[axis], object)[index]
    return columns | {"value": _numbers(leaf.tensor).reshape(-1)}


def _stacked(tensors: list[Leaf]) -> "xarray.DataArray":
    """The tensors of a field as one labelled array, joined along the axes in front of them."""
    xr, first = extra("xarray"), tensors[0]
    if any(leaf.axes != first.axes for leaf in tensors):
        raise NotComputableError(f"The entries of {first.field} do not have the same axes.")
    if not first.where:
        places = {axis: range(n) for axis, n in zip(first.dims, first.tensor.shape, strict=True)}
        array: xarray.DataArray = xr.DataArray(_numbers(first.tensor), places, first.dims)
        return array
    axis, *inner = first.where
    stacked = {
        label: _stacked([replace(leaf, where={n: leaf.where[n] for n in inner}) for leaf in group])
        for label, group in groupby(tensors, lambda leaf: leaf.where[axis])
    }
    joined: xarray.DataArray = xr.concat(
        stacked.values(), xr.Variable(axis, list(stacked)), join="outer"
    )
    return joined


def _numbers(tensor: Tensor) -> np.ndarray:
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy(force=True)
