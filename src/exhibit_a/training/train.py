"""How is a model for a new task made? By fine-tuning an encoder on labelled texts or pairs.

1. Read the examples, collect the labels, put a part aside if no development set is given.
2. Load the encoder with a head for these labels, and tokenise once. A teacher, if there is one,
   gives its probability of each label for every example (Hinton et al., 2015).
3. Run the loop (``fit``); the examples that were put aside decide which weights are kept.
4. Write beside ``out`` and rename, so that half a model is never left behind. The folder is made
   before the training, so that a path that cannot be written fails at once; if it fails at the end,
   the model is not lost (``saving``).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from exhibit_a.embedded.weights import quietly
from exhibit_a.errors import BadRequestError, ExhibitError, first_line
from exhibit_a.examples import (
    Example,
    label_names,
    read_examples,
    require_known_labels,
    require_labels,
)
from exhibit_a.examples.labels import split_off
from exhibit_a.numerics.seeds import require_seed
from exhibit_a.progress import Bar, progress_bar
from exhibit_a.results.files import folder_beside, free_folder
from exhibit_a.results.plain import JSON
from exhibit_a.subject.encoding import NO_PAIRS, length_limit, separates
from exhibit_a.subject.sources import knows_words, lacks_a_head, moved
from exhibit_a.training.fit import Encoded, Schedule, answers, fit, share_right
from exhibit_a.training.saving import Trained, UnsavedModelError, require_room

RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "epochs": (lambda value: value >= 1, "at least 1"),
    "batch_size": (lambda value: value >= 1, "at least 1"),
    "patience": (lambda value: value >= 1, "at least 1"),
    "learning_rate": (lambda value: 0 < value < math.inf, "above 0 and finite"),
    "label_smoothing": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "max_length": (lambda value: value >= 4, "at least 4, for the special tokens of a pair"),
    "holdout": (lambda value: 0 < value < 1, "above 0 and below 1"),
}

Source = str | Path | Iterable[object]  # of examples


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
    require_seed(seed)
    target = free_folder(Path(out))
    columns = {"text": text, "pair": pair, "label": label}
    lesson = _lesson(train, dev, teacher, columns, holdout, seed)
    trained = None
    try:
        with folder_beside(target) as folder, torch.random.fork_rng():
            torch.manual_seed(seed)
            model, tokenizer = load_base(base, lesson.labels)
            require_room(folder, model)
            moved(model, device or ("cuda" if torch.cuda.is_available() else "cpu"))
            if freeze_embeddings:
                model.get_input_embeddings().requires_grad_(False)
            with progress_bar("training", visible=progress) as bar:
                history = _fitted(model, tokenizer, lesson, schedule, max_length, bar)
            record = {"base": Path(base).name, **lesson.record(history)}
            record |= {"freeze_embeddings": freeze_embeddings, "max_length": max_length}
            trained = Trained(model, tokenizer, record | asdict(schedule))
            trained.save(folder)
    except ExhibitError as problem:
        if trained is None:
            raise
        raise UnsavedModelError(trained, target, problem) from problem
    return target


def accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    *,
    max_length: int = 128,
) -> float:
    """The part of the examples whose label gets the model's highest score."""
    require_labels(examples, "The examples")
    require_known_labels(examples, label_numbers(model))
    return share_right(model, encode(model, tokenizer, examples, max_length))


def label_numbers(model: PreTrainedModel) -> dict[str, int]:
    """The number of each label in the model's output."""
    return {name: int(number) for name, number in (model.config.label2id or {}).items()}


def split(
    examples: Sequence[Example], fraction: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """The examples that remain, and a random part put aside, both in the order of the data."""
    kept, aside = split_off(len(examples), fraction, seed)
    return [examples[place] for place in sorted(kept)], [examples[place] for place in sorted(aside)]


def encode(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    max_length: int,
) -> list[Encoded]:
    """Tokenise every example, truncated to what the model accepts."""
    if any(example.pair is not None for example in examples) and not separates(tokenizer):
        raise BadRequestError(NO_PAIRS)
    limit = min(max_length, length_limit(model, tokenizer) or max_length)
    numbers = label_numbers(model)
    encoded = []
    for example in examples:
        inputs = tokenizer(example.text, example.pair, truncation=True, max_length=limit)
        number = None if example.label is None else numbers.get(example.label)
        encoded.append(Encoded(dict(inputs), number))
    tokenizer("")  # a fast tokenizer remembers its last limit and would save it
    return encoded


def load_base(
    base: str | Path, names: list[str]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The encoder with a head for these labels; a head that has the same labels is kept."""
    with quietly(), _readable(base, "an encoder with its tokenizer"):
        config = AutoConfig.from_pretrained(base)
        if set(config.label2id) == set(names):
            names = [config.id2label[number] for number in range(len(names))]
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}
        tokenizer = AutoTokenizer.from_pretrained(base)
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            base,
            config=config,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    lacks_a_head(model, loading, str(base))  # as a rule it does, and gets one here
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


@dataclass(frozen=True)
class _Lesson:
    """The labels, the examples to learn from and those put aside, and perhaps a teacher."""

    labels: list[str]
    examples: list[Example]
    aside: list[Example]
    teacher: str | Path | None

    def record(self, history: list[float]) -> dict[str, JSON]:
        """What ``training.json`` says about the data and the accuracy after each epoch."""
        return {
            "teacher": None if self.teacher is None else Path(self.teacher).name,
            "train_examples": len(self.examples),
            "dev_examples": len(self.aside),
            "dev_accuracy": max(history),
            "dev_accuracy_by_epoch": history,
        }


def _lesson(
    train: Source,
    dev: Source | None,
    teacher: str | Path | None,
    columns: dict[str, str | None],
    holdout: float,
    seed: int,
) -> _Lesson:
    """Read the examples, and put a part of them aside where no development set is given."""
    examples = read_examples(train, **columns, labelled=teacher is None)
    labels = label_names(examples) if teacher is None else _labels_of(teacher)
    if dev is None:
        labelled = [example for example in examples if example.label is not None]
        if not labelled:
            raise BadRequestError(
                f"None of the {len(examples)} texts has a label, so none can be put aside to "
                f"choose the best epoch. Give labelled ones as dev."
            )
        kept, aside = split(labelled, holdout, seed)
        examples = kept + [example for example in examples if example.label is None]
    else:
        aside = read_examples(dev, **columns, labelled=True)
    require_known_labels([*examples, *aside], labels)
    return _Lesson(labels, examples, aside, teacher)


def _labels_of(teacher: str | Path) -> list[str]:
    """The labels of a teacher, in its order."""
    with quietly(), _readable(teacher, "a teacher"):
        config = AutoConfig.from_pretrained(teacher)
    return [config.id2label[number] for number in range(config.num_labels)]


def _fitted(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    lesson: _Lesson,
    schedule: Schedule,
    max_length: int,
    bar: Bar,
) -> list[float]:
    """Train the model, and return its accuracy after each epoch."""
    learn = encode(model, tokenizer, lesson.examples, max_length)
    check = encode(model, tokenizer, lesson.aside, max_length)
    if lesson.teacher is not None:
        shares = _opinions(lesson.teacher, model, lesson.examples, max_length, bar)
        learn = [replace(text, taught=row) for text, row in zip(learn, shares, strict=True)]
    return fit(model, learn, check, schedule, bar)


def _opinions(
    teacher: str | Path,
    student: PreTrainedModel,
    examples: Sequence[Example],
    max_length: int,
    bar: Bar,
) -> list[tuple[float, ...]]:
    """The teacher's probability of each of the student's labels, for every example."""
    labels = list(label_numbers(student))
    model, tokenizer = load_base(teacher, labels)
    moved(model, student.device)
    bar.title("the teacher reads")
    encoded = encode(model, tokenizer, examples, max_length)
    shares = torch.softmax(answers(model, encoded, progress=bar), -1)
    numbers = label_numbers(model)
    columns = [numbers[name] for name in labels]
    return [tuple(row) for row in shares[:, columns].tolist()]


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


def _require_ranges(**numbers: float) -> None:
    for name, (in_range, words) in RANGES.items():
        if not in_range(numbers[name]):
            raise BadRequestError(f"{name} is {numbers[name]}. It must be {words}.")
