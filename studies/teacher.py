"""Who taught `nli`? A model five times its size, of which only the upper half had to be trained.

1. Take all-mpnet-base-v2 and give it a head.
2. Run its lower half once over every pair, and keep the states. They never change, for the lower
   half is frozen; so each epoch costs the upper half alone.
3. Train the upper half as any other classifier: the kept states take the place of word embeddings.
4. Put the halves together again. `make_models.py` lets the whole model score the student's pairs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from exhibit_a.examples import Example, label_names
from exhibit_a.progress import Bar, progress_bar
from exhibit_a.training.fit import Encoded, Schedule, fit, padded
from exhibit_a.training.train import encode, load_base

FROZEN = 6  # of its twelve layers
LONGEST = 96  # tokens; few pairs have more
SCHEDULE = Schedule(
    epochs=2, batch_size=32, learning_rate=5e-5, label_smoothing=0.0, patience=2, seed=0
)


def make_teacher(
    base: Path, learn: Sequence[Example], aside: Sequence[Example], out: Path
) -> list[float]:
    """Train the teacher, save it in ``out``, and tell its accuracy on ``aside`` by epoch."""
    torch.manual_seed(SCHEDULE.seed)
    model, tokenizer = load_base(base, label_names(learn))
    with progress_bar("lower half") as bar:
        kept, pairs = keep_states(model, encode(model, tokenizer, [*learn, *aside], LONGEST), bar)
        history = train_upper_half(model, kept, pairs[: len(learn)], pairs[len(learn) :], bar)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return history


@torch.no_grad()
def keep_states(
    model: Any, pairs: Sequence[Encoded], bar: Bar, size: int = 64
) -> tuple[Tensor, list[Encoded]]:
    """What the frozen layers make of every token, and the pairs as row numbers in that table."""
    encoder = model.eval().mpnet.encoder
    layers, encoder.layer = encoder.layer, encoder.layer[:FROZEN]
    rows = torch.zeros(sum(pair.length for pair in pairs), model.config.hidden_size).half()
    first = torch.tensor([0, *(pair.length for pair in pairs)]).cumsum(0).tolist()
    order = sorted(range(len(pairs)), key=lambda number: pairs[number].length)
    for start in range(0, len(order), size):
        bar(start, len(order))
        batch = order[start : start + size]
        inputs = padded(model, [pairs[number] for number in batch])
        states = model.mpnet(**inputs).last_hidden_state.half()
        for number, state in zip(batch, states, strict=True):
            rows[first[number] : first[number + 1]] = state[: pairs[number].length]
    encoder.layer = layers
    numbered = [
        Encoded({**pair.inputs, "input_ids": list(range(start, start + pair.length))}, pair.label)
        for start, pair in zip(first, pairs, strict=False)
    ]
    return rows, numbered


def train_upper_half(
    model: Any, kept: Tensor, learn: Sequence[Encoded], aside: Sequence[Encoded], bar: Bar
) -> list[float]:
    """Let the upper layers learn from kept states; then give the model its lower half back."""
    body = model.mpnet
    embeddings, layers = body.embeddings, body.encoder.layer
    body.encoder.relative_attention_bias.requires_grad_(False)  # the lower half needs it as it was
    body.embeddings, body.encoder.layer = KeptStates(kept), layers[FROZEN:]
    history = fit(model, learn, aside, SCHEDULE, bar)
    body.embeddings, body.encoder.layer = embeddings, layers
    return history


class KeptStates(nn.Module):
    """Stands where embeddings stood: a row number becomes what the lower half made of a token."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, input_ids: Tensor, **_ignored: Any) -> Tensor:
        return self.rows[input_ids].float()
