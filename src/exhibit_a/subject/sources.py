"""Loads a model from where it comes from, and checks that all of it arrived.

It is embedded, in a folder, on the hub, or an object already. Where a folder lacks something,
transformers makes it up and goes on: random numbers for weights, a tokenizer without words. It also
drops layers that the configuration does not mention, and takes whole numbers for weights. Numbers
measured on such a model mean nothing, so it is refused; only a head may be missing, and the model
is then loaded without one.
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import tokenizers
import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_utils import load_state_dict

from exhibit_a.embedded.weights import embedded_names, load_embedded, quietly
from exhibit_a.errors import (
    BadRequestError,
    ExhibitError,
    UnsupportedModelError,
    asks_too_much,
    first_line,
)
from exhibit_a.shapes import Options
from exhibit_a.subject.encoding import Tokenizer

Device = str | torch.device | None
DType = str | torch.dtype | None
Model = TypeVar("Model", bound=nn.Module)

# What turns a model's input into tensors, by name: some of these cannot even be looked at unless a
# library is there that other models do not need.
COMPANIONS = {"pixel_values": "AutoImageProcessor", "input_features": "AutoProcessor"}
COMPANION_FILES = ("*token*.json", "*processor_config.json")

# What configurations call the number of heads, and the files that hold weights, as they are sought.
HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head")
WEIGHTS = ("model.safetensors", "model-*.safetensors", "pytorch_model*.bin")


def accept(model: nn.Module, device: Device, dtype: DType, options: Options) -> PreTrainedModel:
    """A model object as it is; whatever would have to change about it is refused."""
    if any(
        hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(module.forward, "_torchdynamo_orig_callable")
        for module in model.modules()
    ):
        raise UnsupportedModelError(
            f"{type(model).__name__} is compiled (torch.compile), and compiled code cannot be "
            "watched. Give the model as it was before compiling (model._orig_mod)."
        )
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModelError(
            f"{type(model).__name__} is no transformers PreTrainedModel; only those are supported."
        )
    requested = [
        k for k, v in {"device": device, "dtype": dtype, **options}.items() if v is not None
    ]
    if requested:
        raise BadRequestError(
            f"{', '.join(requested)} was given with a model object, which is never changed; "
            "change the model yourself or give a name or folder."
        )
    return model


def fetch(
    name: str, device: Device, dtype: DType, options: Options, *, with_tokenizer: bool = True
) -> tuple[PreTrainedModel, Tokenizer]:
    """A model from the package, a folder or the hub, with its tokenizer if that is wanted."""
    floating = None
    if dtype not in (None, "auto"):
        floating = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        if not isinstance(floating, torch.dtype) or not floating.is_floating_point:
            raise BadRequestError(
                f"A model has no dtype {dtype!r}; for example float32 or bfloat16."
            )
    if name in embedded_names():
        if options:
            raise BadRequestError(
                f"{', '.join(options)} was given with the embedded model {name!r}, which is loaded "
                "in one way only; leave it out."
            )
        model, tokenizer = load_embedded(name)
        model = model if floating is None else moved(model, floating)
    else:
        model, tokenizer = _read(name, floating or dtype, options, with_tokenizer)
    if device is None:
        return model, tokenizer
    try:
        return moved(model, device), tokenizer
    except (RuntimeError, AssertionError) as problem:  # how torch refuses a device
        raise BadRequestError(
            f"The model cannot be put on {device!r}: {first_line(problem)}"
        ) from problem


def moved(model: Model, to: torch.device | torch.dtype | str) -> Model:
    """The model itself, on another device or in another precision.

    Transformers wraps this method so that a type checker sees a function without its object.
    """
    return model.to(to)


def require_device(name: str) -> None:
    """Refuse a device that this machine does not have."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        raise BadRequestError(
            f"There is no device {name!r} here: {first_line(problem)}"
        ) from problem


def lacks_a_head(model: PreTrainedModel, loading: Options, source: str) -> bool:
    """Whether weights of the head are made up; where others are, the model is refused.

    So is a model whose files hold layers that its configuration does not mention, or weights that
    are no fractions. ``loading`` is what transformers gives with ``output_loading_info=True``.
    """
    _require_every_layer(model, loading["unexpected_keys"], source)
    if getattr(model.config, "quantization_config", None) is None:
        _require_fractions(model, Path(source))
    resized = [key[0] if isinstance(key, tuple) else key for key in loading["mismatched_keys"]]
    made_up = sorted({*loading["missing_keys"], *resized})
    inner = [key for key in made_up if not _is_of_the_head(model, key)]
    if inner:
        raise BadRequestError(
            f"{source!r} does not hold all of {type(model).__name__}: {len(inner)} weights are "
            f"missing or of another size ({inner[0]}, …), and would be random. Give a complete "
            "folder; or load the model yourself, if that is meant, and give the object."
        )
    return bool(made_up)


def _require_every_layer(model: PreTrainedModel, unexpected: Iterable[str], source: str) -> None:
    """Refuse weights that go on where a list of layers has ended."""
    lists = {
        name: len(part)
        for whole in (model.base_model, model)
        for name, part in whole.named_modules()
        if isinstance(part, nn.ModuleList)
    }
    held: dict[str, int] = {}
    for key in unexpected:
        for number in re.finditer(r"\.(\d+)\.", key):
            name = key[: number.start()]
            name = name if name in lists else name.removeprefix(f"{model.base_model_prefix}.")
            if name in lists and int(number[1]) >= lists[name]:
                held[name] = max(held.get(name, 0), int(number[1]) + 1)
    for name, count in held.items():
        raise BadRequestError(
            f"{source!r} holds {count} layers ({name}), and its config.json describes "
            f"{lists[name]}; the others would be left out. Correct config.json; or load the model "
            "yourself, if that is meant, and give the object."
        )


def _require_fractions(model: PreTrainedModel, folder: Path) -> None:
    """Refuse weights that are stored as whole numbers, which nothing says how to turn back."""
    known = {name for name, weight in model.named_parameters() if weight.is_floating_point()}
    prefix = f"{model.base_model_prefix}."
    stored = (found for kind in WEIGHTS if (found := sorted(folder.glob(kind))))
    for file in next(stored, []):
        for name, weight in load_state_dict(file, map_location="meta").items():
            is_known = not known.isdisjoint((name, f"{prefix}{name}", name.removeprefix(prefix)))
            if is_known and not (weight.is_floating_point() or weight.is_complex()):
                raise BadRequestError(
                    f"{file} stores {name} as {str(weight.dtype).removeprefix('torch.')}, and its "
                    "config.json has no quantization_config to say which weights these numbers "
                    "stand for. Save the model in floating point."
                )


def _is_of_the_head(model: PreTrainedModel, key: str) -> bool:
    """Whether a weight stands after the layers: its part has neither layers nor embeddings."""
    inside = key.removeprefix(f"{model.base_model_prefix}.")
    if inside == key and model.base_model is not model:
        return True
    part = getattr(model.base_model, inside.split(".")[0], None)
    if not isinstance(part, nn.Module):
        return False
    return not any(isinstance(module, nn.ModuleList | nn.Embedding) for module in part.modules())


def knows_words(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer has a vocabulary, or was made up from special tokens alone."""
    if not hasattr(tokenizer, "get_vocab"):
        return True  # an image processor, or the like
    made_up = set(tokenizer.all_special_tokens) | set(tokenizer.get_added_vocab())
    return any(any(map(str.isalnum, token)) for token in tokenizer.get_vocab().keys() - made_up)


def _read(
    name: str, dtype: DType, options: Options, with_tokenizer: bool
) -> tuple[PreTrainedModel, Tokenizer]:
    # Weights of another size are reported by lacks_a_head, with those that are missing.
    options = {"attn_implementation": "eager", "ignore_mismatched_sizes": True, **options}
    if dtype is not None:
        options["dtype"] = dtype
    shared: Options = {
        k: options[k] for k in ("revision", "trust_remote_code", "local_files_only") if k in options
    }
    from exhibit_a import models  # noqa: F401 - so that the Auto classes know them

    is_folder = os.path.isdir(name)  # noqa: PTH112 - Path.is_dir raises on a name that is too long
    try:
        if is_folder:
            _require_sound(Path(name))
        config = AutoConfig.from_pretrained(name, **shared)
        with quietly(bars=True):  # lacks_a_head reports what is missing
            whole = _declared(config).from_pretrained
            model, loading = whole(name, output_loading_info=True, **options)
            if lacks_a_head(model, loading, name) and model.base_model is not model:
                headless = AutoModel.from_pretrained
                model, loading = headless(name, output_loading_info=True, **options)
                lacks_a_head(model, loading, name)
    except ExhibitError:
        raise
    except Exception as problem:  # files can be broken in any way, and each has its own exception
        reason = why_not_read(problem, name)
        if is_folder:
            raise BadRequestError(f"The folder {name!r} holds no model: {reason}") from problem
        raise BadRequestError(
            f"There is no model {name!r}: not among the embedded ones "
            f"({', '.join(embedded_names())}), not a folder, and not available from the hub "
            f"({reason.rstrip('.')})."
        ) from problem
    tokenizer = _saved_tokenizer(name, model, shared) if with_tokenizer else None
    return model.eval(), tokenizer


def _require_sound(folder: Path) -> None:
    """Refuse files of a model that are damaged in a way that transformers does not name."""
    if (described := folder / "config.json").is_file():
        config = _json_object(described)
        for name in HEADS:
            if isinstance(config.get(name), int) and config[name] < 1:
                raise BadRequestError(
                    f"{described} says {name}: {config[name]}, and a model has at least one head. "
                    "Correct it."
                )
    for kind in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{kind}.index.json"
        if (folder / kind).is_file():
            break
        if index.is_file():
            places = _json_object(index).get("weight_map")
            parts = {str(part) for part in places.values()} if isinstance(places, dict) else set()
            if not parts:
                raise BadRequestError(
                    f"{index} has no weight_map, which says in which file each weight is. Save or "
                    "download it again."
                )
            if missing := sorted(part for part in parts if not (index.parent / part).is_file()):
                raise BadRequestError(
                    f"{index} names {missing[0]}, and there is no such file ({len(missing)} of "
                    f"{len(parts)} are missing). Save or download the model again."
                )
            break


def _json_object(file: Path) -> dict[str, Any]:
    """What a JSON file holds, which must be an object."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise BadRequestError(
            f"{file} cannot be read: {first_line(problem)}. Save or download it again."
        ) from problem
    if not isinstance(found, dict):
        raise BadRequestError(
            f"{file} holds {json.dumps(found)[:20]}, and a JSON object ({{...}}) was expected. "
            "Save or download it again."
        )
    return found


def why_not_read(problem: Exception, source: str) -> str:
    """Why a model cannot be read, in words that help.

    Torch advises to open a pickled file of weights without its guard; that is not passed on.
    """
    if type(problem).__name__ == "UnpicklingError" or isinstance(problem, EOFError):
        return (
            "its weights are pickled, and the file is damaged or could run code, so it is not "
            "opened. Save them as safetensors, with save_pretrained where the model was made."
        )
    reason, described = first_line(problem).rstrip("."), Path(source, "config.json")
    if not os.path.isfile(described):  # noqa: PTH113 - Path.is_file raises on a name that is too long
        return f"{reason}."
    numbers = [(n, k) for k, n in _json_object(described).items() if type(n) is int]
    if asks_too_much(problem) and numbers:
        number, name = max(numbers)
        return f"it would not fit into the memory; its config.json says {name}: {number}."
    odd = [f"{k}: {n}" for n, k in numbers if n < 1 and re.search("size|head", k)]
    return f"{reason}." if not odd else f"{reason}; its config.json says {', '.join(odd)}."


def _declared(config: PretrainedConfig) -> Any:
    """The class that a configuration names; code shipped with a model is behind an Auto class."""
    if not config.architectures:
        return AutoModel
    architecture = config.architectures[0]
    shipped: dict[str, str] = getattr(config, "auto_map", None) or {}
    for auto, path in shipped.items():
        if path.rpartition(".")[2] == architecture:
            return getattr(transformers, auto)
    declared = getattr(transformers, architecture, None) or _registered(config, architecture)
    if declared is None:
        raise UnsupportedModelError(
            f"The model is a {architecture}, and transformers {transformers.__version__} knows no "
            "such class; give the model as an object."
        )
    return declared


def _registered(config: PretrainedConfig, architecture: str) -> Any:
    """The class of that name that was registered for this configuration, if any."""
    kinds = ("Seq2SeqLM", "SequenceClassification", "CausalLM", "MaskedLM", "TokenClassification")
    for auto in (*(getattr(transformers, f"AutoModelFor{kind}") for kind in kinds), AutoModel):
        known: Any = auto._model_mapping.get(type(config), None)
        if getattr(known, "__name__", None) == architecture:
            return known
    return None


def _saved_tokenizer(name: str, model: PreTrainedModel, options: Options) -> Tokenizer:
    """The tokenizer or processor saved with a model, or None."""
    companion = COMPANIONS.get(model.main_input_name, "AutoTokenizer")
    try:
        tokenizer = getattr(transformers, companion).from_pretrained(name, **options)
    except Exception:  # any broken file or missing library; pre-encoded inputs still work
        # A tokenizer that is there and damaged must not pass for one that is missing.
        folder = Path(name)
        for pattern in COMPANION_FILES:
            for file in sorted(folder.glob(pattern)):
                _json_object(file)
        if (saved := folder / "tokenizer.json").is_file():
            try:
                tokenizers.Tokenizer.from_file(str(saved))
            except Exception as problem:  # this library raises nothing more special
                raise BadRequestError(
                    f"The tokenizer {saved} cannot be read: {first_line(problem)}. Save or "
                    "download it again; or delete it, if you give encoded inputs."
                ) from problem
        return None
    return tokenizer if knows_words(tokenizer) else None
