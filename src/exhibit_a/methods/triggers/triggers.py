"""Do the strongest edges make words that turn any text?

If an answer rests on one attention edge, the two words it joins may carry that answer anywhere.
Adversarial triggers (Hao et al., AAAI 2021):

1. attribute the predicted class of each example, and take the one head matrix that holds the
   largest entry of all; its two largest entries name two pairs of tokens, with their positions;
2. a pattern is both pairs, or only the first where the second is much weaker, without the tokens
   that the tokenizer added;
3. insert the tokens of a pattern into other examples, in the same segment at the same relative
   position, and count how many of each class are still answered correctly. A place is a segment
   and a share of its length, so that it means the same in texts of every length. Where a text has
   fewer segments, the last one takes the token; a text that becomes too long for the model is cut
   at the end of the segment that grew.

A drop proves nothing about attribution unless other tokens do less. So every attack is repeated
with two controls in the same places: tokens drawn at random from the texts themselves, and the
patterns of the largest raw attention between words instead of the largest attribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.examples import read_examples
from exhibit_a.examples.labels import classes_of, limited
from exhibit_a.methods.attribution.path_integral import WALK, attribute_classes
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.intervals import wilson
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Progress
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.results.tables import record_table
from exhibit_a.shapes import Inputs
from exhibit_a.subject.encoding import positions
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import logits_at
from exhibit_a.trace.batches import Source, answers_of, encoded, grouped, run, stand_alone

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class TriggerSettings:
    """Which pairs and patterns are worth keeping, and what they are compared with."""

    weak: float = 0.2  # a second pair below this share of the first is left out
    faint: float = 0.02  # patterns whose two scores are below this together are not kept
    random_draws: int = 5  # of tokens in the places of each pattern


SETTINGS = TriggerSettings()


@dataclass(frozen=True)
class Inserted:
    """One token of a pattern: where it stood, as a segment and a share of its length."""

    token_id: int
    token: str
    segment: int
    place: float


@dataclass(frozen=True)
class Pattern:
    """The tokens joined by the strongest edges of one example."""

    tokens: tuple[Inserted, ...]
    scores: tuple[float, float]  # of the two edges
    site: int
    head: int
    predicted: int
    example: str

    @property
    def text(self) -> str:
        """The tokens, in their order."""
        return " ".join(inserted.token for inserted in self.tokens)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Triggers(Result):
    """Patterns by attribution, strongest first, and by raw attention for comparison."""

    patterns: tuple[Pattern, ...]
    by_attention: tuple[Pattern, ...]
    labels: tuple[str, ...]
    columns: ClassVar[dict[str, str]] = {
        "by": "what found the pattern: attribution or raw attention",
        "pattern": "its tokens, in their order",
        "first_score": "of the stronger of its two edges",
        "second_score": "of the other",
        "site": "attention layer of the edges",
        "head": "their head",
        "label": "class that the model gave the example",
        "example": "id of the example that it was found in",
    }

    def to_pandas(self) -> "pandas.DataFrame":
        """One row for each pattern, those by attribution first."""
        by_way = {"attribution": self.patterns, "attention": self.by_attention}
        rows = [
            {
                "by": way,
                "pattern": pattern.text,
                "first_score": pattern.scores[0],
                "second_score": pattern.scores[1],
                "site": pattern.site,
                "head": pattern.head,
                "label": self.labels[pattern.predicted],
                "example": pattern.example,
            }
            for way, patterns in by_way.items()
            for pattern in patterns
        ]
        return record_table(rows, self.columns)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Attack(Result):
    """Accuracy of every class before and after each pattern was put in, compared with the controls.

    A pattern is meant to pull examples of the other classes to the one it was found in.
    """

    before: Float[Tensor, " label"]  # accuracy on the examples of each class
    after: Float[Tensor, "pattern label"]  # the same with the pattern put in
    interval: Float[Tensor, "pattern label bound"]  # 95 %, of ``after``
    random: Float[Tensor, "pattern label"]  # tokens at random in the same places, mean of draws
    random_spread: Float[Tensor, "pattern label"]  # standard deviation over the draws
    attention: Float[Tensor, "pattern label"]  # patterns of the strongest raw attention
    counts: Int[Tensor, " label"]  # examples of each class
    patterns: tuple[Pattern, ...]
    attention_patterns: tuple[Pattern, ...]
    labels: tuple[str, ...]

    def drop(self, pattern: int, after: Float[Tensor, "pattern label"] | None = None) -> float:
        """How much accuracy the classes lose that the pattern does not stand for.

        ``after`` is the accuracy with a control instead of the pattern, such as ``random``.
        """
        accuracy = self.after if after is None else after
        others = torch.arange(len(self.labels)) != self.patterns[pattern].predicted
        weights = self.counts[others] / self.counts[others].sum()
        return float(((self.before - accuracy[pattern])[others] * weights).nansum())


@method(
    question="Do the strongest edges make words that turn any text?",
    needs=("classes",),
    cost=WALK,
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
    """Find the patterns of tokens on which single answers rest most.

    >>> triggers = xa.find_triggers(subject, examples[2:4])
    >>> [pattern.text for pattern in triggers.patterns]
    ['thin', 'nothing']
    >>> [pattern.text for pattern in triggers.by_attention]
    ['nothing here your time', 'the acting saves a']

    Args:
        limit: how many examples are used at most, from the first on.
        tolerance: the gap that attribution allows, as a share of what a site changes.
        progress: is called with the number of examples done, and of how many.
    """
    data = limited(read_examples(examples), limit)
    if subject.anatomy.answers != "classes" or subject.tokenizer is None:
        raise NotComputableError("Triggers are words that turn a class: give a text classifier.")
    inputs = encoded(subject, data)
    by_attribution: list[Pattern] = []
    by_attention: list[Pattern] = []
    for group in grouped(inputs, alone=stand_alone(subject), progress=progress):
        batch = run(subject, [inputs[place] for place in group])
        ids = [(data[place].id, inputs[place]["input_ids"][0]) for place in group]
        predicted = logits_at(batch.output).argmax(-1)
        integrals = attribute_classes(batch, predicted, tolerance)
        scores = [integral.scores for integral in integrals]
        by_attribution += _patterns(subject, scores, ids, predicted)
        by_attention += _patterns(subject, list(batch.attention), ids, predicted, only_words=True)
    kept = [pattern for pattern in by_attribution if sum(pattern.scores) >= SETTINGS.faint]
    return build_result(
        Triggers,
        subject,
        "find_triggers",
        settings={"limit": limit, "tolerance": tolerance},
        checks={
            "examples": len(data),
            "patterns below the threshold": len(by_attribution) - len(kept),
            "threshold": SETTINGS.faint,
        },
        patterns=_strongest_first(kept),
        by_attention=_strongest_first(by_attention),
        labels=subject.labels,
    )


@method(
    question="How often do the patterns turn other texts?",
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
    """Insert the strongest patterns of each class into labelled examples.

    Each pattern is compared with a control of raw attention (the strongest pattern of the same
    class, where there is one) and the mean of random draws of as many tokens.

    >>> triggers = xa.find_triggers(subject, examples[2:4])
    >>> attack = xa.attack(subject, examples, triggers, count=1)
    >>> attack.patterns[0].text, attack.before.tolist()
    ('thin', [1.0, 0.75])
    >>> round(attack.drop(0), 2)  # of the accuracy on positive texts
    0.25

    Args:
        triggers: the patterns, as found by find_triggers.
        count: how many patterns of each class are inserted.
        seed: same seed, same random tokens.
    """
    data = read_examples(examples)
    judged = _Attacked(subject, classes_of(subject, data), encoded(subject, data))
    chosen, rivals = _chosen(triggers, count)
    seeded = generator(seed)
    words = torch.cat([ids["input_ids"][0][written(subject, ids)] for ids in judged.inputs])
    draws = torch.stack(
        [
            torch.stack(
                [
                    judged.accuracy(_redrawn(pattern, words, seeded))
                    for _ in range(SETTINGS.random_draws)
                ]
            )
            for pattern in chosen
        ]
    )
    after = torch.stack([judged.accuracy(pattern) for pattern in chosen])
    bounds = [wilson(after[:, label], max(1, n)) for label, n in enumerate(judged.counts.tolist())]
    return build_result(
        Attack,
        subject,
        "attack",
        seed=seed,
        settings={"count": count},
        checks={
            "examples": len(data),
            "random draws": SETTINGS.random_draws,
            "as long as can be": judged.longest(),
        },
        before=judged.accuracy(None),
        after=after,
        interval=torch.stack(bounds, 1),
        random=draws.mean(1),
        random_spread=draws.std(1),
        attention=torch.stack([judged.accuracy(pattern) for pattern in rivals]),
        counts=judged.counts,
        patterns=tuple(chosen),
        attention_patterns=tuple(rivals),
        labels=subject.labels,
    )


@dataclass(frozen=True, eq=False)
class _Attacked:
    """Labelled examples, and how accurate the model is on them with a pattern inserted."""

    subject: Subject
    gold: Int[Tensor, " example"]
    inputs: list[Inputs]

    @property
    def counts(self) -> Int[Tensor, " label"]:
        """How many examples each class has."""
        return torch.bincount(self.gold, minlength=len(self.subject.labels)).cpu()

    def longest(self) -> int:
        """How many examples are as long as the model takes."""
        longest = self.subject.anatomy.max_length
        return sum(encoding["input_ids"].shape[1] == longest for encoding in self.inputs)

    def accuracy(self, pattern: Pattern | None) -> Float[Tensor, " label"]:
        """The share that is right of every class; NaN where a class has no examples."""
        changed = self.inputs
        if pattern is not None:
            changed = [inserted(self.subject, encoding, pattern) for encoding in self.inputs]
        right = answers_of(self.subject, changed).argmax(-1) == self.gold
        classes = range(len(self.subject.labels))
        return torch.stack([right[self.gold == label].float().mean() for label in classes]).cpu()


def _patterns(
    subject: Subject,
    maps: list[Tensor],
    ids: list[tuple[str, Tensor]],
    predicted: Tensor,
    *,
    only_words: bool = False,
) -> list[Pattern]:
    """The pattern of every row that has one."""
    patterns = []
    for row, (name, tokens) in enumerate(ids):
        length = len(tokens)
        content = written(subject, {"input_ids": tokens.unsqueeze(0)}).to(tokens.device)
        sites = [site[row, :, :length, :length] for site in maps]
        if only_words:
            pairs = content[:, None] & content
            sites = [site.masked_fill(~pairs, -torch.inf) for site in sites]
        site = max(range(len(sites)), key=lambda at: float(sites[at].amax()))
        head = int(sites[site].amax((1, 2)).argmax())
        top = sites[site][head].flatten().topk(2)
        strong = 2 if float(top.values[1]) >= SETTINGS.weak * float(top.values[0]) else 1
        edges = [divmod(int(at), length) for at in top.indices[:strong]]
        places = sorted({place for edge in edges for place in edge if bool(content[place])})
        if places:
            joined = tuple(token_at(subject, tokens, content.tolist(), place) for place in places)
            scores = (float(top.values[0]), float(top.values[1]))
            patterns.append(Pattern(joined, scores, site, head, int(predicted[row]), name))
    return patterns


def _chosen(triggers: Triggers, count: int) -> tuple[list[Pattern], list[Pattern]]:
    """The first patterns of each class by attribution, and as many by raw attention."""
    if count < 1:
        raise BadRequestError(f"{count} patterns of each class were requested; give 1 or more.")
    classes = _of_each_class(triggers.patterns, count)
    others = _of_each_class(triggers.by_attention, count)
    if not classes or not others:
        raise BadRequestError("There are no patterns to attack with; find them on more examples.")
    chosen, rivals = list[Pattern](), list[Pattern]()
    for label in sorted(classes):
        chosen += classes[label]
        # of the same class, or of any where it has none; each may come several times
        pool = others.get(label) or [pattern for pool in others.values() for pattern in pool]
        rivals += [pool[place % len(pool)] for place in range(len(classes[label]))]
    return chosen, rivals


def _strongest_first(patterns: list[Pattern]) -> tuple[Pattern, ...]:
    return tuple(sorted(patterns, key=lambda pattern: -sum(pattern.scores)))


def _of_each_class(patterns: Sequence[Pattern], count: int) -> dict[int, list[Pattern]]:
    """The first few different patterns of every class."""
    classes: dict[int, list[Pattern]] = {}
    for pattern in patterns:
        chosen = classes.setdefault(pattern.predicted, [])
        if len(chosen) < count and pattern.text not in {other.text for other in chosen}:
            chosen.append(pattern)
    return classes


def _redrawn(pattern: Pattern, words: Tensor, seeded: torch.Generator) -> Pattern:
    """The same places with tokens drawn from the texts."""
    drawn = words[torch.randint(len(words), (len(pattern.tokens),), generator=seeded)].tolist()
    tokens = [
        replace(token, token_id=word) for token, word in zip(pattern.tokens, drawn, strict=True)
    ]
    return replace(pattern, tokens=tuple(tokens))


def inserted(subject: Subject, inputs: dict[str, Tensor], pattern: Pattern) -> dict[str, Tensor]:
    """Inputs with the tokens of a pattern at the same relative places of the same segments."""
    ids = inputs["input_ids"][0].tolist()
    kinds = inputs["token_type_ids"][0].tolist() if "token_type_ids" in inputs else None
    segments = _segments(written(subject, inputs).tolist())
    for segment in reversed(range(len(segments))):
        start, stop = segments[segment]
        new = [
            token for token in pattern.tokens if min(token.segment, len(segments) - 1) == segment
        ]
        total = stop - start + len(new)
        taken: dict[int, int] = {}
        for token in new:
            at = min(round(token.place * total), total - 1)
            while at in taken:
                at = (at + 1) % total
            taken[at] = token.token_id
        old = iter(ids[start:stop])
        ids[start:stop] = [taken[at] if at in taken else next(old) for at in range(total)]
        if kinds is not None:
            kinds[start:start] = [kinds[start]] * len(new)
        ids, kinds = _cut(subject, ids, kinds, start + total)
    longer = {"input_ids": torch.tensor([ids], device=subject.device)}
    if kinds is not None:
        longer["token_type_ids"] = torch.tensor([kinds], device=subject.device)
    if "attention_mask" in inputs:
        longer["attention_mask"] = torch.ones_like(longer["input_ids"])
    return longer


def token_at(subject: Subject, ids: Tensor, content: list[bool], place: int) -> Inserted:
    """The token at a place, and where that is within its segment."""
    segments = _segments(content)
    segment = next(at for at, (start, stop) in enumerate(segments) if start <= place < stop)
    start, stop = segments[segment]
    token = subject.tokenizer.convert_ids_to_tokens(int(ids[place]))
    return Inserted(int(ids[place]), token, segment, (place - start) / (stop - start))


def written(subject: Subject, inputs: dict[str, Tensor]) -> Tensor:
    """Which positions are of the text itself, and not special tokens of the tokenizer."""
    ids = inputs["input_ids"][0]
    return ~positions(subject.tokenizer, ids, len(ids))[1]


def _segments(content: Sequence[bool]) -> list[tuple[int, int]]:
    """The runs of written positions, each from its start to where it stops."""
    segments: list[tuple[int, int]] = []
    for place, in_text in enumerate(content):
        if in_text and segments and segments[-1][1] == place:
            segments[-1] = (segments[-1][0], place + 1)
        elif in_text:
            segments.append((place, place + 1))
    return segments


def _cut(
    subject: Subject, ids: list[int], kinds: list[int] | None, stop: int
) -> tuple[list[int], list[int] | None]:
    """Shorten a segment at its end to what the model takes."""
    excess = max(0, len(ids) - (subject.anatomy.max_length or len(ids)))
    keep = [place for place in range(len(ids)) if not stop - excess <= place < stop]
    return [ids[at] for at in keep], None if kinds is None else [kinds[at] for at in keep]
