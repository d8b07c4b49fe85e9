"""How do we get a model that knows a task? Fine-tune an encoder on labelled text or pairs.

1. Read the examples, learn the label map, put a slice aside if no development set is given.
2. Load the encoder with a head for these labels, and tokenise once. A teacher, if there is one,
   says what it thinks of every example (Hinton et al., 2015).
3. Run the loop (``fit``); what was put aside decides which weights are kept.
4. Write beside ``out`` and rename, so that half a model is never left behind. The place is made
   before the work, so that none of it is in vain.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from exhibit_a.embedded.weights import quietly
from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.examples import (
    Example,
    label_names,
    read_examples,
    require_known_labels,
    require_labels,
)
from exhibit_a.results.files import folder_beside, free_folder
from exhibit_a.subject.encoding import NO_PAIRS, length_limit, separates
from exhibit_a.subject.sources import knows_words, lacks_a_head
from exhibit_a.training.fit import Encoded, Schedule, answers, fit, share_right

RECORD = "training.json"
SENSE: dict[str, tuple[Callable[[float], bool], str]] = {
    "epochs": (lambda value: value >= 1, "at least 1"),
    "batch_size": (lambda value: value >= 1, "at least 1"),
    "patience": (lambda value: value >= 1, "at least 1"),
    "learning_rate": (lambda value: 0 < value < math.inf, "above 0 and finite"),
    "label_smoothing": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "max_length": (lambda value: value >= 4, "at least 4, the marks around a pair"),
    "holdout": (lambda value: 0 < value < 1, "above 0 and below 1"),
}


def train(
    base: str | Path,
    train: str | Path | Iterable[Any],
    *,
    dev: str | Path | Iterable[Any] | None = None,
    out: str | Path,
    teacher: str | Path | None = None,
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
    device: str | None = None,
    progress: bool = True,
) -> Path:
    """Fine-tune ``base`` to tell the labels of ``train`` apart, and save it in the folder ``out``.

    ``base`` is a folder or hub id of an encoder, with or without a classification head. ``train``
    and ``dev`` are whatever ``read_examples`` reads, with columns named by ``text``, ``pair`` and
    ``label``. Without ``dev``, the part ``holdout`` of ``train`` takes its place.
    ``freeze_embeddings`` keeps the table of word embeddings as it is: half the weights of a small
    model, which a small data set would only disturb. The same seed gives the same bytes on the same
    CPU. ``teacher`` is a model that already tells these labels apart, larger as a rule: where there
    is a label, the aim is half the label and half the teacher's opinion, and ``train`` may also
    hold texts without one. What was done and the accuracy that was reached stand in
    ``training.json`` in ``out``.
    """
    schedule = Schedule(epochs, batch_size, learning_rate, label_smoothing, patience, seed)
    _require_sense(**asdict(schedule), max_length=max_length, holdout=holdout)
    target = free_folder(Path(out))
    columns = {"text": text, "pair": pair, "label": label}
    examples = read_examples(train, **columns, labelled=teacher is None)
    names = label_names(examples) if teacher is None else _labels_of(teacher)
    if dev is None:
        told = [example for example in examples if example.label is not None]
        if not told:
            raise BadRequestError(
                f"None of the {len(examples)} texts has a label, so none can be put aside to "
                f"choose the best epoch. Give labelled ones as dev."
            )
        learn, aside = split(told, holdout, seed)
        examples = learn + [example for example in examples if example.label is None]
    else:
        aside = read_examples(dev, **columns, labelled=True)
    require_known_labels([*examples, *aside], names)

    with folder_beside(target) as folder, torch.random.fork_rng():
        torch.manual_seed(seed)
        model, tokenizer = load_base(base, names)
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if freeze_embeddings:
            model.get_input_embeddings().requires_grad_(False)
        known, check = (encode(model, tokenizer, part, max_length) for part in (examples, aside))
        with _bar(visible=progress) as bar:
            if teacher is not None:
                known = _taught(known, model, teacher, examples, max_length, bar)
            history = fit(model, known, check, schedule, bar)
        record = {
            "base": Path(base).name,
            "teacher": teacher and Path(teacher).name,
            "train_examples": len(examples),
            "dev_examples": len(aside),
            "dev_accuracy": max(history),
            "dev_accuracy_by_epoch": history,
            "freeze_embeddings": freeze_embeddings,
            "max_length": max_length,
            **asdict(schedule),
        }
        with quietly():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return target


def accuracy(
    model: Any, tokenizer: Any, examples: Sequence[Example], *, max_length: int = 128
) -> float:
    """The part of the examples whose own label gets the model's highest score."""
    require_labels(examples, "The examples")
    require_known_labels(examples, model.config.label2id)
    return share_right(model, encode(model, tokenizer, examples, max_length))


def split(
    examples: Sequence[Example], fraction: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Put a random part of the examples aside: what remains, and what was put aside."""
    count = max(1, round(len(examples) * fraction))
    if count >= len(examples):
        raise BadRequestError(
            f"{len(examples)} examples leave none to learn from when {count} are put aside. "
            f"Give more examples, or a development set."
        )
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))
    chosen = set(order[:count].tolist())
    remaining = [example for number, example in enumerate(examples) if number not in chosen]
    return remaining, [examples[number] for number in sorted(chosen)]


def encode(
    model: Any, tokenizer: Any, examples: Sequence[Example], max_length: int
) -> list[Encoded]:
    """Tokenise every example, cut to what the model can take."""
    if any(example.pair is not None for example in examples) and not separates(tokenizer):
        raise BadRequestError(NO_PAIRS)
    limit = min(max_length, length_limit(model, tokenizer) or max_length)
    encoded = []
    for example in examples:
        inputs = tokenizer(example.text, example.pair, truncation=True, max_length=limit)
        encoded.append(Encoded(dict(inputs), model.config.label2id.get(example.label)))
    tokenizer("")  # a fast tokenizer remembers its last limit and would save it
    return encoded


def _labels_of(teacher: str | Path) -> list[str]:
    """The labels that a teacher tells apart, in its order."""
    with quietly(), _readable(teacher, "a teacher"):
        config = AutoConfig.from_pretrained(teacher)
    return [config.id2label[number] for number in range(config.num_labels)]


def _taught(
    known: Sequence[Encoded],
    model: Any,
    teacher: str | Path,
    examples: Sequence[Example],
    max_length: int,
    bar: Progress,
) -> list[Encoded]:
    """Every example with the share of belief that the teacher gives to each of its labels."""
    expert, tokenizer = load_base(teacher, list(model.config.label2id))
    expert.to(model.device)
    task = bar.add_task("the teacher reads", total=len(examples), note="")
    scores = answers(
        expert,
        encode(expert, tokenizer, examples, max_length),
        done=lambda count: bar.advance(task, count),
    )
    columns = [expert.config.label2id[name] for name in model.config.label2id]
    shares = torch.softmax(scores, -1)[:, columns].tolist()
    return [replace(one, taught=tuple(row)) for one, row in zip(known, shares, strict=True)]


def load_base(base: str | Path, names: list[str]) -> tuple[Any, Any]:
    """The encoder with a head for these labels; a head that knows the same labels is kept."""
    with quietly(), _readable(base, "an encoder with its tokenizer"):
        config = AutoConfig.from_pretrained(base)
        if set(config.label2id) == set(names):
            names = [config.id2label[number] for number in range(len(names))]
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}
        tokenizer = AutoTokenizer.from_pretrained(base)
        model, told = AutoModelForSequenceClassification.from_pretrained(
            base,
            config=config,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    lacks_a_head(model, told, str(base))  # as a rule it does, and will get one here
    if not knows_words(tokenizer):
        raise BadRequestError(
            f'"{base}" came without a tokenizer. Save one beside the weights (tokenizer.json).'
        )
    if tokenizer.pad_token_id is None:
        raise BadRequestError(
            f'The tokenizer of "{base}" has no padding token, so texts cannot share a batch. '
            f"Give an encoder such as BERT, RoBERTa or MPNet."
        )
    model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer


@contextmanager
def _readable(source: str | Path, role: str) -> Iterator[None]:
    """Say in one line why a folder or hub id cannot be loaded."""
    try:
        yield
    except Exception as problem:  # files can be broken in any way, and each has its own exception
        raise BadRequestError(
            f'Cannot load "{source}" as {role}: {first_line(problem)} '
            f"Give a folder that save_pretrained wrote, or a hub id."
        ) from problem


def _bar(*, visible: bool) -> Progress:
    """A progress bar on stderr, and only where somebody can see it."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not (visible and console.is_terminal),
    )


def _require_sense(**numbers: float) -> None:
    for name, (sensible, words) in SENSE.items():
        if not sensible(numbers[name]):
            raise BadRequestError(f"{name} is {numbers[name]}. It must be {words}.")
