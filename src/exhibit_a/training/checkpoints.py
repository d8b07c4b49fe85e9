"""How does a killed training go on where it was? By a folder that is whole after every epoch.

The folder appears with the vocabulary in it. After epoch n there are ``weights-n`` (the last few
are kept, to be averaged), ``best`` and ``state``: the moments of the optimiser and the history.
``state`` is written last and each file under a temporary name first, so whatever kills the process,
the folder holds a complete epoch. Every file with weights has a seal and its name in it, so none is
read that was not written there.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from exhibit_a.embedded.weights import quietly
from exhibit_a.errors import BadRequestError, ExhibitError, first_line
from exhibit_a.results.files import folder_beside, write_whole, writing
from exhibit_a.results.plain import JSON
from exhibit_a.results.store import sealed, unsealed
from exhibit_a.training.vocabulary import of_pieces

STATE, BEST = "state.safetensors", "best.safetensors"
VOCABULARY = "tokenizer.json"
READABLE = "history.json"  # what the state says of every epoch, to look at

Weights = dict[str, Tensor]

Epoch = dict[str, Any]  # what is known of one, by name


@dataclass(frozen=True)
class Checkpoints:
    """The folder in which a training keeps what it needs to go on."""

    folder: Path
    settings: Mapping[str, JSON]  # with others, the epochs would not belong together

    def begin(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Make the folder, with the vocabulary; one in which nothing was learnt yet is taken."""
        if self._is_ours():
            with writing(self.folder):
                for path in sorted(self.folder.iterdir(), key=lambda path: path.name == READABLE):
                    path.unlink()  # what says that the folder is ours goes last
        with quietly(), folder_beside(self.folder) as beside, writing(self.folder):
            tokenizer.save_pretrained(beside)
            (beside / READABLE).write_text(json.dumps(self._record([]), indent=1))

    def require_free(self) -> None:
        """Refuse a folder that holds something else: it will be removed at the end."""
        path = self.folder
        if (
            path.exists()
            and not self._is_ours()
            and not (path.is_dir() and not any(path.iterdir()))
        ):
            raise BadRequestError(
                f'"{path}" is needed for what a training keeps, and holds something else. Name '
                "another folder for the model, or move it."
            )

    def history(self) -> list[Epoch]:
        """What was measured after each epoch so far; empty where nothing was begun."""
        if not (self.folder / STATE).exists():
            return []
        record = self._read(STATE)[1]
        for name, value in self.settings.items():
            if record["settings"].get(name) != value:
                raise BadRequestError(
                    f"The training in {self.folder} was begun with {name} "
                    f"{record['settings'].get(name)!r}, not {value!r}. Go on with the same "
                    "settings, or remove the folder to begin anew."
                )
        history: list[Epoch] = record["history"]
        return history

    def vocabulary(self) -> PreTrainedTokenizerBase:
        """The vocabulary that the training began with."""
        try:
            return of_pieces(Tokenizer.from_file(str(self.folder / VOCABULARY)))
        except Exception as problem:  # the library's own kind for whatever is wrong with the file
            raise self._damaged(VOCABULARY, first_line(problem)) from problem

    def write_weights(self, epoch: int, weights: Weights) -> None:
        """Keep the weights after an epoch; they count once the state is written."""
        self._write(_named(epoch), weights, {})

    def write_state(
        self, moments: Weights, history: Sequence[Mapping[str, JSON]], keep: int
    ) -> None:
        """Complete an epoch; of older ones only the last ``keep`` weights stay."""
        self._write(STATE, moments, self._record(history))
        write_whole(self.folder / READABLE, json.dumps(self._record(history), indent=1).encode())
        older = [_named(epoch) for epoch in range(1, len(history) - keep + 1)]
        with writing(self.folder):
            for name in older:
                (self.folder / name).unlink(missing_ok=True)

    def write_best(self, weights: Weights) -> None:
        """Keep the weights that translated best so far."""
        self._write(BEST, weights, {})

    def latest(self, epoch: int) -> tuple[Weights, Weights]:
        """The weights after an epoch, and the moments of the optimiser."""
        return self._read(_named(epoch))[0], self._read(STATE)[0]

    def best(self) -> Weights:
        """The weights that translated best."""
        return self._read(BEST)[0]

    def average(self, epochs: Sequence[int]) -> Weights:
        """The mean of the weights after these epochs (Vaswani et al., 2017, §6.1)."""
        total: Weights = {}
        for epoch in epochs:
            for name, weight in self._read(_named(epoch))[0].items():
                share = weight.double() / len(epochs)
                total[name] = total[name] + share if name in total else share
        return {name: weight.to(torch.float32) for name, weight in total.items()}

    def _is_ours(self) -> bool:
        return (self.folder / READABLE).is_file()

    def _record(self, history: Sequence[Mapping[str, JSON]]) -> dict[str, JSON]:
        return {"settings": dict(self.settings), "history": [*map(dict, history)]}

    def _write(self, name: str, tensors: Weights, record: Mapping[str, JSON]) -> None:
        text = json.dumps({"name": name, **record})
        write_whole(self.folder / name, *sealed(tensors, text))

    def _read(self, name: str) -> tuple[Weights, dict[str, Any]]:
        """What is in a file, which must be as it was written there."""
        try:
            content, text = unsealed(self.folder / name)
        except ExhibitError as problem:
            raise self._damaged(name, str(problem).rstrip(".")) from problem
        except OSError as problem:
            raise self._damaged(name, str(problem.strerror)) from problem
        record = json.loads(text)
        if record["name"] != name:
            raise self._damaged(name, f"it was written as {record['name']}")
        return load(content), record

    def _damaged(self, name: str, reason: str) -> BadRequestError:
        return BadRequestError(
            f"The training in {self.folder} cannot go on: {name}: {reason}. Remove the folder to "
            "begin anew."
        )


def _named(epoch: int) -> str:
    """The file of the weights after an epoch."""
    return f"weights-{epoch:03}.safetensors"
