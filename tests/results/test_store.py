"""What is saved comes back, or a clear line says why not."""

import errno
import json
import os
import random
import struct
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor

from exhibit_a.errors import BadRequestError, ExhibitError, NotComputableError
from exhibit_a.results import store
from exhibit_a.results.result import Result
from exhibit_a.results.store import read, save
from exhibit_a.subject.provenance import provenance

DTYPES = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64)


@dataclass(frozen=True)
class Place:
    layer: int
    stack: str
    kind: str
    note: float | None = None


@dataclass(frozen=True)
class Stranger:
    """No annotation of a result mentions it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Everything(Result):
    anything: Any = None
    maps: tuple[Float[Tensor, "_head _query _key"] | None, ...] = ()
    states: tuple[Float[Tensor, "token d_model"], ...] = field(
        default=(), metadata={"over": "layer"}
    )
    rate: dict[str, Float[Tensor, " layer"]] = field(default_factory=dict)
    special: Bool[Tensor, " token"] | None = None
    places: tuple[Place, ...] = ()
    inner: Result | None = None


@dataclass(frozen=True, kw_only=True)
class Square(Result):
    """Has neither eq=False nor repr=False, as a forgetful author would write it."""

    near: Int[Tensor, "token token"]


def everything(**given_fields: Any) -> Everything:
    made = provenance("tiny", "everything", revision="abc", seed=3, rule="gauss", sites=(0, 2))
    return Everything(provenance=made, **given_fields)


def sample() -> Everything:
    random_maps = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0))
    return everything(
        tokens=("[CLS]", "é<b>", "🙂"),
        maps=(random_maps, None, torch.rand(1, 3, 5)),
        rate={"linear": torch.tensor([0.5, 0.25]), "mlp": torch.tensor([1.0, 0.0])},
        special=torch.tensor([True, False, True]),
        places=(Place(0, "encoder", "self"), Place(1, "decoder", "cross", float("nan"))),
        checks={"parity": 1e-7, "gap": float("nan"), "worst": float("-inf"), "exact": True},
    )


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and torch.equal(
            a.nan_to_num(7) if a.is_floating_point() else a,
            b.nan_to_num(7) if b.is_floating_point() else b,
        )
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return a == b or (a != a and b != b)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


def refused(path) -> str:
    with pytest.raises(BadRequestError) as raised:
        read(path)
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(f"{path} cannot be read: ")
    return message


def tensors() -> st.SearchStrategy[Tensor]:
    shapes = st.lists(st.integers(0, 3), max_size=3)
    seeds = st.integers(0, 99)
    return st.builds(
        lambda shape, dtype, seed: (
            torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3
        ).to(dtype),
        shapes,
        st.sampled_from(DTYPES),
        seeds,
    )


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    plain | tensors(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(values)
def test_every_value_comes_back_as_it_was(folder, value):
    result = everything(anything=value, checks={"value": value})
    assert same(read(save(result, folder / "any.safetensors")), result)


def test_a_whole_result_comes_back_as_it_was(tmp_path):
    result = sample()
    path = result.save(str(tmp_path / "r.safetensors"))
    back = read(path)
    assert same(back, result)
    assert back.provenance == result.provenance
    assert type(back.places[0].layer) is int


def test_a_result_inside_a_result_comes_back(tmp_path):
    outer = everything(inner=sample(), anything={"more": [sample()]})
    assert same(read(outer.save(tmp_path / "r")), outer)


def test_views_gradients_and_odd_strides_are_saved_by_value(tmp_path):
    whole = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
    result = everything(anything=[whole, *whole.unbind(), whole.mT, whole[:, ::2], whole])
    back = read(result.save(tmp_path / "r"))
    assert all(torch.equal(a, b) for a, b in zip(back.anything, result.anything, strict=True))
    assert not back.anything[0].requires_grad


def test_keys_that_look_alike_do_not_overwrite_each_other(tmp_path):
    one, two = torch.ones(1), torch.zeros(1)
    result = everything(tokens=("\ud83d",), anything={"a/b": one, "a": {"b": two}, "\ud83d": one})
    assert same(read(result.save(tmp_path / "r")), result)


def test_the_same_result_gives_the_same_bytes(tmp_path):
    result = sample()
    first = result.save(tmp_path / "a").read_bytes()
    assert result.save(tmp_path / "b").read_bytes() == first
    assert read(tmp_path / "a").save(tmp_path / "c").read_bytes() == first


@pytest.mark.parametrize("value", [{1, 2}, np.float32(1), object(), 1j, Place, Stranger()])
def test_what_could_not_be_read_back_is_not_saved(tmp_path, value):
    with pytest.raises(BadRequestError, match="anything/0"):
        everything(anything=[value]).save(tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


UNSTORABLE = {
    "sparse": torch.eye(2).to_sparse(),
    "no data": torch.empty(2, device="meta"),
    "huge": 10**5000,
}


@pytest.mark.parametrize("kind", UNSTORABLE)
def test_what_safetensors_or_json_cannot_hold_is_not_saved(tmp_path, kind):
    with pytest.raises(BadRequestError, match="cannot be saved"):
        everything(anything=UNSTORABLE[kind]).save(tmp_path / "r")


def test_a_changed_byte_anywhere_is_noticed(tmp_path):
    path = sample().save(tmp_path / "r")
    whole, dice = path.read_bytes(), random.Random(0)
    places = {*range(110), *(dice.randrange(len(whole)) for _ in range(500)), len(whole) - 1}
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        assert "cannot be read" in refused(path)


def test_a_missing_or_added_end_is_noticed(tmp_path):
    path = sample().save(tmp_path / "r")
    whole = path.read_bytes()
    for length in {*range(0, len(whole), 37), 1, 8, 37, 38, 39, 101, 102, 103, len(whole) - 1}:
        path.write_bytes(whole[:length])
        refused(path)
    path.write_bytes(whole + b"\0")
    assert "damaged" in refused(path)


FOREIGN = {
    "empty": b"",
    "text": b"sentence\tlabel\nfine\t1\n",
    "png": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "pickle": b"\x80\x04\x95" + bytes(64),
    "weights": safetensors.torch.save({"w": torch.ones(3)}),
    "weights with metadata": safetensors.torch.save({"w": torch.ones(3)}, {"format": "pt"}),
    "endless header": struct.pack("<Q", 2**63) + b"{}",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_called_foreign(tmp_path, kind):
    path = tmp_path / "f"
    path.write_bytes(FOREIGN[kind])
    assert "not a result of Exhibit A" in refused(path)


def test_what_is_no_file_is_refused(tmp_path):
    assert "no such file" in refused(tmp_path / "missing")
    assert "not a file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in refused(tmp_path / "pipe")
    refused(tmp_path / "a\0b")
    refused(tmp_path / ("n" * 300))


def sealed(path, header: Any, entries: dict[str, Tensor] | None = None):
    """A file with an unbroken seal around whatever we like."""
    text = store._BLANK.decode() + (header if isinstance(header, str) else json.dumps(header))
    data = safetensors.torch.save(entries or {}, {"exhibit_a": text})
    path.write_bytes(data[: store._START] + store._seal(data) + data[store._STOP :])
    return path


def header_of(path) -> dict[str, Any]:
    with safetensors.safe_open(path, "pt") as file:
        return json.loads(file.metadata()["exhibit_a"][len(store._BLANK) :])


def test_a_file_of_a_newer_schema_says_so(tmp_path):
    header = header_of(sample().save(tmp_path / "r")) | {"schema": store.SCHEMA + 1}
    assert "newer version" in refused(sealed(tmp_path / "r", header))


def test_a_file_of_an_older_schema_names_the_version_that_wrote_it(tmp_path):
    header = header_of(sample().save(tmp_path / "r")) | {"schema": 1}
    provenance = header["result"]["fields"]["provenance"]["fields"]
    provenance["versions"] = {"dict": [["exhibit_a", "0.2.0"], ["torch", "2.6"]]}
    message = refused(sealed(tmp_path / "r", header))
    assert "written by exhibit-a 0.2.0" in message
    assert "Compute" in message


def test_a_class_nobody_knows_says_where_it_may_come_from(tmp_path):
    header = {"schema": store.SCHEMA, "result": {"class": "FromTheFuture", "fields": {}}}
    message = refused(sealed(tmp_path / "r", header))
    assert "holds a FromTheFuture" in message
    assert "newer version or another package" in message


def test_fields_of_another_version_are_named(tmp_path):
    header = header_of(everything().save(tmp_path / "r"))
    parts = header["result"]["fields"]
    parts["added"] = 1
    del parts["provenance"]
    assert "differs" in (message := refused(sealed(tmp_path / "r", header)))
    assert "added, provenance" in message


def test_a_field_added_since_takes_its_default(tmp_path):
    header = header_of(everything(anything=1).save(tmp_path / "r"))
    del header["result"]["fields"]["anything"]
    assert read(sealed(tmp_path / "r", header)).anything is None


MALFORMED = {
    "no json": "{",
    "no schema": {},
    "a list": [],
    "no result": {"schema": 1},
    "a number": {"schema": store.SCHEMA, "result": 3},
    "unknown tag": {"schema": store.SCHEMA, "result": {"pickle": "x"}},
    "lost tensor": {"schema": store.SCHEMA, "result": {"tensor": "x"}},
    "odd name": {"schema": store.SCHEMA, "result": {"tensor": []}},
    "odd float": {"schema": store.SCHEMA, "result": {"float": None}},
    "odd pairs": {"schema": store.SCHEMA, "result": {"dict": [[1]]}},
    "odd keys": {"schema": store.SCHEMA, "result": {"dict": [[[], 1]]}},
    "code": {"schema": store.SCHEMA, "result": {"class": "os.system", "fields": {}}},
    "too deep": '{"schema": store.SCHEMA, "result": ' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_sealed_file_with_nonsense_inside_is_refused(tmp_path, kind):
    assert "cannot be read" in refused(sealed(tmp_path / "r", MALFORMED[kind]))


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("problem", "seen"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ExhibitError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
    ],
)
def test_a_failing_write_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch, step, problem, seen
):
    def fail(*_: object) -> None:
        raise problem

    path = everything(anything="old").save(tmp_path / "r")
    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (type(path), "replace")), fail)
    with pytest.raises(seen) as raised:
        sample().save(path)
    monkeypatch.undo()
    assert read(path).anything == "old"
    assert list(tmp_path.iterdir()) == [path]
    if seen is ExhibitError:
        assert str(raised.value) == f"{path} cannot be written: No space left on device."


def test_places_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(BadRequestError, match="there is no folder"):
        sample().save(tmp_path / "no" / "r")
    with pytest.raises(BadRequestError, match="that name is not a file"):
        sample().save(tmp_path)
    with pytest.raises(BadRequestError, match="that name is not a file"):
        sample().save("")
    with pytest.raises(ExhibitError, match="too long"):
        sample().save(tmp_path / ("n" * 300))
    with pytest.raises(ExhibitError, match="null byte"):
        sample().save(tmp_path / "a\0b")
    assert list(tmp_path.iterdir()) == []


def test_the_long_table_names_axes_and_tokens():
    result = sample()
    table = result.to_pandas()
    assert list(table.columns) == [
        "field",
        "site",
        "head",
        "query",
        "query_token",
        "key",
        "key_token",
        "name",
        "layer",
        "token",
        "token_token",
        "value",
    ]
    maps = table[table.field == "maps"]
    assert len(maps) == 2 * 9 + 15
    row = maps[(maps.site == 0) & (maps["head"] == 1) & (maps["query"] == 2) & (maps.key == 0)]
    assert row.value.item() == pytest.approx(result.maps[0][1, 2, 0].item())
    assert (row.query_token.item(), row.key_token.item()) == ("🙂", "[CLS]")
    assert maps[maps.site == 2].key_token.isna().all()  # five keys, three tokens
    assert set(table[table.field == "rate"].name) == {"linear", "mlp"}
    assert table.value.dtype == np.float64
    assert table.site.dtype == "Int64"


def test_the_data_set_has_dimensions_coordinates_and_holes():
    result = sample()
    data = result.to_xarray()
    assert data.maps.dims == ("site", "head", "query", "key")
    assert data.maps.shape == (2, 2, 3, 5)
    assert data.site.values.tolist() == [0, 2]
    assert torch.equal(torch.tensor(data.maps.sel(site=0).values)[:, :, :3], result.maps[0])
    assert np.isnan(data.maps.sel(site=2, head=1)).all()
    assert data.query_token.values.tolist() == list(result.tokens)
    assert "key_token" not in data.coords
    assert data.rate.sel(name="linear").values.tolist() == [0.5, 0.25]
    assert data.special.dtype == bool


def test_states_are_over_layers_and_unnamed_axes_are_numbered():
    result = everything(
        tokens=("a", "b"),
        states=(torch.zeros(2, 4, dtype=torch.bfloat16),) * 3,
        anything={"x": [torch.zeros(()), torch.ones(())], "y": [torch.ones(())] * 2},
        special=torch.tensor([True, False, True]),
    )
    data = result.to_xarray()
    assert data.states.dims == ("layer", "token", "d_model")
    assert data.anything.dims == ("name", "site")
    assert data.anything.sel(name="x", site=1).item() == 1
    assert data.special.dtype == bool
    assert np.isnan(data.states.sel(token=2)).all()
    assert "token_token" not in data.coords  # one field has three tokens
    assert len(result.to_pandas()) == 3 * 8 + 4 + 3


def test_sites_of_different_shapes_pass_the_shape_check():
    @jaxtyped(typechecker=beartype)
    @dataclass(frozen=True, kw_only=True, eq=False)
    class Ragged(Result):
        raw: tuple[Float[Tensor, "_head _query _key"], ...]
        effective: tuple[Float[Tensor, "_head _query _key"], ...]

    maps = (torch.zeros(2, 3, 3), torch.zeros(1, 3, 5))
    for _ in range(20):  # beartype looks at one random entry
        result = Ragged(provenance=provenance("m", "ragged"), raw=maps, effective=maps)
    assert result.to_xarray().effective.dims == ("site", "head", "query", "key")


def test_a_result_without_tensors_has_no_table_and_no_plot():
    result = everything(tokens=("a",))
    for table in (result.to_pandas, result.to_xarray):
        with pytest.raises(NotComputableError, match="no tensors"):
            table()
    with pytest.raises(BadRequestError, match="Everything has no plot"):
        result.plot()


@pytest.mark.parametrize("module", ["pandas", "xarray"])
def test_a_missing_extra_is_named(monkeypatch, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(
        BadRequestError, match=rf"{module} is missing: pip install 'exhibit-a\[viz\]'"
    ):
        getattr(sample(), f"to_{module}")()


def test_html_is_escaped_and_offline():
    evil = "<script>alert(1)</script>"
    made = provenance(evil, evil, revision=evil)
    page = Square(
        provenance=made,
        tokens=(evil, "&"),
        near=torch.eye(2).long(),
        checks={evil: evil, "gap": 0.5},
    )._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "0.5" in page
    assert "//" not in page.replace("</", "")
    assert "http" not in page


def test_a_text_that_is_too_long_for_one_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("exhibit_a.results.store._LONGEST_HEADER", 10)
    with pytest.raises(BadRequestError, match="too many parts"):
        sample().save(tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_entries_with_different_axes_are_no_data_set():
    mixed = everything(anything=(torch.rand(2, 3), torch.rand(3)))
    with pytest.raises(NotComputableError, match="axes"):
        mixed.to_xarray()
