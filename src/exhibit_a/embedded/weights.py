"""The models that come with the package, packed so that 60 to 90 MB each fit into 50 MB together.

Every folder in ``embedded/`` is a model. A matrix is stored as 8-bit integers with one scale for
each row, ``weight[row] ≈ scale[row] · stored[row]``, so no entry changes by more than half a scale;
vectors are stored as they are. What the classifiers share (the word embeddings, the tokenizer) is
stored once, next to them; a model with a vocabulary or tokenizer of its own shares nothing. Loading
turns everything back into float32.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import torch
import transformers
from jaxtyping import Float, Int8
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from exhibit_a.embedded.vocabulary import VOCABULARY, read_vocabulary
from exhibit_a.errors import BadRequestError
from exhibit_a.numerics.parallel import Together
from exhibit_a.shapes import Options

EMBEDDED = Path(__file__).parent
SHARED = "shared.safetensors"
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
SCALE = ".scale"
LARGEST = 127
INITIALISING = ("normal_", "uniform_", "kaiming_uniform_", "trunc_normal_")  # torch functions
TEMPORARY = {"max_length", "stride", "truncation_strategy", "pad_to_multiple_of", "is_local"}

Matrix = Float[Tensor, "row column"]
Stored = Int8[Tensor, "row column"]
Scales = Float[Tensor, " row"]


def load_embedded(
    name: str, *, folder: Path = EMBEDDED
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Build an embedded model and its tokenizer; nothing is downloaded."""
    if name not in embedded_names(folder):
        raise BadRequestError(
            f'There is no embedded model "{name}". '
            f"The embedded models: {', '.join(embedded_names(folder)) or 'none'}."
        )
    model_folder, vocabulary = folder / name, folder / name / VOCABULARY
    alone = vocabulary.exists() or (model_folder / TOKENIZER).exists()
    shared = {} if alone else load_file(folder / SHARED)
    weights = unpack({**shared, **load_file(model_folder / WEIGHTS)})
    (named,) = json.loads((model_folder / CONFIG).read_text(encoding="utf-8"))["architectures"]
    if hasattr(transformers, named):
        family, config = getattr(transformers, named), AutoConfig.from_pretrained(model_folder)
    else:  # a reference model
        from exhibit_a import models

        family = getattr(models, named)
        config = family.config_class.from_pretrained(model_folder)
    with quietly():
        model = _built(family, config, weights)
        tokenizer = (
            read_vocabulary(vocabulary).tokenizer()
            if vocabulary.exists()
            else AutoTokenizer.from_pretrained(model_folder if alone else folder)
        )
    return model.eval(), tokenizer


def _built(
    family: type[PreTrainedModel], config: PretrainedConfig, weights: Mapping[str, Tensor]
) -> PreTrainedModel:
    """A model with these weights, none of them random: the caller's seed is not used up.

    What ``from_pretrained`` does is more: it prepares for the renamed weights of every family, and
    its empty model brings in torch's compiler. Together that took longer than the rest of loading.
    """
    with _Uninitialised():
        model: PreTrainedModel = family._from_config(config, attn_implementation="eager")
    missing, unknown = model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    model.config.name_or_path = ""  # a folder of the package says nothing about the model
    if unknown or set(missing) - set(model.all_tied_weights_keys):
        raise BadRequestError(
            f"The weights are not those of {family.__name__}: without {missing or 'nothing'}, "
            f"and with {unknown or 'nothing'} more."
        )
    return model


class _Uninitialised(TorchFunctionMode):
    """Draws no weights, for they are replaced; only in this thread, and only meanwhile."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Options | None = None,
    ) -> object:
        """Do anything but draw."""
        if getattr(func, "__name__", "") not in INITIALISING:
            return func(*args, **(kwargs or {}))
        return args[0] if args else (kwargs or {})["tensor"]


def embedded_names(folder: Path = EMBEDDED) -> tuple[str, ...]:
    """The names of the models in a folder."""
    return tuple(sorted(weights.parent.name for weights in folder.glob(f"*/{WEIGHTS}")))


def pack(models: Mapping[str, Path], folder: Path) -> None:
    """Store saved models in one folder, under the names given; equal tensors are stored once."""
    packed = {name: quantised(load_file(saved / WEIGHTS)) for name, saved in models.items()}
    first, *others = packed.values()
    common = {
        key: tensor
        for key, tensor in first.items()
        if all(key in other and torch.equal(tensor, other[key]) for other in others)
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(common, folder / SHARED)
    _store_tokenizer(next(iter(models.values())), folder)
    for name, tensors in packed.items():
        (folder / name).mkdir(exist_ok=True)
        unshared = {key: tensor for key, tensor in tensors.items() if key not in common}
        save_file(unshared, folder / name / WEIGHTS)
        shutil.copyfile(models[name] / CONFIG, folder / name / CONFIG)


def pack_alone(saved: Path, folder: Path) -> None:
    """Store a saved model that shares nothing with the others, with its own tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(quantised(load_file(saved / WEIGHTS)), folder / WEIGHTS)
    _store_tokenizer(saved, folder)
    shutil.copyfile(saved / CONFIG, folder / CONFIG)


def quantised(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every matrix as 8-bit numbers and scales; every vector untouched."""
    packed = {}
    for name, tensor in weights.items():
        if tensor.ndim == 2:
            packed[name], packed[name + SCALE] = quantise(tensor)
        else:
            packed[name] = tensor
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo ``quantised``, up to rounding."""
    return {
        name: tensor.float() * packed[name + SCALE][:, None] if name + SCALE in packed else tensor
        for name, tensor in packed.items()
        if not name.endswith(SCALE)
    }


def quantise(matrix: Matrix) -> tuple[Stored, Scales]:
    """The nearest 8-bit matrix and the scale of each of its rows."""
    scale = matrix.abs().amax(-1).clamp(min=torch.finfo(matrix.dtype).tiny) / LARGEST
    return (matrix / scale[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8), scale


@contextmanager
def quietly(*, bars: bool = False) -> Iterator[None]:
    """Silence transformers while it loads or saves: its messages do not apply here."""
    with _UNTOLD, nullcontext() if bars else _UNDRAWN:
        yield


def _without_messages() -> ExitStack:
    afterwards = ExitStack()
    afterwards.callback(logging.set_verbosity, logging.get_verbosity())
    logging.set_verbosity_error()
    return afterwards


def _without_bars() -> ExitStack:
    afterwards = ExitStack()
    if logging.is_progress_bar_enabled():
        afterwards.callback(logging.enable_progress_bar)
        logging.disable_progress_bar()
    return afterwards


_UNTOLD, _UNDRAWN = Together(_without_messages), Together(_without_bars)


def _store_tokenizer(saved: Path, folder: Path) -> None:
    """Copy the tokenizer without the truncation and padding that were last used."""
    rules = _json(saved / TOKENIZER) | {"truncation": None, "padding": None}
    (folder / TOKENIZER).write_text(
        json.dumps(rules, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
    )
    settings = _json(saved / "tokenizer_config.json")
    lasting = {key: settings[key] for key in settings if key not in TEMPORARY}
    (folder / "tokenizer_config.json").write_text(json.dumps(lasting, indent=2) + "\n")


def _json(path: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return content
