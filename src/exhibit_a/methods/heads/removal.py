"""Removes heads from a model for good, with their weights.

Silencing a head proves that it is not needed; removing it makes the model smaller and faster.
Families name, fuse and interleave their projections as they like, so which weights to remove is
observed, not known by name:

1. run a copy of the model, and let the output of every Linear and Conv1D be the start of a graph;
2. ask each head's query, key and value for gradients: the outputs with a gradient feed that head,
   through whatever rotation or norm lies between;
3. remove those outputs, and the inputs of the output projection that the head wrote to. Keys and
   values that heads share are removed with the last of them;
4. the attention module may remember how many heads it had. Its whole-number attributes are changed,
   as many as possible first, until the model runs and answers like the silenced one;
5. every site is checked by itself, the whole model on a longer input. What fails is refused.

A site that would lose all its heads keeps one with zero output, because some models cannot compute
with empty tensors. The given model is never changed.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import eq

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import BadRequestError, UnsupportedModelError, first_line
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Inputs
from exhibit_a.subject.anatomy import Site, check_site
from exhibit_a.subject.encoding import probe
from exhibit_a.subject.guard import Forward, floating, frozen_eval, without_cache, wrap_forward
from exhibit_a.subject.images import PIXELS
from exhibit_a.subject.sources import moved
from exhibit_a.subject.subject import Subject, examine
from exhibit_a.subject.tap import AttentionCall, Tap, attention_implementation
from exhibit_a.trace.batches import KeptHeads, kept_but

ROUNDING = 8.0  # sums in another order may differ by this much more than parity allows
MOST_TRIALS = 256
TIED = "its configuration ties the width of heads to their number"
UNEVEN = "its sites have different numbers of heads"

_IMPOSSIBLE = (RuntimeError, ValueError, AttributeError, ZeroDivisionError, StrictDataclassError)

Heads = Iterable[tuple[int, int]]
Known = dict[type, tuple[str, ...]]  # the attributes in which a kind of module counts its heads
Shapes = dict[int, tuple[int, int, int]]  # by site: heads, heads that own values, their width
Feeding = dict[tuple[str, str], list[Tensor]]  # (module, "query" …) → which outputs feed each head


@method(
    question="What is left of the model without these heads?",
    needs=("projection",),
    cost=Cost(forwards=4),
)
def prune(subject: Subject, heads: Heads) -> Subject:
    """A smaller model without these heads, which answers as if they were silenced.

    >>> smaller = xa.prune(subject, [(0, 0), (0, 1), (5, 3)])
    >>> [site.heads for site in smaller.anatomy.sites]
    [10, 12, 12, 12, 12, 11]
    >>> xa.prune(subject, [(0, 12)])
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: Site 0 has no head 12; its heads are 0 to 11.

    Args:
        heads: the heads to remove, as pairs of site and head.
    """
    removed = _by_site(subject, heads)
    model = copy.deepcopy(subject.model)
    smaller = replace(subject, model=model, name=f"{subject.name} (pruned)")
    inputs = without_cache(model, probe(model))
    feeding = observe_feeding(smaller, inputs, set(removed))  # steps 1 and 2
    silenced: list[tuple[int, int]] = []
    adapted: Known = {}
    expected: Shapes = {}
    for sharing in _sharing_a_module(subject, removed):
        silenced += [(site, head) for site in sharing for head in removed[site]]
        first = sharing[0]
        site = subject.anatomy.sites[first]
        change = plan_removal(site, removed[first], feeding[first])
        remove(model, site, change, feeding[first])  # step 3
        wanted = silenced_answer(subject, inputs, silenced)
        expected |= dict.fromkeys(sharing, (len(change.queries), len(change.shared), site.d_head))
        # step 4
        _adapt(smaller, site, change, adapted, partial(off_by, smaller, inputs, wanted, expected))
    smaller = replace(smaller, anatomy=examine(model, subject.tokenizer, subject.anatomy.tap))
    longer = _longer(probe(subject.model))  # step 5: nothing may have fitted the probe by chance
    difference = off_by(smaller, longer, silenced_answer(subject, longer, silenced))
    if not difference <= ROUNDING * subject.anatomy.tolerance:
        raise UnsupportedModelError(
            f"{type(subject.model).__name__} without these heads is off by {difference:.2g} on a "
            "longer input, so it is refused."
        )
    problem = _save_problem(smaller, inputs)
    if problem is not None:
        model.save_pretrained = _refusing_to_save(problem)  # type: ignore[method-assign]
    return smaller


def require_savable(subject: Subject) -> None:
    """Refuse a model whose configuration could not describe it when heads are removed."""
    if _tied(subject):
        _refusing_to_save(TIED)()


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
            f"in different ways ({', '.join(str(len(users[key])) for key in shared)}). Remove "
            f"whole groups (0 to {group - 1}, …) or the same number from every group."
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
        kept = torch.ones(_features(module)[1], dtype=torch.bool)
        for places in outputs:
            kept[places.cpu()] = False
        _keep(module, kept.nonzero().flatten(), output=True)
    assert site.projection is not None
    projection = model.get_submodule(site.projection)
    columns = torch.arange(site.heads * site.d_head).reshape(site.heads, site.d_head)
    if _features(projection)[0] == columns.numel():  # otherwise heads are added, and share them
        _keep(projection, columns[change.queries].flatten(), output=False)
    with torch.no_grad():
        if change.silent:
            assert isinstance(projection.weight, Tensor)
            projection.weight.zero_()
    attention = model.get_submodule(site.module)
    for name, weight in list(attention.named_parameters(recurse=False)):
        if weight.shape[:1] == (site.heads,):  # one number for each head, such as a sink
            setattr(attention, name, _parameter(weight[change.queries], weight))


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


def _features(module: nn.Module) -> tuple[int, int]:
    """How many inputs and outputs a Linear or Conv1D has."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    outputs, inputs = reversed(weight.shape) if isinstance(module, Conv1D) else weight.shape
    return inputs, outputs


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


def _by_site(subject: Subject, heads: Heads) -> dict[int, list[int]]:
    """The heads to remove, by site; heads that do not exist or cannot be removed are refused."""
    sites, removed = subject.anatomy.sites, dict[int, list[int]]()
    for site, head in sorted(set(heads)):
        check_site(sites, site, head)
        if sites[site].projection is None:
            raise UnsupportedModelError(
                f"The heads of site {site} cannot be taken apart: {sites[site].projection_problem}."
            )
        removed.setdefault(site, []).append(head)
    if not removed:
        raise BadRequestError("No heads were named; give (site, head) pairs.")
    return removed


def _sharing_a_module(subject: Subject, removed: dict[int, list[int]]) -> Iterator[list[int]]:
    """Sites that are one module called several times; they can only lose the same heads."""
    by_module: dict[str, list[int]] = {}
    for site in subject.anatomy.sites:
        by_module.setdefault(site.module, []).append(site.index)
    for sites in by_module.values():
        requested = [removed.get(site) for site in sites]
        if all(heads is None for heads in requested):
            continue
        if any(heads != requested[0] for heads in requested):
            raise UnsupportedModelError(
                f"Sites {', '.join(map(str, sites))} are one module called {len(sites)} times: a "
                "head is removed from all of them or none. Name it for every one of these sites."
            )
        yield sites


def _adapt(
    subject: Subject, site: Site, change: Change, known: Known, off_by: Callable[[], float]
) -> None:
    """Set the number of heads in the attention module, in the attributes where it counts them."""
    modules = _around(subject.model, site)
    counts = change.counts(site)
    remembered = [
        (module, name, value, sorted(counts[value]))
        for module in modules
        for name, value in vars(module).items()
        if type(value) is int and value in counts
    ]
    kind = type(modules[-1])
    choices = list(product(*([*new, value] for _, _, value, new in remembered)))[:MOST_TRIALS]
    before = [value for _, _, value, _ in remembered]
    choices.sort(key=lambda numbers: sum(map(eq, numbers, before)))
    if kind in known:
        choices.insert(
            0, tuple(new[0] if name in known[kind] else old for _, name, old, new in remembered)
        )
    problem = ""
    for numbers in choices:
        for (module, name, _, _), number in zip(remembered, numbers, strict=True):
            setattr(module, name, number)
        try:
            difference = off_by()
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            problem = problem or f"it stops with: {first_line(error)}"
            continue
        if difference <= ROUNDING * subject.anatomy.tolerance:
            changed = zip(numbers, remembered, strict=True)
            known[kind] = tuple(name for number, (_, name, old, _) in changed if number != old)
            return
        problem = f"its answers are off by {difference:.2g}"
    raise UnsupportedModelError(
        f"{type(subject.model).__name__} cannot lose heads at site {site.index}: without their "
        f"weights {problem or 'it does not answer'}. Silence them instead, as pruning_curve does."
    )


def _around(model: nn.Module, site: Site) -> list[nn.Module]:
    """The attention module, after the modules that hold it inside its layer."""
    names = site.module.split(".")
    digits = [place for place, name in enumerate(names) if name.isdecimal()]
    first = digits[0] + 1 if digits else len(names)
    return [model.get_submodule(".".join(names[:end])) for end in range(first, len(names) + 1)]


@torch.no_grad()
def silenced_answer(subject: Subject, inputs: Inputs, heads: Heads) -> list[Tensor]:
    """What the whole model answers when the heads are silenced."""
    silencing = KeptHeads(kept_but(subject, heads))
    with frozen_eval(subject.model), subject.tapping(silencing):
        return floating(subject.model(**without_cache(subject.model, inputs)))


@torch.no_grad()
def off_by(
    subject: Subject, inputs: Inputs, wanted: list[Tensor], expected: Shapes | None = None
) -> float:
    """How far the model's answer is from the one wanted, at the worst place.

    Where heads hardly matter a wrong shape may still answer well, so shapes are compared first.
    """
    model, recorder = subject.model, _ShapeRecorder()
    with frozen_eval(model), subject.tapping(recorder):
        answer = floating(model(**without_cache(model, inputs)))
    for site, shape in (expected or {}).items():
        if recorder.shapes[site] != shape:
            raise ValueError(f"site {site} has {recorder.shapes[site]} instead of {shape}")
    pairs = zip(answer, wanted, strict=True)
    return max(
        float((to_float64(ours) - to_float64(theirs)).abs().amax()) for ours, theirs in pairs
    )


class _ShapeRecorder(Tap):
    """Remembers how many heads every site has, and how wide they are."""

    def __init__(self) -> None:
        self.shapes: Shapes = {}

    def weighting(self, call: AttentionCall) -> None:
        """Write the numbers down."""
        shared, width = call.value.shape[1], call.value.shape[3]
        self.shapes[call.site] = (call.probs.shape[1], shared, width)


def _longer(inputs: Inputs) -> Inputs:
    """Inputs twice as long: the same tokens backwards behind them; behind a picture, the last one.

    A picture has as many tokens as it has pieces, and they cannot be doubled.
    """
    shown = PIXELS in inputs

    def behind(value: Tensor) -> Tensor:
        return value[..., -1:].expand_as(value) if shown else value.flip(-1)

    return {
        name: torch.cat([value, behind(value)], -1) if "ids" in name or "mask" in name else value
        for name, value in inputs.items()
    }


def _save_problem(smaller: Subject, inputs: Inputs) -> str | None:
    """Why the configuration cannot describe the smaller model; otherwise it is made to."""
    model, sites = smaller.model, smaller.anatomy.sites
    if _tied(smaller):
        return TIED
    if len({(site.heads, site.kv_heads, site.d_head) for site in sites}) > 1:
        return UNEVEN
    numbers = {"num_attention_heads": sites[0].heads, "head_dim": sites[0].d_head}
    if hasattr(model.config, "num_key_value_heads"):
        numbers["num_key_value_heads"] = sites[0].kv_heads
    try:
        config = _config(model, numbers)
        config.validate()  # as saving will
        with torch.device("meta"):  # shapes alone cost nothing
            type(model)(config).load_state_dict(model.state_dict(), assign=True)
        with torch.random.fork_rng():  # its first weights are random, and replaced at once
            rebuilt = moved(moved(type(model)(config), model.dtype), model.device)
        rebuilt.load_state_dict(model.state_dict())
        difference = off_by(replace(smaller, model=rebuilt), inputs, _plain(smaller, inputs))
    except _IMPOSSIBLE as error:
        return f"a model built from it differs ({str(error).strip().splitlines()[-1].strip()})"
    if difference > ROUNDING * smaller.anatomy.tolerance:
        return "a model built from it answers differently"
    for name, number in numbers.items():
        setattr(model.config, name, number)
    return None


def _tied(subject: Subject) -> bool:
    """Whether the configuration cannot describe one head of the present width."""
    model, site = subject.model, subject.anatomy.sites[0]
    numbers = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": site.d_head}
    try:
        with torch.device("meta"):
            projection = type(model)(_config(model, numbers)).get_submodule(site.projection or "")
    except _IMPOSSIBLE:
        return True
    return site.d_head not in getattr(projection, "weight", torch.empty(0)).shape


def _config(model: PreTrainedModel, numbers: dict[str, int]) -> PretrainedConfig:
    """A copy of the configuration with other numbers."""
    config: PretrainedConfig = copy.deepcopy(model.config)
    for name, number in numbers.items():
        setattr(config, name, number)
    return config


@torch.no_grad()
def _plain(subject: Subject, inputs: Inputs) -> list[Tensor]:
    """What the model answers by its own eager attention."""
    with frozen_eval(subject.model), attention_implementation(subject.model, "eager"):
        return floating(subject.model(**inputs))


def _refusing_to_save(problem: str) -> Callable[..., None]:
    def save_pretrained(*_: object, **__: object) -> None:
        equally = "Take equally many from every site (--scope site), or save" * (problem == UNEVEN)
        raise UnsupportedModelError(
            f"The pruned model cannot be saved: {problem}, so no configuration describes it. "
            f"{equally or 'Save'} the whole model and the list of heads; prune again after loading."
        )

    return save_pretrained
