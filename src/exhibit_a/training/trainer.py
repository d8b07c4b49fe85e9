"""Trains a model with transformers' Trainer, keeps the best weights, and resumes after a kill.

Seeds, batches, early stopping, the choice of the best epoch and checkpoints are the Trainer's.
Added here are

1. the running average of the weights (Polyak and Juditsky, 1992; Vaswani et al., 2017, §6.1), which
   is what is measured and saved, because it is steadier than any single step;
2. the folder of checkpoints: it records its settings, and no file in it is read that does not have
   the hash under which it was written. A checkpoint that was not completed is removed;
3. one progress bar, and one line where the loss is no longer a number.
"""

import json
import logging
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any, cast

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim.swa_utils import AveragedModel
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from transformers.trainer_utils import get_last_checkpoint

from exhibit_a.embedded.weights import quietly
from exhibit_a.errors import BadRequestError, ExhibitError, NotComputableError, first_line
from exhibit_a.extras import extra
from exhibit_a.progress import Bar
from exhibit_a.results.files import whole_folder, write_whole, writing
from exhibit_a.results.plain import JSON

SETTINGS, HASHES = "settings.json", "sha256.json"
RAW = "raw.safetensors"  # the weights themselves; model.safetensors holds their average
KEPT = 2  # checkpoints: the best and the last


@dataclass(frozen=True)
class TrainerInputs:
    """What the Trainer is given besides model and data."""

    arguments: Mapping[str, Any]  # of transformers.Seq2SeqTrainingArguments
    metric: str  # by which the best epoch is chosen; larger is better
    patience: int  # evaluations without a new best before stopping
    keep: Callable[[int], float]  # what the running average keeps, by step
    collate: Callable[[list[Any]], dict[str, Tensor]]
    loss: Callable[..., Tensor] | None  # of an output and labels, where not the usual
    measure: Callable[[PreTrainedModel], dict[str, float]]  # after an epoch
    batches: Callable[[int], list[list[int]]] | None = None  # of an epoch, where not usual
    every: int = 1  # epochs between evaluations; the last is always measured


@dataclass(frozen=True)
class Checkpoints:
    """The folder in which a training keeps what it needs to resume."""

    folder: Path
    settings: Mapping[str, JSON]  # with others, the epochs would not belong together

    def begin(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Make the folder; refuse to resume with other settings or another vocabulary."""
        words = sha256(json.dumps(tokenizer.get_vocab(), sort_keys=True).encode()).hexdigest()[:12]
        settings = json.loads(json.dumps({**self.settings, "vocabulary": words}))
        known = self.folder / SETTINGS
        if self.folder.exists() and any(self.folder.iterdir()) and not known.is_file():
            raise BadRequestError(
                f'"{self.folder}" is needed for checkpoints, and holds something else. Name '
                "another folder for the model, or move it."
            )
        if self.last() is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            with whole_folder(self.folder) as fresh, writing(self.folder):
                (fresh / SETTINGS).write_text(json.dumps(settings, indent=1))
            return
        recorded = self._read(known)
        for name, value in settings.items():
            if recorded.get(name) != value:
                raise BadRequestError(
                    f"The training in {self.folder} was begun with {name} "
                    f"{recorded.get(name)!r}, not {value!r}. Resume with the same settings, or "
                    "remove the folder to begin anew."
                )

    def last(self) -> str | None:
        """The last complete checkpoint; all files of all of them are as they were written."""
        if not (self.folder / SETTINGS).is_file():
            return None
        for checkpoint in sorted(self.folder.glob("checkpoint-*")):
            if not (checkpoint / HASHES).exists():  # the process was killed while it was written
                shutil.rmtree(checkpoint, ignore_errors=True)
            elif self._read(checkpoint / HASHES) != hashes_of(checkpoint):
                raise self._damaged(checkpoint.name, "a file is not as it was written")
        last: str | None = get_last_checkpoint(str(self.folder))
        return last

    def remove_if_new(self) -> None:
        """Remove the folder if it is ours and has no complete checkpoint to resume from."""
        known = (self.folder / SETTINGS).is_file()
        if known and not any(self.folder.glob(f"checkpoint-*/{HASHES}")):
            self.remove()

    def remove(self) -> None:
        """Remove the folder: the model is saved, or there is nothing to resume from."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            return dict(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError) as problem:
            raise self._damaged(path.name, first_line(problem)) from problem

    def _damaged(self, name: str, reason: str) -> BadRequestError:
        return BadRequestError(
            f"The training in {self.folder} cannot be resumed: {name}: {reason}. Remove the folder "
            "to begin anew."
        )


def hashes_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file in a folder but the record of them."""
    files = sorted(path for path in folder.iterdir() if path.name != HASHES)
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in files}


def fit(
    model: PreTrainedModel,
    examples: Sequence[Any],
    fitting: TrainerInputs,
    kept: Checkpoints,
    bar: Bar,
    seed: int,
) -> list[dict[str, Any]]:
    """Train, leave the best averaged weights in the model, and return what each epoch measured."""
    extra("accelerate")
    with quietly(), _library_logs_silenced(), _randomness_restored(), _disk_errors(kept.folder):
        arguments = transformers.Seq2SeqTrainingArguments(
            output_dir=str(kept.folder),
            seed=seed,
            use_cpu=model.device.type == "cpu",
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="epoch",
            save_total_limit=KEPT,
            load_best_model_at_end=True,
            metric_for_best_model=fitting.metric,
            greater_is_better=True,
            restore_callback_states_from_checkpoint=True,
            remove_unused_columns=False,
            disable_tqdm=True,
            report_to="none",
            **fitting.arguments,
        )
        trainer = _AveragingTrainer(model, arguments, examples, fitting, bar)
        trainer.train(resume_from_checkpoint=kept.last())
    entries = trainer.state.log_history
    losses = [entry for entry in entries if "loss" in entry]
    measured = {entry["step"]: entry for entry in entries if f"eval_{fitting.metric}" in entry}
    if not measured:  # begun with more epochs than are requested now
        raise BadRequestError(
            f"None of the {len(losses)} epochs that there are was measured; ask for more epochs."
        )
    return [
        {name: entry[name] for name in ("loss", "processor_seconds")}
        | {fitting.metric: None}
        | {
            name.removeprefix("eval_"): value
            for name, value in measured.get(entry["step"], {}).items()
            if name.startswith("eval_")
        }
        for entry in losses
    ]


class _Averaging(TrainerCallback):
    """Keeps the running average, and what else happens between the steps."""

    def __init__(self, trainer: "_AveragingTrainer", bar: Bar) -> None:
        self.trainer, self.bar, self.began = trainer, bar, process_time()

    def on_train_begin(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        self.bar.title("training")
        self.bar(state.global_step, state.max_steps)
        if state.global_step:  # resumed
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            model, average = self.trainer.weights, self.trainer.average
            average.module.load_state_dict(model.state_dict())
            average.n_averaged.fill_(state.global_step)
            model.load_state_dict(load_file(folder / RAW), strict=False)  # what is tied once

    def on_step_end(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:  # noqa: ARG002
        self.trainer.average.update_parameters(self.trainer.weights)
        self.bar(state.global_step, state.max_steps)

    def on_epoch_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        epoch = round(state.epoch or 0)
        fitting = self.trainer.fitting
        last = epoch >= args.num_train_epochs
        control.should_evaluate = last or epoch % fitting.every == 0

    def on_log(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:  # noqa: ARG002
        if "loss" in state.log_history[-1]:
            spent, self.began = process_time() - self.began, process_time()
            state.log_history[-1]["processor_seconds"] = spent

    def on_evaluate(self, *_: Any, metrics: Mapping[str, float] | None = None, **__: Any) -> None:
        name = self.trainer.fitting.metric
        self.bar.note(f"{name} {(metrics or {})[f'eval_{name}']:.4g}")

    def on_save(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        write_whole(folder / HASHES, json.dumps(hashes_of(folder), indent=1).encode())


class _AveragingTrainer(Trainer):
    """Measures and saves the running average of the weights."""

    def __init__(
        self,
        model: PreTrainedModel,
        arguments: Any,
        examples: Sequence[Any],
        fitting: TrainerInputs,
        bar: Bar,
    ) -> None:
        self.fitting, self.weights = fitting, model
        self.average = AveragedModel(
            model,
            avg_fn=lambda average, new, count: torch.lerp(new, average, fitting.keep(int(count))),
        )
        super().__init__(
            model,
            arguments,
            data_collator=fitting.collate,
            train_dataset=examples,
            eval_dataset=examples,  # it has to be given; `measure` looks at others
            compute_loss_func=fitting.loss,
            callbacks=[
                _Averaging(self, bar),
                EarlyStoppingCallback(early_stopping_patience=fitting.patience),
            ],
        )
        self.remove_callback(PrinterCallback)

    def get_train_dataloader(self) -> Any:
        """The usual batches, or those that the fitting names."""
        if self.fitting.batches is None:
            return super().get_train_dataloader()
        batches = _Batches(self.fitting.batches)
        loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
            cast("Any", self.train_dataset), batch_sampler=batches, collate_fn=self.fitting.collate
        )
        return self.accelerator.prepare(loader)

    def training_step(self, *inputs: Any, **options: Any) -> Tensor:
        """One step, whose loss must be a number."""
        loss: Tensor = super().training_step(*inputs, **options)
        if not loss.isfinite():
            raise NotComputableError(
                f"The loss is no longer a number after {self.state.global_step} steps. Lower "
                "the learning rate, and check the base for weights that are not finite."
            )
        return loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """What the fitting measures of the averaged weights."""
        with self._averaged():
            measured = self.fitting.measure(self.weights)
        metrics = {f"eval_{name}": value for name, value in measured.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the averaged weights as the model, and the weights themselves next to them."""
        folder = Path(output_dir or str(self.args.output_dir))
        with self._averaged():
            self.weights.save_pretrained(folder)
        weights = {name: weight.detach() for name, weight in self.weights.named_parameters()}
        save_file(weights, folder / RAW)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The model with averaged weights while the block runs."""
        model, current = self.weights, deepcopy(self.weights.state_dict())
        model.load_state_dict(self.average.module.state_dict())
        was_training = model.training
        model.eval()
        try:
            yield
        finally:
            model.load_state_dict(current)
            model.train(was_training)


class _Batches:
    """A batch sampler whose batches depend on the epoch alone."""

    def __init__(self, of_epoch: Callable[[int], list[list[int]]]) -> None:
        self.of_epoch, self.epoch = of_epoch, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.of_epoch(self.epoch))

    def __len__(self) -> int:
        return len(self.of_epoch(0))


@contextmanager
def _randomness_restored() -> Iterator[None]:
    """The Trainer seeds all generators; the caller's are as they were when the block is done."""
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


@contextmanager
def _library_logs_silenced() -> Iterator[None]:
    """Its logger would announce every epoch."""
    loggers = [logging.getLogger(name) for name in ("accelerate", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Say in one line that a checkpoint cannot be written, whichever library writes it."""
    try:
        yield
    except ExhibitError:
        raise
    except Exception as problem:
        of_disk = isinstance(problem, OSError) or type(problem).__name__ == "SafetensorError"
        if not of_disk and "PytorchStreamWriter" not in str(problem):
            raise
        reason = getattr(problem, "strerror", None) or first_line(problem)
        raise ExhibitError(
            f"{folder} cannot be written: {reason.rstrip('.')}. What was kept there is still good: "
            "the same call goes on from it."
        ) from problem
