"""Finds the modules of a model that only serve to make attention weights.

Where what the heads average is given (``averaged`` in ``tap.py``), queries and keys are made for
nothing. Which modules make them is not known by name, but tried once for a model, on a short probe:

1. the contexts of all sites are given, and something is added to the output of every Linear and
   Conv1D in the layers: those from which no gradient reaches the answer are not needed;
2. they give NaN instead, and the answer must stay the same to the last bit.

A model that does not pass has none.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from exhibit_a.shapes import Context, Queries, SharedKeys, SharedValues
from exhibit_a.subject.encoding import probe
from exhibit_a.subject.guard import Forward, floating, frozen_eval, without_cache, wrap_forward
from exhibit_a.subject.tap import Tap, shared_to_all

Watching = Callable[[Tap], AbstractContextManager[None]]
Change = Callable[[nn.Module, Tensor], Tensor]  # of what a module gives


def weight_makers(
    model: PreTrainedModel, layers: list[nn.Module], watching: Watching
) -> tuple[nn.Module, ...]:
    """The modules inside the layers without which every answer is the same, if contexts are given.

    ``watching`` shows the attention calls of the model to a tap.
    """
    every = {id(m): m for layer in layers for m in layer.modules() if _is_projection(m)}
    nudges: dict[int, list[Tensor]] = {}

    def nudge(module: nn.Module, given: Tensor) -> Tensor:
        nudges.setdefault(id(module), []).append(torch.zeros_like(given).requires_grad_())
        return given + nudges[id(module)][-1]

    def poison(_: nn.Module, given: Tensor) -> Tensor:
        return torch.full_like(given, torch.nan)

    def answers(change: Change, modules: list[nn.Module]) -> list[Tensor]:
        with frozen_eval(model), ExitStack() as changed, watching(_GivenContexts()):
            for module in modules:
                changed.enter_context(wrap_forward([module], _changing(module, change)))
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


def _is_projection(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def _changing(module: nn.Module, change: Change) -> Callable[[Forward], Forward]:
    """A wrapper that changes what the module gives."""
    return lambda forward: lambda *args, **kwargs: change(module, forward(*args, **kwargs))
