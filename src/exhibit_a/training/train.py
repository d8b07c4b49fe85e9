"""Trains models: fine-tunes an encoder, or makes a classifier or a translator from nothing.

1. Settle the options; read the examples or pairs, and hold a part out if there is no development
   set.
2. Load the encoder with a head for these labels, or draw the first weights of a new model and learn
   its vocabulary (``new_models``). A teacher, if there is one, gives its probability of each label
   for every example (Hinton et al., 2015).
3. Run the Trainer (``trainer``); what was held out decides which epoch's weights are kept. What it
   needs to resume after a kill is kept in ``OUT.checkpoints``; the same call goes on from there.
4. Write next to ``out`` and rename, so that half a model is never left behind; then the checkpoints
   go. If the model cannot be written, they stay, and the same call writes it.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy
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
from exhibit_a.extras import extra
from exhibit_a.models.base import IGNORED
from exhibit_a.models.configs import ReferenceConfig
from exhibit_a.numerics.seeds import generator, require_seed
from exhibit_a.progress import Bar, Progress, progress_bar, tell
from exhibit_a.results.files import free_folder, whole_folder, writing
from exhibit_a.results.plain import JSON
from exhibit_a.shapes import HasLogits
from exhibit_a.subject.sources import (
    knows_words,
    lacks_a_head,
    moved,
    require_device,
    why_not_read,
)
from exhibit_a.trace.batches import padded_with
from exhibit_a.training.data import Pairs, encode, label_numbers, read_pairs, split
from exhibit_a.training.new_models import configuration, new_classifier, new_translator
from exhibit_a.training.trainer import Checkpoints, TrainerInputs, fit
from exhibit_a.training.translating import bleu, translate

RECORD = "training.json"
CHECKPOINTS = ".checkpoints"  # behind the name of the folder that the model goes to
ROOM = 8  # weights on the disk at a time, in sizes of the model: two checkpoints and the result
TEACHING = 0.5  # weight of a teacher's probabilities next to a label
EMA = 0.999  # what the running average of a classifier's weights keeps at each step

Source = str | Path | Iterable[object]  # of examples
Made = tuple[PreTrainedModel, PreTrainedTokenizerBase, dict[str, JSON]]  # with its record

COLUMNS: dict[str, object] = dict.fromkeys(("text", "pair", "label"))
OPTIONS: dict[str, dict[str, object]] = {  # of each kind of training, with the usual values
    "an encoder that is fine-tuned": COLUMNS
    | {"teacher": None, "epochs": 3, "batch_size": 48, "learning_rate": 1.5e-4}
    | {"label_smoothing": 0.0, "patience": 2, "freeze_embeddings": True, "max_length": 128},
    "a classifier made from nothing": COLUMNS
    | {"teacher": None, "epochs": 10, "batch_size": 64, "learning_rate": 1e-3}
    | {"label_smoothing": 0.0, "patience": 3, "max_length": 128},
    "a translator": {
        "epochs": 40,
        "batch_tokens": 2000,  # of source or target, whichever is longer, with padding
        "learning_rate": 3e-3,  # at the end of the warm-up
        "warmup": 800,  # steps
        "label_smoothing": 0.1,
        "average": 5,  # epochs over which weights are averaged
        "patience": 10,
        "bleu_every": 1,  # epochs; the last is always measured
        "half": False,  # matrix products in bfloat16; weights and sums stay in float32
    },
}
FINE_TUNING, CLASSIFIER, TRANSLATOR = OPTIONS
WHOLE = ("epochs", "batch_size", "batch_tokens", "patience", "warmup", "average", "bleu_every")
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    **dict.fromkeys(WHOLE, (lambda value: value >= 1, "at least 1 and whole")),
    # Training diverges at far smaller values.
    "learning_rate": (lambda value: 0 < value <= 10, "above 0 and at most 10"),
    "label_smoothing": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "max_length": (
        lambda value: value >= 4,
        "at least 4 and whole, for the special tokens of a pair",
    ),
    "holdout": (lambda value: 0 < value < 1, "above 0 and below 1"),
}


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
    """Train a model, and save it in the folder ``out``. Needs ``exhibit-a[train]``.

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
    translations), two lists, or a list of pairs. ``half`` takes matrix products in bfloat16, which
    is a third faster where a processor knows it.

    Without ``dev``, the part ``holdout`` of ``train`` takes its place. Options that are not given
    have the usual value of what is trained; those that do not apply to it are refused. Checkpoints
    are kept in ``OUT.checkpoints`` until the model is saved; the same call resumes a training that
    was killed. The same seed gives the same bytes on the same CPU. ``training.json`` in ``out``
    records the settings, and what every epoch measured.

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
    config = configuration(base)
    kind = FINE_TUNING if config is None else CLASSIFIER
    if config is not None and config.is_encoder_decoder:
        kind = TRANSLATOR
    # The value of every option of this kind; None is an option that was not given.
    requested = {name: value for name, value in given.items() if value is not None}
    for name in requested:
        if name not in OPTIONS[kind]:
            raise BadRequestError(
                f"{name} does not apply to {kind}; its options: {', '.join(OPTIONS[kind])}."
            )
    options: dict[str, Any] = OPTIONS[kind] | requested
    for name, value in {**options, "holdout": holdout}.items():
        if name not in RANGES:
            continue
        is_within, words = RANGES[name]
        number = isinstance(value, int if "whole" in words else int | float)
        if not number or isinstance(value, bool) or not is_within(value):
            raise BadRequestError(f"{name} is {value}. It must be {words}.")
    if not isinstance(options.get("half", False), bool):
        raise BadRequestError(f"half is {options['half']!r}. It must be True or False.")
    require_seed(seed)
    require_device(where)
    request = Request(train, dev, holdout, seed, where)
    target = free_folder(Path(out))
    work = _translator if kind is TRANSLATOR else _classifier
    make, settings = work(base, config, request, options)
    kept = Checkpoints(target.with_name(target.name + CHECKPOINTS), settings)
    with whole_folder(target) as folder, torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            with progress_bar("training", visible=progress) as bar:
                model, tokenizer, record = make(kept, folder, bar)
            save_model(folder, model, tokenizer)
            with writing(folder / RECORD):
                (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
        except BaseException:
            kept.remove_if_new()
            raise
    kept.remove()
    return target


@dataclass(frozen=True)
class Request:
    """What to learn from, and what holds for every kind of training."""

    train: Any
    dev: Any
    holdout: float
    seed: int
    device: str


def _fingerprint(config: PretrainedConfig | None, base: object, data: str) -> dict[str, JSON]:
    """What must stay the same when a training is resumed, besides its options."""
    digest = sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    if config is None:
        return {"base": str(base), "data": digest}
    sizes = {k: v for k, v in config.to_diff_dict().items() if k != "transformers_version"}
    return {"base": type(config).__name__, "sizes": sizes, "data": digest}


def save_model(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """Write a model and its tokenizer into a folder; an error is one line."""
    with quietly(), writing(folder):
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def require_room(folder: Path, model: PreTrainedModel) -> None:
    """Refuse a disk that is too small, before anything is computed."""
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    free = shutil.disk_usage(folder).free
    if free < ROOM * size:
        raise BadRequestError(
            f"The model and its checkpoints need {ROOM * size / 1e6:.3g} MB and {folder.parent} "
            f"has {free / 1e6:.3g} MB left. Make room, or name a folder on another disk."
        )


# -- classifiers ---------------------------------------------------------------------------------


def _classifier(
    base: object, config: ReferenceConfig | None, request: Request, options: dict[str, Any]
) -> tuple[Callable[[Checkpoints, Path, Bar], Made], dict[str, JSON]]:
    """How a classifier is made, of a base or from nothing, and what it is made with."""
    columns = {name: options[name] for name in COLUMNS}
    teacher = options["teacher"]
    examples = read_examples(request.train, **columns, labelled=teacher is None)
    if teacher is None:
        labels = label_names(examples)
    else:
        with quietly(), _readable(teacher, "a teacher"):
            taught = AutoConfig.from_pretrained(teacher)
        labels = [taught.id2label[number] for number in range(taught.num_labels)]
    if request.dev is not None:
        held_out = read_examples(request.dev, **columns, labelled=True)
    else:
        labelled = [example for example in examples if example.label is not None]
        if not labelled:
            raise BadRequestError(
                f"None of the {len(examples)} texts has a label, so none can be held out to "
                f"choose the best epoch. Give labelled ones as dev."
            )
        kept, held_out = split(labelled, request.holdout, request.seed)
        examples = kept + [example for example in examples if example.label is None]
    require_known_labels([*examples, *held_out], labels)
    data = "\n".join(f"{e.text}\t{e.pair}\t{e.label}" for e in [*examples, *held_out])
    settings = _fingerprint(config, base, data) | {"seed": request.seed}
    settings |= {k: v for k, v in options.items() if k not in COLUMNS and k != "teacher"}

    def make(kept: Checkpoints, folder: Path, bar: Bar) -> Made:
        if config is None:
            model, tokenizer = load_base(str(base), labels)
        else:
            texts = (text for e in examples for text in (e.text, e.pair) if text is not None)
            model, tokenizer = new_classifier(config, labels, texts)
        require_room(folder, model)
        moved(model, request.device)
        if options.get("freeze_embeddings", False):
            model.get_input_embeddings().requires_grad_(False)
        kept.begin(tokenizer)
        learn = encode(model, tokenizer, examples, options["max_length"])
        check = encode(model, tokenizer, held_out, options["max_length"])
        if teacher is not None:
            _teach(teacher, model, examples, learn, options["max_length"], bar)

        def loss(output: HasLogits, labels: Tensor, **_: object) -> Tensor:
            return cross_entropy(output.logits, labels, label_smoothing=options["label_smoothing"])

        fitting = TrainerInputs(
            arguments={
                "num_train_epochs": options["epochs"],
                "per_device_train_batch_size": options["batch_size"],
                "learning_rate": options["learning_rate"],
                "lr_scheduler_type": "linear",
                "warmup_steps": 0.06,  # part of all steps
                "weight_decay": 0.01,
                "train_sampling_strategy": "group_by_length",
            },
            metric="accuracy",
            patience=options["patience"],
            keep=lambda step: min(EMA, (1 + step) / (10 + step)),  # soon forgets the start
            collate=lambda rows: padded(model, rows),
            loss=loss,
            measure=lambda measured: {"accuracy": share_right(measured, check)},
        )
        history = fit(model, learn, fitting, kept, bar, request.seed)
        accuracies = [epoch["accuracy"] for epoch in history]
        record: dict[str, JSON] = {
            "base": type(config).__name__ if config else Path(str(base)).name,
            "train_examples": len(examples),
            "dev_examples": len(held_out),
            "dev_accuracy": max(accuracies),
            "dev_accuracy_by_epoch": [*accuracies],
            "seed": request.seed,
        }
        record |= {name: value for name, value in options.items() if name not in COLUMNS}
        record["teacher"] = None if teacher is None else Path(teacher).name
        return model, tokenizer, record

    return make, settings


def _teach(
    teacher: str | Path,
    student: PreTrainedModel,
    examples: Sequence[Example],
    encoded: list[dict[str, Any]],
    max_length: int,
    bar: Bar,
) -> None:
    """Put the teacher's probabilities, with half weight where there is a label, for the labels."""
    names = label_numbers(student)
    model, tokenizer = load_base(teacher, list(names))
    moved(model, student.device)
    bar.title("the teacher reads")
    read = encode(model, tokenizer, examples, max_length)
    probabilities = torch.softmax(answers(model, read, progress=bar), -1)
    numbers = label_numbers(model)
    probabilities = probabilities[:, [numbers[name] for name in names]]
    for example, row in zip(encoded, probabilities, strict=True):
        if (label := example.get("labels")) is not None:
            row *= TEACHING
            row[label] += 1 - TEACHING
        example["labels"] = row.tolist()


def padded(model: PreTrainedModel, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """One padded tensor for each input of some examples, on the model's device, and the labels."""
    inputs = [
        {name: torch.tensor([ids]) for name, ids in row.items() if name != "labels"} for row in rows
    ]
    together = padded_with(model.config.pad_token_id, inputs)
    if "labels" in rows[0]:
        together["labels"] = torch.tensor([row["labels"] for row in rows])
    return {name: tensor.to(model.device) for name, tensor in together.items()}


def share_right(model: PreTrainedModel, encoded: Sequence[Mapping[str, Any]]) -> float:
    """The part of the examples whose label gets the highest score."""
    labels = torch.tensor([example["labels"] for example in encoded])
    return float((answers(model, encoded).argmax(-1) == labels).double().mean())


@torch.no_grad()
def answers(
    model: PreTrainedModel,
    encoded: Sequence[Mapping[str, Any]],
    *,
    size: int = 64,
    progress: Progress | None = None,
) -> Float[Tensor, "example label"]:
    """The model's score for each label of each example."""
    was_training = model.training
    model.eval()
    lengths = [len(example["input_ids"]) for example in encoded]
    order = sorted(range(len(encoded)), key=lengths.__getitem__)
    scores = torch.empty(len(encoded), model.config.num_labels or 0)
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        texts = [{k: v for k, v in encoded[n].items() if k != "labels"} for n in batch]
        inputs = padded(model, texts)
        scores[batch] = model(**inputs).logits.float().cpu()
        tell(progress, start + len(batch), len(order))
    model.train(was_training)
    return scores


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
            f'"{base}" came without a tokenizer. Save one next to the weights (tokenizer.json).'
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
            f'Cannot load "{source}" as {role}: {why_not_read(problem, str(source))} '
            f"Give a folder that save_pretrained wrote, or a hub id."
        ) from problem


# -- translators ---------------------------------------------------------------------------------


def _translator(
    _: object, config: ReferenceConfig | None, request: Request, options: dict[str, Any]
) -> tuple[Callable[[Checkpoints, Path, Bar], Made], dict[str, JSON]]:
    """How a translator is made, and what it is made with."""
    assert config is not None
    extra("sacrebleu")  # missing after the first epoch would be late
    learn = read_pairs(request.train)
    if request.dev is not None:
        check = read_pairs(request.dev)
    else:
        kept_places, held_out = split_off(len(learn), request.holdout, request.seed)
        learn, check = [learn[n] for n in sorted(kept_places)], [learn[n] for n in sorted(held_out)]
    data = "\n".join(line for pair in [*learn, *check] for line in pair)
    lasting = {k: v for k, v in options.items() if k not in ("epochs", "patience")}  # may be longer
    settings = _fingerprint(config, None, data) | {"seed": request.seed} | lasting
    budget, every = options["batch_tokens"], options["bleu_every"]

    def make(kept: Checkpoints, folder: Path, bar: Bar) -> Made:
        model, tokenizer = new_translator(config, learn, budget)
        require_room(folder, model)
        kept.begin(tokenizer)
        moved(model, request.device)
        if options["half"]:  # the fused kernel is slow backwards in bfloat16
            model.set_attn_implementation("eager")
        examples, checks = _ids(tokenizer, learn), _ids(tokenizer, check)
        steps = len(_batches(examples, budget, request.seed, 0))
        fitting = TrainerInputs(
            arguments={
                "num_train_epochs": options["epochs"],
                "learning_rate": options["learning_rate"],
                "lr_scheduler_type": "inverse_sqrt",  # Vaswani et al., 2017, §5.3
                "warmup_steps": options["warmup"],
                "adam_beta2": 0.98,
                "adam_epsilon": 1e-9,
                "label_smoothing_factor": options["label_smoothing"],  # §5.4
                "bf16": options["half"],
            },
            metric="bleu",
            patience=-(-options["patience"] // every),
            keep=lambda step: min(1 - 1 / (options["average"] * steps), (1 + step) / (10 + step)),
            collate=lambda rows: _padded_pairs(model, rows),
            loss=None,
            measure=lambda measured: _translated(measured, tokenizer, check, checks, budget),
            batches=lambda epoch: _batches(examples, budget, request.seed, epoch),
            every=every,
        )
        history = fit(model, examples, fitting, kept, bar, request.seed)
        tokenizer("")  # a fast tokenizer remembers that it padded, and would save it
        record: dict[str, JSON] = {
            "base": type(config).__name__,
            "train_pairs": len(learn),
            "dev_pairs": len(check),
            "dev_bleu": max(epoch["bleu"] for epoch in history if epoch["bleu"] is not None),
            "processor_hours": sum(epoch["processor_seconds"] for epoch in history) / 3600,
            "epochs": [*history],
            "schedule": {**options, "seed": request.seed},
        }
        return model, tokenizer, record

    return make, settings


def _ids(tokenizer: PreTrainedTokenizerBase, pairs: Pairs) -> list[dict[str, list[int]]]:
    sources = tokenizer([source for source, _ in pairs])["input_ids"]
    targets = tokenizer(text_target=[target for _, target in pairs])["input_ids"]
    return [
        {"input_ids": source, "labels": target}
        for source, target in zip(sources, targets, strict=True)
    ]


def _batches(
    pairs: Sequence[Mapping[str, list[int]]], budget: int, seed: int, epoch: int
) -> list[list[int]]:
    """Places of pairs of nearly equal length, as many as make ``budget`` tokens; shuffled."""
    shuffle = generator(seed, epoch)
    noise = torch.rand(len(pairs), generator=shuffle).tolist()
    lengths = [(max(map(len, pair.values())), noise[n]) for n, pair in enumerate(pairs)]
    batches: list[list[int]] = [[]]
    for place in sorted(range(len(pairs)), key=lengths.__getitem__):
        if batches[-1] and (len(batches[-1]) + 1) * lengths[place][0] > budget:
            batches.append([])
        batches[-1].append(place)
    return [batches[n] for n in torch.randperm(len(batches), generator=shuffle).tolist()]


def _padded_pairs(
    model: PreTrainedModel, rows: Sequence[Mapping[str, list[int]]]
) -> dict[str, Tensor]:
    """Sources, targets and what the decoder is given, padded on the right."""
    columns = [
        {name: torch.tensor([ids]) for name, ids in row.items()} | _mask(row["input_ids"])
        for row in rows
    ]
    sources = [{k: v for k, v in row.items() if k != "labels"} for row in columns]
    inputs = padded_with(model.config.pad_token_id, sources)
    labels = padded_with(IGNORED, [{"labels": row["labels"]} for row in columns])["labels"]
    shift = model.prepare_decoder_input_ids_from_labels
    inputs |= {"labels": labels, "decoder_input_ids": shift(labels)}  # type: ignore[operator]
    return {name: tensor.to(model.device) for name, tensor in inputs.items()}


def _mask(ids: list[int]) -> dict[str, Tensor]:
    return {"attention_mask": torch.ones(1, len(ids), dtype=torch.long)}


@torch.no_grad()
def _translated(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Pairs,
    ids: Sequence[Mapping[str, list[int]]],
    budget: int,
) -> dict[str, float]:
    """BLEU of greedy translations, and the loss of the right ones."""
    total = 0.0
    for batch in _batches(ids, budget, 0, 0):
        total += float(model(**_padded_pairs(model, [ids[n] for n in batch])).loss) * len(batch)
    if not math.isfinite(total):
        raise BadRequestError("The loss is no longer a number; lower the learning rate.")
    written = translate(model, tokenizer, [source for source, _ in pairs])
    return {"bleu": bleu(written, [target for _, target in pairs]), "dev_loss": total / len(ids)}
