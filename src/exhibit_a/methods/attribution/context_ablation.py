"""Scores the answer without some of the passages.

The only truth there is about a passage: leave it out and read the answer's log-probability again.

leave one out    what the answer loses without each passage alone. Two passages that say the same
                 stand in for each other, and neither seems to matter.
regression       the answer with random halves of the passages, and a sparse linear model of what
                 each of them adds (ContextCite: Lasso over random subsets; Cohen-Wang et al.,
                 2024). It sees passages that stand in for each other. Where there are no more
                 subsets than samples, all of them are asked.

The tokens of the answer are the same in every prompt. Prompts of similar length share a batch,
padded on the right, which a left-to-right model does not see.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.extras import extra
from exhibit_a.methods.attribution.context_prompt import ContextPrompt
from exhibit_a.numerics.correlation import spearman
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Progress, tell
from exhibit_a.shapes import Inputs
from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.trace.batches import lengths_of, padded_groups
from exhibit_a.trace.passes import require_finite
from exhibit_a.trace.targets import Target

Subsets = Bool[Tensor, "sample passage"]
Values = Float[Tensor, " sample"]
PassageScores = Float[Tensor, " passage"]

PENALTY = 0.01  # of the Lasso, as in ContextCite, on passages of unit spread, per answer token
FOLDS = 5  # in which the linear model predicts what it was not fitted to


@dataclass(eq=False)
class Ablations:
    """The answer with any of the passages; what was asked once is remembered."""

    prompt: ContextPrompt
    target: Target  # the log-probability of the answer
    passes: int = 0  # forward passes so far, one for each prompt
    known: dict[tuple[bool, ...], float] = field(default_factory=dict)

    def __call__(self, kept: Subsets, progress: Progress | None = None) -> Values:
        """The log-probability of the answer with some of the passages, for every row."""
        asked = list(dict.fromkeys(tuple(row) for row in kept.tolist()))
        new = [row for row in asked if row not in self.known]
        inputs = [self._inputs(row) for row in new]
        done = 0
        subject = self.prompt.subject
        with torch.no_grad(), frozen_eval(subject.model):
            for group, together in padded_groups(subject, inputs):
                values = self._log_probabilities([inputs[place] for place in group], together)
                self.known |= {
                    new[place]: value for place, value in zip(group, values, strict=True)
                }
                done += len(group)
                tell(progress, done, len(new))
        self.passes += len(new)
        return torch.tensor([self.known[tuple(row)] for row in kept.tolist()])

    def _inputs(self, kept: tuple[bool, ...]) -> Inputs:
        places = [number for number, stays in enumerate(kept) if stays]
        ids = self.prompt.ids(places) + self.target.indices
        row = torch.tensor([ids], device=self.prompt.subject.device)
        return {"input_ids": row, "attention_mask": torch.ones_like(row)}

    def _log_probabilities(self, rows: Sequence[Inputs], together: Inputs) -> list[float]:
        model, count = self.prompt.subject.model, len(self.target.indices)
        starts = lengths_of(rows) - count - 1  # where the first token of the answer is predicted
        given, dropped = without_cache(model, together), 0
        if "logits_to_keep" in inspect.signature(model.forward).parameters:
            dropped = int(starts.min())
            given = {**given, "logits_to_keep": int(together["input_ids"].shape[1]) - dropped}
        output = model(**given)
        require_finite(output)
        return to_float64(self.target(output, starts - dropped)).tolist()


def all_but_one(count: int) -> Subsets:
    """Every passage left out alone.

    >>> all_but_one(2)
    tensor([[False,  True],
            [ True, False]])
    """
    return ~torch.eye(count, dtype=torch.bool)


def random_halves(count: int, samples: int, seed: int) -> Subsets:
    """Random subsets, each passage kept with probability ½; all there are, if they are few.

    >>> random_halves(2, 8, seed=0).int().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> tuple(random_halves(12, 8, seed=0).shape)
    (8, 12)
    """
    if 2**count <= samples:
        numbers = torch.arange(2**count).unsqueeze(1)
        return (numbers >> torch.arange(count)) % 2 == 1
    return torch.rand(samples, count, generator=generator(seed)) < 0.5


def lasso(kept: Subsets, values: Values, tokens: int) -> tuple[PassageScores, float]:
    """What each passage adds, by a sparse linear model, and how well it predicts.

    The second number is the rank correlation of the values with predictions of models that were
    fitted without them.
    """
    places = np.arange(len(values))
    scores = _fitted(kept, values, tokens)[0]
    predicted = torch.zeros_like(values)
    for fold in range(FOLDS):
        held_out = torch.from_numpy(places % FOLDS == fold)
        if not bool(held_out.any()) or int((~held_out).sum()) < 2:
            return scores, float("nan")
        weights, constant = _fitted(kept[~held_out], values[~held_out], tokens)
        predicted[held_out] = kept[held_out].to(weights) @ weights + constant
    everywhere = torch.ones(len(values), dtype=torch.bool)
    return scores, float(spearman(predicted, values, everywhere))


def predicts(scores: PassageScores, kept: Subsets, values: Values) -> float:
    """Rank correlation of the answers with what the scores of the passages kept add up to."""
    everywhere = torch.ones(len(values), dtype=torch.bool)
    return float(spearman(kept.to(scores) @ scores, values.to(scores), everywhere))


def _fitted(kept: Subsets, values: Values, tokens: int) -> tuple[PassageScores, float]:
    linear = extra("sklearn.linear_model")
    presence = to_float64(kept).numpy()
    centre, spread = presence.mean(0), presence.std(0)
    spread[spread == 0] = 1.0  # a passage that was always there, or never, gets no weight
    model = linear.Lasso(alpha=PENALTY, max_iter=10_000)
    model.fit((presence - centre) / spread, to_float64(values).numpy() / tokens)
    weights = model.coef_ / spread * tokens
    constant = float(model.intercept_) * tokens - float(centre @ weights)
    return torch.from_numpy(weights).float(), constant
