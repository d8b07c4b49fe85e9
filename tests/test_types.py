"""Annotations are asked in every test: these are the mistakes that are noticed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, TypeCheckError
from support.typed import checked
from torch import Tensor

from exhibit_a.numerics.correlation import pearson
from exhibit_a.subject.provenance import Provenance, provenance

MISTAKES = (BeartypeCallHintViolation, TypeCheckError)
ask = checked(typechecker=beartype)


@ask
def half(number: int) -> int:
    return number / 2


@ask
def longer(one: Float[Tensor, " token"], two: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
    return (one + two)[: len(one) - int(one[0])]


@ask
def pieces(one: Float[Tensor, " token"], two: Float[Tensor, " token"]) -> Iterator[Tensor]:
    yield from (one, two)


@ask
@dataclass
class Pair:
    one: Float[Tensor, " token"]
    two: Float[Tensor, " token"]


def test_a_wrong_type_is_noticed_on_the_way_in_and_on_the_way_out():
    with pytest.raises(BeartypeCallHintViolation, match="parameter number"):
        half("4")
    with pytest.raises(BeartypeCallHintViolation, match="return"):
        half(4)


@pytest.mark.parametrize("work", [longer, pieces, Pair])
def test_one_name_is_one_size(work):
    assert work(torch.zeros(3), torch.zeros(3)) is not None
    with pytest.raises(MISTAKES, match="token"):
        work(torch.zeros(3), torch.zeros(4))
    with pytest.raises(MISTAKES):
        work(torch.zeros(3), torch.zeros(3, 1))


def test_what_comes_back_has_the_size_of_what_went_in():
    assert len(longer(torch.zeros(3), torch.zeros(3))) == 3
    with pytest.raises(BeartypeCallHintViolation, match="does not equal the existing value of 3"):
        longer(torch.ones(3), torch.zeros(3))


def test_a_call_within_a_call_has_sizes_of_its_own():
    @ask
    def outer(one: Float[Tensor, " token"]) -> Float[Tensor, " token"]:
        longer(one[1:], one[1:])
        return one

    assert len(outer(torch.zeros(3))) == 3


def test_the_first_closure_of_a_definition_is_checked():
    def made() -> Callable[[int], int]:
        @ask
        def inner(number: int) -> int:
            return number

        return inner

    with pytest.raises(BeartypeCallHintViolation):
        made()("4")


def test_the_package_is_asked_too():
    with pytest.raises(BeartypeCallHintViolation):
        provenance(3, "a method")
    with pytest.raises(BeartypeCallHintViolation):
        Provenance("a model", method=3)
    with pytest.raises(BeartypeCallHintViolation):
        pearson(torch.zeros(3), torch.zeros(4), torch.ones(3).bool())
