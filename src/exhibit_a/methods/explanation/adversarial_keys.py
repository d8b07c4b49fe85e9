"""Can a small network replace every key of the model and leave the answers alone?

The experiment of the poster "Is Attention Explanation in Transformers?": the model is frozen and
one MLP (d → hidden → d, shared by all layers) turns the keys of a clean pass into other keys, which
are put in place of the model's, at all sites at once. It is trained on

    alpha · cross-entropy(label, answer) − (1 − alpha) · log mean‖k − k'‖²

so right answers and keys far from the model's lower its loss. The second term can grow for free:
softmax ignores a shift of all keys by one vector, so the distance can grow without limit while
attention stays the same. Beside the poster's distance this file therefore measures what counts: the
divergence between the attention maps, and the distance between keys after the best common shift of
each head has been removed.

The adversary is compared with four controls: the model as it is; the ``opposite`` adversary, whose
distance term has the opposite sign, so that it stays near; ``random`` keys with the mean and spread
of the model's; and the same MLP trained on random keys (``random, trained``).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhibit_a.errors import BadRequestError, BrokenInvariantError, UnsupportedModelError
from exhibit_a.examples import Example, read_examples
from exhibit_a.examples.labels import classes_of, put_aside
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.distances import jensen_shannon
from exhibit_a.numerics.intervals import bootstrap_interval
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Progress, tell
from exhibit_a.results.making import build_result
from exhibit_a.results.result import Result
from exhibit_a.shapes import Attention, Inputs, Queries, SharedKeys
from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.answers import Logits, logits_at
from exhibit_a.trace.batches import Source, encoded, grouped, padded, stand_alone

CONDITIONS = ("own", "adversary", "opposite", "random", "random, trained")
TRAINED = {  # the sign of the distance term, and whether the MLP is given noise
    "adversary": (-1.0, False),
    "opposite": (1.0, False),
    "random, trained": (-1.0, True),
}
HELD_OUT = 0.25  # of the examples, where no others are given to judge by


@dataclass(frozen=True, kw_only=True, eq=False)
class AdversarialKeys(Result):
    """What other keys do to the answers, on examples that no MLP was trained on."""

    conditions: tuple[str, ...]
    accuracy: Float[Tensor, " condition"]  # with these keys
    accuracy_interval: Float[Tensor, "condition bound"]  # 95 %
    agreement: Float[Tensor, " condition"]  # with the model's own answer
    key_distance: Float[Tensor, "condition site"]  # root mean square over key entries
    shift_free_distance: Float[Tensor, "condition site"]  # the same without the common shift
    divergence: Float[Tensor, "condition site"]  # of attention maps, mean over heads and rows
    # of training: the terms of the loss, step by step
    curves: dict[str, Float[Tensor, "step term"]] = field(metadata={"over": "condition"})
    terms: tuple[str, ...] = ("cross-entropy", "log squared distance")


@method(
    question="Could other keys have given the same answers?",
    needs=("classes",),
    cost=Cost(forwards=16, backwards=True, maps=1),
)
def adversarial_keys(
    subject: Subject,
    examples: Source,
    *,
    alpha: float = 0.5,
    hidden: int = 256,
    epochs: int = 3,
    learning_rate: float = 1e-3,
    held_out: Source | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> AdversarialKeys:
    """Train the poster's adversary and its controls on labelled examples; the model never changes.

    >>> keys = xa.adversarial_keys(subject, examples, hidden=8, epochs=1, held_out=examples[:2])
    >>> keys.conditions
    ('own', 'adversary', 'opposite', 'random', 'random, trained')
    >>> float(keys.agreement[0]), float(keys.key_distance[0].sum())  # the model's own keys
    (1.0, 0.0)

    Args:
        alpha: the weight of right answers in the loss, from 0 to 1; the rest is for the distance.
        hidden: the width of the hidden layer of the network that makes the keys.
        epochs: how often the network sees every example.
        learning_rate: the step size of its training.
        held_out: examples to judge by; without, a quarter of the examples is held out.
        seed: same seed, same numbers.
        progress: is called with the number of networks trained, and of how many.
    """
    recipe = _Recipe(alpha, hidden, epochs, learning_rate)
    _check_request(subject, recipe)
    before = [weight.clone() for weight in subject.model.state_dict().values()]
    learn, judge = _split(read_examples(examples, labelled=True), held_out, seed)
    data = _LabelledBatches(subject, learn, seed)
    changes = {"own": _KeyChange(None, False), "random": _KeyChange(None, True)}
    curves = {}
    site = subject.anatomy.sites[0]
    width = site.kv_heads * (site.d_query or 0)
    for number, (name, (sign, from_noise)) in enumerate(TRAINED.items()):
        # Linear, ReLU, linear, with torch's usual bounds, drawn from our own stream.
        seeded = generator(seed + number)
        # Layers begin empty: to fill them would draw from the caller's global stream.
        first = nn.Linear(width, recipe.hidden, device="meta").to_empty(device="cpu")
        last = nn.Linear(recipe.hidden, width, device="meta").to_empty(device="cpu")
        mlp = nn.Sequential(first, nn.ReLU(), last)
        with torch.no_grad():
            for layer, size in ((first, width), (last, recipe.hidden)):
                for weight in layer.parameters():
                    drawn = torch.rand(weight.shape, generator=seeded)
                    weight.copy_((2 * drawn - 1) * size**-0.5)
        mlp = mlp.to(subject.device)
        change = changes[name] = _KeyChange(mlp, from_noise)
        optimiser = torch.optim.Adam(mlp.parameters(), lr=recipe.learning_rate)
        curve = []
        for _ in range(recipe.epochs):
            for batch in data.batches(shuffled=True):
                compared = _compared(data, batch, change)
                error = nn.functional.cross_entropy(compared.changed_logits.float(), batch.gold)
                squares = torch.stack([_mean_square(gap, batch.real) for gap in compared.gaps])
                distance = squares.mean().log()
                optimiser.zero_grad()
                torch.autograd.backward(recipe.alpha * error + sign * (1 - recipe.alpha) * distance)
                optimiser.step()
                curve.append(torch.stack([error.detach(), distance.detach()]).cpu())
        curves[name] = torch.stack(curve)
        tell(progress, number + 1, len(TRAINED))
    measured = [
        _measure(_LabelledBatches(subject, judge, seed), changes[name]) for name in CONDITIONS
    ]
    correct = torch.stack([numbers["correct"] for numbers in measured])
    after = subject.model.state_dict().values()
    if not all(torch.equal(was, now) for was, now in zip(before, after, strict=True)):
        raise BrokenInvariantError("The model's weights changed during training; no numbers given.")
    return build_result(
        AdversarialKeys,
        subject,
        "adversarial_keys",
        seed=seed,
        settings=asdict(recipe),
        checks={
            "trained on": len(learn),
            "judged on": len(judge),
            "weights of the model": "bit for bit as before",
        },
        conditions=CONDITIONS,
        accuracy=correct.mean(-1),
        accuracy_interval=bootstrap_interval(correct, seed=seed),
        agreement=torch.stack([numbers["agrees"].mean() for numbers in measured]),
        key_distance=torch.stack([numbers["distance"] for numbers in measured]),
        shift_free_distance=torch.stack([numbers["shift free"] for numbers in measured]),
        divergence=torch.stack([numbers["divergence"] for numbers in measured]),
        curves=curves,
    )


def without_shift(
    difference: Float[Tensor, "batch kv_head key d_query"], real: Float[Tensor, "batch key"]
) -> Float[Tensor, "batch kv_head key d_query"]:
    """Key differences without the common shift of each head, which attention ignores."""
    weight = real[:, None, :, None]
    return (
        difference - (difference * weight).sum(2, keepdim=True) / weight.sum(2, keepdim=True)
    ) * weight


@dataclass(frozen=True)
class _Recipe:
    """How an MLP is trained."""

    alpha: float
    hidden: int
    epochs: int
    learning_rate: float


@dataclass(frozen=True, eq=False)
class _KeyChange:
    """How keys are replaced: through an MLP or not, from the model's keys or from noise."""

    mlp: nn.Module | None
    from_noise: bool

    def __call__(self, key: SharedKeys, noise: Tensor) -> SharedKeys:
        source = noise if self.from_noise else key
        if self.mlp is None:
            return source
        flat = source.transpose(1, 2).flatten(2)  # heads side by side, as the model made them
        changed: Tensor = self.mlp(flat.float())
        return changed.to(key.dtype).reshape(source.transpose(1, 2).shape).transpose(1, 2)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some labelled examples, padded, and their places in the data set."""

    inputs: Inputs
    real: Float[Tensor, "batch key"]
    gold: Tensor
    places: list[int]


class _LabelledBatches:
    """Labelled examples in padded batches, in an order that follows from the seed."""

    def __init__(self, subject: Subject, examples: Sequence[Example], seed: int) -> None:
        self.subject, self.size = subject, len(examples)
        self.gold = classes_of(subject, examples)
        self.encodings = encoded(subject, examples)
        self.groups = list(grouped(self.encodings, alone=stand_alone(subject)))
        self.seeded = generator(seed)

    def batches(self, *, shuffled: bool = False) -> Iterator[_Batch]:
        """Every batch once."""
        count = len(self.groups)
        order = torch.randperm(count, generator=self.seeded) if shuffled else torch.arange(count)
        for index in order.tolist():
            places = self.groups[index]
            inputs = padded(self.subject, [self.encodings[place] for place in places])
            real = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).float()
            yield _Batch(without_cache(self.subject.model, inputs), real, self.gold[places], places)

    def noise(self, key: Tensor) -> Tensor:
        """Random keys with the mean and the spread that each head's keys have."""
        drawn = torch.randn(key.shape, generator=self.seeded).to(key)
        return drawn * key.std((0, 2), keepdim=True) + key.mean((0, 2), keepdim=True)


class _KeyRecorder(Tap):
    """Remembers the keys and maps of a pass."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.maps: list[Tensor] = []

    def scoring(self, site: int, query: Queries, key: SharedKeys) -> None:  # noqa: ARG002
        """Remember the keys."""
        self.keys.append(key.detach())

    def weighting(self, call: AttentionCall) -> Attention | None:
        """Remember the map."""
        self.maps.append(call.probs.detach())
        return None


class _KeyReplacer(Tap):
    """Replaces the keys of all sites, and remembers the maps that result."""

    def __init__(self, keys: Sequence[Tensor]) -> None:
        self.keys = keys
        self.maps: list[Tensor] = []

    def scoring(self, site: int, query: Queries, key: SharedKeys) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Replace the keys."""
        return query, self.keys[site]

    def weighting(self, call: AttentionCall) -> Attention | None:
        """Remember the map."""
        self.maps.append(call.probs.detach())
        return None


@dataclass(frozen=True, eq=False)
class _Compared:
    """The same batch with the model's keys and with changed ones."""

    clean: _KeyRecorder
    changed: _KeyReplacer
    clean_logits: Logits
    changed_logits: Logits

    @property
    def gaps(self) -> list[Tensor]:
        """The difference between the keys of every site."""
        return [new - old for new, old in zip(self.changed.keys, self.clean.keys, strict=True)]


def _compared(data: _LabelledBatches, batch: _Batch, change: _KeyChange) -> _Compared:
    """A clean pass, then a pass with the changed keys of the clean one at all sites."""
    model, clean = data.subject.model, _KeyRecorder()
    with frozen_eval(model):
        with torch.no_grad(), data.subject.tapping(clean):
            clean_logits = logits_at(model(**batch.inputs))
        changed = _KeyReplacer([change(key, data.noise(key)) for key in clean.keys])
        with data.subject.tapping(changed):
            changed_logits = logits_at(model(**batch.inputs))
    return _Compared(clean, changed, clean_logits, changed_logits)


@torch.no_grad()
def _measure(data: _LabelledBatches, change: _KeyChange) -> dict[str, Tensor]:
    """Answers and distances under one change, over all examples."""
    correct, agrees = torch.zeros(data.size), torch.zeros(data.size)
    distance, shift_free, divergence = [], [], []
    for batch in data.batches():
        compared = _compared(data, batch, change)
        answer = compared.changed_logits.argmax(-1)
        correct[batch.places] = (answer == batch.gold).float().cpu()
        agrees[batch.places] = (answer == compared.clean_logits.argmax(-1)).float().cpu()
        weight, gaps = batch.real.sum(), compared.gaps
        squares = [_mean_square(gap, batch.real) for gap in gaps]
        distance.append(torch.stack(squares) * weight)
        clear = [_mean_square(without_shift(gap, batch.real), batch.real) for gap in gaps]
        shift_free.append(torch.stack(clear) * weight)
        maps = zip(compared.changed.maps, compared.clean.maps, strict=True)
        rows = [jensen_shannon(new, old).mean(1) for new, old in maps]
        divergence.append(torch.stack([(row * batch.real).sum() for row in rows]))
    total = sum(float(batch.real.sum()) for batch in data.batches())
    return {
        "correct": correct,
        "agrees": agrees,
        "distance": (torch.stack(distance).sum(0) / total).sqrt().cpu(),
        "shift free": (torch.stack(shift_free).sum(0) / total).sqrt().cpu(),
        "divergence": (torch.stack(divergence).sum(0) / total).cpu(),
    }


def _mean_square(gap: Tensor, real: Tensor) -> Tensor:
    """The mean square over the entries of real keys."""
    return (gap.square().mean((1, 3)) * real).sum() / real.sum()


def _split(
    examples: list[Example], held_out: Source | None, seed: int
) -> tuple[list[Example], list[Example]]:
    """Examples to train on and others to judge by."""
    if held_out is not None:
        return examples, read_examples(held_out, labelled=True)
    return put_aside(examples, HELD_OUT, seed)


def _check_request(subject: Subject, recipe: _Recipe) -> None:
    """Refuse options that no training can have, and models whose keys differ in width."""
    if not 0 <= recipe.alpha <= 1 or recipe.hidden < 1 or recipe.epochs < 1:
        raise BadRequestError("alpha lies between 0 and 1; hidden and epochs are at least 1.")
    if not 0 < recipe.learning_rate < math.inf:
        raise BadRequestError(
            f"A learning rate of {recipe.learning_rate} was requested; give a number above 0."
        )
    widths = {(site.kv_heads, site.d_query) for site in subject.anatomy.sites}
    if len(widths) > 1 or None in next(iter(widths)):
        raise UnsupportedModelError(
            "One network cannot replace the keys of all sites: their widths differ or are not seen."
        )
    if any(site.kind == "cross" for site in subject.anatomy.sites):
        raise UnsupportedModelError("The keys of two stacks cannot be replaced by one network.")
