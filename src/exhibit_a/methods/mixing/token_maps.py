"""Maps that lead from a hidden vector back to the input vector it started as.

All maps are fitted from a stream, for every layer at once:

1. linear: ridge regression. Sums of products (the normal equations) are all that is kept of the
   data, so one pass is enough and the minimum of the squared error is found exactly. The penalty
   is the one with the least error on validation texts, whose error is a quadratic form in their
   own sums, so that they are read only once, too;
2. rotation: the orthogonal map nearest to the data, from the same sums (Procrustes);
3. mlp: the linear map plus one hidden layer that starts as zero and is trained on what the metric
   measures, until the validation loss no longer falls.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from exhibit_a.methods.mixing.token_search import Metric
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator

HiddenRows = Float[Tensor, "layer row d_model"]
InputRows = Float[Tensor, "row d_input"]
Predicted = Float[Tensor, "layer row d_input"]

PENALTIES = torch.logspace(-9, 2, 34, dtype=torch.float64)  # relative to the mean variance
LEARNING_RATE = 1e-3  # of Adam
PATIENCE = 2  # epochs without a lower validation loss before training stops


class Moments:
    """Sums of products of hidden vectors with targets: all that ridge regression needs.

    There may be several targets for the same hidden vectors; what they share is summed once.
    """

    def __init__(self, layers: int, width: int, targets: int, target_width: int) -> None:
        self.count = 0
        self.hidden = torch.zeros(layers, width, dtype=torch.float64)
        self.gram = torch.zeros(layers, width, width, dtype=torch.float64)
        self.target = torch.zeros(targets, target_width, dtype=torch.float64)
        self.cross = torch.zeros(targets, layers, width, target_width, dtype=torch.float64)
        self.square = torch.zeros(targets, dtype=torch.float64)

    def add(self, hidden: HiddenRows, targets: Float[Tensor, "target row d_input"]) -> None:
        """Add some rows."""
        hidden, targets = to_float64(hidden).cpu(), to_float64(targets).cpu()
        self.count += hidden.shape[1]
        self.hidden += hidden.sum(1)
        self.gram.baddbmm_(hidden.mT, hidden)
        self.target += targets.sum(1)
        for cross, target in zip(self.cross, targets, strict=True):
            cross.baddbmm_(hidden.mT, target.expand(len(hidden), -1, -1))
        self.square += targets.square().sum((1, 2))
        self.__dict__.pop("principal", None)

    @property
    def centre(self) -> Float[Tensor, "layer d_model"]:
        """The mean hidden vector."""
        return self.hidden / self.count

    @property
    def spread(self) -> Float[Tensor, "layer d_model"]:
        """The standard deviation of every hidden component."""
        squares = self.gram.diagonal(dim1=1, dim2=2) / self.count
        return (squares - self.centre.square()).clamp_min(1e-12).sqrt()

    @cached_property
    def principal(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of the gram of rows counted from their mean."""
        strength, basis = torch.linalg.eigh(self.gram_around(self.centre))
        return strength.clamp_min(0), basis

    def gram_around(self, centre: Float[Tensor, "layer d_model"]) -> Tensor:
        """Products of hidden vectors with each other, counted from another origin."""
        gram = self.gram - _outer(self.hidden, centre) - _outer(centre, self.hidden)
        return gram + self.count * _outer(centre, centre)

    def around(self, centre: Tensor, offset: Tensor, target: int) -> tuple[Tensor, Tensor]:
        """Cross products and squares of rows counted from other origins."""
        total = self.target[target]
        cross = self.cross[target] - _outer(self.hidden, offset.expand(len(centre), -1))
        cross = cross - _outer(centre, (total - self.count * offset).expand(len(centre), -1))
        square = self.square[target] - 2 * offset @ total + self.count * offset @ offset
        return cross, square


@dataclass(frozen=True, eq=False)
class LinearMap:
    """h ↦ (h − centre) · weight + offset, for every layer."""

    centre: Float[Tensor, "layer d_model"]
    weight: Float[Tensor, "layer d_model d_input"]
    offset: Float[Tensor, " d_input"]
    penalty: Float[Tensor, " layer"]
    loss: Float[Tensor, " layer"]  # mean squared error of a validation row

    def __call__(self, hidden: HiddenRows) -> Predicted:
        """The input vectors these hidden vectors point back to."""
        return (hidden - self.centre.unsqueeze(1)) @ self.weight + self.offset


def ridge(
    train: Moments, validation: Moments, target: int = 0, like: LinearMap | None = None
) -> LinearMap:
    """The linear map with the least squared error, its penalty chosen on validation rows.

    With ``like`` the penalty is that of another map: a control must be as free as what it controls.
    """
    centre, offset = train.centre, train.target[target] / train.count
    (cross, _), (strength, basis) = train.around(centre, offset, target), train.principal
    seen = basis.mT @ cross
    penalties = PENALTIES * strength.mean(-1, keepdim=True)  # (layer, penalty)
    shrink = 1 / (strength.unsqueeze(1) + penalties.unsqueeze(2)).clamp_min(1e-300)

    held_cross, square = validation.around(centre, offset, target)
    held_gram = validation.gram_around(centre)
    if like is None:
        linear = (seen * (basis.mT @ held_cross)).sum(-1)  # (layer, direction)
        quadratic = (basis.mT @ held_gram @ basis) * (seen @ seen.mT)
        fits = ((shrink @ quadratic) * shrink).sum(-1) - 2 * (shrink @ linear.unsqueeze(2))[..., 0]
        best = fits.argmin(1, keepdim=True)
    else:
        best = (penalties - like.penalty[:, None]).abs().argmin(1, keepdim=True)
    chosen = shrink.gather(1, best.unsqueeze(2).expand(-1, -1, shrink.shape[2])).squeeze(1)
    weight = basis @ (chosen.unsqueeze(2) * seen)
    loss = square + (weight * (held_gram @ weight - 2 * held_cross)).sum((1, 2))
    return LinearMap(
        centre.float(),
        weight.float(),
        offset.float(),
        penalties.gather(1, best).squeeze(1).float(),
        (loss / max(1, validation.count)).float(),
    )


def rotation(train: Moments, target: int = 0) -> LinearMap:
    """The orthogonal map, times one factor, with the least squared error."""
    centre, offset = train.centre, train.target[target] / train.count
    cross, _ = train.around(centre, offset, target)
    left, strength, right = torch.linalg.svd(cross)
    spread = train.gram_around(centre).diagonal(dim1=1, dim2=2).sum(-1)
    size = strength.sum(-1) / spread.clamp_min(1e-300)
    unknown = torch.full((len(cross),), torch.nan)
    turned = left @ right * size.reshape(-1, 1, 1)
    return LinearMap(centre.float(), turned.float(), offset.float(), unknown, unknown)


class Perceptrons(nn.Module):
    """One hidden layer added to a fixed linear map, for every layer of the model at once."""

    def __init__(self, linear: LinearMap, spread: Tensor, width: int, seed: int) -> None:
        super().__init__()
        layers, given, wanted = linear.weight.shape
        chance = generator(seed)
        drawn = torch.randn(layers, given, width, generator=chance) / given**0.5
        self.linear, self.spread = linear, spread
        self.inner = nn.Parameter(drawn)
        self.shift = nn.Parameter(torch.zeros(layers, 1, width))
        self.outer = nn.Parameter(torch.zeros(layers, width, wanted))

    def forward(self, hidden: HiddenRows) -> Predicted:
        """The input vectors these hidden vectors point back to."""
        standard = (hidden - self.linear.centre.unsqueeze(1)) / self.spread.unsqueeze(1)
        bent: Tensor = F.gelu(standard @ self.inner + self.shift) @ self.outer
        return self.linear(hidden) + bent


Rows = Callable[[], Iterable[tuple[HiddenRows, Float[Tensor, "target row d_input"]]]]


def train_perceptrons(
    maps: Sequence[Perceptrons], train: Rows, validation: Rows, metric: Metric, epochs: int
) -> tuple[Float[Tensor, "target layer"], int]:
    """Train one set of maps for each target, side by side, until the first's loss falls no more.

    Each layer keeps the weights of the epoch that was best for the first target on validation
    texts: the others are controls, trained as long as what they control. Returns the validation
    losses and the number of epochs.
    """
    optimizers = [torch.optim.Adam(mlp.parameters(), lr=LEARNING_RATE) for mlp in maps]
    best = _validation_losses(maps, validation, metric)
    best_weights = [
        {name: weight.detach().clone() for name, weight in mlp.named_parameters()} for mlp in maps
    ]
    epoch, stale = 0, 0
    while epoch < epochs and stale < PATIENCE:
        for hidden, targets in train():
            for mlp, optimizer, target in zip(maps, optimizers, targets, strict=True):
                optimizer.zero_grad()
                loss = _losses(mlp(hidden), target, metric).mean(1).sum()
                torch.autograd.backward([loss])
                optimizer.step()
        losses = _validation_losses(maps, validation, metric)
        better = losses[0] < best[0]
        for mlp, weights in zip(maps, best_weights, strict=True):
            for name, weight in mlp.named_parameters():
                weights[name][better] = weight.detach()[better]
        best = torch.where(better, losses, best)
        epoch, stale = epoch + 1, 0 if bool(better.any()) else stale + 1
    for mlp, weights in zip(maps, best_weights, strict=True):
        mlp.load_state_dict(weights)
    return best, epoch


def _losses(predicted: Predicted, inputs: InputRows, metric: Metric) -> Float[Tensor, "layer row"]:
    """The distance that the metric measures, for every row."""
    if metric == "cosine":
        return 1 - F.cosine_similarity(predicted, inputs.unsqueeze(0), dim=-1)
    return (predicted - inputs).square().sum(-1)


@torch.no_grad()
def _validation_losses(
    maps: Sequence[Perceptrons], rows: Rows, metric: Metric
) -> Float[Tensor, "target layer"]:
    """The mean loss of every set of maps on its own target."""
    total, count = torch.zeros(len(maps), len(maps[0].inner)), 0
    for hidden, targets in rows():
        pairs = zip(maps, targets, strict=True)
        total += torch.stack([_losses(mlp(hidden), target, metric).sum(1) for mlp, target in pairs])
        count += hidden.shape[1]
    return total / max(1, count)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """The outer product of two vectors, for every layer."""
    return left.unsqueeze(-1) * right.unsqueeze(-2)
