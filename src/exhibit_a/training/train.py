"""How is a model for a new task made? By fine-tuning an encoder on labelled texts or pairs.

1. Read the examples, collect the labels, put a part aside if no development set is given.
2. Load the encoder with a head for these labels, and tokenise once. A teacher, if there is one,
   gives its probability of each label for every example (Hinton et al., 2015).
3. Run the loop (``fit``); the examples that were put aside decide which weights are kept.
4. Write beside ``out`` and rename, so that half a model is never left behind. The folder is made
   before the training, so that a path that cannot be written fails at once.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from exhibit_a.embedded.weights import quietly
from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.examples import (
    Example,
    label_names,
    read_examples,
    require_known_labels,
    require_labels,
)
from exhibit_a.examples.labels import split_off
from exhibit_a.progress import Bar, progress_bar
from exhibit_a.results.files import folder_beside, free_folder
from exhibit_a.subject.encoding import NO_PAIRS, length_limit, separates
from exhibit_a.subject.sources import knows_words, lacks_a_head
from exhibit_a.training.fit import Encoded, Schedule, answers, fit, share_right

RECORD = "training.json"
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "epochs": (lambda value: value >= 1, "at least 1"),
    "batch_size": (lambda value: value >= 1, "at least 1"),
    "patience": (lambda value: value >= 1, "at least 1"),
    "learning_rate": (lambda value: 0 < value < math.inf, "above 0 and finite"),
    "label_smoothing": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "max_length": (lambda value: value >= 4, "at least 4, for the special tokens of a pair"),
    "holdout": (lambda value: 0 < value < 1, "above 0 and below 1"),
}

Source = str | Path | Iterable[Any]  # of examples


def train(
    base: str | Path,
    train: Source,
    *,
    dev: Source | None = None,
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
    ``freeze_embeddings`` leaves the word embeddings unchanged: half the weights of a small model,
    which a small data set would only disturb. ``teacher`` is a model that already knows these
    labels, as a rule a larger one: the target is then half the label and half the teacher's
    probabilities, and ``train`` may also hold texts without a label. The same seed gives the same
    bytes on the same CPU. ``training.json`` in ``out`` records the settings and the accuracy.

    >>> xa.train("encoder", examples, out="model", learning_rate=0)
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: learning_rate is 0. It must be above 0 and finite.
    >>> xa.train("encoder", examples[:1] * 2, out="model")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: Every example has the label "positive", so there is ...
    """
    schedule = Schedule(epochs, batch_size, learning_rate, label_smoothing, patience, seed)
    _require_ranges(**asdict(schedule), max_length=max_length, holdout=holdout)
    target = free_folder(Path(out))
    columns = {"text": text, "pair": pair, "label": label}
    lesson = _lesson(_Sources(train, dev, teacher), columns, holdout, seed)
    with folder_beside(target) as folder, torch.random.fork_rng():
        torch.manual_seed(seed)
        model, tokenizer = load_base(base, lesson.labels)
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        model.get_input_embeddings().requires_grad_(not freeze_embeddings)
        with progress_bar("training", visible=progress) as bar:
            history = _fitted(model, tokenizer, lesson, schedule, max_length, bar)
        record = {
            "base": Path(base).name,
            "freeze_embeddings": freeze_embeddings,
            "max_length": max_length,
        }
        _save(folder, model, tokenizer, record | lesson.record(history) | asdict(schedule))
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
