"""Torch's modes that a caller may be in, and every method under each of them."""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch

import exhibit_a as xa
from support.every_method import TEXT, same, works
from support.fuzz.outcomes import Outcomes, outcome_of
from support.subjects import opinionated
from support.words import marked_tokenizer

KEPT = ("attention", "values", "hidden", "queries", "keys")


def fresh_subject() -> xa.Subject:
    """A model of its own, whose weights may be changed."""
    return xa.load(copy.deepcopy(opinionated().model), tokenizer=marked_tokenizer())


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def together(*modes: str) -> Iterator[None]:
    """Several modes at once: enough to find one that is not seen to, if not which."""
    with ExitStack() as entered:
        for mode in modes:
            entered.enter_context(MODES[mode]())
        yield


MODES: dict[str, Any] = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default_dtype": lambda: default_type(torch.float64),
    "default_device": lambda: torch.device("meta"),
    "deterministic": deterministic,
}


def state() -> dict[str, object]:
    """What can be seen of torch's modes."""
    return {
        "inference": torch.is_inference_mode_enabled(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "type": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def usual_results(subject: xa.Subject) -> dict[str, Any]:
    """Each method's result under the modes that torch starts with."""
    trace = xa.capture(subject, TEXT, keep=KEPT)
    return {name: work() for name, work in works(subject, trace).items()}


def under(
    mode: AbstractContextManager[Any], subject: xa.Subject, usual: dict[str, Any]
) -> Outcomes:
    """Every method in a mode: the same numbers, and the mode is still on after it."""
    outcomes = Outcomes()
    with mode:
        before = state()
        trace = xa.capture(subject, TEXT, keep=KEPT)
        for name, work in works(subject, trace).items():
            outcome, problem = outcome_of(
                lambda name=name, work=work: (
                    "same" if same(work(), usual[name]) and state() == before else "different"
                )
            )
            outcomes.add(outcome, name, problem)
    return outcomes


def under_modes(_seed: int, attempts: int) -> Outcomes:
    """Every method in every mode; so many modes, where there are fewer attempts than methods."""
    subject, outcomes = fresh_subject(), Outcomes()
    usual = usual_results(subject)
    for mode in list(MODES.values())[: max(1, attempts // len(usual))]:
        counted = under(mode(), subject, usual)
        outcomes.counts += counted.counts
        outcomes.examples += counted.examples
    return outcomes
