"""How does a classifier learn? The loop over tokenised examples, and nothing but the loop.

1. Each epoch, shuffled chunks are cut into batches of nearly equal length.
2. AdamW with warm-up and linear decay, clipped gradients. A running average of the weights is what
   is measured and kept, because it is steadier than any single step (Polyak and Juditsky, 1992).
3. After each epoch, accuracy on examples put aside decides which weights to keep and when to stop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor
from torch.nn.functional import cross_entropy

from exhibit_a.errors import NotComputableError
from exhibit_a.numerics.seeds import generator

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
    teaching: float = 0.5  # what a teacher's opinion counts beside a label, if there is a teacher


@dataclass(frozen=True)
class Encoded:
    """One tokenised example, the number of its label, and what a teacher thinks of each label."""

    inputs: dict[str, list[int]]
    label: int | None
    taught: tuple[float, ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.inputs["input_ids"])


def fit(
    model: Any,
    examples: Sequence[Encoded],
    aside: Sequence[Encoded],
    schedule: Schedule,
    bar: Progress,
) -> list[float]:
    """Train until epochs or patience run out; leave the best weights; tell every accuracy."""
    shuffle = generator(schedule.seed)
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    average = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.AdamW(
        weights, schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True
    )
    steps = schedule.epochs * -(-len(examples) // schedule.batch_size)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, _warm_up_then_decay(steps, schedule.warmup))
    task = bar.add_task("training", total=steps, note="")
    history: list[float] = []
    best = average
    for epoch in range(schedule.epochs):
        model.train()
        for batch in _batches(examples, schedule.batch_size, shuffle):
            scores = model(**padded(model, batch)).logits
            aim = _aim(batch, schedule.teaching).to(scores.device)
            loss = cross_entropy(scores, aim, label_smoothing=schedule.label_smoothing)
            _require_finite(loss, rate.last_epoch)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(weights, schedule.clip)
            optimizer.step()
            optimizer.zero_grad()
            rate.step()
            _follow(average, weights, step=rate.last_epoch, keep=schedule.average)
            bar.advance(task)
        with _swapped(weights, average):
            history.append(share_right(model, aside))
        bar.update(task, note=f"accuracy {history[-1]:.1%}")
        if history[-1] == max(history):  # of equals the later one, which has seen more
            best = [weight.clone() for weight in average]
        if epoch - history.index(max(history)) >= schedule.patience:
            break
    _put(weights, best)
    return history


def share_right(model: Any, examples: Sequence[Encoded]) -> float:
    """The part of the examples whose own label gets the highest score."""
    labels = torch.tensor([example.label for example in examples])
    return float((answers(model, examples).argmax(-1) == labels).double().mean())


@torch.no_grad()
def answers(
    model: Any,
    examples: Sequence[Encoded],
    *,
    size: int = 64,
    done: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """The model's score for each label (examples, labels); ``done`` hears of every batch."""
    was_training = model.training
    model.eval()
    order = sorted(range(len(examples)), key=lambda number: examples[number].length)
    scores = torch.empty(len(examples), model.config.num_labels)
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        scores[batch] = model(**padded(model, [examples[n] for n in batch])).logits.float().cpu()
        done(len(batch))
    model.train(was_training)
    return scores


def padded(model: Any, batch: Sequence[Encoded]) -> dict[str, Tensor]:
    """One padded tensor for each input the tokenizer makes."""
    longest = max(example.length for example in batch)
    filler = {"input_ids": model.config.pad_token_id}
    return {
        key: torch.tensor(
            [e.inputs[key] + [filler.get(key, 0)] * (longest - e.length) for e in batch],
            device=model.device,
        )
        for key in batch[0].inputs
    }


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


def _aim(batch: Sequence[Encoded], teaching: float) -> Tensor:
    """What the scores should say: a label's number, or with a teacher, a share for each label."""
    if not batch[0].taught:
        return torch.tensor([example.label for example in batch])
    taught = torch.tensor([example.taught for example in batch])
    told = [row for row, example in enumerate(batch) if example.label is not None]
    taught[told] *= teaching
    taught[told, [batch[row].label for row in told]] += 1 - teaching
    return taught


def _warm_up_then_decay(steps: int, warmup: float) -> Callable[[int], float]:
    rising = max(1, round(steps * warmup))
    return lambda step: min((step + 1) / rising, max(0.0, (steps - step) / max(1, steps - rising)))


@torch.no_grad()
def _follow(average: list[Tensor], weights: list[Any], *, step: int, keep: float) -> None:
    """Move the running average towards the weights; early on faster, to forget where it began."""
    torch._foreach_lerp_(average, weights, 1 - min(keep, (1 + step) / (10 + step)))


@contextmanager
def _swapped(weights: Sequence[Tensor], others: Sequence[Tensor]) -> Iterator[None]:
    """Give the model other weights for a while."""
    own = [weight.detach().clone() for weight in weights]
    _put(weights, others)
    try:
        yield
    finally:
        _put(weights, own)


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
