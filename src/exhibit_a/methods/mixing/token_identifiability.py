"""Can a token still be told from its hidden vector?

A token is identifiable at layer l if some map ĝ leads from its hidden vector to a point whose
nearest input vector is the one it started as (Brunner et al., ICLR 2020, §4):
x_i = nearest(ĝ(e_i)). The rate is the share of tokens for which that holds.

1. Texts are split, never tokens: maps are fitted on train texts, chosen on validation texts, and
   judged on test texts (``token_maps.py``). ĝ is the identity, a rotation, linear, or an MLP.
2. The candidates are the tokens of the same text (default), a sample of tokens of all texts, or
   all word vectors of the vocabulary. Words compete with words; special tokens are told apart.
   Two positions with the same vector cannot be told apart and do not compete. A tie is a miss.
3. Control: the same maps fitted to the input vectors of *other* tokens. They must be at chance;
   if they are not, it is the probe that knows, not the model.
4. Intervals: bootstrap over texts, with Poisson weights, so that nothing need be remembered.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.mixing.token_maps import (
    Moments,
    Perceptrons,
    Predicted,
    ridge,
    rotation,
    train_perceptrons,
)
from exhibit_a.methods.mixing.token_search import (
    TWIN,
    Bounds,
    ByLayer,
    Candidates,
    Score,
    cosine,
    score_candidates,
)
from exhibit_a.methods.mixing.token_states import StateBatch, Texts, states
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.result import Result
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject

if TYPE_CHECKING:
    pass

MapName = Literal["identity", "rotation", "linear", "mlp"]
Metric = Literal["cosine", "l2"]
CandidateSet = Literal["sequence", "dataset", "vocab"]
MAPS = get_args(MapName)
POOL = 8192  # tokens that stand for all tokens of a data set

Map = Callable[[Float[Tensor, "layer row d_model"]], Predicted]


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
    control_interval: Bounds
    chance: float
    metric: str
    candidates: str


@method(
    question="Can a token be found again from its hidden vector?",
    room="mixing",
    needs=("text",),
    cost=Cost(forwards=6, states=1),
    command="tokens",
    defaults={"maps": ("identity", "linear")},
)
def token_identifiability(
    subject: Subject,
    texts: Any,
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

    ``texts`` is a file, a list, or anything that can be read more than once; it is streamed, and
    what is kept does not grow with it. ``metric`` is cosine or l2 and is also what the MLP (of
    ``width`` hidden units, by default as many as the model is wide) is trained on. With
    candidates="vocab" the vector to be found is the word's own, without its position.
    """
    if not maps:
        raise BadRequestError(f"No map was named; choose from {', '.join(MAPS)}.")
    data = Texts(texts, seed)
    task = _Task(subject, data, metric, candidates, seed, top, _vocabulary(subject, candidates))
    fitted, controls, facts = _fit(task, maps, width or subject.anatomy.d_model, epochs)
    score = _judge(task, fitted | {f"control {name}": part for name, part in controls.items()})
    found, spread = score.rates(), score.intervals()

    def pick(statistic: str, names: Sequence[str] = maps, prefix: str = "") -> ByLayer:
        return {name: found[statistic][prefix + name] for name in names}

    learned = list(controls)
    return TokenIdentifiability(
        provenance=provenance(
            subject.name,
            "token_identifiability",
            subject.revision,
            seed,
            maps=tuple(maps),
            metric=metric,
            candidates=candidates,
            top=top,
            width=width,
            epochs=epochs,
        ),
        checks=facts
        | {
            "test_texts": score.texts,
            "test_words": score.counts["words"],
            "test_special": score.counts["special"],
            "padding": "excluded",
            "special_tokens": "reported apart",
            "control_within_interval_of_chance": _share_at_chance(score, learned),
        },
        rate=pick("rate"),
        top=pick("top"),
        mrr=pick("mrr"),
        same_token=pick("same_token"),
        bits=pick("bits"),
        with_special=pick("with_special"),
        special_only=pick("special_only"),
        interval={name: spread[name] for name in maps},
        control=pick("rate", learned, "control "),
        control_interval={name: spread[f"control {name}"] for name in learned},
        chance=score.chance,
        metric=metric,
        candidates=candidates,
    )


@dataclass(frozen=True, eq=False)
class _Task:
    """What is asked, and of whom."""

    subject: Subject
    data: Texts
    metric: str
    candidates: str
    seed: int
    top: int
    vocabulary: Float[Tensor, "word d_input"] | None

    def batches(self, part: str) -> Iterator[StateBatch]:
        yield from states(self.subject, self.data.part(part))

    def wanted(self, batch: StateBatch) -> Float[Tensor, "text token d_input"]:
        """The vectors that are to be found again."""
        return batch.hidden[0] if self.vocabulary is None else self.vocabulary[batch.ids]

    @cached_property
    def strangers(self) -> Float[Tensor, "word d_input"]:
        """Vectors of words from all training texts, for the control to be fitted to.

        Those of the same batch will not do: now and then a token would draw itself, and texts of
        one length share their places. Either lifts the control above chance.
        """
        return _pool(self, "train")[0]

    def rows(self, part: str) -> Iterator[tuple[Tensor, Float[Tensor, "target row d_input"]]]:
        """Hidden vectors of real tokens; the vectors wanted, and those of strangers."""
        chance = generator(self.seed + 1)
        for batch in self.batches(part):
            wanted = self.wanted(batch)[batch.real]
            drawn = torch.randint(len(self.strangers), (len(wanted),), generator=chance)
            yield batch.hidden[:, batch.real], torch.stack([wanted, self.strangers[drawn]])


def _fit(
    task: _Task, names: Sequence[str], width: int, epochs: int
) -> tuple[dict[str, Map], dict[str, Map], dict[str, Any]]:
    """The maps asked for, their controls, and what is to be known about the fit."""
    fitted: dict[str, Map] = {}
    controls: dict[str, Map] = {}
    facts: dict[str, Any] = {}
    if "identity" in names:
        fitted["identity"] = lambda hidden: hidden
    if set(names) <= {"identity"}:
        return fitted, controls, facts
    train, held = _moments(task, "train"), _moments(task, "validation")
    facts |= {"train_tokens": train.count, "validation_tokens": held.count}
    linear = [ridge(train, held, target) for target in (0, 1)]
    if "rotation" in names:
        if train.cross.shape[-2] != train.cross.shape[-1]:
            raise NotComputableError("Word vectors and hidden vectors differ in width.")
        fitted["rotation"], controls["rotation"] = rotation(train, 0), rotation(train, 1)
    if "linear" in names:
        fitted["linear"], controls["linear"] = linear
        facts["penalty"] = linear[0].penalty.tolist()
    if "mlp" in names:
        spread = train.spread.float()
        bent = [Perceptrons(part, spread, width, task.seed) for part in linear]
        loss, facts["epochs"] = train_perceptrons(
            bent,
            lambda: task.rows("train"),
            lambda: task.rows("validation"),
            task.metric,
            epochs,
        )
        fitted["mlp"], controls["mlp"] = bent
        facts["mlp_validation_loss"] = loss[0].tolist()
    return fitted, controls, facts


def _moments(task: _Task, part: str) -> Moments:
    found: Moments | None = None
    for hidden, targets in task.rows(part):
        found = found or Moments(len(hidden), hidden.shape[-1], *targets.shape[::2])
        found.add(hidden, targets)
    if found is None:
        raise BadRequestError(f"No text fell into the {part} part; give at least 50 texts.")
    return found


@torch.no_grad()
def _judge(task: _Task, maps: dict[str, Map]) -> Score:
    """Look for every token of the test texts among its candidates."""
    pool = _pool(task, "test") if task.candidates == "dataset" else None
    score: Score | None = None
    for batch in task.batches("test"):
        layers = len(batch.hidden)
        score = score or Score(list(maps), layers, task.seed)
        field = _field(task, batch, pool)
        words, special = batch.real & ~batch.special, batch.real & batch.special
        counted = []
        for number, place in enumerate(maps.values()):
            flat = place(batch.hidden.flatten(1, 2))
            predicted = flat.reshape(layers, *batch.ids.shape, -1)
            if predicted.shape[-1] != field.own.shape[-1]:
                raise NotComputableError(
                    f"The map {list(maps)[number]!r} gives vectors of width {predicted.shape[-1]}, "
                    f"and those looked for have {field.own.shape[-1]}."
                )
            counted.append(
                torch.stack(
                    [
                        score_candidates(field, one, task.metric, task.top, words, special)
                        for one in predicted
                    ],
                    1,
                )
            )
        score.add(torch.stack(counted, 1).cpu(), words.sum(1).cpu())
        among = 1 + field.rivals(words).sum(-1)
        score.chance_sum += float((words.double() / among).sum())
        score.counts["words"] += int(words.sum())
        score.counts["all"] += int(batch.real.sum())
        score.counts["special"] += int(special.sum())
    if score is None or not score.counts["words"]:
        raise BadRequestError("No words fell into the test part; give at least 50 texts.")
    return score


def _field(task: _Task, batch: StateBatch, pool: tuple[Tensor, Tensor] | None) -> Candidates:
    own = task.wanted(batch)
    if task.vocabulary is not None:
        places = torch.arange(len(task.vocabulary), device=own.device)
        same = batch.ids.unsqueeze(2) == places
        everyone = torch.ones(1, len(places), dtype=torch.bool, device=own.device)
        return Candidates(own, task.vocabulary.unsqueeze(0), same, same, everyone, everyone)
    if pool is not None:
        others, ids = pool
        same = batch.ids.unsqueeze(2) == ids
        everyone = torch.ones(1, len(ids), dtype=torch.bool, device=own.device)
        twin = same & (cosine(own, others.unsqueeze(0)) > 1 - TWIN)
        return Candidates(own, others.unsqueeze(0), twin, same, everyone, everyone)
    same = batch.ids.unsqueeze(2) == batch.ids.unsqueeze(1)
    twin = same & (cosine(own, own) > 1 - TWIN)
    itself = torch.eye(own.shape[1], dtype=torch.bool, device=own.device)
    return Candidates(own, own, twin | itself, same, batch.real, batch.real & ~batch.special)


def _pool(
    task: _Task, part: str
) -> tuple[Float[Tensor, "candidate d_input"], Int[Tensor, " candidate"]]:
    """A uniform sample of the words of some texts (reservoir: one pass, fixed memory)."""
    chance = generator(task.seed + 3)
    rows: list[Tensor] = []
    ids: list[Tensor] = []
    luck = torch.zeros(0)
    for batch in task.batches(part):
        words = batch.real & ~batch.special
        rows.append(task.wanted(batch)[words])
        ids.append(batch.ids[words])
        luck = torch.cat([luck, torch.rand(int(words.sum()), generator=chance)])
        if len(luck) > POOL:  # the POOL luckiest so far
            kept = luck.topk(POOL).indices
            luck, rows, ids = luck[kept], [torch.cat(rows)[kept]], [torch.cat(ids)[kept]]
    if not rows:
        raise BadRequestError(f"No text fell into the {part} part; give at least 50 texts.")
    return torch.cat(rows), torch.cat(ids)


def _share_at_chance(score: Score, learned: Sequence[str]) -> float | None:
    """In how many layers the control's interval holds the chance level."""
    if not learned:
        return None
    bounds = torch.stack([score.intervals()[f"control {name}"] for name in learned])
    held = (bounds[..., 0] <= score.chance) & (score.chance <= bounds[..., 1])
    return float(held.double().mean())


def _vocabulary(subject: Subject, candidates: str) -> Float[Tensor, "word d_input"] | None:
    if candidates != "vocab":
        return None
    if subject.model.main_input_name != "input_ids":
        raise NotComputableError("This model reads no words; there is no vocabulary to search.")
    table: Tensor = subject.model.get_input_embeddings().weight.detach().float().cpu()
    return table
