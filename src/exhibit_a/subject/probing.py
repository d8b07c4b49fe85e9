"""What is found out about a model by short probe passes, because no configuration tells it.

**Gradients.** Quantised layers answer as others do, but give on no gradient, and nothing fails:
what is computed from gradients is then too small or zero. So the first time that a method wants
one, the model runs once on a probe, and one module of every kind that calls no other is tried by
itself. It stops the gradient if none comes back although what it gives depends on what it takes
(tables of positions do not).

**Query and key projections.** Where what the heads average is given (``averaged`` in ``tap.py``),
queries and keys are made for nothing. Which modules make them is tried once for a model:

1. the contexts of all sites are given, and something is added to the output of every Linear and
   Conv1D in the layers: those from which no gradient reaches the answer are not needed;
2. they give NaN instead, and the answer must stay the same to the last bit.

A model that does not pass has none.

**Hiding a token.** The attention mask says that no position looks at a token. That takes the token
away, and nothing else, if it reaches the others by attention alone and the others stay where they
are. Both are tried once for a model, with a probe that has a token hidden in its middle:

1. another token in the hidden place must not change the answer;
2. every row of the first map keeps the proportions of its other weights. Where it does not,
   positions are counted along the mask; then the model is given the positions of the whole text,
   and the proportions must be kept.

A model that does not pass says so in one line when a token is to be hidden.

**The beginning of a text.** Some language models were trained with a beginning token in front of
every text, and some of their tokenizers do not put it there (converted checkpoints forget it).
Nothing fails then: the model reads every text badly. So the perplexity of a short text is
compared with and without the token, in one pass, when the model is loaded. Where the token makes
the text at least twice as predictable, that is reported by the doctor, and among the checks of
every result about a text without it.
"""

import inspect
import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter, tree_map_only
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from exhibit_a.shapes import Context, Inputs, Queries, SharedKeys, SharedValues
from exhibit_a.subject.encoding import Tokenizer, probe, text_probe
from exhibit_a.subject.guard import (
    Forward,
    floating,
    frozen_eval,
    here_only,
    hooked,
    without_cache,
    wrap_forward,
)
from exhibit_a.subject.tap import AttentionCall, Tap, shared_to_all

NUDGE = 1.5  # a change of numbers that no rounding hides

Given = tuple[tuple[object, ...], dict[str, object]]


class _Calls:
    """The first call of a module of every kind that calls no other module."""

    def __init__(self) -> None:
        self.first: dict[type[nn.Module], tuple[nn.Module, Given]] = {}
        self.ended = 0  # calls
        self.before: list[int] = []  # how many had ended when each running module began

    def begins(self, *_: object) -> None:
        """A module begins."""
        self.before.append(self.ended)

    def ends(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], _: object
    ) -> None:
        """A module ends; if no other ended since it began, it calls none."""
        if self.before.pop() == self.ended:
            self.first.setdefault(type(module), (module, (args, kwargs)))
        self.ended += 1


def gradient_obstacle(model: PreTrainedModel) -> str:
    """Where gradients end and why they cannot be had, in a sentence; empty where they pass."""
    calls, modules = _Calls(), list(model.modules())
    handles = [module.register_forward_pre_hook(here_only(calls.begins)) for module in modules]
    handles += [
        module.register_forward_hook(here_only(calls.ends), with_kwargs=True) for module in modules
    ]
    with frozen_eval(model):
        with torch.no_grad(), hooked(handles):
            model(**without_cache(model, probe(model)))
        for module, given in calls.first.values():
            if _numbers(given) and not _passes(module, given) and _depends(module, given):
                name = next(name for name, other in model.named_modules() if other is module)
                return (
                    f"no gradient passes through {name} ({type(module).__name__}): it is "
                    "quantised, or computes without gradients. Load the model unquantised, or ask "
                    "a method that only runs it forward"
                )
    return ""


def _numbers(tree: object) -> list[Tensor]:
    return [x for x in tree_iter(tree) if isinstance(x, Tensor) and x.is_floating_point()]


def _passes(module: nn.Module, given: Given) -> bool:
    """Whether a gradient comes back from what a module gives to what it takes."""

    def leaf(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().requires_grad_(tensor.is_floating_point())

    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of operators that have no gradient
        args, kwargs = tree_map_only(Tensor, leaf, given)
        reached = [tensor.sum() for tensor in _numbers(module(*args, **kwargs))]
        if not any(number.requires_grad for number in reached):
            return False
        leaves = [tensor for tensor in _numbers((args, kwargs)) if tensor.requires_grad]
        gradients = torch.autograd.grad(torch.stack(reached).sum(), leaves, allow_unused=True)
    return any(gradient is not None for gradient in gradients)


@torch.no_grad()
def _depends(module: nn.Module, given: Given) -> bool:
    """Whether a module gives something else when it takes something else."""

    def changed(tensor: Tensor) -> Tensor:
        return tensor * NUDGE if tensor.is_floating_point() else tensor

    args, kwargs = tree_map_only(Tensor, changed, given)
    before, after = _numbers(module(*given[0], **given[1])), _numbers(module(*args, **kwargs))
    return any(not torch.equal(*pair) for pair in zip(before, after, strict=True))


Watching = Callable[[Tap], AbstractContextManager[None]]
Change = Callable[[nn.Module, Tensor], Tensor]  # of what a module gives


def weight_makers(
    model: PreTrainedModel, layers: list[nn.Module], watching: Watching
) -> tuple[nn.Module, ...]:
    """The modules inside the layers without which every answer is the same, if contexts are given.

    ``watching`` shows the attention calls of the model to a tap.
    """
    every: dict[int, nn.Module] = {
        id(m): m for layer in layers for m in layer.modules() if isinstance(m, nn.Linear | Conv1D)
    }
    nudges: dict[int, list[Tensor]] = {}

    def nudge(module: nn.Module, given: Tensor) -> Tensor:
        nudges.setdefault(id(module), []).append(torch.zeros_like(given).requires_grad_())
        return given + nudges[id(module)][-1]

    def poison(_: nn.Module, given: Tensor) -> Tensor:
        return torch.full_like(given, torch.nan)

    def answers(change: Change, modules: list[nn.Module]) -> list[Tensor]:
        def changing(module: nn.Module) -> Callable[[Forward], Forward]:
            return lambda forward: lambda *args, **kwargs: change(module, forward(*args, **kwargs))

        with frozen_eval(model), ExitStack() as changed, watching(_GivenContexts()):
            for module in modules:
                changed.enter_context(wrap_forward([module], changing(module)))
            return floating(model(**without_cache(model, probe(model))))

    try:
        with torch.enable_grad():  # step 1
            reached = torch.stack([a.sum() for a in answers(nudge, list(every.values()))]).sum()
            if not nudges or not reached.requires_grad:
                return ()
            added = [(module, zeros) for module, calls in nudges.items() for zeros in calls]
            gradients = torch.autograd.grad(
                reached, [zeros for _, zeros in added], allow_unused=True
            )
        pairs = zip(added, gradients, strict=True)
        felt = {module for (module, _), gradient in pairs if gradient is not None}
        unused = [every[module] for module in nudges if module not in felt]
        with torch.no_grad():  # step 2
            both = zip(answers(poison, []), answers(poison, unused), strict=True)
            return tuple(unused) if all(torch.equal(*pair) for pair in both) else ()
    except Exception:  # a model that cannot be tried like this can fail in any way
        return ()


class _GivenContexts(Tap):
    """Gives every query the mean of all values."""

    def __init__(self) -> None:
        self.size = (0, 0)  # heads and queries of the call

    def scoring(self, site: int, query: Queries, key: SharedKeys) -> None:  # noqa: ARG002
        """Note how many there are."""
        self.size = (query.shape[1], query.shape[2])

    def averaged(self, site: int, value: SharedValues) -> Context:  # noqa: ARG002
        """The mean of the values, for every query."""
        heads, queries = self.size
        return shared_to_all(value.mean(2, keepdim=True), heads).expand(-1, -1, queries, -1)


class Hiding(NamedTuple):
    """How tokens are hidden from a model."""

    positions: bool  # whether it must be given positions, because it counts them along the mask
    obstacle: str  # why nothing can be hidden; empty where it can


MOVED = 0.01  # of a log weight, next to the other weights of its row: far above rounding


@torch.no_grad()
def hiding(
    model: PreTrainedModel, watching: Watching, *, attends_first: bool, tolerance: float
) -> Hiding:
    """Whether tokens can be hidden; step 2 is left out where the first layer does not attend."""
    whole = text_probe(model)
    ids, visible = whole["input_ids"], torch.ones_like(whole["input_ids"])
    place = ids.shape[1] // 2
    others = torch.arange(ids.shape[1], device=ids.device) != place
    without = {**whole, "attention_mask": visible * others}

    def run(inputs: Inputs) -> tuple[Tensor, Tensor]:
        """The answers at the other places, and the first map there."""
        tap = _FirstMap()
        with frozen_eval(model), watching(tap):
            answer = floating(model(**without_cache(model, inputs)))[0]
        along = answer.ndim == 3 and answer.shape[1] == len(others)
        weights = tap.weights[0][:, others][..., others] if attends_first else tap.weights
        return answer[:, others] if along else answer, weights.log()

    def moved(weights: Tensor) -> bool:
        """Whether some weights of a row changed more than others."""
        change = weights - expected
        known = change.isfinite()
        high = change.masked_fill(~known, -torch.inf).amax(-1)
        low = change.masked_fill(~known, torch.inf).amin(-1)
        return bool((high - low > MOVED).any())

    answer, weights = run(without)
    changed = ids.clone()  # step 1
    changed[0, place] = next((x for x in ids[0].tolist() if x != ids[0, place]), 0)
    difference = (run({**without, "input_ids": changed})[0] - answer).abs().amax()
    if not difference <= tolerance:
        return Hiding(False, "its words reach each other by other ways than attention, too")
    _, expected = run(whole)  # step 2
    if not attends_first or not moved(weights):
        return Hiding(False, "")
    if "position_ids" in inspect.signature(model.forward).parameters:
        given = {**without, "position_ids": visible.cumsum(-1) - 1}
        if not moved(run(given)[1]):
            return Hiding(True, "")
    return Hiding(
        False, "it counts positions along the words that are visible, and takes no others"
    )


class _FirstMap(Tap):
    """Keeps the weights of the first site."""

    weights: Tensor

    def weighting(self, call: AttentionCall) -> None:
        """Keep them."""
        if call.site == 0:
            self.weights = call.probs


BOS_TEXT = (
    "The sun rises in the east and sets in the west. Water is wet, and snow is white and cold."
)
BOS_TIMES = 2.0  # more perplexing without the token: below, it may as well be missing
BOS_FEWEST = 4  # tokens of the text; with fewer, perplexity says nothing


class Beginning(NamedTuple):
    """A beginning token that texts should have and do not get."""

    token: str
    warning: str


def missing_beginning(model: PreTrainedModel, tokenizer: Tokenizer) -> Beginning | None:
    """The token that is missing in front of texts, and how that was seen; None where none is."""
    known = hasattr(tokenizer, "convert_ids_to_tokens")
    if not known or model.config.is_encoder_decoder or not model.can_generate():
        return None
    text = model.config.get_text_config()
    stated = [getattr(source, "bos_token_id", None) for source in (tokenizer, text)]
    words = getattr(text, "vocab_size", 0)
    token = next((token for token in stated if isinstance(token, int) and 0 <= token < words), None)
    if token is None:
        return None
    ids = tokenizer(BOS_TEXT)["input_ids"]
    if token in ids or len(set(ids)) < BOS_FEWEST or max(ids) >= words:
        return None  # it is there already, or the tokenizer does not know these words
    count = len(ids) - 1
    without, with_it = (_perplexity(model, row, count) for row in (ids, [token, *ids]))
    if not with_it * BOS_TIMES <= without:
        return None
    name = str(tokenizer.convert_ids_to_tokens(token))
    return Beginning(
        name,
        f"this tokenizer puts no {name} in front of a text, and the model seems to want it: the "
        f"perplexity of a short text is {without:.3g} without it and {with_it:.3g} with it. Write "
        "it in front of your texts, or set the tokenizer's add_bos_token",
    )


@torch.no_grad()
def _perplexity(model: PreTrainedModel, ids: list[int], count: int) -> float:
    """Of the last tokens: those behind the first word, which has nothing before it."""
    row = torch.tensor([ids], device=model.device)
    inputs = without_cache(model, {"input_ids": row, "attention_mask": torch.ones_like(row)})
    with frozen_eval(model):
        logits = model(**inputs).logits[0, :-1].float()
    losses = torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="none")
    return math.exp(min(float(losses[-count:].mean()), 80.0))
