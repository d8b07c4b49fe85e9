"""Do the strongest edges make words that turn any text?

If an answer rests on one attention edge, the two words it joins may carry that answer anywhere.
Adversarial triggers (Hao et al., AAAI 2021):

1. attribute the predicted class of each example, and take the one head matrix that holds the
   largest entry of all; its two largest entries name two pairs of tokens, with their positions;
2. a pattern is both pairs, or only the first where the second is much weaker, without the tokens
   that the tokenizer added;
3. put the tokens of a pattern into other examples, in the same segment at the same relative
   position, and see how many of each class are still answered rightly.

A drop proves nothing about attribution unless other tokens do less. So every attack is repeated
with two controls in the same places: tokens drawn at random from the texts themselves, and the
patterns of the largest raw attention between words instead of the largest attribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.examples import read_examples
from exhibit_a.examples.labels import classes_of, limited
from exhibit_a.methods.attribution.path_integral import attribute_classes
from exhibit_a.methods.registry import Cost, method
from exhibit_a.methods.triggers.insertion import Pattern, inserted, token_at, written
from exhibit_a.numerics.intervals import wilson
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Progress
from exhibit_a.results.result import Result
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.batches import Source, answers_of, encoded, grouped, run, stand_alone

WEAK = 0.2  # a second pair below this share of the first is left out
FAINT = 0.02  # patterns whose two scores are below this together are not kept
RANDOM_DRAWS = 5


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Triggers(Result):
    """Patterns by attribution, strongest first, and by raw attention for comparison."""

    patterns: tuple[Pattern, ...]
    by_attention: tuple[Pattern, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Attack(Result):
    """Accuracy of every class before and after each pattern was put in, beside the controls.

    A pattern is meant to pull examples of the other classes to the one it was found in.
    """

    before: Float[Tensor, " label"]
    after: Float[Tensor, "pattern label"]
    interval: Float[Tensor, "pattern label bound"]  # 95 %, of ``after``
    random: Float[Tensor, "pattern label"]  # tokens at random in the same places, mean of draws
    random_spread: Float[Tensor, "pattern label"]  # standard deviation over the draws
    attention: Float[Tensor, "pattern label"]  # patterns of the strongest raw attention
    counts: Int[Tensor, " label"]
    patterns: tuple[Pattern, ...]
    attention_patterns: tuple[Pattern, ...]
    labels: tuple[str, ...]

    def drop(self, pattern: int, found: Float[Tensor, "pattern label"] | None = None) -> float:
        """How much accuracy the classes lose that the pattern does not speak for."""
        found = self.after if found is None else found
        others = torch.arange(len(self.labels)) != self.patterns[pattern].predicted
        weights = self.counts[others] / self.counts[others].sum()
        return float(((self.before - found[pattern])[others] * weights).nansum())


@method(
    question="Do the strongest edges make words that turn any text?",
    room="triggers",
    needs=("classes",),
    cost=Cost(forwards=1, per_layer=3.6, backwards=True, maps=2),
    command="triggers",
)
def find_triggers(
    subject: Subject,
    examples: Source,
    *,
    limit: int = 500,
    tolerance: float = 0.01,
    progress: Progress | None = None,
) -> Triggers:
    """Find the patterns on which single answers rest most, in the first ``limit`` examples."""
    some = limited(read_examples(examples), limit)
    if subject.anatomy.answers != "classes" or subject.tokenizer is None:
        raise NotComputableError("Triggers are words that turn a class: give a text classifier.")
    inputs = encoded(subject, some)
    by_attribution: list[Pattern] = []
    by_attention: list[Pattern] = []
    for group in grouped(inputs, alone=stand_alone(subject), progress=progress):
        batch = run(subject, [inputs[place] for place in group])
        ids = [(some[place].id, inputs[place]["input_ids"][0]) for place in group]
        predicted = batch.output.logits.argmax(-1)
        scores = [found.scores for found in attribute_classes(batch, predicted, tolerance)]
        by_attribution += _patterns(subject, scores, ids, predicted)
        by_attention += _patterns(subject, list(batch.attention), ids, predicted, only_words=True)
    kept = [one for one in by_attribution if sum(one.scores) >= FAINT]
    used: dict[str, Any] = {"limit": limit, "tolerance": tolerance}
    return Triggers(
        provenance=provenance(subject.name, "find_triggers", subject.revision, **used),
        checks={
            "parity": subject.anatomy.parity,
            "examples": len(some),
            "patterns below the threshold": len(by_attribution) - len(kept),
            "threshold": FAINT,
        },
        patterns=tuple(sorted(kept, key=_weakness)),
        by_attention=tuple(sorted(by_attention, key=_weakness)),
        labels=subject.labels,
    )


@method(
    question="How often do the patterns turn other texts?",
    room="triggers",
    needs=("classes",),
    cost=Cost(forwards=30),
)
def attack(
    subject: Subject,
    examples: Source,
    triggers: Triggers,
    *,
    count: int = 3,
    seed: int = 0,
) -> Attack:
    """Put the ``count`` strongest patterns of each class into labelled examples.

    Each pattern stands beside a control of raw attention (the strongest that speaks for the same
    class, where there is one) and the mean of random draws of as many tokens.
    """
    some = read_examples(examples)
    gold, inputs = classes_of(subject, some), encoded(subject, some)
    pools, others = (_of_each_class(of, count) for of in (triggers.patterns, triggers.by_attention))
    if not pools or not others:
        raise BadRequestError("There are no patterns to attack with; find them on more examples.")
    chosen = [one for label in sorted(pools) for one in pools[label]]
    rivals = [one for label in sorted(pools) for one in _as_many(others, label, len(pools[label]))]
    seeded = generator(seed)
    words = torch.cat([one["input_ids"][0][written(subject, one)] for one in inputs])

    def judge(pattern: Pattern | None) -> Float[Tensor, " label"]:
        changed = [one if pattern is None else inserted(subject, one, pattern) for one in inputs]
        return _by_class(answers_of(subject, changed).argmax(-1) == gold, gold, subject)

    draws = torch.stack(
        [
            torch.stack([judge(_shuffled(one, words, seeded)) for _ in range(RANDOM_DRAWS)])
            for one in chosen
        ]
    )
    longest = subject.anatomy.max_length
    counts = torch.bincount(gold, minlength=len(subject.labels)).cpu()
    after = torch.stack([judge(one) for one in chosen])
    bounds = [wilson(after[:, label], int(n)) for label, n in enumerate(counts.clamp_min(1))]
    return Attack(
        provenance=provenance(subject.name, "attack", subject.revision, seed=seed, count=count),
        checks={
            "parity": subject.anatomy.parity,
            "examples": len(some),
            "random draws": RANDOM_DRAWS,
            "as long as can be": sum(one["input_ids"].shape[1] == longest for one in inputs),
        },
        before=judge(None),
        after=after,
        interval=torch.stack(bounds, 1),
        random=draws.mean(1),
        random_spread=draws.std(1),
        attention=torch.stack([judge(one) for one in rivals]),
        counts=counts,
        patterns=tuple(chosen),
        attention_patterns=tuple(rivals),
        labels=subject.labels,
    )


def _patterns(
    subject: Subject,
    maps: list[Tensor],
    ids: list[tuple[str, Tensor]],
    predicted: Tensor,
    *,
    only_words: bool = False,
) -> list[Pattern]:
    """The pattern of every row that has one."""
    found = []
    for row, (name, own) in enumerate(ids):
        content = written(subject, {"input_ids": own.unsqueeze(0)}).to(own.device)
        mine = [one[row, :, : len(own), : len(own)] for one in maps]
        if only_words:
            pairs = content[:, None] & content
            mine = [one.masked_fill(~pairs, -torch.inf) for one in mine]
        site = max(range(len(mine)), key=lambda at: float(mine[at].amax()))
        head = int(mine[site].amax((1, 2)).argmax())
        top = mine[site][head].flatten().topk(2)
        strong = 2 if float(top.values[1]) >= WEAK * float(top.values[0]) else 1
        edges = [divmod(int(at), len(own)) for at in top.indices[:strong]]
        places = sorted({place for edge in edges for place in edge if bool(content[place])})
        if places:
            tokens = tuple(token_at(subject, own, content.tolist(), place) for place in places)
            scores = (float(top.values[0]), float(top.values[1]))
            found.append(Pattern(tokens, scores, site, head, int(predicted[row]), name))
    return found


def _weakness(pattern: Pattern) -> float:
    return -sum(pattern.scores)


def _of_each_class(patterns: Sequence[Pattern], count: int) -> dict[int, list[Pattern]]:
    """The first few different patterns of every class."""
    found: dict[int, list[Pattern]] = {}
    for one in patterns:
        own = found.setdefault(one.predicted, [])
        if len(own) < count and one.text not in {other.text for other in own}:
            own.append(one)
    return found


def _as_many(pools: dict[int, list[Pattern]], label: int, count: int) -> list[Pattern]:
    """Patterns that speak for a class, or for any where none does, over and over."""
    own = pools.get(label) or [one for pool in pools.values() for one in pool]
    return [own[place % len(own)] for place in range(count)]


def _shuffled(pattern: Pattern, words: Tensor, seeded: torch.Generator) -> Pattern:
    """The same places with tokens drawn from the texts."""
    drawn = words[torch.randint(len(words), (len(pattern.tokens),), generator=seeded)].tolist()
    tokens = [
        replace(one, token_id=other) for one, other in zip(pattern.tokens, drawn, strict=True)
    ]
    return replace(pattern, tokens=tuple(tokens))


def _by_class(right: Tensor, gold: Tensor, subject: Subject) -> Tensor:
    """The share that is right of every class; NaN where a class has no examples."""
    return torch.stack(
        [right[gold == label].float().mean() for label in range(len(subject.labels))]
    ).cpu()
