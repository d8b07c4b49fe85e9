"""How does a head leave a model for good, weights and all?

Silencing a head proves that it is not needed; removing it makes the model smaller and faster. What
has to go is found by looking, not by name:

1. run a copy of the model, and let the output of every Linear and Conv1D be the start of a graph;
2. ask each head's query, key and value for slopes: the outputs with a slope feed that head;
3. take those outputs away, and with them the inputs of the output projection that the head wrote
   to. Keys and values that heads share go with the last of them;
4. the attention module may remember how many heads it had. Its whole-number attributes are changed,
   as many as possible first, until the model runs and answers like the silenced one;
5. every site is checked on its own, the whole on a longer input. What fails is refused.

A site that would lose all its heads keeps one, with nothing to say: an empty tensor has no shape.
The model that was handed in is never touched.
"""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn

from exhibit_a.errors import BadRequestError, UnsupportedModelError, first_line
from exhibit_a.examples import read_examples
from exhibit_a.methods.heads.head_weights import Change, observe_feeding, plan_removal, remove
from exhibit_a.methods.registry import Cost, method
from exhibit_a.results.result import Result
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.encoding import probe
from exhibit_a.subject.guard import floating, frozen_eval, without_cache
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject, examine
from exhibit_a.subject.tap import AttentionCall, Tap, attention_implementation
from exhibit_a.trace.batches import KeptHeads, Source, encoded, grouped, padded, stand_alone

ROUNDING = 8.0  # sums in another order may differ by this much more than parity allows
MOST_TRIALS = 256
TIED = "its configuration ties the width of heads to their number"
UNEVEN = "its sites have different numbers of heads"

_IMPOSSIBLE = (RuntimeError, ValueError, AttributeError, ZeroDivisionError, StrictDataclassError)

Heads = Iterable[tuple[int, int]]
Known = dict[type, tuple[str, ...]]  # what a kind of module remembers
Shapes = dict[int, tuple[int, int, int]]  # by site: heads, heads that own values, their width


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Pruning(Result):
    """What removing heads brought: weights, time, and how exactly the answers are kept."""

    heads: tuple[tuple[int, int], ...]
    parameters: tuple[int, int]  # before and after
    seconds: tuple[float, float]  # for one pass over the examples, the best of several
    difference: float  # largest, between the answers of the silenced and the pruned model
    saves: bool

    @property
    def speed_up(self) -> float:
        """How many times faster the pruned model is."""
        return self.seconds[0] / self.seconds[1]


@method(
    question="What is left of the model without these heads?",
    room="heads",
    needs=("projection",),
    cost=Cost(forwards=4),
)
def prune(subject: Subject, heads: Heads) -> Subject:
    """A smaller model without these (site, head), which answers as if they were silenced."""
    gone = _by_site(subject, heads)
    model = copy.deepcopy(subject.model)
    smaller = replace(subject, model=model, name=f"{subject.name} (pruned)")
    inputs = without_cache(model, probe(model))
    feeding = observe_feeding(smaller, inputs, set(gone))
    sites, silenced = subject.anatomy.sites, list[tuple[int, int]]()
    adapted: Known = {}
    expected: Shapes = {}
    for own in _sharing_a_module(subject, gone):
        silenced += [(site, head) for site in own for head in gone[site]]
        site = sites[own[0]]
        change = plan_removal(site, gone[own[0]], feeding[own[0]])
        remove(model, site, change, feeding[own[0]])
        wanted = _silenced_answer(subject, inputs, silenced)
        expected |= dict.fromkeys(own, (len(change.queries), len(change.shared), site.d_head))
        _adapt(smaller, site, change, adapted, partial(_off_by, smaller, inputs, wanted, expected))
    smaller = replace(smaller, anatomy=examine(model, subject.tokenizer, subject.anatomy.tap))
    _check_longer(subject, smaller, silenced)
    problem = _unsayable(smaller, inputs)
    if problem is not None:
        model.save_pretrained = _refusing_to_save(problem)
    return smaller


def require_savable(subject: Subject) -> None:
    """Refuse a model whose configuration could not say what is left when heads are gone."""
    if _tied(subject):
        _refusing_to_save(TIED)()


def measure_pruning(
    subject: Subject, pruned: Subject, heads: Heads, examples: Source, *, repeats: int = 5
) -> Pruning:
    """Compare a pruned model with the one it came from, on some examples."""
    gone = tuple(sorted(set(heads)))
    inputs = encoded(subject, read_examples(examples))
    together = [
        padded(subject, [inputs[place] for place in group])
        for group in grouped(inputs, alone=stand_alone(subject))
    ]
    worst = max(_off_by(pruned, some, _silenced_answer(subject, some, gone)) for some in together)
    seconds = [torch.inf, torch.inf]
    for _ in range(repeats):
        for place, one in enumerate((subject, pruned)):
            seconds[place] = min(seconds[place], _seconds(one, together))
    counts = [sum(part.numel() for part in one.model.parameters()) for one in (subject, pruned)]
    return Pruning(
        provenance=provenance(subject.name, "prune", subject.revision, heads=list(map(list, gone))),
        checks={
            "difference from the silenced model": worst,
            "examples": len(inputs),
            "repeats": repeats,
            "threads": torch.get_num_threads(),
        },
        heads=gone,
        parameters=(counts[0], counts[1]),
        seconds=(seconds[0], seconds[1]),
        difference=worst,
        saves="save_pretrained" not in vars(pruned.model),
    )


def _by_site(subject: Subject, heads: Heads) -> dict[int, list[int]]:
    """The heads to remove, by site; nothing else may be asked for."""
    sites, gone = subject.anatomy.sites, dict[int, list[int]]()
    for site, head in sorted(set(heads)):
        if not 0 <= site < len(sites):
            raise BadRequestError(f"There is no site {site}; this model has 0 to {len(sites) - 1}.")
        if not 0 <= head < sites[site].heads:
            last = sites[site].heads - 1
            raise BadRequestError(f"Site {site} has no head {head}; its heads are 0 to {last}.")
        if sites[site].projection is None:
            raise UnsupportedModelError(
                f"The heads of site {site} cannot be taken apart: {sites[site].projection_problem}."
            )
        gone.setdefault(site, []).append(head)
    if not gone:
        raise BadRequestError("No heads were named; give (site, head) pairs.")
    return gone


def _sharing_a_module(subject: Subject, gone: dict[int, list[int]]) -> Iterator[list[int]]:
    """Sites that are one module called several times; they can only lose the same heads."""
    by_module: dict[str, list[int]] = {}
    for site in subject.anatomy.sites:
        by_module.setdefault(site.module, []).append(site.index)
    for own in by_module.values():
        asked = [gone.get(site) for site in own]
        if all(heads is None for heads in asked):
            continue
        if any(heads != asked[0] for heads in asked):
            raise UnsupportedModelError(
                f"Sites {', '.join(map(str, own))} are one module called {len(own)} times: a head "
                "leaves all of them or none. Name it for every one of these sites."
            )
        yield own


def _adapt(
    subject: Subject, site: Site, change: Change, known: Known, off_by: Callable[[], float]
) -> None:
    """Tell the attention module how many heads it has now, in the way that it understands."""
    modules = _around(subject.model, site)
    counts = change.counts(site)
    remembered = [
        (module, name, value, sorted(counts[value]))
        for module in modules
        for name, value in vars(module).items()
        if type(value) is int and value in counts
    ]
    kind = type(modules[-1])
    choices = list(product(*([*now, value] for _, _, value, now in remembered)))[:MOST_TRIALS]
    choices.sort(key=lambda picked: sum(p == r[2] for p, r in zip(picked, remembered, strict=True)))
    if kind in known:
        choices.insert(0, tuple(r[3][0] if r[1] in known[kind] else r[2] for r in remembered))
    problem = ""
    for picked in choices:
        for (module, name, _, _), number in zip(remembered, picked, strict=True):
            setattr(module, name, number)
        try:
            difference = off_by()
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as fact:
            problem = problem or f"it stops with: {first_line(fact)}"
            continue
        if difference <= ROUNDING * subject.anatomy.tolerance:
            changed = zip(picked, remembered, strict=True)
            known[kind] = tuple(r[1] for number, r in changed if number != r[2])
            return
        problem = f"its answers are off by {difference:.2g}"
    raise UnsupportedModelError(
        f"{type(subject.model).__name__} cannot lose heads at site {site.index}: without their "
        f"weights {problem or 'it does not answer'}. Silence them instead, as pruning_curve does."
    )


def _around(model: nn.Module, site: Site) -> list[nn.Module]:
    """The attention module, after the modules that hold it inside its layer."""
    parts = site.module.split(".")
    digits = [place for place, part in enumerate(parts) if part.isdecimal()]
    first = digits[0] + 1 if digits else len(parts)
    return [model.get_submodule(".".join(parts[:end])) for end in range(first, len(parts) + 1)]


@torch.no_grad()
def _silenced_answer(subject: Subject, inputs: dict[str, Any], heads: Heads) -> list[Tensor]:
    """What the whole model says when the heads are silenced."""
    sites = subject.anatomy.sites
    kept = torch.ones(1, len(sites), max(site.heads for site in sites), device=subject.device)
    for site, head in heads:
        kept[0, site, head] = 0
    with frozen_eval(subject.model), subject.tapping(KeptHeads(kept)):
        return floating(subject.model(**without_cache(subject.model, inputs)))


@torch.no_grad()
def _off_by(
    subject: Subject, inputs: dict[str, Any], wanted: list[Tensor], expected: Shapes | None = None
) -> float:
    """How far the model's answer is from the one wanted, at the worst place.

    Where heads hardly matter a wrong shape may still answer well, so shapes are compared first.
    """
    model, seen = subject.model, _Shapes()
    with frozen_eval(model), subject.tapping(seen):
        found = floating(model(**without_cache(model, inputs)))
    for site, shape in (expected or {}).items():
        if seen.shapes[site] != shape:
            raise ValueError(f"site {site} has {seen.shapes[site]} instead of {shape}")
    pairs = zip(found, wanted, strict=True)
    return max(float((mine.double() - theirs.double()).abs().amax()) for mine, theirs in pairs)


class _Shapes(Tap):
    """Remembers how many heads every site has, and how wide they are."""

    def __init__(self) -> None:
        self.shapes: Shapes = {}

    def weighting(self, call: AttentionCall) -> None:
        """Write the numbers down."""
        shared, width = call.value.shape[1], call.value.shape[3]
        self.shapes[call.site] = (call.probs.shape[1], shared, width)


def _check_longer(subject: Subject, smaller: Subject, heads: Heads) -> None:
    """Compare once more on an input twice as long: nothing may have fitted the probe by chance."""
    longer = {
        name: torch.cat([part, part.flip(-1)], -1) if "ids" in name or "mask" in name else part
        for name, part in probe(subject.model).items()
    }
    difference = _off_by(smaller, longer, _silenced_answer(subject, longer, heads))
    if not difference <= ROUNDING * subject.anatomy.tolerance:
        raise UnsupportedModelError(
            f"{type(subject.model).__name__} without these heads is off by {difference:.2g} on a "
            "longer input, so it is not given out."
        )


def _unsayable(smaller: Subject, inputs: dict[str, Any]) -> str | None:
    """Why the configuration cannot describe the smaller model; otherwise it now does."""
    model, sites = smaller.model, smaller.anatomy.sites
    if _tied(smaller):
        return TIED
    if len({(site.heads, site.kv_heads, site.d_head) for site in sites}) > 1:
        return UNEVEN
    told = {"num_attention_heads": sites[0].heads, "head_dim": sites[0].d_head}
    if hasattr(model.config, "num_key_value_heads"):
        told["num_key_value_heads"] = sites[0].kv_heads
    try:
        config = _config(model, told)
        config.validate()  # as saving will
        with torch.device("meta"):  # shapes alone cost nothing
            type(model)(config).load_state_dict(model.state_dict(), assign=True)
        with torch.random.fork_rng():  # the weights it starts with are not asked for
            again = type(model)(config).to(model.dtype).to(model.device)
        again.load_state_dict(model.state_dict())
        difference = _off_by(replace(smaller, model=again), inputs, _plain(smaller, inputs))
    except _IMPOSSIBLE as fact:
        return f"a model built from it differs ({str(fact).strip().splitlines()[-1].strip()})"
    if difference > ROUNDING * smaller.anatomy.tolerance:
        return "a model built from it answers differently"
    for name, number in told.items():
        setattr(model.config, name, number)
    return None


def _tied(subject: Subject) -> bool:
    """Whether one head of the width that heads have cannot be asked for: it gets another width."""
    model, site = subject.model, subject.anatomy.sites[0]
    told = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": site.d_head}
    try:
        with torch.device("meta"):
            alone = type(model)(_config(model, told)).get_submodule(site.projection or "")
    except _IMPOSSIBLE:
        return True
    return site.d_head not in getattr(alone, "weight", torch.empty(0)).shape


def _config(model: nn.Module, told: dict[str, int]) -> Any:
    config = copy.deepcopy(model.config)
    for name, number in told.items():
        setattr(config, name, number)
    return config


@torch.no_grad()
def _plain(subject: Subject, inputs: dict[str, Any]) -> list[Tensor]:
    with frozen_eval(subject.model), attention_implementation(subject.model, "eager"):
        return floating(subject.model(**inputs))


def _refusing_to_save(problem: str) -> Callable[..., None]:
    def save_pretrained(*_: Any, **__: Any) -> None:
        even = "Take equally many from every site (--scope site), or save" * (problem == UNEVEN)
        raise UnsupportedModelError(
            f"The pruned model cannot be saved: {problem}, so no configuration describes it. "
            f"{even or 'Save'} the whole model and the list of heads; prune again after loading."
        )

    return save_pretrained


@torch.no_grad()
def _seconds(subject: Subject, together: Sequence[dict[str, Any]]) -> float:
    """How long one pass takes, by the model's own fastest attention."""
    model, start = subject.model, time.perf_counter()
    with frozen_eval(model):
        for inputs in together:
            model(**without_cache(model, inputs))
    return time.perf_counter() - start
