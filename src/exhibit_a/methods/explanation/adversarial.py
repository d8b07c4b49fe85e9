"""Could attention have looked quite different, and the answer stayed the same?

The adversary of Jain & Wallace (2019), for Transformers: among all attention maps whose answer
stays within ``epsilon`` (total variation; of several tokens, at each of them) of the model's, find
the one farthest from the model's own in Jensen–Shannon divergence, averaged over heads and rows.
For every site alone, then for all sites at once (``adversary_search.py``).

The result is a lower bound: there may be maps farther away.

Where the log-odds are a linear function of one single row (one head, one query, a linear read-out,
two classes) no search is needed: ``farthest_corner`` gives the exact optimum.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.explanation.adversary_search import AdversarySearch, Maps, Rows
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import Result
from exhibit_a.shapes import SiteMap, SiteRows
from exhibit_a.subject.anatomy import ANSWERS, layer_name
from exhibit_a.trace.answers import NUMBERS
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, choose_target


@dataclass(frozen=True, kw_only=True, eq=False)
class AdversarialAttention(Result):
    """The farthest attention with (nearly) the same answer, per condition."""

    unit_rules: ClassVar[dict[str, Rule]] = {
        "maps": "map",
        "rows": "mean",
        "maps_together": "map",
        "rows_together": "mean",
    }
    target: str
    epsilon: float
    conditions: tuple[str, ...]  # one site each, then all of them together
    divergence: Float[Tensor, " condition"]  # mean over heads and rows
    bound: Float[Tensor, " condition"]  # the same if the answer did not matter
    at_answer: Float[Tensor, " condition"]  # over the rows that the answer is read from
    change: Float[Tensor, " condition"]  # of the answer, in a plain run
    exact: Float[Tensor, " condition"]  # 1 where the optimum is exact
    free: Float[Tensor, " condition"]  # at_answer of a map with exactly the same head outputs
    maps: tuple[SiteMap, ...]  # the adversary of each site alone
    rows: tuple[SiteRows, ...]  # its divergence, row by row
    maps_together: tuple[SiteMap, ...]  # the adversaries of all sites together
    rows_together: tuple[SiteRows, ...]  # their divergence, row by row


@method(
    question="Could attention have been another, and the answer the same?",
    needs=("attention", "hidden", "distribution"),
    cost=Cost(per_layer=20, backwards=True, maps=6),
    command="adversary",
    flags={"compare": "free"},
)
def adversarial_attention(
    trace: Trace,
    *,
    epsilon: float = 0.01,
    target: Target | None = None,
    restarts: int = 4,
    steps: int = 60,
    compare: bool = False,
    seed: int = 0,
) -> AdversarialAttention:
    """Find the attention farthest from the model's whose answer stays within ``epsilon``.

    >>> short = xa.capture(subject, "a fine film")
    >>> adversary = xa.adversarial_attention(short, restarts=1, steps=2)
    >>> adversary.conditions
    ('layer 0', 'layer 1', 'layer 2', 'layer 3', 'layer 4', 'layer 5', 'all')
    >>> bool((adversary.divergence <= adversary.bound).all()), bool(adversary.change.amax() <= 0.01)
    (True, True)

    Args:
        epsilon: how far the answer may move, as a total variation from 0 to 1.
        target: the answer that must stay; without, what the model answers.
        restarts: from how many maps the search starts, where the first leads not far enough.
        steps: how many steps each search takes at most.
        compare: also find how far attention could move without changing any head's output at all;
            slow for long texts.
        seed: same seed, same numbers.
    """
    _check_request(trace, epsilon, restarts, steps)
    chosen, count = target or choose_target(trace), len(trace.sites)
    search = AdversarySearch(trace.keeping("attention", "hidden"), chosen, epsilon)
    groups = [(site,) for site in range(count)] + ([tuple(range(count))] if count > 1 else [])
    searched = [
        search.farthest(group, restarts, steps, generator(seed + number))
        for number, group in enumerate(groups)
    ]
    adversaries = [maps for maps, _ in searched]
    rows = [search.divergences(maps) for maps in adversaries]
    change = torch.tensor([search.plain_change(maps) for maps in adversaries])
    free = [search.free(group, seed) if compare else torch.nan for group in groups]
    options = {"epsilon": epsilon, "target": str(chosen), "restarts": restarts, "steps": steps}
    return build_result(
        AdversarialAttention,
        trace,
        "adversarial_attention",
        seed=seed,
        settings=options,
        checks={"largest change in a plain run": float(change.amax()), "allowed": epsilon},
        target=str(chosen),
        epsilon=epsilon,
        conditions=tuple(
            "all" if len(group) > 1 else layer_name(trace.sites[group[0]], trace.sites)
            for group in groups
        ),
        divergence=torch.stack([search.mean(divergences) for divergences in rows]),
        bound=torch.stack([search.mean(search.bounds(maps)) for maps in adversaries]),
        at_answer=torch.stack([search.at_answer(divergences) for divergences in rows]),
        change=change,
        exact=torch.tensor([float(exact) for _, exact in searched]),
        free=torch.tensor(free),
        **_by_site(adversaries, rows, count),
    )


def _check_request(trace: Trace, epsilon: float, restarts: int, steps: int) -> None:
    """Refuse options that no search can have, and answers that are no distribution."""
    if not 0 <= epsilon <= 1:
        raise BadRequestError(f"epsilon is a total variation, from 0 to 1; {epsilon:g} is not.")
    if restarts < 1 or steps < 0:
        raise BadRequestError("At least one restart and no fewer than zero steps are needed.")
    kind = trace.subject.anatomy.answers
    if kind in NUMBERS:
        raise NotComputableError(
            f"The model answers with {ANSWERS[kind]}, and ε is between distributions."
        )


def _by_site(
    adversaries: list[Maps], rows: list[Rows], count: int
) -> dict[str, tuple[Tensor, ...]]:
    """The adversary of each site alone, and that of all sites at once, site by site."""
    return {
        "maps": tuple(adversaries[site][site] for site in range(count)),
        "rows": tuple(rows[site][site] for site in range(count)),
        "maps_together": tuple(adversaries[-1][site] for site in range(count)),
        "rows_together": tuple(rows[-1][site] for site in range(count)),
    }
