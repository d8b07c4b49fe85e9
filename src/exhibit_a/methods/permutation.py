"""Does it matter which key gets which weight?

If attention explains an answer, giving the weights to other keys should change the answer (Jain &
Wallace, 2019; for keys of a Transformer, the poster "Is Attention Explanation in Transformers?").

1. The data set runs once and what every layer returned is remembered.
2. For every condition (one site alone, then all chosen sites together) and every repeat, something
   is shuffled and the layers from there on run again:

   ``attention``  the weights of each row, among the keys the row may see;
   ``keys``       the key vectors, among the positions of the text; since
                  softmax(Q(ΠK)ᵀ) = softmax(QKᵀ)Πᵀ this permutes the columns of the map;
   ``features``   the entries of the key vectors, the same way for all positions.

   A permutation is drawn anew for every ``row``, ``head`` or ``example``, or once for all examples
   (``global``); ``shuffles.py`` says how.
3. The answer is compared with the model's own: total variation, flips, accuracy. As the extreme,
   every row is also made uniform, which removes what attention says altogether.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.examples import read_examples
from exhibit_a.methods.batches import (
    Batch,
    Progress,
    Source,
    classes_of,
    encoded,
    grouped,
    run,
    stand_alone,
)
from exhibit_a.methods.distances import (
    BLUE,
    VERMILION,
    bootstrap_interval,
    sign_flip_p_value,
    total_variation,
)
from exhibit_a.methods.erasure import cut_short, distributions, require_distribution
from exhibit_a.methods.shuffles import Plan, Shuffle, Texts, Uniform
from exhibit_a.results import Result, extra, provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.replay import replay

if TYPE_CHECKING:
    import matplotlib.figure

WHAT = ("attention", "keys", "features")
SCOPES = ("row", "head", "example", "global")
TOKENS = 2048  # in one pass, copies included


@dataclass(frozen=True, kw_only=True, eq=False)
class PermutationTest(Result):
    """What shuffling did to the answers; without labels, ``correct`` is the model's own answer."""

    what: str
    scope: str
    conditions: tuple[str, ...]  # one site each, then all of them together
    change: Float[Tensor, "condition repeat example"]  # total variation of the answer
    flipped: Bool[Tensor, "condition repeat example"]
    correct: Bool[Tensor, "condition repeat example"]
    own_correct: Bool[Tensor, " example"]
    uniform_change: Float[Tensor, "condition example"]
    uniform_correct: Bool[Tensor, "condition example"]
    own_accuracy: float
    own_accuracy_interval: Float[Tensor, " bound"]
    accuracy: Float[Tensor, " condition"]
    accuracy_interval: Float[Tensor, "condition bound"]
    drop: Float[Tensor, " condition"]  # own accuracy minus accuracy
    drop_interval: Float[Tensor, "condition bound"]
    p_value: Float[Tensor, " condition"]  # of the drop, by sign flips over examples
    mean_change: Float[Tensor, " condition"]
    mean_change_interval: Float[Tensor, "condition bound"]
    flip_rate: Float[Tensor, " condition"]
    uniform_accuracy: Float[Tensor, " condition"]
    uniform_accuracy_interval: Float[Tensor, "condition bound"]

    def plot(self) -> "matplotlib.figure.Figure":
        """Accuracy under each condition, beside the model's own and the uniform extreme."""
        figure: matplotlib.figure.Figure = extra("matplotlib.figure").Figure(
            figsize=(7, 3.2), layout="constrained"
        )
        axes, places = figure.subplots(), torch.arange(len(self.conditions)).numpy()
        axes.axhline(self.own_accuracy, color="0.4", linestyle="--", label="as trained")
        for shift, look, color, mean, ends, label in (
            (-0.1, "o", BLUE, self.accuracy, self.accuracy_interval, f"{self.what} shuffled"),
            (0.1, "s", VERMILION, self.uniform_accuracy, self.uniform_accuracy_interval, "uniform"),
        ):
            spread = (ends.mT - mean).abs().numpy()
            axes.errorbar(places + shift, mean.numpy(), spread, fmt=look, color=color, label=label)
        axes.set_xticks(places, self.conditions)
        axes.set_ylabel("accuracy")
        axes.legend(frameon=False)
        return figure


@torch.no_grad()
def permutation_test(
    subject: Subject,
    examples: Source,
    *,
    what: str = "attention",
    scope: str = "row",
    sites: Sequence[int] | None = None,
    repeats: int = 20,
    seed: int = 0,
    progress: Progress = None,
) -> PermutationTest:
    """Shuffle attention at each site alone and at all ``sites`` together, and see what changes.

    ``what`` is attention, keys or features; ``scope`` is row, head, example or global. Keys belong
    to all rows of a head, so for keys and features ``row`` means ``head``.
    """
    data = read_examples(examples)
    chosen = _chosen(subject, what, scope, sites)
    used_scope = "head" if what != "attention" and scope == "row" else scope
    if repeats < 1:
        raise BadRequestError(f"{repeats} repeats were asked for; give at least 1.")
    require_distribution(subject)
    encodings = encoded(subject, data)
    lengths = torch.tensor([one["input_ids"].shape[1] for one in encodings])
    groups = [frozenset([site]) for site in chosen]
    groups += [frozenset(chosen)] if len(chosen) > 1 else []

    size, answers = len(data), torch.zeros(len(data), dtype=torch.long)
    change = torch.zeros(len(groups), repeats + 1, size)  # the last place is the uniform extreme
    chose = torch.zeros(len(groups), repeats + 1, size, dtype=torch.long)
    alone = stand_alone(subject)
    for places in grouped(encodings, TOKENS // repeats, alone=alone, progress=progress):
        batch = run(subject, [encodings[place] for place in places])
        again = _Again(batch, lengths[places], places)
        answers[places] = again.own.argmax(-1).cpu()
        for row, group in enumerate(groups):
            plan = Plan(what, used_scope, group, seed, int(lengths.amax()))
            extreme = again.answers(Uniform(group), group, 1)
            given = torch.cat([again.shuffled(plan, repeats), extreme], 1)
            moved = total_variation(given, again.own[:, None]).T
            change[row][:, places] = moved.to("cpu", change.dtype)
            chose[row][:, places] = given.argmax(-1).T.cpu()

    labelled = data[0].label is not None
    gold = classes_of(subject, data).cpu() if labelled else answers
    checks = {
        "examples": size,
        "cut at the model's length": cut_short(subject, lengths),
        "labels": "given" if labelled else "none: correct is the model's own answer",
    }
    if used_scope != scope:
        checks["scope"] = f"{used_scope}: {what} are shared by all rows of a head"
    options = {"what": what, "scope": used_scope, "sites": chosen, "repeats": repeats}
    source = provenance(subject.name, "permutation_test", subject.revision, seed, **options)
    together = (f"all {len(chosen)}",) if len(chosen) > 1 else ()
    found = _summed_up(answers == gold, chose == gold, chose != answers, change, seed)
    if not labelled:
        found["p_value"] = torch.full_like(found["p_value"], torch.nan)
    return PermutationTest(
        provenance=source,
        checks=checks,
        what=what,
        scope=used_scope,
        conditions=(*(f"site {site}" for site in chosen), *together),
        **found,
    )


class _Again:
    """A batch that has run once and runs again from the first layer that is changed."""

    def __init__(self, batch: Batch, lengths: Tensor, places: list[int]) -> None:
        self.batch, self.texts = batch, Texts(places, lengths)
        self.own = distributions(batch.trace.subject, batch.trace.output, lengths)

    def answers(
        self, tap: Tap, sites: frozenset[int], copies: int
    ) -> Float[Tensor, "text copy answer"]:
        """The answers with ``tap`` at work; copies of a text stand next to each other."""
        index = torch.arange(len(self.batch)).repeat_interleave(copies)
        trace = self.batch.rows(index)
        output = replay(trace, tap, start=trace.sites[min(sites)].call)
        found = distributions(trace.subject, output, self.texts.lengths[index])
        return found.reshape(len(self.batch), copies, -1)

    def shuffled(self, plan: Plan, repeats: int) -> Float[Tensor, "text repeat answer"]:
        """The answers of all repeats, a few at a time where the text is long."""
        tokens = len(self.batch) * int(self.texts.lengths.amax())
        together = max(1, min(repeats, TOKENS // tokens))
        parts = []
        for first in range(0, repeats, together):
            some = range(first, min(first + together, repeats))
            tap = Shuffle(plan, self.texts, some)
            parts.append(self.answers(tap, plan.sites, len(some)))
        return torch.cat(parts, 1)


def _summed_up(
    own: Bool[Tensor, " example"],
    correct: Bool[Tensor, "condition repeat example"],
    flipped: Bool[Tensor, "condition repeat example"],
    change: Float[Tensor, "condition repeat example"],
    seed: int,
) -> dict[str, Any]:
    """Averages over repeats and examples, with their intervals; the last repeat is uniform."""
    right, extreme = correct[:, :-1].float().mean(1), correct[:, -1]
    lost = own.float() - right
    return {
        "change": change[:, :-1],
        "flipped": flipped[:, :-1],
        "correct": correct[:, :-1],
        "own_correct": own,
        "uniform_change": change[:, -1],
        "uniform_correct": extreme,
        "own_accuracy": float(own.float().mean()),
        "own_accuracy_interval": bootstrap_interval(own.float(), seed=seed),
        "accuracy": right.mean(-1),
        "accuracy_interval": bootstrap_interval(right, seed=seed),
        "drop": lost.mean(-1),
        "drop_interval": bootstrap_interval(lost, seed=seed),
        "p_value": sign_flip_p_value(lost, seed=seed),
        "mean_change": change[:, :-1].mean((1, 2)),
        "mean_change_interval": bootstrap_interval(change[:, :-1].mean(1), seed=seed),
        "flip_rate": flipped[:, :-1].float().mean((1, 2)),
        "uniform_accuracy": extreme.float().mean(-1),
        "uniform_accuracy_interval": bootstrap_interval(extreme.float(), seed=seed),
    }


def _chosen(subject: Subject, what: str, scope: str, sites: Sequence[int] | None) -> list[int]:
    """The sites that were asked for, where shuffling ``what`` respects the mask."""
    if what not in WHAT:
        raise BadRequestError(f"Cannot shuffle {what!r}; choose {', '.join(WHAT)}.")
    if scope not in SCOPES:
        raise BadRequestError(f"There is no scope {scope!r}; choose {', '.join(SCOPES)}.")
    count = len(subject.anatomy.sites)
    chosen = list(range(count) if sites is None else dict.fromkeys(sites))
    for site in chosen or [-1]:
        if not 0 <= site < count:
            raise BadRequestError(f"There is no such site; there are 0 to {count - 1}.")
        here = subject.anatomy.sites[site]
        if what == "keys" and (here.causal or here.window is not None):
            raise NotComputableError(
                f"At site {site} each row sees keys of its own (a causal mask or a window), and "
                'moving keys would show it hidden ones. Shuffle "attention" instead.'
            )
    return chosen
