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
   (``global``); ``shuffling.py`` says how.
3. The answer is compared with the model's own: total variation, flips, accuracy. As the extreme,
   every row is also made uniform, which removes all that attention adds.

The answer is a class, the token after the last one, or the whole answer that an example of a
language model has: total variation is then the mean over its tokens, it flips where any of them
does, and it is correct where the model would say it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.examples import read_examples
from exhibit_a.methods.explanation.erasure import cut_short
from exhibit_a.methods.explanation.shuffling import (
    TOKENS,
    Rerun,
    Scope,
    Shuffling,
    What,
    chosen_sites,
    conditions,
)
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.intervals import bootstrap_interval, sign_flip_p_value
from exhibit_a.progress import Progress
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.shapes import Inputs
from exhibit_a.subject.anatomy import layer_name
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import Gold, gold_of_examples, prompt_of, require_distribution
from exhibit_a.trace.batches import Source, grouped, lengths_of, run, stand_alone

Marks = Bool[Tensor, "condition repeat example"]
Numbers = Float[Tensor, "condition repeat example"]
MARKS = (torch.bool, torch.bool)  # of what flipped, and of what is correct


class _Shuffled(NamedTuple):
    """What every repeat of every condition does to the answers."""

    change: Numbers
    flipped: Marks
    correct: Marks


@dataclass(frozen=True, kw_only=True, eq=False)
class PermutationTest(Result):
    """What shuffling did to the answers; without labels, ``correct`` is the model's own answer."""

    what: str
    scope: str
    conditions: tuple[str, ...]  # one site each, then all of them together
    change: Numbers  # total variation of the answer
    flipped: Marks  # is it another class?
    correct: Marks  # is it the right class?
    own_correct: Bool[Tensor, " example"]  # is it, unshuffled?
    uniform_change: Float[Tensor, "condition example"]  # change, with uniform rows instead
    uniform_correct: Bool[Tensor, "condition example"]  # right class, with uniform rows instead
    own_accuracy: float
    own_accuracy_interval: Float[Tensor, " bound"]  # 95 %, unshuffled
    accuracy: Float[Tensor, " condition"]  # mean over repeats
    accuracy_interval: Float[Tensor, "condition bound"]  # 95 %
    drop: Float[Tensor, " condition"]  # own accuracy minus accuracy
    drop_interval: Float[Tensor, "condition bound"]  # 95 %
    p_value: Float[Tensor, " condition"]  # of the drop, by sign flips over examples
    mean_change: Float[Tensor, " condition"]  # over repeats and examples
    mean_change_interval: Float[Tensor, "condition bound"]  # 95 %
    flip_rate: Float[Tensor, " condition"]  # share of answers that became another class
    uniform_accuracy: Float[Tensor, " condition"]  # with uniform rows instead
    uniform_accuracy_interval: Float[Tensor, "condition bound"]  # 95 %


@method(
    question="Does it matter which word gets which weight?",
    needs=("distribution",),
    cost=Cost(forwards=21, per_layer=12.5, maps=1),
    command="permute",
)
@torch.no_grad()
def permutation_test(
    subject: Subject,
    examples: Source,
    *,
    what: What = "attention",
    scope: Scope = "row",
    sites: Sequence[int] | None = None,
    repeats: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
) -> PermutationTest:
    """Shuffle attention at each layer alone and at all layers together, and see what changes.

    >>> test = xa.permutation_test(subject, examples[:4], repeats=2, sites=[0, 5])
    >>> test.conditions, tuple(test.change.shape)
    (('layer 0', 'layer 5', 'all 2'), (3, 2, 4))
    >>> keys = xa.permutation_test(subject, examples[:4], what="keys", repeats=2, sites=[5])
    >>> keys.scope, float(keys.own_accuracy)
    ('head', 0.75)

    Args:
        what: what is shuffled: attention, keys or features.
        scope: a permutation is drawn anew for every row, head or example, or once (global). Keys
            belong to all rows of a head, so for keys and features row means head.
        sites: the sites to shuffle; without, all of them.
        repeats: how many permutations are drawn.
        seed: same seed, same numbers.
        progress: is called with the number of examples done, and of how many.
    """
    data = read_examples(examples)
    chosen = chosen_sites(subject, what, scope, sites)
    used_scope = "head" if what != "attention" and scope == "row" else scope
    if repeats < 1:
        raise BadRequestError(f"{repeats} repeats were requested; give at least 1.")
    require_distribution(subject)
    prompts = [prompt_of(subject, example, truncate=True) for example in data]
    encodings = [prompt.inputs for prompt in prompts]
    longest = int(lengths_of(encodings).amax())
    plans = [Shuffling(what, used_scope, group, seed, longest) for group in conditions(chosen)]
    labelled = data[0].label is not None or prompts[0].reply is not None
    gold = gold_of_examples(subject, data, prompts) if labelled else None
    own_right, shuffled = _shuffled_answers(subject, encodings, plans, (repeats, gold), progress)
    checks = _checks(subject, encodings, labelled)
    if used_scope != scope:
        checks["scope"] = f"{used_scope}: {what} are shared by all rows of a head"
    options = {"what": what, "scope": used_scope, "sites": chosen, "repeats": repeats}
    together = (f"all {len(chosen)}",) if len(chosen) > 1 else ()
    # Averages over repeats and examples, with their intervals; the last repeat is uniform.
    change, flipped, correct = shuffled
    right, extreme = correct[:, :-1].float().mean(1), correct[:, -1]
    lost = own_right.float() - right
    averages: dict[str, Any] = {
        "change": change[:, :-1],
        "flipped": flipped[:, :-1],
        "correct": correct[:, :-1],
        "own_correct": own_right,
        "uniform_change": change[:, -1],
        "uniform_correct": extreme,
        "own_accuracy": float(own_right.float().mean()),
        "own_accuracy_interval": bootstrap_interval(own_right.float(), seed=seed),
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
    if not labelled:
        averages["p_value"] = torch.full_like(lost.mean(-1), torch.nan)
    every = subject.anatomy.sites
    return build_result(
        PermutationTest,
        subject,
        "permutation_test",
        seed=seed,
        settings=options,
        checks=checks,
        what=what,
        scope=used_scope,
        conditions=(*[layer_name(every[site], every) for site in chosen], *together),
        **averages,
    )


def _shuffled_answers(
    subject: Subject,
    encodings: list[Inputs],
    plans: list[Shuffling],
    requested: tuple[int, Gold | None],
    progress: Progress | None,
) -> tuple[Bool[Tensor, " example"], _Shuffled]:
    """Whether the model's own answers are right, and what becomes of them under every plan.

    The last repeat of each plan is the uniform extreme.
    """
    lengths, (repeats, gold) = lengths_of(encodings), requested
    own_right = torch.zeros(len(encodings), dtype=torch.bool)
    shape = (len(plans), repeats + 1, len(encodings))
    shuffled = _Shuffled(*(torch.zeros(shape, dtype=kind) for kind in (torch.float, *MARKS)))
    alone = stand_alone(subject)
    for places in grouped(encodings, TOKENS // repeats, alone=alone, progress=progress):
        batch = run(subject, [encodings[place] for place in places])
        right = None if gold is None else gold.rows(torch.tensor(places))
        rerun = Rerun(batch, lengths[places], places, right)
        own_right[places] = rerun.own_right.cpu()
        for condition, plan in enumerate(plans):
            for numbers, measured in zip(shuffled, rerun.measure(plan, repeats), strict=True):
                numbers[condition][:, places] = measured.T.to("cpu", numbers.dtype)
    return own_right, shuffled


def _checks(subject: Subject, encodings: list[Inputs], labelled: bool) -> dict[str, int | str]:
    return {
        "examples": len(encodings),
        "cut at the model's length": cut_short(subject, lengths_of(encodings)),
        "labels": "given" if labelled else "none: correct is the model's own answer",
    }
