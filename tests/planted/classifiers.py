"""Planted encoders: which class has the item whose key the query names?

Position 0 holds the query (and is what the pooler reads), the others an item each: a key and a
class, +1 or -1. No key comes twice, and the classes are balanced or lean the other way, so that the
bag of items does not give the answer. A worker's query reads the key asked for, its keys read the
items' keys, its values carry the class and who the item is, and its output reads the class alone.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import exhibit_a as xa
from planted.truth import Planted
from planted.weights import (
    Head,
    Job,
    Shape,
    bert_sites,
    between,
    chooser,
    directions,
    fill_with_noise,
    make_restless,
    rows_of,
    sharpness,
    take,
    write,
)

KEYS = 23  # keys there are; a text uses some of them
SHAPES = ((2, 48), (2, 64), (3, 32), (3, 40), (4, 32), (4, 40))  # heads and their width
KEY, CLASS = 0.8, 0.6  # how much of an item's length is its key, and how much its class
WRITTEN = 0.25  # the length of what a worker writes, against that of a token
SCRATCH = 8  # directions that nobody reads


@dataclass(frozen=True)
class Meanings:
    """What the directions of the residual stream stand for."""

    asked: Tensor  # (key, width)
    key: Tensor  # (key, width)
    label: Tensor  # (width,)
    answer: Tensor  # (width,)
    marker: Tensor  # (width,)
    scratch: Tensor  # (some, width)


@dataclass(frozen=True)
class Text:
    """A query, its items, and perhaps a marker that is no item."""

    asked: int  # the key that the query names
    keys: Tensor  # (position - 1,); of the marker, -1
    signs: Tensor  # (position - 1,); of the marker, 0
    answer: int  # +1 or -1
    right: int  # the position of the item asked for
    marker: int | None  # the position of the marker

    def __len__(self) -> int:
        return 1 + len(self.keys)

    def ids(self) -> Tensor:
        """Token ids: 0 pads, 1 marks, then queries, then items."""
        items = 2 + KEYS + 2 * self.keys + (self.signs > 0)
        items[self.keys < 0] = 1
        return torch.cat([torch.tensor([2 + self.asked]), items]).unsqueeze(0)


class Encoder:
    """A classifier of noise, a text for it, and jobs to be written into its heads."""

    def __init__(self, random: torch.Generator, *, marked: bool = False, lean: float | None = None):
        self.random = random
        self.shape = Shape(chooser(random, 1, 2, 3), *SHAPES[chooser(random, *range(len(SHAPES)))])
        self.length = math.sqrt(self.shape.width)  # of every token in the residual stream
        supply = directions(self.shape.width, random)
        self.meanings = Meanings(
            take(supply, KEYS),
            take(supply, KEYS),
            next(supply),
            next(supply),
            next(supply),
            take(supply, SCRATCH),
        )
        self.text = _text(random, marked, lean)
        self.margin = between(random, 1.5, 9.0)

    def deepened(self, layers: int) -> None:
        """Use at least so many layers."""
        self.shape = replace(self.shape, layers=max(layers, self.shape.layers))

    def all_heads(self) -> list[Head]:
        return [
            (site, head) for site in range(self.shape.layers) for head in range(self.shape.heads)
        ]

    def some_heads(self, count: int) -> list[Head]:
        """Different heads, anywhere."""
        heads = self.all_heads()
        order = torch.randperm(len(heads), generator=self.random)
        return [heads[int(index)] for index in order[:count]]

    def matching(self) -> Job:
        """Look from the query at the item it asks for, with a weight of .93 to .99."""
        gain = self.gain(self._peak())
        return Job(
            query=gain * self.meanings.asked / self.length,
            key=gain * self.meanings.key / (KEY * self.length),
        )

    def staring(self, direction: Tensor, amount: float) -> Job:
        """Look from everywhere at the token that has a direction."""
        gain = self.gain(self._peak())
        key = gain * direction[None] / (amount * self.length)
        return Job(query_bias=torch.tensor([gain]), key=key)

    def with_values(self, job: Job, *, gain: float = 1.0, marker: float = 1.0) -> Job:
        """Carry class and identity of every token, and write the class into the answer."""
        meanings = self.meanings
        value = torch.cat(
            [
                meanings.label[None] / CLASS,
                meanings.marker[None] * marker,
                meanings.asked.sum(0, keepdim=True),
                meanings.key / KEY,
            ]
        )
        written = gain * WRITTEN * self.length * meanings.answer
        return replace(job, value=value / self.length, output=written[:, None])

    def class_only(self, job: Job) -> Job:
        """As ``with_values``, but the values are the class and nothing else."""
        full = self.with_values(job)
        return replace(full, value=full.value[:1], turned=False)

    def build(self, jobs: dict[Head, Job], *, strength: float = 1.0, own: float = 0.0):
        """The model and the views of its heads.

        ``strength`` is what the tanh of the pooler is given for the answer of one worker, ``own``
        the part of the answer that query tokens bring with them.
        """
        with torch.random.fork_rng(devices=[]):
            model = BertForSequenceClassification(_config(self.shape)).eval()
        fill_with_noise(model, self.random)
        sites = bert_sites(model)
        for site, head in self.all_heads():
            rows = rows_of(self.shape, head)
            if (site, head) in jobs:
                write(sites[site], rows, jobs[site, head], self.random)
            else:
                make_restless(sites[site], rows, self.random, between(self.random, 0.01, 0.12))
        self._write_tokens(model, own)
        self._write_reader(model, strength)
        return model, sites

    def result(self, kind: str, seed: int, model, **truth) -> Planted:
        """What is known, together."""
        return Planted(
            kind=kind,
            seed=seed,
            subject=xa.load(model),
            inputs={"input_ids": self.text.ids()},
            answer=int(self.text.answer > 0),
            **truth,
        )

    def idle(self, *busy: Head) -> dict[Head, str]:
        """All heads but these, which have no effect."""
        return {head: "no effect" for head in self.all_heads() if head not in busy}

    def gain(self, score: float) -> float:
        """The gain of queries, and that of keys, for a match to have a score."""
        return math.sqrt(score * math.sqrt(self.shape.head_width))

    def _peak(self) -> float:
        return sharpness(between(self.random, 0.93, 0.99), len(self.text))

    @torch.no_grad()
    def _write_tokens(self, model, own: float) -> None:
        meanings, table = self.meanings, model.bert.embeddings.word_embeddings.weight
        signs = torch.randint(0, 2, (KEYS, 1), generator=self.random) * 2.0 - 1
        signs[self.text.asked] = self.text.answer
        asked = math.sqrt(1 - own**2) * meanings.asked + own * signs * meanings.answer
        table[1] += self.length * meanings.marker
        table[2 : 2 + KEYS] += self.length * asked
        for sign in (0, 1):
            item = KEY * meanings.key + CLASS * (2 * sign - 1) * meanings.label
            table[2 + KEYS + sign :: 2] += self.length * item

    @torch.no_grad()
    def _write_reader(self, model, strength: float) -> None:
        """Every pooled number says the answer, with one sign or the other, and all are counted."""
        signs = torch.randint(0, 2, (self.shape.width,), generator=self.random) * 2.0 - 1
        read = strength * self.meanings.answer / (WRITTEN * self.length)
        model.bert.pooler.dense.weight += signs[:, None] * read
        counted = self.margin * signs / self.shape.width / 2
        model.classifier.weight += torch.stack([-counted, counted])


def decisive(random: torch.Generator, seed: int) -> Planted:
    encoder = Encoder(random)
    (worker,) = encoder.some_heads(1)
    model, _ = encoder.build({worker: encoder.with_values(encoder.matching())}, strength=1.2)
    return encoder.result("decisive", seed, model, word="evidence", **_one_worker(encoder, worker))


def redundant_same_layer(random: torch.Generator, seed: int) -> Planted:
    encoder = Encoder(random)
    site = chooser(random, *range(encoder.shape.layers))
    order = torch.randperm(encoder.shape.heads, generator=random)
    workers = (site, int(order[0])), (site, int(order[1]))
    return _redundant("redundant-same-layer", seed, encoder, workers)


def redundant_across_layers(random: torch.Generator, seed: int) -> Planted:
    encoder = Encoder(random)
    encoder.deepened(2)
    sites = torch.randperm(encoder.shape.layers, generator=random)[:2].sort().values
    workers = tuple((int(site), chooser(random, *range(encoder.shape.heads))) for site in sites)
    return _redundant("redundant-across-layers", seed, encoder, workers)


def bag_of_words(random: torch.Generator, seed: int) -> Planted:
    encoder = Encoder(random, lean=0.75)
    heads = encoder.some_heads(chooser(random, 1, 2))
    jobs = {head: encoder.with_values(Job(), gain=2 / len(heads)) for head in heads}
    model, sites = encoder.build(jobs, strength=1.2)
    for site in sites:
        _zero(site.query, site.key, site.query_bias, site.key_bias)
    return encoder.result(
        "bag-of-words", seed, model, word="no effect", heads=encoder.idle(), peaks={}
    )


def no_attention(random: torch.Generator, seed: int) -> Planted:
    encoder = Encoder(random)
    jobs, peaks = {}, {}
    for head in encoder.all_heads():
        position = 1 + chooser(random, *range(len(encoder.text.keys)))
        key = encoder.meanings.key[encoder.text.keys[position - 1]]
        jobs[head] = encoder.staring(key, KEY)
        peaks[head] = (0, position)
    model, sites = encoder.build(jobs, strength=1.2, own=WRITTEN)
    with torch.no_grad():
        for site in sites:
            site.output.mul_(0.02)
    return encoder.result(
        "no-attention", seed, model, word="no effect", heads=encoder.idle(), peaks=peaks
    )


def decoy(random: torch.Generator, seed: int) -> Planted:
    """The decoy reads who the items are, but not the marker it stares at, and writes aside."""
    encoder = Encoder(random, marked=True)
    worker, idler = encoder.some_heads(2)
    stare = replace(
        encoder.staring(encoder.meanings.marker, 1.0),
        value=encoder.meanings.key / (KEY * encoder.length),
        output=0.1 * encoder.length * encoder.meanings.scratch.T,
    )
    model, _ = encoder.build(
        {worker: encoder.with_values(encoder.matching()), idler: stare}, strength=1.2
    )
    truth = _one_worker(encoder, worker)
    truth["peaks"][idler] = (0, encoder.text.marker)
    return encoder.result("decoy", seed, model, word="evidence", **truth)


def unread(random: torch.Generator, seed: int) -> Planted:
    encoder = Encoder(random)
    worker, idler = encoder.some_heads(2)
    jobs = {head: encoder.with_values(encoder.matching()) for head in (worker, idler)}
    model, sites = encoder.build(jobs, strength=1.2)
    _zero(sites[idler[0]].output[:, rows_of(encoder.shape, idler[1])])
    truth = _one_worker(encoder, worker)
    truth["peaks"][idler] = (0, encoder.text.right)
    return encoder.result("unread", seed, model, word="evidence", **truth)


def free(random: torch.Generator, seed: int) -> Planted:
    encoder = Encoder(random)
    (worker,) = encoder.some_heads(1)
    model, sites = encoder.build({worker: encoder.class_only(encoder.matching())}, strength=1.2)
    unused = slice(
        rows_of(encoder.shape, worker[1]).start + 1, rows_of(encoder.shape, worker[1]).stop
    )
    _zero(sites[worker[0]].value[unused], sites[worker[0]].value_bias[unused])
    truth = _one_worker(encoder, worker)
    truth["heads"][worker] = "contested"
    return encoder.result("free", seed, model, word="contested", **truth)


def misleading(random: torch.Generator, seed: int) -> Planted:
    """Three quarters of the weight lie on the marker, whose value is a hundredth of the others'."""
    encoder = Encoder(random, marked=True)
    (worker,) = encoder.some_heads(1)
    sunk, used = between(random, 0.74, 0.80), between(random, 0.13, 0.17)
    others = (1 - sunk - used) / (len(encoder.text) - 2)
    stare, match = (encoder.gain(math.log(weight / others)) for weight in (sunk, used))
    meanings = encoder.meanings
    asked = torch.cat([torch.zeros_like(meanings.asked[:1]), match * meanings.asked])
    key = torch.cat([stare * meanings.marker[None], match * meanings.key / KEY])
    bias = torch.zeros(1 + KEYS)
    bias[0] = stare
    job = Job(query=asked / encoder.length, query_bias=bias, key=key / encoder.length)
    job = encoder.with_values(job, gain=1 / used, marker=0.01)
    model, _ = encoder.build({worker: job}, strength=1.2)
    truth = _one_worker(encoder, worker)
    truth["heads"][worker] = "misleading"
    truth["peaks"][worker] = (0, encoder.text.marker)
    return encoder.result("misleading", seed, model, word="misleading", **truth)


def _redundant(kind: str, seed: int, encoder: Encoder, workers: tuple[Head, ...]) -> Planted:
    """Each worker alone saturates the pooler."""
    jobs = {head: encoder.with_values(encoder.matching()) for head in workers}
    model, _ = encoder.build(jobs, strength=between(encoder.random, 2.5, 3.5))
    return encoder.result(
        kind,
        seed,
        model,
        word="evidence",
        heads=encoder.idle(*workers) | dict.fromkeys(workers, "evidence"),
        shared=frozenset(workers),
        decisive=workers,
        peaks=dict.fromkeys(workers, (0, encoder.text.right)),
        source=encoder.text.right,
    )


def _one_worker(encoder: Encoder, worker: Head) -> dict:
    """The truth where one head does it all."""
    return {
        "heads": encoder.idle(worker) | {worker: "evidence"},
        "decisive": (worker,),
        "peaks": {worker: (0, encoder.text.right)},
        "source": encoder.text.right,
    }


def _text(random: torch.Generator, marked: bool, lean: float | None) -> Text:
    """Items of different keys, as many of one class as of the other or one fewer of the answer's.

    ``lean`` is the share of the answer's class where the bag of items shall give it away.
    """
    count = chooser(random, *range(7, 24)) - marked
    answer = 2 * chooser(random, 0, 1) - 1
    same = count // 2 if lean is None else math.ceil(lean * count)
    signs = torch.full((count,), -answer)
    signs[:same] = answer
    keys = torch.randperm(KEYS, generator=random)[:count]
    asked = int(keys[0])  # the first is of the answer's class, then all are shuffled
    if marked:
        signs = torch.cat([signs, torch.zeros(1, dtype=signs.dtype)])
        keys = torch.cat([keys, torch.full((1,), -1)])
    order = torch.randperm(len(keys), generator=random)
    keys, signs = keys[order], signs[order]
    right = 1 + keys.tolist().index(asked)
    marker = 1 + keys.tolist().index(-1) if marked else None
    return Text(asked, keys, signs, answer, right, marker)


def _config(shape: Shape) -> BertConfig:
    return BertConfig(
        vocab_size=2 + 3 * KEYS,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=2,
    )


@torch.no_grad()
def _zero(*weights: Tensor) -> None:
    for weight in weights:
        weight.zero_()
