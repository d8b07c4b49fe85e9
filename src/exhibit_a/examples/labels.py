"""Which class is each example's, and which examples are put aside to judge by?"""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.examples.reading import Example, label_names, require_labels
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
    if {one.label for one in examples} <= set(numbers):
        labels = numbers
    for one in examples:
        if one.label not in labels:
            known = ", ".join(f"{place} {name}" for place, name in enumerate(subject.labels))
            raise BadRequestError(
                f"Example {one.id} has the label {one.label!r}, which the model does not know. "
                f"It knows {known}."
            )
    return torch.tensor([labels.index(str(one.label)) for one in examples], device=subject.device)


def limited(examples: Sequence[Example], limit: int | None) -> list[Example]:
    """The first ``limit`` examples."""
    if limit is not None and limit < 1:
        raise BadRequestError(f"A limit of {limit} leaves no examples; give at least 1.")
    return list(examples[:limit])


def put_aside(
    examples: Sequence[Example], share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Labelled examples to train on, and a random share of them put aside to judge by."""
    order = torch.randperm(len(examples), generator=generator(seed)).tolist()
    count = max(1, round(share * len(examples)))
    if len(examples) <= count:
        raise BadRequestError("One example cannot both train and judge; give at least two.")
    learn, judge = [examples[i] for i in order[count:]], [examples[i] for i in order[:count]]
    require_variety(learn, "left to train on")
    require_variety(judge, "put aside to judge by")
    return learn, judge


def require_variety(examples: Sequence[Example], purpose: str) -> None:
    """Refuse a part of the labelled examples in which all labels are the same."""
    labels = {one.label for one in examples}
    if len(labels) == 1:
        raise BadRequestError(
            f'Every one of the {len(examples)} examples {purpose} has the label "{labels.pop()}", '
            "so there is nothing to tell apart. Give more, or the same in another order."
        )
