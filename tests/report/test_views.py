"""Which panels a page gets is found by the kind of the result, or of the nearest it extends."""

from dataclasses import dataclass, replace

import pytest
import torch
from jaxtyping import Float
from support.cases import tiny_trial
from torch import Tensor

from exhibit_a.report.header import Header, Panels
from exhibit_a.report.pack import Blocks
from exhibit_a.report.view import view
from exhibit_a.report.views import panels_of
from exhibit_a.results.result import Result
from exhibit_a.subject.provenance import Provenance


@pytest.fixture(scope="module")
def tiny():
    return tiny_trial()


@pytest.fixture(autouse=True)
def _forget_toys():
    yield
    for name in ("Toy", "Child"):
        Result.kinds.pop(name, None)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Toy(Result):
    scores: Float[Tensor, "query key"]


def toy(kind=Toy):
    tokens = tuple("abcd")
    return kind(provenance=Provenance("made-up", "toy"), tokens=tokens, scores=torch.rand(4, 4))


def test_a_new_kind_needs_one_function():
    class Child(Toy):
        pass

    assert "maps" in view(toy(Child)).header  # as any result

    @panels_of.register
    def _(result: Child, blocks: Blocks) -> Panels:
        blocks.add("toy", b"1234")
        return {"tables": [{"title": "T", "columns": ["n"], "rows": [[1]], "caption": ""}]}

    shown = view(toy(Child))
    assert "maps" not in shown.header
    assert shown.header["tables"][0]["title"] == "T"
    assert list(shown.header["blocks"]) == ["toy"]
    assert "maps" in view(toy()).header


def test_a_class_gets_the_panels_of_the_one_it_extends(tiny):
    class Child(type(tiny.tree)):
        pass

    child = Child(**vars(tiny.tree))
    assert view(child).header["tree"] == view(tiny.tree).header["tree"]


def test_a_header_has_the_fields_of_its_class(tiny):
    required = Header.__required_keys__
    for result in (tiny, replace(tiny, hidden=None, tree=None), tiny.effective, toy()):
        names = set(view(result).header)
        assert required <= names <= required | Header.__optional_keys__


def test_words_are_shaded_only_where_self_attribution_may_be_shown(tiny):
    pictures = tiny.pictures
    place = pictures.names.index("self_attribution")
    for advice, many in (("show", len(tiny.tokens)), ("do not show", 0)):
        advices = (*pictures.advices[:place], advice, *pictures.advices[place + 1 :])
        summary = view(replace(tiny, pictures=replace(pictures, advices=advices))).header["summary"]
        assert len(summary["shares"]) == many
        assert ("not shaded by self-attribution" in summary["caption"]) == (many == 0)
