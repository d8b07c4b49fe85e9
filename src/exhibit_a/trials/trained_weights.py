"""Tells trained weights of a layer from random ones.

A head of a model with random weights can be sharp, decide the answer and have only one valid map,
and still be evidence of nothing. So before a head that the answer rests on gets another word than
*undetermined*, every weight matrix W is compared with its own entries in random order: such a
matrix has the same numbers and no structure. The statistic is the concentration of its spectrum,
tr((WWᵀ)²) / tr(WWᵀ)², which products cost and no decomposition. Training (or construction by hand)
moves it by dozens of standard deviations.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.numerics.seeds import generator
from exhibit_a.subject.subject import Subject

SHUFFLES = 12  # of every matrix
WIDEST = 128  # rows and columns that are looked at: structure shows in any corner
NARROWEST = 8  # a smaller matrix says nothing
STRUCTURED = 8.0  # standard deviations; of 444 matrices with random weights none came beyond 3.1

Matrix = Float[Tensor, "row column"]


def weights_look_trained(subject: Subject) -> dict[str, bool]:
    """Whether the weights of each layer differ from random numbers, by the layer's module."""
    modules = dict.fromkeys(layer.module for layer in subject.anatomy.layers)
    return {name: _structured(subject, name) for name in modules}


def _structured(subject: Subject, name: str) -> bool:
    """Whether any matrix of a layer differs from its own entries in random order."""
    seeded = generator(0)
    module = subject.model.get_submodule(name)
    matrices = [weight.detach() for weight in module.parameters() if weight.ndim == 2]
    return any(abs(deviation(matrix, seeded)) > STRUCTURED for matrix in matrices)


def deviation(matrix: Matrix, seeded: torch.Generator) -> float:
    """How many standard deviations the spectrum is from that of the entries in random order."""
    corner = matrix[:WIDEST, :WIDEST].cpu().double()
    if min(corner.shape) < NARROWEST or not bool(corner.any()):
        return 0.0
    entries = corner.flatten()
    shuffled = torch.tensor(
        [
            concentration(entries[torch.randperm(len(entries), generator=seeded)].view_as(corner))
            for _ in range(SHUFFLES)
        ]
    )
    spread = float(shuffled.std())
    return (concentration(corner) - float(shuffled.mean())) / spread if spread else 0.0


def concentration(matrix: Matrix) -> float:
    """tr((WWᵀ)²) / tr(WWᵀ)²: 1 for one direction, 1/n where all n directions are alike."""
    squared = matrix @ matrix.mT if len(matrix) <= matrix.shape[1] else matrix.mT @ matrix
    return float(squared.square().sum() / matrix.square().sum() ** 2)
