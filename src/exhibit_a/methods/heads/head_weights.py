"""Finds the weights that belong to each head, and removes them.

Families name, fuse and interleave their projections as they like. So the output of every Linear and
Conv1D becomes the start of a graph, and each head's query, key and value is differentiated: an
output with a gradient feeds that head, through whatever rotation or norm lies between.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import UnsupportedModelError
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Inputs
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.guard import Forward, frozen_eval, wrap_forward
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap

Feeding = dict[tuple[str, str], list[Tensor]]  # (module, "query" …) → which outputs feed each head


def observe_feeding(subject: Subject, inputs: Inputs, sites: set[int]) -> dict[int, Feeding]:
    """Which outputs of which modules feed each head of the sites."""
    model, watcher = subject.model, _FeedingWatcher(sites)
    linear = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    }
    names = {id(module): name for name, module in linear.items()}

    def start_graph(forward: Forward) -> Forward:
        name = names[id(forward.__self__)]  # type: ignore[attr-defined]

        def run(*args: object, **kwargs: object) -> Tensor:
            leaf: Tensor = forward(*args, **kwargs).detach().requires_grad_()
            watcher.leaves[name] = leaf
            return leaf.clone()  # some families add to it in place

        return run

    modules, tapped = list(linear.values()), subject.tapping(watcher)
    with frozen_eval(model), torch.enable_grad(), wrap_forward(modules, start_graph), tapped:
        model(**inputs)
    return watcher.feeding


@dataclass(frozen=True, eq=False)
class Change:
    """Which heads of one site stay, and whether the one that stays is silent."""

    queries: list[int]
    shared: list[int]  # of the heads that own keys and values
    silent: bool

    def counts(self, site: Site) -> dict[int, set[int]]:
        """Numbers a module may remember, and what they become."""
        new, new_shared = len(self.queries), len(self.shared)
        width, other = site.d_head, site.d_query or site.d_head
        pairs = [(site.heads // site.kv_heads, new // new_shared)]
        for size in {1, width, other}:
            pairs += [(site.heads * size, new * size), (site.kv_heads * size, new_shared * size)]
            pairs += [(3 * site.heads * size, 3 * new * size)]
        becomes: dict[int, set[int]] = {}
        for before, after in pairs:
            if before != after:
                becomes.setdefault(before, set()).add(after)
        return becomes


def plan_removal(site: Site, removed: list[int], feeding: Feeding) -> Change:
    """Which heads stay; shared keys and values stay while any head uses them."""
    for (module, what), outputs in feeding.items():
        every = torch.cat(outputs).tolist()
        if len(set(every)) < len(every):
            raise UnsupportedModelError(
                f"The {what} of different heads at site {site.index} share outputs of {module!r} "
                "(a norm across heads), so no head can be removed alone."
            )
    if {what for _, what in feeding} != {"query", "key", "value"}:
        raise UnsupportedModelError(f"No module was seen to feed the heads of site {site.index}.")
    stay = [head for head in range(site.heads) if head not in removed]
    silent = not stay
    stay = stay or [0]
    group = site.heads // site.kv_heads
    users = [[head for head in stay if head // group == key] for key in range(site.kv_heads)]
    shared = [key for key in range(site.kv_heads) if users[key]]
    if len({len(users[key]) for key in shared}) > 1:
        raise UnsupportedModelError(
            f"At site {site.index}, {group} heads share each key, and those that stay would share "
            f"unevenly ({', '.join(str(len(users[key])) for key in shared)}). Remove whole "
            f"groups (0 to {group - 1}, …) or the same number from every group."
        )
    return Change(stay, shared, silent)


def remove(model: nn.Module, site: Site, change: Change, feeding: Feeding) -> None:
    """Remove the weights of the heads that do not stay."""
    dropped: dict[str, list[Tensor]] = {}
    for (name, what), outputs in feeding.items():
        stay = change.queries if what == "query" else change.shared
        unused = [places for head, places in enumerate(outputs) if head not in stay]
        dropped.setdefault(name, []).extend(unused)
    for name, outputs in dropped.items():
        module = model.get_submodule(name)
        _keep(module, _others(_out_features(module), outputs), output=True)
    assert site.projection is not None
    projection = model.get_submodule(site.projection)
    columns = torch.arange(site.heads * site.d_head).reshape(site.heads, site.d_head)
    if _in_features(projection) == columns.numel():  # otherwise heads are added, and share them
        _keep(projection, columns[change.queries].flatten(), output=False)
    with torch.no_grad():
        if change.silent:
            assert isinstance(projection.weight, Tensor)
            projection.weight.zero_()
    attention = model.get_submodule(site.module)
    for name, weight in list(attention.named_parameters(recurse=False)):
        if weight.shape[:1] == (site.heads,):  # one number for each head, such as a sink
            setattr(attention, name, _parameter(weight[change.queries], weight))


def _others(count: int, dropped: list[Tensor]) -> Tensor:
    kept = torch.ones(count, dtype=torch.bool)
    for outputs in dropped:
        kept[outputs.cpu()] = False
    return kept.nonzero().flatten()


def _keep(module: nn.Module, places: Tensor, *, output: bool) -> None:
    """Keep some outputs, or some inputs, of a Linear or Conv1D."""
    weight = module.weight
    assert isinstance(weight, nn.Parameter)
    axis = int(isinstance(module, Conv1D)) if output else int(not isinstance(module, Conv1D))
    module.weight = _parameter(weight.index_select(axis, places.to(weight.device)), weight)
    if output and isinstance(module.bias, nn.Parameter):
        module.bias = _parameter(module.bias[places.to(weight.device)], module.bias)
    names = ("out_features", "nf") if output else ("in_features", "nx")
    for name in names:
        if hasattr(module, name):
            setattr(module, name, len(places))


def _parameter(kept: Tensor, before: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(kept.detach().clone(), requires_grad=before.requires_grad)


def _out_features(module: nn.Module) -> int:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.shape[1] if isinstance(module, Conv1D) else weight.shape[0]


def _in_features(module: nn.Module) -> int:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.shape[0] if isinstance(module, Conv1D) else weight.shape[1]


class _FeedingWatcher(Tap):
    """Differentiates every head by the outputs of the modules before it."""

    def __init__(self, sites: set[int]) -> None:
        self.sites = sites
        self.leaves: dict[str, Tensor] = {}
        self.feeding: dict[int, Feeding] = {}
        self.seeded = generator(0)

    def weighting(self, call: AttentionCall) -> None:
        """Write down what feeds the queries, keys and values of a call."""
        leaves, self.leaves = self.leaves, {}
        if call.site not in self.sites:
            return
        feeding: Feeding = {}
        for what, heads in (("query", call.query), ("key", call.key), ("value", call.value)):
            if heads is None:
                raise UnsupportedModelError(f"The {what} of site {call.site} cannot be seen.")
            noise = torch.randn(heads.shape, generator=self.seeded).to(heads)
            for head in range(heads.shape[1]):
                total = (heads[:, head] * noise[:, head]).sum()
                gradients = torch.autograd.grad(
                    total, list(leaves.values()), retain_graph=True, allow_unused=True
                )
                for name, gradient in zip(leaves, gradients, strict=True):
                    if gradient is not None:
                        outputs = gradient.flatten(0, -2).abs().sum(0).nonzero().flatten()
                        feeding.setdefault((name, what), []).append(outputs)
        self.feeding[call.site] = feeding
