"""What becomes of a trained model that cannot be written where it was to go?

Hours of work must not end with a full disk. The room is looked at before the training. If writing
fails all the same, the model is saved in another place and the error names that place; and if there
is none, the error itself still holds the model.
"""

import json
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from exhibit_a.embedded.weights import quietly
from exhibit_a.errors import BadRequestError, ExhibitError, first_line
from exhibit_a.results.files import folder_beside, writing
from exhibit_a.results.plain import JSON

RECORD = "training.json"


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model with its tokenizer, and the record of its training."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    record: dict[str, JSON]

    def save(self, folder: Path) -> None:
        """Write everything into a folder."""
        save_model(folder, self.model, self.tokenizer)
        with writing(folder / RECORD):
            (folder / RECORD).write_text(json.dumps(self.record, indent=2) + "\n")

    def saved_elsewhere(self, name: str) -> Path | None:
        """The folder in which the model could be saved after all, if any."""
        for place in _other_places():
            folder = place / f"{name}-{secrets.token_hex(4)}"
            with suppress(ExhibitError):
                with folder_beside(folder) as beside:
                    self.save(beside)
                return folder
        return None


class UnsavedModelError(ExhibitError):
    """A trained model is not where it was to be; ``trained`` holds it, and its ``save`` writes it.

    ``folder`` is where it was saved instead, or None.
    """

    def __init__(self, trained: Trained, target: Path, problem: ExhibitError) -> None:
        self.trained = trained
        self.folder = trained.saved_elsewhere(target.name)
        rescue = (
            f'It is in "{self.folder}": move it from there.'
            if self.folder
            else "There was no room elsewhere, either; in Python, this error holds it (trained)."
        )
        cause = problem.__cause__
        reason = getattr(cause, "strerror", None) or first_line(problem if cause is None else cause)
        super().__init__(f'The trained model could not be saved in "{target}": {reason}. {rescue}')


def saved_when_trained(target: Path, seed: int, make: Callable[[Path], Trained]) -> Path:
    """Train and save; the folder beside the target is there before the work, and goes if it fails.

    ``make`` is given that folder, to look at the room there.
    """
    trained = None
    try:
        with folder_beside(target) as folder, torch.random.fork_rng():
            torch.manual_seed(seed)
            trained = make(folder)
            trained.save(folder)
    except ExhibitError as problem:
        if trained is None:
            raise
        raise UnsavedModelError(trained, target, problem) from problem
    return target


def save_model(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """Write a model and its tokenizer into a folder; what goes wrong is told in one line."""
    with quietly(), writing(folder):
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def require_room(folder: Path, model: PreTrainedModel) -> None:
    """Refuse a disk that is too small for the weights, before anything is computed."""
    needed = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BadRequestError(
            f"The model needs {needed / 1e6:.3g} MB and {folder.parent} has {free / 1e6:.3g} MB "
            "left. Make room, or name a folder on another disk."
        )


def _other_places() -> Iterator[Path]:
    """Folders that most systems have, as a rule on different disks."""
    with suppress(OSError):
        yield Path(tempfile.gettempdir())
    with suppress(RuntimeError):
        yield Path.home()
