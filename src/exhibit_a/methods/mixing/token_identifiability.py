"""Can a token be found again from its hidden vector?

A token is identifiable at layer l if some map ĝ leads from its hidden vector to a point whose
nearest input vector is the one it started as (Brunner et al., ICLR 2020, §4):
x_i = nearest(ĝ(e_i)). The rate is the share of tokens for which that holds.

1. Texts are split, never tokens: maps are fitted on train texts, chosen on validation texts, and
   scored on test texts. ĝ is the identity, a rotation, linear, or an MLP (``token_maps.py``).
2. The candidates are the tokens of the same text (default), a sample of tokens of all texts, or
   all word vectors of the vocabulary (``token_search.py``). Words compete with words; special
   tokens are reported apart. Two positions with the same vector cannot be distinguished and do not
   compete. A tie is a miss.
3. Control: the same maps, with the same penalty and as many epochs, fitted to the input vectors of
   *other* tokens. They must be at chance; if they are not, the rate shows what the map has learned,
   not what the hidden vector contains. Selectivity is the rate beyond that of the control (Hewitt &
   Liang, 2019). A control that could not have learned anything proves little, so the share of its
   own training words that it has memorised is reported with it.
4. Intervals: bootstrap over texts, with Poisson weights, so that no text has to be kept.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

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
    SPLITS,
    TWIN,
    Bounds,
    ByLayer,
    Candidates,
    Metric,
    Score,
    Source,
    Split,
    SplitTexts,
    StateBatch,
    cosine,
    score_candidates,
    states,
)
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.shapes import Options
from exhibit_a.subject.subject import Subject

MapName = Literal["identity", "rotation", "linear", "mlp"]
MAPS = get_args(MapName)
CONTROL = "control "  # before the name of a map: the map fitted to other tokens' vectors

CandidateSet = Literal["sequence", "dataset", "vocab"]

Map = Callable[[Float[Tensor, "layer row d_model"]], Predicted]
FitFacts = dict[str, int | list[float]]
Pool = tuple[Float[Tensor, "candidate d_input"], Int[Tensor, " candidate"]]  # vectors, token ids


@dataclass(frozen=True)
class TokenSettings:
    """How much of the texts is kept, or read at a time."""

    pool: int = 8192  # tokens that represent all tokens of a data set
    held: int = 2**28  # bytes of hidden states that are kept; with more texts, they are run again
    rows_together: int = 1024  # tokens whose products are added up at a time
    memorised: int = 4096  # training words that the control is requested


SETTINGS = TokenSettings()


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
    data = SplitTexts(texts, seed)
    if not 1 <= top < 2**31:
        raise BadRequestError(f"The {top} nearest candidates were requested; give 1 or more.")
    vocabulary = None
    if candidates == "vocab":
        if subject.model.main_input_name != "input_ids":
            raise NotComputableError("This model reads no words; there is no vocabulary to search.")
        words = cast("nn.Embedding", subject.model.get_input_embeddings())
        vocabulary = words.weight.detach().float().cpu()
    task = TokenTask(subject, data, metric, candidates, seed, top, vocabulary)
    fitted, controls, facts = fitted_maps(task, maps, width or subject.anatomy.d_model, epochs)
    score = scored(task, fitted | {CONTROL + name: control for name, control in controls.items()})
    learned_by_heart, by_chance = memorised(task, controls)
    used: Options = {"maps": tuple(maps), "metric": metric, "candidates": candidates}
    used |= {"top": top, "width": width, "epochs": epochs}
    learned, rates, intervals = list(controls), score.rates(), score.intervals()
    at_chance = None  # in what share of layers the control's interval holds the chance
    if learned:
        bounds = torch.stack([intervals[CONTROL + name] for name in learned])
        inside = (bounds[..., 0] <= score.chance) & (score.chance <= bounds[..., 1])
        at_chance = float(to_float64(inside).mean())
    return build_result(
        TokenIdentifiability,
        subject,
        "token_identifiability",
        seed=seed,
        settings=used,
        checks=facts
        | {
            "test_texts": score.texts,
            "test_words": score.counts["words"],
            "test_special": score.counts["special"],
            "padding": "excluded",
            "special_tokens": "reported apart",
            "control_within_interval_of_chance": at_chance,
        },
        tokens=None,
        layouts={},
        chance=score.chance,
        metric=metric,
        candidates=candidates,
        memorised=learned_by_heart,
        memorised_chance=by_chance,
        **{name: {chosen: by_map[chosen] for chosen in maps} for name, by_map in rates.items()},
        interval={name: intervals[name] for name in maps},
        control={name: rates["rate"][CONTROL + name] for name in learned},
        control_interval={name: intervals[CONTROL + name] for name in learned},
    )


@dataclass(frozen=True, eq=False)
class TokenTask:
    """The model, the texts, and how they are examined."""

    subject: Subject
    data: SplitTexts
    metric: Metric
    candidates: CandidateSet
    seed: int
    top: int
    vocabulary: Float[Tensor, "word d_input"] | None
    known: dict[Split, list[StateBatch]] = field(default_factory=dict)  # splits that were run

    def batches(self, split: Split) -> Iterator[StateBatch]:
        """The states of the texts of one split; few are kept, so that they are run only once."""
        if split in self.known:
            yield from self.known[split]
            return
        kept, room = list[StateBatch](), SETTINGS.held * SPLITS[split]
        for batch in states(self.subject, self.data.split(split)):
            room -= batch.hidden.nbytes
            kept = [*kept, batch] if room >= 0 else []
            yield batch
        if room >= 0:
            self.known[split] = kept

    def wanted(self, batch: StateBatch) -> Float[Tensor, "text token d_input"]:
        """The vectors that are to be found again."""
        return batch.hidden[0] if self.vocabulary is None else self.vocabulary[batch.ids]

    @cached_property
    def unrelated(self) -> Float[Tensor, "word d_input"]:
        """Vectors of words from all training texts, for the control to be fitted to.

        Words of the same batch cannot be used: now and then a token would draw itself, and texts of
        one length have the same positions. Either lifts the control above chance.
        """
        return _pool(self, "train")[0]

    def rows(self, split: Split) -> Iterator[tuple[Tensor, Float[Tensor, "target row d_input"]]]:
        """Hidden vectors of real tokens; the vectors wanted, and unrelated ones for the control."""
        for batch, unrelated in self.controlled(split):
            wanted = self.wanted(batch)[batch.real]
            yield batch.hidden[:, batch.real], torch.stack([wanted, unrelated])

    def controlled(self, split: Split) -> Iterator[tuple[StateBatch, Float[Tensor, "row d_input"]]]:
        """The states of one split, and for each real token the vector its control is fitted to."""
        chance, words = generator(self.seed + 1), self.unrelated
        for batch in self.batches(split):
            drawn = torch.randint(len(words), (int(batch.real.sum()),), generator=chance)
            yield batch, words[drawn]


def fitted_maps(
    task: TokenTask, names: Sequence[str], width: int, epochs: int
) -> tuple[dict[str, Map], dict[str, Map], FitFacts]:
    """The maps requested, their controls, and facts about the fit."""
    fitted: dict[str, Map] = {}
    controls: dict[str, Map] = {}
    facts: FitFacts = {}
    if "identity" in names:
        fitted["identity"] = lambda hidden: hidden
    if set(names) <= {"identity"}:
        return fitted, controls, facts
    train, validation = _moments(task, "train"), _moments(task, "validation")
    facts |= {"train_tokens": train.count, "validation_tokens": validation.count}
    own = ridge(train, validation)
    linear = [own, ridge(train, validation, 1, like=own)]
    if "rotation" in names:
        if train.cross.shape[-2] != train.cross.shape[-1]:
            raise NotComputableError("Word vectors and hidden vectors differ in width.")
        fitted["rotation"], controls["rotation"] = rotation(train, 0), rotation(train, 1)
    if "linear" in names:
        fitted["linear"], controls["linear"] = linear
        facts["penalty"] = linear[0].penalty.tolist()
    if "mlp" in names:
        spread = train.spread.float()
        perceptrons = [Perceptrons(fit, spread, width, task.seed) for fit in linear]
        loss, facts["epochs"] = train_perceptrons(
            perceptrons,
            lambda: task.rows("train"),
            lambda: task.rows("validation"),
            task.metric,
            epochs,
        )
        fitted["mlp"], controls["mlp"] = perceptrons
        facts["mlp_validation_loss"] = loss[0].tolist()
    return fitted, controls, facts


def _moments(task: TokenTask, split: Split) -> Moments:
    """Sums of products over the rows of one split."""
    moments: Moments | None = None
    for hidden, targets in _side_by_side(task.rows(split)):
        moments = moments or Moments(len(hidden), hidden.shape[-1], *targets.shape[::2])
        moments.add(hidden, targets)
    if moments is None:
        raise _too_few(split)
    return moments


def _side_by_side(batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of several batches together: large sums are not read for a few rows each time."""
    hidden, targets = list[Tensor](), list[Tensor]()
    for rows, wanted in batches:
        hidden.append(rows)
        targets.append(wanted)
        if sum(some.shape[1] for some in hidden) >= SETTINGS.rows_together:
            yield torch.cat(hidden, 1), torch.cat(targets, 1)
            hidden, targets = [], []
    if hidden:
        yield torch.cat(hidden, 1), torch.cat(targets, 1)


@torch.no_grad()
def scored(task: TokenTask, maps: dict[str, Map]) -> Score:
    """Look for every token of the test texts among its candidates."""
    pool = _pool(task, "test") if task.candidates == "dataset" else None
    score: Score | None = None
    for batch in task.batches("test"):
        layers = len(batch.hidden)
        score = score or Score(list(maps), layers, task.seed)
        candidates = _candidates(task, batch, pool)
        words, special = batch.real & ~batch.special, batch.real & batch.special
        hits = []
        for name, apply in maps.items():
            predicted = apply(batch.hidden.flatten(1, 2)).reshape(layers, *batch.ids.shape, -1)
            if predicted.shape[-1] != candidates.own.shape[-1]:
                raise NotComputableError(
                    f"The map {name!r} gives vectors of width {predicted.shape[-1]}, and those "
                    f"looked for have {candidates.own.shape[-1]}."
                )
            by_layer = [
                score_candidates(candidates, vectors, task.metric, task.top, words, special)
                for vectors in predicted
            ]
            hits.append(torch.stack(by_layer, 1))
        score.add(torch.stack(hits, 1).cpu(), words.sum(1).cpu())
        among = 1 + candidates.rivals(words).sum(-1)
        score.chance_sum += float((to_float64(words) / to_float64(among)).sum())
        score.counts["words"] += int(words.sum())
        score.counts["all"] += int(batch.real.sum())
        score.counts["special"] += int(special.sum())
    if score is None or not score.counts["words"]:
        raise _too_few("test")
    return score


@torch.no_grad()
def memorised(task: TokenTask, controls: dict[str, Map]) -> tuple[ByLayer, float | None]:
    """How often each control finds its own training targets again, and how often chance would.

    The candidates are the targets of the same text; those that drew the same vector do not compete.
    """
    if not controls:
        return {}, None
    hits: dict[str, Tensor] = {}
    chance = count = 0.0
    for batch, unrelated in task.controlled("train"):
        sizes = batch.real.sum(1).tolist()
        rows = batch.hidden[:, batch.real]
        found = {name: torch.split(apply(rows), sizes, 1) for name, apply in controls.items()}
        for text, targets in enumerate(torch.split(unrelated, sizes)):
            twins = (targets[:, None] == targets).all(-1)
            chance += float((1 / (1 + (~twins).sum(1))).sum())
            for name, predicted in found.items():
                near = _nearness(predicted[text], targets, task.metric)
                right = near.diagonal(dim1=1, dim2=2)
                rivals = near.masked_fill(twins, -torch.inf).amax(2)
                hits[name] = hits.get(name, 0) + to_float64(right > rivals).sum(1).cpu()
        count += sum(sizes)
        if count >= SETTINGS.memorised:
            break
    return {name: (sums / count).float() for name, sums in hits.items()}, chance / count


def _nearness(predicted: Predicted, targets: Tensor, metric: Metric) -> Tensor:
    """How near each prediction is to each target; larger is nearer."""
    if metric == "cosine":
        return cosine(predicted, targets.expand(len(predicted), -1, -1))
    return -torch.cdist(predicted, targets.expand(len(predicted), -1, -1))


def _candidates(task: TokenTask, batch: StateBatch, pool: Pool | None) -> Candidates:
    """The vectors to search for the tokens of a batch (step 2)."""
    wanted = task.wanted(batch)
    if task.vocabulary is not None:
        ids = torch.arange(len(task.vocabulary), device=wanted.device)
        same = batch.ids.unsqueeze(2) == ids
        every = torch.ones(1, len(ids), dtype=torch.bool, device=wanted.device)
        return Candidates(wanted, task.vocabulary.unsqueeze(0), same, same, every, every)
    if pool is not None:
        others, ids = pool
        same = batch.ids.unsqueeze(2) == ids
        every = torch.ones(1, len(ids), dtype=torch.bool, device=wanted.device)
        twin = same & (cosine(wanted, others.unsqueeze(0)) > 1 - TWIN)
        return Candidates(wanted, others.unsqueeze(0), twin, same, every, every)
    same = batch.ids.unsqueeze(2) == batch.ids.unsqueeze(1)
    twin = same & (cosine(wanted, wanted) > 1 - TWIN)
    itself = torch.eye(wanted.shape[1], dtype=torch.bool, device=wanted.device)
    return Candidates(wanted, wanted, twin | itself, same, batch.real, batch.real & ~batch.special)


def _pool(task: TokenTask, split: Split) -> Pool:
    """A uniform sample of the words of one split (reservoir: one pass, fixed memory)."""
    chance = generator(task.seed + 3)
    rows: list[Tensor] = []
    ids: list[Tensor] = []
    draws = torch.zeros(0)
    for batch in task.batches(split):
        words = batch.real & ~batch.special
        rows.append(task.wanted(batch)[words])
        ids.append(batch.ids[words])
        draws = torch.cat([draws, torch.rand(int(words.sum()), generator=chance)])
        if len(draws) > SETTINGS.pool:  # the words with the largest draws so far
            kept = draws.topk(SETTINGS.pool).indices
            draws, rows, ids = draws[kept], [torch.cat(rows)[kept]], [torch.cat(ids)[kept]]
    if not rows:
        raise _too_few(split)
    return torch.cat(rows), torch.cat(ids)


def _too_few(split: Split) -> BadRequestError:
    return BadRequestError(f"The {split} split has no words; give at least 50 texts.")
