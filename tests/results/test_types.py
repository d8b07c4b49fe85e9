"""Whether a stored value is of the type that its field says."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from exhibit_a.errors import BadRequestError
from exhibit_a.results.types import fits, require_types
from exhibit_a.subject.anatomy import Site


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("path", Literal["path", "orders"], True),
        ("guess", Literal["path", "orders"], False),
        (["a", "b"], Sequence[str], True),
        (["a", 1], Sequence[str], False),
        (3, Sequence[str], False),
        ({"a": 1}, dict[str, int], True),
        ({"a": "b"}, dict[str, int], False),
        ((1, 2), tuple[int, int], True),
        ((1, 2, 3), tuple[int, int], False),
        (None, int | None, True),
        ("x", int | None, False),
        (object(), Any, True),
    ],
)
def test_a_value_is_of_its_type_down_to_its_entries(value, hint, expected):
    assert fits(value, hint) is expected


def test_a_field_of_another_type_is_named():
    require_types(Site, {"layer": 3})
    with pytest.raises(BadRequestError, match="layer"):
        require_types(Site, {"layer": "third"})
