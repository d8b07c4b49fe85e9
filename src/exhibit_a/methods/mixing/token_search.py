"""Reads the hidden states of any number of texts, and searches tokens among their candidates.

**States.** Texts are read in windows, and nothing of them is kept. Within a window, inputs of the
same shape form a batch, so that nothing has to be padded, which not every family allows. Each text
belongs to one split of the data (train, validation, test) by a seeded draw; a pass over a split
runs only the texts of that split, and only up to the last layer that is needed.

**Search.** A token is found when no rival is as near to the prediction as it is. The rivals of a
word are other words, those of a special token all other tokens; a position with the very same
vector is no rival, because nothing could tell the two apart, and a tie is a miss. What is counted
is summed over texts, and again with Poisson weights, which is a bootstrap over texts that keeps
none of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.examples import Example, iterate_examples
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.shapes import Inputs
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.guard import StopEarly, frozen_eval, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.passes import LayerRecorder

Split = Literal["train", "validation", "test"]
Source = str | Path | Iterable[object]  # a file, texts, examples, encoded inputs or images

SPLITS: dict[Split, float] = dict(zip(get_args(Split), (0.7, 0.15, 0.15), strict=True))
TWIN = 1e-5  # closer than this (1 − cosine) are the same vector but for rounding

WORD_STATISTICS = ("rate", "top", "mrr", "same_token", "bits")
STATISTICS = (*WORD_STATISTICS, "with_special", "special_only")

Metric = Literal["cosine", "l2"]
ByLayer = dict[str, Float[Tensor, " layer"]]
Bounds = dict[str, Float[Tensor, "layer bound"]]
Vectors = Float[Tensor, "text token d_input"]
Marks = Bool[Tensor, "text token"]


@dataclass(frozen=True)
class SearchSettings:
    """How texts are put into batches, and how often scores are resampled."""

    window: int = 2048  # texts that are sorted by shape together
    tokens: int = 1024  # in one batch: larger ones are no faster on a CPU
    replicates: int = 500


SETTINGS = SearchSettings()


@dataclass(frozen=True, eq=False)
class StateBatch:
    """Some texts of equal length: their hidden states and what their tokens are."""

    hidden: Float[Tensor, "layer text token d_model"]  # layer 0: the input of the first layer
    ids: Int[Tensor, "text token"]  # positions are numbered where there are no token ids
    special: Bool[Tensor, "text token"]
    real: Bool[Tensor, "text token"]


@dataclass(frozen=True, eq=False)
class SplitTexts:
    """Texts that can be read again and again, each in one split of the data."""

    source: Source
    seed: int

    def split(self, name: Split) -> Iterator[object]:
        """The texts of one split, in their order."""
        chance = generator(self.seed)
        for text in self._all():
            if _split_at(float(torch.rand((), generator=chance))) == name:
                yield text

    def _all(self) -> Iterator[object]:
        if isinstance(self.source, Iterator):
            raise BadRequestError(
                "The texts are read several times, and an iterator can be read only once: give a "
                "list, a file, or a collection that starts anew each time."
            )
        if not isinstance(self.source, str | Path) and _encoded(self.source):
            yield from self.source
        else:
            yield from iterate_examples(self.source)


def states(subject: Subject, texts: Iterable[object]) -> Iterator[StateBatch]:
    """The hidden states of the texts, a batch of equal shapes at a time."""
    waiting = iter(texts)
    while window := list(islice(waiting, SETTINGS.window)):
        alike: dict[tuple[tuple[str, torch.Size], ...], list[Inputs]] = {}
        for text in window:
            inputs = _inputs(subject, text)
            shapes = tuple((k, v.shape) for k, v in inputs.items() if isinstance(v, Tensor))
            alike.setdefault(shapes, []).append(inputs)
        for shapes, group in alike.items():
            size = max(1, SETTINGS.tokens // max(shape[-1] for _, shape in shapes))
            for start in range(0, len(group), size):
                yield _run(subject, _joined(group[start : start + size]))


def _split_at(draw: float) -> Split:
    """The split that a number between 0 and 1 falls into."""
    end = 0.0
    for split, share in SPLITS.items():
        end += share
        if draw < end:
            return split
    return "test"  # rounding


@torch.no_grad()
def _run(subject: Subject, inputs: Inputs) -> StateBatch:
    """One batch through the first stack of the model."""
    model, anatomy = subject.model, subject.anatomy
    stack = anatomy.main_stack
    layers = [layer for layer in anatomy.layers if layer.stack == stack]
    recorder = LayerRecorder(enough=len(layers))
    with suppress(StopEarly), frozen_eval(model), recorder.watching(model, layers):
        model(**without_cache(model, inputs))
    layer_inputs = [states for states in recorder.inputs if states is not None]
    hidden = torch.stack([*layer_inputs, recorder.states[-1]]).float().cpu()
    if not bool(hidden.isfinite().all()):
        raise BrokenInvariantError("A hidden state is NaN or infinite; no numbers are given.")
    count, tokens = hidden.shape[1:3]
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    if ids is None:
        _, special = positions(subject.tokenizer, None, tokens)
        ids, marks = torch.arange(tokens).expand(count, -1), special.expand(count, -1)
    else:
        marks = torch.stack([positions(subject.tokenizer, row, tokens)[1] for row in ids.cpu()])
    real = torch.ones(count, tokens, dtype=torch.bool)
    if mask is not None and mask.shape == real.shape:
        real = mask.bool().cpu()
    return StateBatch(hidden, ids.cpu(), marks, real)


def _inputs(subject: Subject, text: object) -> Inputs:
    """Model inputs for a text, an example, encoded inputs or an image."""
    if isinstance(text, Example):
        return subject.encode(text.text, text.pair, truncate=True)
    return subject.encode(text, truncate=True)


def _joined(group: list[Inputs]) -> Inputs:
    """Inputs of the same shapes as one batch."""
    return {
        name: torch.cat([inputs[name] for inputs in group]) if isinstance(value, Tensor) else value
        for name, value in group[0].items()
    }


def _encoded(source: Iterable[object]) -> bool:
    """Whether these are encoded inputs or images rather than texts."""
    first = next(iter(source), None)
    if isinstance(first, Mapping):
        return any(isinstance(value, Tensor) for value in first.values())
    return not isinstance(first, str | Example | tuple | list | None)


@dataclass(frozen=True, eq=False)
class Candidates:
    """The vectors among which the tokens of some texts are to be found."""

    own: Vectors  # of the tokens themselves
    others: Float[Tensor, "#text candidate d_input"]
    twin: Bool[Tensor, "text token candidate"]  # has the same vector, and so is no rival
    same_token: Bool[Tensor, "text token candidate"]
    allowed: Bool[Tensor, "#text candidate"]
    is_word: Bool[Tensor, "#text candidate"]

    def rivals(self, words: Marks) -> Bool[Tensor, "text token candidate"]:
        """For words, other words; for special tokens, all other tokens."""
        others = self.allowed.unsqueeze(1) & ~self.twin
        return others & (self.is_word.unsqueeze(1) | ~words.unsqueeze(2))


def cosine(a: Float[Tensor, "#text token d_input"], b: Tensor) -> Tensor:
    """Cosines of all pairs within each text."""
    return F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT


def score_candidates(
    candidates: Candidates,
    predicted: Vectors,
    metric: Metric,
    top: int,
    words: Marks,
    special: Marks,
) -> Float[Tensor, "statistic text"]:
    """What is counted for one map at one layer, summed over the tokens of each text."""
    own = candidates.own
    if metric == "cosine":
        nearness = cosine(predicted, candidates.others)
        own_nearness = F.cosine_similarity(predicted, own, dim=-1)
    else:
        nearness = _nearness(predicted, candidates.others)
        own_nearness = 2 * (predicted * own).sum(-1) - own.square().sum(-1)
    as_near = nearness >= own_nearness.unsqueeze(2)
    rivals = candidates.rivals(words)
    rank = 1.0 + (as_near & rivals).sum(-1)
    same_token = candidates.same_token
    best_alike = nearness.masked_fill(~same_token, -torch.inf).amax(-1).maximum(own_nearness)
    beaten = ((nearness >= best_alike.unsqueeze(2)) & rivals & ~same_token).any(-1)
    overall = 1.0 + (as_near & candidates.rivals(torch.zeros_like(words))).sum(-1)
    among = 1.0 + rivals.sum(-1)
    statistics = [
        (rank == 1) * words,
        (rank <= top) * words,
        words / rank,
        ~beaten & words,
        torch.log2(among / rank) * words,
        (overall == 1) * (words | special),
        (overall == 1) * special,
    ]
    return torch.stack([to_float64(statistic).sum(1) for statistic in statistics])


def _nearness(a: Tensor, b: Tensor) -> Tensor:
    """−‖a − b‖² + ‖a‖², which orders the candidates b in the same way."""
    return 2 * a @ b.mT - b.square().sum(-1).unsqueeze(-2)


class Score:
    """Sums over texts, with bootstrap weights, of everything that is counted."""

    def __init__(self, names: Sequence[str], layers: int, seed: int) -> None:
        self.names, self.texts = list(names), 0
        self.chance_sum = 0.0
        self.counts = {"words": 0, "all": 0, "special": 0}
        self.sums = torch.zeros(len(STATISTICS), len(self.names), layers, dtype=torch.float64)
        self.replicates = torch.zeros(
            SETTINGS.replicates, len(self.names), layers, dtype=torch.float64
        )
        self.replicate_words = torch.zeros(SETTINGS.replicates, dtype=torch.float64)
        self.chance_of = generator(seed + 2)

    def add(self, hits: Float[Tensor, "statistic map layer text"], words: Tensor) -> None:
        """Add the sums of some texts, and their numbers of words."""
        weights = to_float64(
            torch.poisson(torch.ones(SETTINGS.replicates, len(words)), generator=self.chance_of)
        )
        self.sums += hits.sum(-1)
        self.replicates += torch.einsum("mlt,rt->rml", hits[0], weights)
        self.replicate_words += weights @ to_float64(words)
        self.texts += len(words)

    @property
    def chance(self) -> float:
        """The rate of guessing at random."""
        return self.chance_sum / max(1, self.counts["words"])

    def rates(self) -> dict[str, ByLayer]:
        """Every statistic, for every map, by layer."""
        kinds = ["words"] * len(WORD_STATISTICS) + ["all", "special"]
        return {
            statistic: {
                name: (sums[i] / max(1, self.counts[kind])).float()
                for i, name in enumerate(self.names)
            }
            for statistic, kind, sums in zip(STATISTICS, kinds, self.sums, strict=True)
        }

    def intervals(self) -> Bounds:
        """Bounds between which 95 % of the bootstrap replicates of the rate lie."""
        rates = self.replicates / self.replicate_words.reshape(-1, 1, 1)  # NaN where none was drawn
        ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
        bounds = rates.nanquantile(ends, dim=0).permute(1, 2, 0).float()  # (map, layer, bound)
        return dict(zip(self.names, bounds, strict=True))
