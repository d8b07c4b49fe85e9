"""How are the weights of a classifier trained? The loop over tokenised examples, and only that.

1. Each epoch, shuffled chunks are cut into batches of nearly equal length.
2. AdamW with warm-up and linear decay, clipped gradients. A running average of the weights is what
   is measured and kept, because it is steadier than any single step (Polyak and Juditsky, 1992).
3. After each epoch, accuracy on examples put aside decides which weights to keep and when to stop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from exhibit_a.errors import NotComputableError
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Bar, Progress, tell
from exhibit_a.trace.batches import padded_with

CHUNK = 50  # batches sorted by length together: large enough to save padding, small enough to mix


@dataclass(frozen=True)
class Schedule:
    """How the weights are changed, and for how long."""

    epochs: int
    batch_size: int
    learning_rate: float
    label_smoothing: float
    patience: int  # epochs without a new best before stopping
    seed: int
    warmup: float = 0.06  # part of all steps
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float = 0.999  # what the running average keeps at each step
    teaching: float = 0.5  # weight of a teacher's probabilities beside a label, if there is one


@dataclass(frozen=True)
class Encoded:
    """One tokenised example, the number of its label, and a teacher's probability of each label."""

    inputs: dict[str, list[int]]
    label: int | None
    taught: tuple[float, ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.inputs["input_ids"])


def fit(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    aside: Sequence[Encoded],
    schedule: Schedule,
    bar: Bar,
) -> list[float]:
    """Train until epochs or patience run out, keep the best weights, return every accuracy."""
    shuffle = generator(schedule.seed)
    weights: list[Tensor] = [weight for weight in model.parameters() if weight.requires_grad]
    average = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.AdamW(
        weights, schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True
    )
    steps = schedule.epochs * -(-len(examples) // schedule.batch_size)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, _warm_up_then_decay(steps, schedule.warmup))
    bar.title("training")
    bar(0, steps)
    history: list[float] = []
    best = average
    for epoch in range(schedule.epochs):
        model.train()
        for batch in _batches(examples, schedule.batch_size, shuffle):
            scores = model(**padded(model, batch)).logits
            target = _target(batch, schedule.teaching).to(scores.device)
            loss = cross_entropy(scores, target, label_smoothing=schedule.label_smoothing)
            _require_finite(loss, rate.last_epoch)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(weights, schedule.clip)
            optimizer.step()
            optimizer.zero_grad()
            rate.step()
            _follow(average, weights, step=rate.last_epoch, keep=schedule.average)
            bar(rate.last_epoch, steps)
        with _swapped(weights, average):
            history.append(share_right(model, aside))
        bar.note(f"accuracy {history[-1]:.1%}")
        if history[-1] == max(history):  # of equal ones the later, which was trained longer
            best = [weight.clone() for weight in average]
        if epoch - history.index(max(history)) >= schedule.patience:
            break
    _put(weights, best)
    return history


def share_right(model: PreTrainedModel, examples: Sequence[Encoded]) -> float:
    """The part of the examples whose label gets the highest score."""
    labels = torch.tensor([example.label for example in examples])
    return float((answers(model, examples).argmax(-1) == labels).double().mean())


@torch.no_grad()
def answers(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    *,
    size: int = 64,
    progress: Progress | None = None,
) -> Float[Tensor, "example label"]:
    """The model's score for each label of each example."""
    was_training = model.training
    model.eval()
    order = sorted(range(len(examples)), key=lambda number: examples[number].length)
    scores = torch.empty(len(examples), model.config.num_labels or 0)
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        scores[batch] = model(**padded(model, [examples[n] for n in batch])).logits.float().cpu()
        tell(progress, start + len(batch), len(order))
    model.train(was_training)
    return scores


def padded(model: PreTrainedModel, batch: Sequence[Encoded]) -> dict[str, Tensor]:
    """One padded tensor for each input that the tokenizer makes, on the model's device."""
    rows = [
        {name: torch.tensor([numbers]) for name, numbers in example.inputs.items()}
        for example in batch
    ]
    together = padded_with(model.config.pad_token_id, rows)
    return {name: tensor.to(model.device) for name, tensor in together.items()}


def _batches(
    examples: Sequence[Encoded], size: int, shuffle: torch.Generator
) -> Iterator[list[Encoded]]:
    """Batches of nearly equal length in random order, so that little of them is padding."""
    order = torch.randperm(len(examples), generator=shuffle).tolist()
    batches: list[list[int]] = []
    for start in range(0, len(order), size * CHUNK):
        chunk = sorted(order[start : start + size * CHUNK], key=lambda n: examples[n].length)
        batches += [chunk[first : first + size] for first in range(0, len(chunk), size)]
    for number in torch.randperm(len(batches), generator=shuffle).tolist():
        yield [examples[n] for n in batches[number]]


def _target(batch: Sequence[Encoded], teaching: float) -> Tensor:
    """What is to be learnt: numbers of labels, or with a teacher, a probability of each label."""
    if not batch[0].taught:
        return torch.tensor([example.label for example in batch])
    shares = torch.tensor([example.taught for example in batch])
    labelled = [row for row, example in enumerate(batch) if example.label is not None]
    shares[labelled] *= teaching
    shares[labelled, [batch[row].label for row in labelled]] += 1 - teaching
    return shares


def _warm_up_then_decay(steps: int, warmup: float) -> Callable[[int], float]:
    rising = max(1, round(steps * warmup))
    return lambda step: min((step + 1) / rising, max(0.0, (steps - step) / max(1, steps - rising)))


@torch.no_grad()
def _follow(average: list[Tensor], weights: list[Tensor], *, step: int, keep: float) -> None:
    """Move the running average towards the weights; faster at first, to forget the start."""
    torch._foreach_lerp_(average, weights, 1 - min(keep, (1 + step) / (10 + step)))


@contextmanager
def _swapped(weights: Sequence[Tensor], others: Sequence[Tensor]) -> Iterator[None]:
    """Give the model other weights while the block runs."""
    before = [weight.detach().clone() for weight in weights]
    _put(weights, others)
    try:
        yield
    finally:
        _put(weights, before)


@torch.no_grad()
def _put(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)


def _require_finite(loss: Tensor, step: int) -> None:
    if not loss.isfinite():
        raise NotComputableError(
            f"The loss is no longer a number after {step} steps. Lower the learning rate, and "
            f"check the base for weights that are not finite."
        )
