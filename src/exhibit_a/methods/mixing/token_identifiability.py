"""Can a token be found again from its hidden vector?

A token is identifiable at layer l if some map ĝ leads from its hidden vector to a point whose
nearest input vector is the one it started as (Brunner et al., ICLR 2020, §4):
x_i = nearest(ĝ(e_i)). The rate is the share of tokens for which that holds.

1. Texts are split, never tokens: maps are fitted on train texts, chosen on validation texts, and
   scored on test texts (``token_maps.py``). ĝ is the identity, a rotation, linear, or an MLP.
2. The candidates are the tokens of the same text (default), a sample of tokens of all texts, or
   all word vectors of the vocabulary (``token_search.py``). Words compete with words; special
   tokens are reported apart. Two positions with the same vector cannot be distinguished and do not
   compete. A tie is a miss.
3. Control: the same maps, with the same penalty and as many epochs, fitted to the input vectors of
   *other* tokens. They must be at chance; if they are not, the rate shows what the map has learned,
   not what the hidden vector contains. Selectivity is the rate beyond that of the control (Hewitt &
   Liang, 2019). A control that could not have learned anything proves little, so the share of its
   own training words that it has memorised stands beside it.
4. Intervals: bootstrap over texts, with Poisson weights, so that no text has to be kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.mixing.token_search import (
    Bounds,
    ByLayer,
    Metric,
    Score,
)
from exhibit_a.methods.mixing.token_states import Source, Texts
from exhibit_a.methods.mixing.token_task import (
    CandidateSet,
    TokenTask,
    fitted_maps,
    memorised,
    scored,
)
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.precision import to_float64
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.shapes import Options
from exhibit_a.subject.subject import Subject

MapName = Literal["identity", "rotation", "linear", "mlp"]
MAPS = get_args(MapName)
CONTROL = "control "  # before the name of a map: the map fitted to other tokens' vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenIdentifiability(Result):
    """How often a token is found again from its hidden vector; by map and layer."""

    rate: ByLayer  # words among words
    interval: Bounds  # 95 % of bootstrap replicates over texts
    top: ByLayer  # among the k nearest
    mrr: ByLayer  # mean of 1 / rank
    same_token: ByLayer  # another position with the same word counts as found
    bits: ByLayer  # mean of log2(candidates / rank)
    with_special: ByLayer  # all tokens among all tokens
    special_only: ByLayer  # special tokens among all tokens
    control: ByLayer  # the rate of maps fitted to other tokens' vectors
    control_interval: Bounds  # 95 %
    chance: float
    metric: str
    candidates: str
    # The share of training words whose control target is found again among those of their text.
    memorised: ByLayer = field(default_factory=dict)
    memorised_chance: float | None = None

    @property
    def selectivity(self) -> ByLayer:
        """The rate beyond that of the control, for the maps that have one."""
        return {name: self.rate[name] - control for name, control in self.control.items()}


@method(
    question="Can a token be found again from its hidden vector?",
    needs=("text",),
    cost=Cost(forwards=1, algebra=14, states=1),
    command="tokens",
    defaults={"maps": ("identity", "linear")},
)
def token_identifiability(
    subject: Subject,
    texts: Source,
    *,
    maps: Sequence[MapName] = ("identity", "linear", "mlp"),
    metric: Metric = "cosine",
    candidates: CandidateSet = "sequence",
    seed: int = 0,
    top: int = 5,
    width: int | None = None,
    epochs: int = 20,
) -> TokenIdentifiability:
    """Rates at which input tokens are found again from hidden vectors, for every map and layer.

    The texts are a file, a list, or anything that can be read more than once; they are streamed,
    and what is kept does not grow with their number.

    Args:
        maps: maps from hidden vectors back to input vectors.
        metric: what nearest means, and what the mlp is trained on.
        candidates: vectors to search: those of the same text (sequence), a sample of all texts
            (dataset), or the word vectors without their positions (vocab).
        seed: seed of the split of the texts and of all random draws.
        top: number of nearest candidates that the top rate looks among.
        width: hidden units of the mlp; by default as many as the model is wide.
        epochs: largest number of epochs the mlp is trained for.

    >>> texts = [example.text for example in examples] * 8
    >>> result = xa.token_identifiability(subject, texts, maps=["identity"])
    >>> result.rate["identity"].shape, float(result.rate["identity"][0])
    (torch.Size([7]), 1.0)
    >>> 0 < result.chance < 0.5
    True
    """
    if not maps:
        raise BadRequestError(f"No map was named; choose {', '.join(MAPS)}.")
    data = Texts(texts, seed)
    if not 1 <= top < 2**31:
        raise BadRequestError(f"The {top} nearest candidates were asked for; give 1 or more.")
    task = TokenTask(subject, data, metric, candidates, seed, top, _vocabulary(subject, candidates))
    fitted, controls, facts = fitted_maps(task, maps, width or subject.anatomy.d_model, epochs)
    score = scored(task, fitted | {CONTROL + name: control for name, control in controls.items()})
    learned_by_heart, by_chance = memorised(task, controls)
    used: Options = {"maps": tuple(maps), "metric": metric, "candidates": candidates}
    used |= {"top": top, "width": width, "epochs": epochs}
    return build_result(
        TokenIdentifiability,
        subject,
        "token_identifiability",
        seed=seed,
        settings=used,
        checks=facts | _test_checks(score, list(controls)),
        tokens=None,
        layouts={},
        chance=score.chance,
        metric=metric,
        candidates=candidates,
        memorised=learned_by_heart,
        memorised_chance=by_chance,
        **_statistics(score, maps, list(controls)),
    )


def _statistics(
    score: Score, maps: Sequence[str], learned: Sequence[str]
) -> dict[str, ByLayer | Bounds]:
    """The fields of the result that are counted on test texts, for maps and controls."""
    rates, intervals = score.rates(), score.intervals()
    return {
        **{name: {chosen: by_map[chosen] for chosen in maps} for name, by_map in rates.items()},
        "interval": {name: intervals[name] for name in maps},
        "control": {name: rates["rate"][CONTROL + name] for name in learned},
        "control_interval": {name: intervals[CONTROL + name] for name in learned},
    }


def _test_checks(score: Score, learned: Sequence[str]) -> dict[str, int | float | str | None]:
    """What was scored, and in what share of layers the control's interval holds the chance."""
    at_chance = None
    if learned:
        bounds = torch.stack([score.intervals()[CONTROL + name] for name in learned])
        inside = (bounds[..., 0] <= score.chance) & (score.chance <= bounds[..., 1])
        at_chance = float(to_float64(inside).mean())
    return {
        "test_texts": score.texts,
        "test_words": score.counts["words"],
        "test_special": score.counts["special"],
        "padding": "excluded",
        "special_tokens": "reported apart",
        "control_within_interval_of_chance": at_chance,
    }


def _vocabulary(subject: Subject, candidates: CandidateSet) -> Float[Tensor, "word d_input"] | None:
    """All word vectors, where they are the candidates."""
    if candidates != "vocab":
        return None
    if subject.model.main_input_name != "input_ids":
        raise NotComputableError("This model reads no words; there is no vocabulary to search.")
    words = cast("nn.Embedding", subject.model.get_input_embeddings())
    return words.weight.detach().float().cpu()
