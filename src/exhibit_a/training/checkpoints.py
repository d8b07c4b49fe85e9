"""How does a killed training go on where it was? By a folder that is whole after every epoch.

After epoch n there are ``weights-n`` (the last few are kept, to be averaged), ``best`` and
``state``: the moments of the optimiser and the history. ``state`` is written last and each file
under a temporary name first, so whatever kills the process, the folder holds a complete epoch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from exhibit_a.errors import BadRequestError, first_line
from exhibit_a.results.files import write_whole, writing
from exhibit_a.results.plain import JSON

STATE, BEST = "state.safetensors", "best.safetensors"
READABLE = "history.json"  # what the state says of every epoch, to look at

Weights = dict[str, Tensor]

Epoch = dict[str, Any]  # what is known of one, by name


@dataclass(frozen=True)
class Checkpoints:
    """The folder in which a training keeps what it needs to go on."""

    folder: Path
    settings: Mapping[str, JSON]  # with others, the epochs would not belong together

    def begin(self) -> None:
        """Make the folder."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def history(self) -> list[Epoch]:
        """What was measured after each epoch so far; empty where nothing was begun."""
        path = self.folder / STATE
        if not path.exists():
            return []
        try:
            with safe_open(path, framework="pt") as file:
                record = json.loads(file.metadata()["record"])
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as problem:
            raise BadRequestError(
                f"{path} is damaged ({first_line(problem)}). Remove {self.folder} to begin anew."
            ) from problem
        for name, value in self.settings.items():
            if record["settings"].get(name) != value:
                raise BadRequestError(
                    f"The training in {self.folder} was begun with {name} "
                    f"{record['settings'].get(name)!r}, not {value!r}. Go on with the same "
                    "settings, or remove the folder to begin anew."
                )
        history: list[Epoch] = record["history"]
        return history

    def write_weights(self, epoch: int, weights: Weights) -> None:
        """Keep the weights after an epoch; they count once the state is written."""
        write_whole(self._weights(epoch), save(weights))

    def write_state(
        self, moments: Weights, history: Sequence[Mapping[str, JSON]], keep: int
    ) -> None:
        """Complete an epoch; of older ones only the last ``keep`` weights stay."""
        record = {"settings": dict(self.settings), "history": list(history)}
        write_whole(self.folder / STATE, save(moments, {"record": json.dumps(record)}))
        write_whole(self.folder / READABLE, json.dumps(record, indent=1).encode())
        for epoch in range(1, len(history) - keep + 1):
            self._weights(epoch).unlink(missing_ok=True)

    def write_best(self, weights: Weights) -> None:
        """Keep the weights that translated best so far."""
        write_whole(self.folder / BEST, save(weights))

    def latest(self, epoch: int) -> tuple[Weights, Weights]:
        """The weights after an epoch, and the moments of the optimiser."""
        return load_file(self._weights(epoch)), load_file(self.folder / STATE)

    def best(self) -> Weights:
        """The weights that translated best."""
        return load_file(self.folder / BEST)

    def average(self, epochs: Sequence[int]) -> Weights:
        """The mean of the weights after these epochs (Vaswani et al., 2017, §6.1)."""
        total: Weights = {}
        for epoch in epochs:
            for name, weight in load_file(self._weights(epoch)).items():
                share = weight.double() / len(epochs)
                total[name] = total[name] + share if name in total else share
        return {name: weight.to(torch.float32) for name, weight in total.items()}

    def _weights(self, epoch: int) -> Path:
        return self.folder / f"weights-{epoch:03}.safetensors"
