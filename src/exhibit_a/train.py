"""How do we get a model that knows a task? Fine-tune an encoder on labelled text or pairs.

1. Read the examples, learn the label map, hold out a slice if no development set is given.
2. Tokenise once; each epoch, cut shuffled chunks into batches of nearly equal length.
3. AdamW with warm-up and linear decay, clipped gradients; a running average of the weights is what
   is evaluated and kept, because it is steadier than any single step (Polyak, 1992).
4. After each epoch, measure accuracy on the held-out examples; keep the best, stop when it no
   longer improves.
5. Write beside ``out`` and rename, so that a half-written model is never left behind.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from exhibit_a.errors import BadRequestError
from exhibit_a.examples import Example, known_labels, label_names, read_examples

CHUNK_OF_BATCHES = 50  # batches are sorted by length inside a chunk, so order stays mostly random
RECORD = "training.json"


@dataclass(frozen=True)
class Schedule:
    """How the weights are changed."""

    epochs: int
    batch_size: int
    learning_rate: float
    warmup: float = 0.06  # part of all steps
    weight_decay: float = 0.01
    clip: float = 1.0
    average: float = 0.999  # of the running weights, per step
    label_smoothing: float = 0.0
    patience: int = 2  # epochs without improvement


@dataclass(frozen=True)
class Encoded:
    """One tokenised example and the number of its label."""

    inputs: dict[str, list[int]]
    label: int

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.inputs["input_ids"])


def train(
    base: str | Path,
    train: str | Path | Iterable[Any],
    *,
    dev: str | Path | Iterable[Any] | None = None,
    out: str | Path,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    epochs: int = 3,
    batch_size: int = 48,
    learning_rate: float = 1.5e-4,
    label_smoothing: float = 0.0,
    patience: int = 2,
    freeze_embeddings: bool = True,
    max_length: int = 128,
    holdout: float = 0.05,
    seed: int = 0,
    progress: bool = True,
) -> Path:
    """Fine-tune ``base`` to tell the labels of ``train`` apart, and save it in the folder ``out``.

    ``base`` is a folder or hub id of an encoder, with or without a classification head. ``train``
    and ``dev`` are whatever ``read_examples`` reads. Without ``dev``, a slice of ``train``
    (``holdout``) takes its place. The same seed gives the same bytes on the same machine. What was
    done and the accuracy reached are written to ``training.json`` in ``out``.
    """
    target = _free_folder(Path(out))
    columns = {"text": text, "pair": pair, "label": label}
    examples = read_examples(train, **columns, labelled=True)
    names = label_names(examples)
    if dev is None:
        examples, held_out = split(examples, holdout, seed)
    else:
        held_out = read_examples(dev, **columns, labelled=True)
    known_labels(held_out, names)

    schedule = Schedule(
        epochs, batch_size, learning_rate, label_smoothing=label_smoothing, patience=patience
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, tokenizer = load_base(base, names)
        if freeze_embeddings:
            model.get_input_embeddings()
            model.base_model.embeddings.requires_grad_(False)
        encode = encoder(model, tokenizer, max_length)
        history = _fit(model, tokenizer, encode(examples), encode(held_out), schedule, seed, progress)
    record = {
        "base": Path(base).name,
        "train_examples": len(examples),
        "dev_examples": len(held_out),
        "dev_accuracy": max(history),
        "dev_accuracy_by_epoch": history,
        "seed": seed,
        "max_length": max_length,
        "freeze_embeddings": freeze_embeddings,
        **asdict(schedule),
    }
    with _beside(target) as folder:
        with _quiet():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return target
