"""Where does a model come from, and did all of it arrive?

It is embedded, in a folder, on the hub, or an object already. Where a folder lacks something,
transformers makes it up and goes on: random numbers for weights, a tokenizer that knows no words.
Nothing true can be said about such a model, so it is refused; only a head may be missing, and the
model then stands there without one.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from exhibit_a.embedded.weights import embedded_names, load_embedded, quietly
from exhibit_a.errors import BadRequestError, ExhibitError, UnsupportedModelError, first_line


def accept(model: nn.Module, device: Any, dtype: Any, options: dict[str, Any]) -> PreTrainedModel:
    """A model object as it is; whatever we would have to change about it is refused."""
    if any(_is_compiled(part) for part in model.modules()):
        raise UnsupportedModelError(
            f"{type(model).__name__} is compiled (torch.compile), and compiled code cannot be "
            "watched. Give the model as it was before compiling (model._orig_mod)."
        )
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModelError(
            f"{type(model).__name__} is no transformers PreTrainedModel; only those are supported."
        )
    asked = [k for k, v in {"device": device, "dtype": dtype, **options}.items() if v is not None]
    if asked:
        raise BadRequestError(
            f"{', '.join(asked)} was given with a model object, which is never changed; "
            "change the model yourself or give a name or folder."
        )
    return model


def fetch(name: str, device: Any, dtype: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """A model and its tokenizer from the package, a folder or the hub."""
    floating = None if dtype in (None, "auto") else _dtype(dtype)
    if name in embedded_names():
        if options:
            raise BadRequestError(
                f"{', '.join(options)} was given with the embedded model {name!r}, which is loaded "
                "in one way only; leave it out."
            )
        model, companion = load_embedded(name)
        model = model if floating is None else model.to(floating)
    else:
        model, companion = _read(name, floating or dtype, options)
    if device is None:
        return model, companion
    try:
        return model.to(device), companion
    except (RuntimeError, AssertionError) as problem:  # how torch refuses a device
        raise BadRequestError(
            f"The model cannot be put on {device!r}: {first_line(problem)}"
        ) from problem


def lacks_a_head(model: PreTrainedModel, told: dict[str, Any], source: str) -> bool:
    """Whether weights of the head are made up; where others are, the model is refused."""
    changed = [key[0] if isinstance(key, tuple) else key for key in told["mismatched_keys"]]
    made_up = sorted({*told["missing_keys"], *changed})
    inner = [key for key in made_up if not _is_of_the_head(model, key)]
    if inner:
        raise BadRequestError(
            f"{source!r} does not hold all of {type(model).__name__}: {len(inner)} weights are "
            f"missing or of another size ({inner[0]}, …), and would be random. Give a complete "
            "folder; or load the model yourself, if that is meant, and give the object."
        )
    return bool(made_up)


def _is_of_the_head(model: PreTrainedModel, key: str) -> bool:
    """Whether a weight stands after the layers: its part has neither layers nor word vectors."""
    inside = key.removeprefix(f"{model.base_model_prefix}.")
    if inside == key and model.base_model is not model:
        return True
    part = getattr(model.base_model, inside.split(".")[0], None)
    if not isinstance(part, nn.Module):
        return False
    return not any(isinstance(one, nn.ModuleList | nn.Embedding) for one in part.modules())


def knows_words(tokenizer: Any) -> bool:
    """Whether a tokenizer has a vocabulary, or was made up from special tokens alone."""
    if not hasattr(tokenizer, "get_vocab"):
        return True  # an image processor, or the like
    made_up = set(tokenizer.all_special_tokens) | set(tokenizer.get_added_vocab())
    return any(any(map(str.isalnum, token)) for token in tokenizer.get_vocab().keys() - made_up)


def _read(name: str, dtype: Any, options: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
    # A weight of another size is found out below, with the others that are not there.
    options = {"attn_implementation": "eager", "ignore_mismatched_sizes": True, **options}
    if dtype is not None:
        options["dtype"] = dtype
    shared: dict[str, Any] = {
        k: options[k] for k in ("revision", "trust_remote_code", "local_files_only") if k in options
    }
    try:
        config = AutoConfig.from_pretrained(name, **shared)
        with quietly(bars=True):  # what is missing is looked at below
            whole = _declared(config).from_pretrained
            model, told = whole(name, output_loading_info=True, **options)
            if lacks_a_head(model, told, name) and model.base_model is not model:
                model, told = AutoModel.from_pretrained(name, output_loading_info=True, **options)
                lacks_a_head(model, told, name)
    except ExhibitError:
        raise
    except Exception as problem:  # files can be broken in any way, and each has its own exception
        reason = first_line(problem)
        if os.path.isdir(name):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
            raise BadRequestError(f"The folder {name!r} holds no model: {reason}") from problem
        raise BadRequestError(
            f"There is no model {name!r}: not among the embedded ones "
            f"({', '.join(embedded_names())}), not a folder, and not to be had from the hub "
            f"({reason.rstrip('.')})."
        ) from problem
    return model.eval(), _companion(name, model, shared)


def _declared(config: Any) -> Any:
    """The class that a configuration names; one of the model's own is behind an Auto class."""
    if not config.architectures:
        return AutoModel
    architecture = config.architectures[0]
    own: dict[str, str] = getattr(config, "auto_map", None) or {}
    for auto, where in own.items():
        if where.rpartition(".")[2] == architecture:
            return getattr(transformers, auto)
    found = getattr(transformers, architecture, None)
    if found is None:
        raise UnsupportedModelError(
            f"The model is a {architecture}, and transformers {transformers.__version__} knows no "
            "such class; give the model as an object."
        )
    return found


def _companion(name: str, model: PreTrainedModel, options: dict[str, Any]) -> Any:
    """The tokenizer or processor saved beside a model, or None."""
    wanted: dict[str, Callable[..., Any]] = {
        "pixel_values": transformers.AutoImageProcessor.from_pretrained,
        "input_features": transformers.AutoProcessor.from_pretrained,
    }
    read = wanted.get(model.main_input_name, transformers.AutoTokenizer.from_pretrained)
    try:
        found = read(name, **options)
    except Exception:  # any broken file; pre-encoded inputs still work, text is refused
        return None
    return found if knows_words(found) else None


def _is_compiled(part: nn.Module) -> bool:
    return (
        hasattr(part, "_orig_mod")
        or getattr(part, "_compiled_call_impl", None) is not None
        or hasattr(part.forward, "_torchdynamo_orig_callable")
    )


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise BadRequestError(f"A model has no dtype {dtype!r}; for example float32 or bfloat16.")
    return found
