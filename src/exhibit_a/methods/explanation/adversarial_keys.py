"""Can a small network replace every key of the model and leave the answers alone?

The experiment of the poster "Is Attention Explanation in Transformers?": the model is frozen and
one MLP (d → hidden → d, shared by all layers) turns the keys of a clean pass into other keys, which
are put in place of the model's, at all sites at once. It is trained on

    alpha · cross-entropy(label, answer) − (1 − alpha) · log mean‖k − k'‖²

so it is paid for right answers and for keys far from the model's. The second term can be had for
nothing: softmax does not see a shift of all keys by one vector, so the distance can grow without
end while attention stays the same. Beside the poster's distance this file therefore measures what
counts: the divergence between the attention maps, and the distance between keys after the best
common shift of each head has been removed.

Four controls stand beside the adversary: the model as it is; the ``opposite`` adversary, whose
distance term has the opposite sign (it is paid for staying near); ``random`` keys with the mean
and spread of the model's; and the same MLP trained on random keys (``random, trained``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
from exhibit_a.results.result import Result
from exhibit_a.shapes import Attention, Queries, SharedKeys
from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import Subject
from exhibit_a.subject.tap import AttentionCall, Tap
from exhibit_a.trace.batches import Source, encoded, grouped, padded, stand_alone

if TYPE_CHECKING:
    pass

CONDITIONS = ("own", "adversary", "opposite", "random", "random, trained")
HELD_OUT = 0.25  # of the examples, where no others are given to judge by


@dataclass(frozen=True, kw_only=True, eq=False)
class AdversarialKeys(Result):
    """What other keys do to the answers, on examples that no MLP was trained on."""

    conditions: tuple[str, ...]
    accuracy: Float[Tensor, " condition"]
    accuracy_interval: Float[Tensor, "condition bound"]
    agreement: Float[Tensor, " condition"]  # with the model's own answer
    key_distance: Float[Tensor, "condition site"]  # root mean square over key entries
    shift_free_distance: Float[Tensor, "condition site"]  # the same without the common shift
    divergence: Float[Tensor, "condition site"]  # of attention maps, mean over heads and rows
    curves: dict[str, Float[Tensor, "step term"]] = field(metadata={"over": "condition"})
    terms: tuple[str, ...] = ("cross-entropy", "log squared distance")


@method(
    question="Could other keys have given the same answers?",
    room="explanation",
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

    Numbers are from ``held_out``, or from a quarter of the examples that is put aside.
    """
    if not 0 <= alpha <= 1 or hidden < 1 or epochs < 1:
        raise BadRequestError("alpha lies between 0 and 1; hidden and epochs are at least 1.")
    _require_one_width(subject)
    before = [weight.clone() for weight in subject.model.state_dict().values()]
    learn, judge = _split(read_examples(examples, labelled=True), held_out, seed)
    data = _Data(subject, learn, seed)
    width = subject.anatomy.sites[0].kv_heads * (subject.anatomy.sites[0].d_query or 0)
    changes: dict[str, _Change] = {"own": _Change(None, False)}
    curves = {}
    for number, (name, sign, from_noise) in enumerate(
        (("adversary", -1.0, False), ("opposite", 1.0, False), ("random, trained", -1.0, True))
    ):
        seeded = generator(seed + number)
        mlp = _mlp(width, hidden, seeded).to(subject.device)
        changes[name] = _Change(mlp, from_noise)
        weights = (alpha, sign * (1 - alpha))
        curves[name] = _train(data, changes[name], weights, epochs, learning_rate)
        tell(progress, number + 1, 3)
    changes["random"] = _Change(None, True)

    measured = [_measure(_Data(subject, judge, seed), changes[name]) for name in CONDITIONS]
    correct = torch.stack([one["correct"] for one in measured])
    _require_untouched(subject, before)
    return AdversarialKeys(
        provenance=provenance(
            subject.name,
            "adversarial_keys",
            subject.revision,
            seed,
            alpha=alpha,
            hidden=hidden,
            epochs=epochs,
            learning_rate=learning_rate,
        ),
        checks={
            "trained on": len(learn),
            "judged on": len(judge),
            "weights of the model": "bit for bit as before",
        },
        conditions=CONDITIONS,
        accuracy=correct.mean(-1),
        accuracy_interval=bootstrap_interval(correct, seed=seed),
        agreement=torch.stack([one["agrees"].mean() for one in measured]),
        key_distance=torch.stack([one["distance"] for one in measured]),
        shift_free_distance=torch.stack([one["shift free"] for one in measured]),
        divergence=torch.stack([one["divergence"] for one in measured]),
        curves=curves,
    )


def without_shift(
    difference: Float[Tensor, "batch kv_head key d_query"], real: Float[Tensor, "batch key"]
) -> Float[Tensor, "batch kv_head key d_query"]:
    """Key differences after the common shift of each head, which attention cannot see, is gone."""
    weight = real[:, None, :, None]
    return (
        difference - (difference * weight).sum(2, keepdim=True) / weight.sum(2, keepdim=True)
    ) * weight


@dataclass(frozen=True, eq=False)
class _Change:
    """How keys are replaced: through an MLP or not, from the model's keys or from noise."""

    mlp: nn.Module | None
    from_noise: bool

    def __call__(self, key: SharedKeys, noise: Tensor) -> SharedKeys:
        given = noise if self.from_noise else key
        if self.mlp is None:
            return given
        flat = given.transpose(1, 2).flatten(2)  # heads side by side, as the model made them
        changed: Tensor = self.mlp(flat.float())
        return changed.to(key.dtype).reshape(given.transpose(1, 2).shape).transpose(1, 2)


@dataclass(frozen=True, eq=False)
class _Batch:
    inputs: dict[str, Any]
    real: Float[Tensor, "batch key"]
    gold: Tensor
    places: list[int]


class _Data:
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


class _Look(Tap):
    """Remembers keys and maps of a clean pass."""

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


class _Replace(_Look):
    """Puts given keys in place of the model's, and remembers the maps that result."""

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()
        self.given = given

    def scoring(self, site: int, query: Queries, key: SharedKeys) -> tuple[Any, Any]:  # type: ignore[override]
        """Replace the keys."""
        self.keys.append(key)
        return query, self.given[site]


def _passes(data: _Data, batch: _Batch, change: _Change) -> tuple[_Look, _Replace, Any, Any]:
    """A clean pass, then a pass with the changed keys of the clean one at all sites."""
    model, clean = data.subject.model, _Look()
    with frozen_eval(model):
        with torch.no_grad(), data.subject.tapping(clean):
            own = model(**batch.inputs).logits
        given = [change(key, data.noise(key)) for key in clean.keys]
        other = _Replace(given)
        with data.subject.tapping(other):
            answer = model(**batch.inputs).logits
    return clean, other, own, answer


def _train(
    data: _Data, change: _Change, weights: tuple[float, float], epochs: int, rate: float
) -> Float[Tensor, "step term"]:
    """Train one MLP; the loss terms of every step."""
    assert change.mlp is not None
    optimiser = torch.optim.Adam(change.mlp.parameters(), lr=rate)
    curve = []
    for _ in range(epochs):
        for batch in data.batches(shuffled=True):
            clean, other, _, answer = _passes(data, batch, change)
            right = nn.functional.cross_entropy(answer.float(), batch.gold)
            far = torch.stack(
                [
                    _squares(new - old, batch.real)
                    for new, old in zip(other.given, clean.keys, strict=True)
                ]
            )
            distance = far.mean().log()
            optimiser.zero_grad()
            torch.autograd.backward(weights[0] * right + weights[1] * distance)
            optimiser.step()
            curve.append(torch.stack([right.detach(), distance.detach()]).cpu())
    return torch.stack(curve)


@torch.no_grad()
def _measure(data: _Data, change: _Change) -> dict[str, Tensor]:
    """Answers and distances under one change, over all examples."""
    correct, agrees = torch.zeros(data.size), torch.zeros(data.size)
    far, shift_free, divergence = [], [], []
    for batch in data.batches():
        clean, other, own, answer = _passes(data, batch, change)
        correct[batch.places] = (answer.argmax(-1) == batch.gold).float().cpu()
        agrees[batch.places] = (answer.argmax(-1) == own.argmax(-1)).float().cpu()
        weight = batch.real.sum()
        gaps = [new - old for new, old in zip(other.given, clean.keys, strict=True)]
        far.append(torch.stack([_squares(gap, batch.real) for gap in gaps]) * weight)
        clear = [_squares(without_shift(gap, batch.real), batch.real) for gap in gaps]
        shift_free.append(torch.stack(clear) * weight)
        maps = zip(other.maps, clean.maps, strict=True)
        rows = [jensen_shannon(new, old).mean(1) for new, old in maps]
        divergence.append(torch.stack([(one * batch.real).sum() for one in rows]))
    total = sum(float(batch.real.sum()) for batch in data.batches())
    return {
        "correct": correct,
        "agrees": agrees,
        "distance": (torch.stack(far).sum(0) / total).sqrt().cpu(),
        "shift free": (torch.stack(shift_free).sum(0) / total).sqrt().cpu(),
        "divergence": (torch.stack(divergence).sum(0) / total).cpu(),
    }


def _squares(gap: Tensor, real: Tensor) -> Tensor:
    """The mean square over the entries of real keys."""
    return (gap.square().mean((1, 3)) * real).sum() / real.sum()


def _mlp(width: int, hidden: int, seeded: torch.Generator) -> nn.Sequential:
    """Linear, ReLU, linear, with torch's usual bounds drawn from ``seeded``."""
    mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
    with torch.no_grad():
        for layer, size in ((mlp[0], width), (mlp[2], hidden)):
            for weight in layer.parameters():
                drawn = torch.rand(weight.shape, generator=seeded)
                weight.copy_((2 * drawn - 1) * size**-0.5)
    return mlp


def _split(
    examples: list[Example], held_out: Any, seed: int
) -> tuple[list[Example], list[Example]]:
    """Examples to train on and others to judge by."""
    if held_out is not None:
        return examples, read_examples(held_out, labelled=True)
    return put_aside(examples, HELD_OUT, seed)


def _require_one_width(subject: Subject) -> None:
    widths = {(site.kv_heads, site.d_query) for site in subject.anatomy.sites}
    if len(widths) > 1 or None in next(iter(widths)):
        raise UnsupportedModelError(
            "One network cannot replace the keys of all sites: their widths differ or are not seen."
        )
    if any(site.kind == "cross" for site in subject.anatomy.sites):
        raise UnsupportedModelError("The keys of two stacks cannot be replaced by one network.")


def _require_untouched(subject: Subject, before: list[Tensor]) -> None:
    after = subject.model.state_dict().values()
    if not all(torch.equal(was, now) for was, now in zip(before, after, strict=True)):
        raise BrokenInvariantError("The model's weights changed during training; no numbers given.")
