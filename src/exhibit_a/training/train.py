"""How is a model for a new task made? By fine-tuning an encoder, or from nothing.

This is the public function and the training of classifiers; translators are in ``translator``.

1. Read the examples, collect the labels, put a part aside if no development set is given.
2. Load the encoder with a head for these labels, or draw the first weights of a new one and learn
   its vocabulary (``new_models``); tokenise once. A teacher, if there is one,
   gives its probability of each label for every example (Hinton et al., 2015).
3. Run the loop (``fit``); the examples that were put aside decide which weights are kept.
4. Write beside ``out`` and rename, so that half a model is never left behind. The folder is made
   before the training, so that a path that cannot be written fails at once; if it fails at the end,
   the model is not lost (``saving``).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from exhibit_a.embedded.weights import quietly
from exhibit_a.errors import BadRequestError
from exhibit_a.examples import (
    Example,
    label_names,
    read_examples,
    require_known_labels,
    require_labels,
)
from exhibit_a.examples.labels import split_off
from exhibit_a.models.configs import ReferenceConfig
from exhibit_a.progress import Bar, progress_bar
from exhibit_a.results.files import free_folder
from exhibit_a.results.plain import JSON
from exhibit_a.shapes import Options
from exhibit_a.subject.encoding import NO_PAIRS, length_limit, separates
from exhibit_a.subject.sources import knows_words, lacks_a_head, moved, why_not_read
from exhibit_a.training.fit import Encoded, Schedule, answers, fit, share_right
from exhibit_a.training.fit_translator import TranslatorSchedule
from exhibit_a.training.new_models import configuration, new_classifier
from exhibit_a.training.options import CLASSIFIER, FINE_TUNING, TRANSLATOR, Request
from exhibit_a.training.saving import Trained, require_room, saved_when_trained
from exhibit_a.training.translator import train_translator

Source = str | Path | Iterable[object]  # of examples


def train(
    base: str | Path | PretrainedConfig,
    train: Source,
    *,
    dev: Source | None = None,
    out: str | Path,
    teacher: str | Path | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    learning_rate: float | None = None,
    warmup: int | None = None,
    label_smoothing: float | None = None,
    average: int | None = None,
    patience: int | None = None,
    bleu_every: int | None = None,
    half: bool | None = None,
    freeze_embeddings: bool | None = None,
    max_length: int | None = None,
    holdout: float = 0.05,
    seed: int = 0,
    device: str | None = None,
    progress: bool = True,
) -> Path:
    """Train a model, and save it in the folder ``out``.

    **An encoder is fine-tuned** where ``base`` is its folder or hub id, with or without a
    classification head. ``train`` and ``dev`` are whatever ``read_examples`` reads, with columns
    named by ``text``, ``pair`` and ``label``. ``freeze_embeddings`` (usual) leaves the word
    embeddings unchanged: half the weights of a small model, which a small data set would only
    disturb. ``teacher`` is a model that already knows these labels, as a rule a larger one: the
    target is then half the label and half the teacher's probabilities, and ``train`` may also hold
    texts without a label.

    **A model is made from nothing** where ``base`` is a configuration of ``xa.models`` or a short
    name (transformer, additive, recurrent, identifiable). Its vocabulary is learnt from ``train``.
    A classifier takes the same examples. A translator takes pairs: two files (sentences, their
    translations), two lists, or a list of pairs. It keeps every epoch in ``OUT.checkpoints`` until
    it is done; the same call goes on where a killed one was. ``half`` takes matrix products in
    bfloat16, which is a third faster where a processor knows it.

    Without ``dev``, the part ``holdout`` of ``train`` takes its place. Options that are not given
    have the usual value of what is trained; those that do not apply to it are refused.
    The same seed gives the same bytes on the same CPU. ``training.json`` in ``out`` records the
    settings, and accuracy or BLEU after every epoch.

    >>> xa.train("encoder", examples, out="model", learning_rate=0)
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: learning_rate is 0. It must be above 0 and at most 10.
    >>> xa.train("encoder", examples[:1] * 2, out="model")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: Every example has the label "positive", so there is ...
    >>> xa.train("transformer", [("two dogs", "zwei Hunde")], out="model", max_length=9)
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: max_length does not apply to a translator; its options: ...
    """
    shared = {"base", "train", "dev", "out", "holdout", "seed", "device", "progress"}
    given = {name: value for name, value in locals().items() if name not in shared | {"shared"}}
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    request = Request(train, dev, Path(out), holdout, seed, where, progress)
    config = configuration(base)
    kind = FINE_TUNING if config is None else CLASSIFIER
    if config is not None and config.is_encoder_decoder:
        kind = TRANSLATOR
    options = kind.settled(given)
    request.require_ranges(options)
    if config is not None and kind is TRANSLATOR:
        return train_translator(config, TranslatorSchedule(**options, seed=seed), request)
    return _train_classifier(base, config, options, request)


def _train_classifier(
    base: str | Path | PretrainedConfig,
    config: ReferenceConfig | None,
    options: Options,
    request: Request,
) -> Path:
    """Train a classifier: of a base, or, where there is a configuration, from nothing."""
    names = ("epochs", "batch_size", "learning_rate", "label_smoothing", "patience")
    schedule = Schedule(**{name: options[name] for name in names}, seed=request.seed)
    target = free_folder(request.out)
    columns = {name: options[name] for name in ("text", "pair", "label")}
    lesson = _lesson(request, options["teacher"], columns)
    frozen = options.get("freeze_embeddings", False)

    def make(folder: Path) -> Trained:
        if config is None:
            model, tokenizer = load_base(str(base), lesson.labels)
        else:
            model, tokenizer = new_classifier(config, lesson.labels, lesson.texts())
        require_room(folder, model)
        moved(model, request.device)
        if frozen:
            model.get_input_embeddings().requires_grad_(False)
        with progress_bar("training", visible=request.progress) as bar:
            history = _fitted(model, tokenizer, lesson, schedule, options["max_length"], bar)
        name = type(config).__name__ if config else Path(str(base)).name
        record = {"base": name, **lesson.record(history)}
        record |= {"freeze_embeddings": frozen, "max_length": options["max_length"]}
        return Trained(model, tokenizer, record | asdict(schedule))

    return saved_when_trained(target, request.seed, make)


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

    def texts(self) -> Iterator[str]:
        """Every text to learn from, the second ones of pairs too."""
        for example in self.examples:
            yield example.text
            if example.pair is not None:
                yield example.pair

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
    request: Request, teacher: str | Path | None, columns: dict[str, str | None]
) -> _Lesson:
    """Read the examples, and put a part of them aside where no development set is given."""
    examples = read_examples(request.train, **columns, labelled=teacher is None)
    labels = label_names(examples) if teacher is None else _labels_of(teacher)
    if request.dev is None:
        labelled = [example for example in examples if example.label is not None]
        if not labelled:
            raise BadRequestError(
                f"None of the {len(examples)} texts has a label, so none can be put aside to "
                f"choose the best epoch. Give labelled ones as dev."
            )
        kept, aside = split(labelled, request.holdout, request.seed)
        examples = kept + [example for example in examples if example.label is None]
    else:
        aside = read_examples(request.dev, **columns, labelled=True)
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
            f'Cannot load "{source}" as {role}: {why_not_read(problem, str(source))} '
            f"Give a folder that save_pretrained wrote, or a hub id."
        ) from problem
