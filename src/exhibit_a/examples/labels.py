"""The class of each example, and the examples that are held out to measure a model on."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.examples.columns import Example, label_names, require_labels
from exhibit_a.numerics.seeds import generator
from exhibit_a.subject.subject import Subject


def classes_of(subject: Subject, examples: Sequence[Example]) -> Int[Tensor, " row"]:
    """The gold class of every example, by name or by number; anything else is refused."""
    if subject.anatomy.answers != "classes":
        raise NotComputableError(
            f"{type(subject.model).__name__} answers with {subject.anatomy.answers}, and classes "
            "are needed here. Load a model with a classification head."
        )
    require_labels(examples, "The examples")
    label_names(examples)
    labels = list(subject.labels)
    numbers = [str(place) for place in range(len(labels))]
    if {example.label for example in examples} <= set(numbers):
        labels = numbers
    for example in examples:
        if example.label not in labels:
            known = ", ".join(f"{place} {name}" for place, name in enumerate(subject.labels))
            raise BadRequestError(
                f"Example {example.id} has the label {example.label!r}, which the model does not "
                f"know. It knows {known}."
            )
    classes = [labels.index(str(example.label)) for example in examples]
    return torch.tensor(classes, device=subject.device)


def limited(examples: Sequence[Example], limit: int | None) -> list[Example]:
    """The first ``limit`` examples."""
    if limit is not None and limit < 1:
        raise BadRequestError(f"A limit of {limit} leaves no examples; give at least 1.")
    return list(examples[:limit])


def put_aside(
    examples: Sequence[Example], share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Labelled examples to train on, and a random share of them held out to judge by."""
    kept, held_out = split_off(len(examples), share, seed)
    learn, judge = [examples[place] for place in kept], [examples[place] for place in held_out]
    require_variety(learn, "left to train on")
    require_variety(judge, "held out to judge by")
    return learn, judge


def split_off(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Divide ``count`` places at random: those that stay, and a share of at least one held out.

    >>> split_off(6, 1 / 3, seed=0)
    ([3, 0, 1, 4], [2, 5])
    >>> split_off(1, 0.5, seed=0)
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: 1 examples leave none to learn from when 1 are held out. ...
    """
    size = max(1, round(share * count))
    if size >= count:
        raise BadRequestError(
            f"{count} examples leave none to learn from when {size} are held out. "
            "Give more examples, or another set to measure on."
        )
    order = torch.randperm(count, generator=generator(seed)).tolist()
    return order[size:], order[:size]


def require_variety(examples: Sequence[Example], purpose: str) -> None:
    """Refuse examples that all have the same label."""
    labels = {example.label for example in examples}
    if len(labels) == 1:
        raise BadRequestError(
            f'Every one of the {len(examples)} examples {purpose} has the label "{labels.pop()}", '
            "so there is nothing to tell apart. Give more, or the same in another order."
        )
