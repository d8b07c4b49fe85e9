"""Checks that gradients pass through a model.

Quantised layers answer as others do, but give on no gradient, and nothing fails: what is computed
from gradients is then too small or zero. So the first time that a method wants one, the model runs
once on a probe, and one module of every kind that calls no other is tried by itself. It stops the
gradient if none comes back although what it gives depends on what it takes (tables of positions
do not).
"""

import warnings

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter, tree_map_only
from transformers import PreTrainedModel

from exhibit_a.subject.encoding import probe
from exhibit_a.subject.guard import frozen_eval, here_only, hooked, without_cache

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
