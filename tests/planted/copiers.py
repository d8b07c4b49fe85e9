"""Planted language models: which token came after, or before, or stands at this place?

Tokens and places have directions of their own. A copying head carries which token it found and,
in the coordinates that are left, where; its output reads the token alone. What is written under
``said`` the language-model head reads as the next token.
"""

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    PretrainedConfig,
    PreTrainedModel,
)

import exhibit_a as xa
from planted.truth import Planted
from planted.weights import (
    Head,
    Job,
    Shape,
    bart_halves,
    bart_sites,
    between,
    chooser,
    directions,
    fill_with_noise,
    gpt2_sites,
    make_restless,
    rows_of,
    sharpness,
    take,
    write,
)

TOKENS = 24  # tokens that can be copied
PLACES = 24  # positions that there are
SHAPES = ((2, 64), (3, 48), (4, 32), (4, 40))  # heads and their width
PART = math.sqrt(1 / 2)  # a token's direction and its place's, of equal length, make a unit
HINT = 0.15  # of such a part: short enough for a norm not to notice whether it is there
VOCABULARY = 2 * TOKENS  # the tokens, and for each of them one that asks about it
START = TOKENS  # what a decoder begins with

Model = TypeVar("Model", bound=PreTrainedModel)


@dataclass(frozen=True)
class Meanings:
    """What the directions of the residual stream stand for."""

    token: Tensor  # (token, width)
    place: Tensor  # (place, width)
    asked: Tensor  # (token, width): the token that is asked about
    before: Tensor  # (token, width): the token before this one
    said: Tensor  # (token, width)


class Copier:
    """Directions, sizes and sharpness of a model that copies."""

    def __init__(self, random: torch.Generator, layers: int):
        self.random = random
        self.shape = Shape(layers, *SHAPES[chooser(random, *range(len(SHAPES)))])
        self.length = math.sqrt(self.shape.width)
        supply = directions(self.shape.width, random)
        counts = (TOKENS, PLACES, TOKENS, TOKENS, TOKENS)
        self.meanings = Meanings(*(take(supply, count) for count in counts))
        self.count = chooser(random, *range(8, 25))
        self.margin = between(random, 1.5, 9.0)

    def job(self, query: Tensor, key: Tensor, read: Tensor, written: Tensor) -> Job:
        """Look where ``query`` meets ``key``, and write what is ``read`` there as ``written``.

        Directions are read at the length they have at the head: 1 after division by it.
        """
        score = sharpness(between(self.random, 0.95, 0.99), self.count)
        gain = math.sqrt(score * math.sqrt(self.shape.head_width))
        spare = self.shape.head_width - TOKENS
        where = torch.randn(spare, PLACES, generator=self.random) / math.sqrt(spare)
        value = torch.cat([read, where @ self.meanings.place / PART])
        return Job(
            query=gain * query / self.length,
            key=gain * key / self.length,
            value=value / self.length,
            output=self.length * written.T,
        )

    def write_heads(self, sites, jobs: dict[Head, Job]) -> None:
        """The jobs, and noise that looks somewhere into all other heads."""
        for site, projections in enumerate(sites):
            for head in range(self.shape.heads):
                rows = rows_of(self.shape, head)
                if (site, head) in jobs:
                    write(projections, rows, jobs[site, head], self.random)
                    continue
                spread = between(self.random, 0.01, 0.12)
                make_restless(projections, rows, self.random, spread)

    @torch.no_grad()
    def write_reader(self, model, length: float) -> None:
        """Logits from what is ``said``, which has this length when all goes well."""
        logit = self.margin + math.log(VOCABULARY)
        model.lm_head.weight[:TOKENS] += logit * self.meanings.said / (length * self.length)

    def words(self, sites: int, *workers: Head, unknown: Head | None = None) -> dict[Head, str]:
        """The word for every head: evidence for workers, no effect for the others."""
        heads = [(site, head) for site in range(sites) for head in range(self.shape.heads)]
        words = {head: "evidence" if head in workers else "no effect" for head in heads}
        words.pop(unknown, None)
        return words


def reached(*others: float, part: float = PART) -> float:
    """The length of a part after a norm, when others were added to a token and its place."""
    return part / math.sqrt(1 + sum(other**2 for other in others))


def induction(random: torch.Generator, seed: int) -> Planted:
    """… A B … A → B: the second head looks for the place whose token before is this one.

    The first head acts through the second's keys alone. With the second's map frozen it has no
    effect, and without it the second finds nothing: its word depends on the game that is played.
    Its note is short, or the norms would notice it too.
    """
    copier = Copier(random, chooser(random, 2, 3))
    first, second = _two_heads(copier)
    meanings = copier.meanings
    note = HINT * PART
    token = meanings.token / reached(note)
    before = meanings.before / reached(note, part=note)
    finding = copier.job(token, before, token, PART * meanings.said)
    tokens = torch.randperm(TOKENS, generator=random)[: copier.count - 1]
    place = chooser(random, *range(1, copier.count - 2))
    model = _gpt2(copier, {first: _look_back(copier, note), second: finding}, reached(note, PART))
    ids = torch.cat([tokens, tokens[place : place + 1]])[None]
    asked = Question(ids, place + 1, int(tokens[place + 1]))
    planted = _asking("induction", seed, copier, model, second, asked, "evidence")
    words = copier.words(copier.shape.layers, second, unknown=first)
    return replace(_helped(planted, first), heads=words, through_maps=frozenset({first}))


def twin_steerers(random: torch.Generator, seed: int) -> Planted:
    """Induction with two heads that leave the same note: either of them steers the second alone."""
    copier = Copier(random, 2)
    meanings, note = copier.meanings, HINT * PART
    twins, second = ((0, 0), (0, 1)), (1, chooser(random, *range(copier.shape.heads)))
    finding = copier.job(
        meanings.token / reached(note),
        meanings.before / reached(note, part=note),
        meanings.token / reached(note),
        PART * meanings.said,
    )
    tokens = torch.randperm(TOKENS, generator=random)[: copier.count - 1]
    place = chooser(random, *range(1, copier.count - 2))
    jobs = {twin: _look_back(copier, note) for twin in twins} | {second: finding}
    model = _gpt2(copier, jobs, reached(note, PART))
    ids = torch.cat([tokens, tokens[place : place + 1]])[None]
    asked = Question(ids, place + 1, int(tokens[place + 1]))
    planted = _asking("twin-steerers", seed, copier, model, second, asked, "evidence")
    return replace(planted, through_maps=frozenset(twins))


def relay(random: torch.Generator, seed: int) -> Planted:
    """… A B … B? → A: the second head finds B, and copies what the first brought there."""
    copier = Copier(random, chooser(random, 2, 3))
    first, second = _two_heads(copier)
    meanings = copier.meanings
    length = reached(PART)
    asked, token, before = meanings.asked, meanings.token, meanings.before
    finding = copier.job(asked / length, token / length, before / length, PART * meanings.said)
    tokens = torch.randperm(TOKENS, generator=random)[: copier.count - 1]
    place = chooser(random, *range(1, copier.count - 1))
    model = _gpt2(copier, {first: _look_back(copier, PART), second: finding}, reached(PART, PART))
    ids = torch.cat([tokens, tokens[place : place + 1] + TOKENS])[None]
    asked = Question(ids, place, int(tokens[place - 1]))
    planted = _asking("relay", seed, copier, model, second, asked, "evidence")
    return replace(_helped(planted, first), heads=copier.words(copier.shape.layers, first, second))


def free_causal(random: torch.Generator, seed: int) -> Planted:
    """… B … B? → one of two tokens: the values are one bit, so that other weights would do as well.

    Every token has a bit; the head finds B and carries its bit alone.
    """
    copier = Copier(random, chooser(random, 1, 2, 3))
    worker = _one_head(copier)
    meanings = copier.meanings
    bits = torch.randint(0, 2, (TOKENS,), generator=random)
    finding = copier.job(
        meanings.asked / PART, meanings.token / PART, meanings.token, meanings.said
    )
    bit = ((2.0 * bits - 1) @ meanings.token / PART / copier.length)[None]
    says = copier.length * PART * (meanings.said[1] - meanings.said[0]) / math.sqrt(2)
    job = replace(finding, value=bit, output=says[:, None], turned=False)
    asked = _questioned(copier, bits=bits)
    model = _gpt2(copier, {worker: job}, reached(PART) / math.sqrt(2))
    rows = rows_of(copier.shape, worker[1])
    unused, site = slice(rows.start + 1, rows.stop), gpt2_sites(model)[worker[0]]
    with torch.no_grad():
        for noise in (site.value[unused], site.value_bias[unused]):
            noise.zero_()
    return _asking("free-causal", seed, copier, model, worker, asked, "contested")


def counting_sink(random: torch.Generator, seed: int) -> Planted:
    """The first token is the answer: what looks like a sink is where the information comes from."""
    copier = Copier(random, chooser(random, 1, 2, 3))
    worker = _one_head(copier)
    meanings = copier.meanings
    first = meanings.place[:1].expand(TOKENS, -1)
    finding = copier.job(meanings.asked / PART, first / PART, meanings.token / PART, meanings.said)
    tokens = torch.randperm(TOKENS, generator=random)[: copier.count]
    ids = torch.cat([tokens[:-1], tokens[-1:] + TOKENS])[None]
    asked = Question(ids, 0, int(tokens[0]))
    model = _gpt2(copier, {worker: finding}, reached(PART))
    return _asking("counting-sink", seed, copier, model, worker, asked, "evidence")


def misleading_causal(random: torch.Generator, seed: int) -> Planted:
    """… B … B? → B: three quarters of the weight stay on the question, which says no token.

    Most of the other tokens are questions too and say nothing. If all of them spoke against the
    answer, not to look at them would be a contribution of its own.
    """
    copier = Copier(random, chooser(random, 1, 2, 3))
    worker = _one_head(copier)
    meanings = copier.meanings
    kept, used = between(random, 0.74, 0.80), between(random, 0.13, 0.17)
    others = (1 - kept - used) / (copier.count - 2)
    stare, match = (
        math.sqrt(math.log(weight / others) * math.sqrt(copier.shape.head_width))
        for weight in (kept, used)
    )
    finding = copier.job(meanings.asked, meanings.token, meanings.token / PART, meanings.said)
    here = meanings.place[copier.count - 1][None]
    bias = torch.zeros(1 + TOKENS)
    bias[0] = stare
    job = replace(
        finding,
        query=torch.cat([0 * here, match * meanings.asked]) / (PART * copier.length),
        query_bias=bias,
        key=torch.cat([stare * here, match * meanings.token]) / (PART * copier.length),
        output=PART * finding.output / used,
    )
    asked = _questioned(copier, silent=2 / 3)
    model = _gpt2(copier, {worker: job}, reached(PART))
    return _asking("misleading-causal", seed, copier, model, worker, asked, "misleading")


def cross_copy(random: torch.Generator, seed: int) -> Planted:
    """The decoder says what stands at its own place in the encoder's text."""
    copier = Copier(random, chooser(random, 1, 2))
    meanings, layers = copier.meanings, copier.shape.layers
    site = layers + 1 + 2 * chooser(random, *range(layers))
    worker = (site, chooser(random, *range(copier.shape.heads)))
    place = meanings.place / PART
    jobs = {worker: copier.job(place, place, meanings.token / PART, PART * meanings.said)}
    tokens = torch.randperm(TOKENS, generator=random)[: copier.count]
    here = chooser(random, *range(1, copier.count))
    return Planted(
        "cross-copy",
        seed,
        xa.load(_bart(copier, jobs)),
        {
            "input_ids": tokens[None],
            "decoder_input_ids": torch.cat([torch.tensor([START]), tokens[:here]])[None],
        },
        word="evidence",
        heads=copier.words(3 * layers, worker),
        decisive=(worker,),
        answer=int(tokens[here]),
        peaks={worker: (here, here)},
        source=here,
    )


@dataclass(frozen=True)
class Question:
    """A text that ends by asking about the token at a place, and the answer."""

    ids: Tensor
    place: int
    answer: int


def _questioned(copier: Copier, *, bits: Tensor | None = None, silent: float = 0.0) -> Question:
    """A question about some token; this part of the other tokens are questions as well.

    Where tokens have a bit, that is the answer, and a token is asked about whose bit is not the
    commoner one: otherwise looking evenly would give the answer too.
    """
    tokens = torch.randperm(TOKENS, generator=copier.random)[: copier.count - 1]
    places = torch.arange(len(tokens))
    if bits is not None:
        rarer = int(2 * bits[tokens].sum() < len(tokens))
        fitting = places[bits[tokens] == rarer]
        places = fitting if len(fitting) else places
    place = int(places[chooser(copier.random, *range(len(places)))])
    asked = int(tokens[place])
    others = [other for other in range(len(tokens)) if other != place]
    tokens[others[: math.ceil(silent * len(others))]] += TOKENS
    ids = torch.cat([tokens, torch.tensor([asked + TOKENS])])[None]
    return Question(ids, place, asked if bits is None else int(bits[asked]))


def _asking(
    kind: str,
    seed: int,
    copier: Copier,
    model: GPT2LMHeadModel,
    worker: Head,
    question: Question,
    word: str,
) -> Planted:
    """What is known of a model with one worker and a question."""
    last = copier.count - 1
    return Planted(
        kind,
        seed,
        xa.load(model),
        {"input_ids": question.ids},
        word=word,
        heads=copier.words(copier.shape.layers, worker) | {worker: word},
        decisive=(worker,),
        answer=question.answer,
        peaks={worker: (last, last if word == "misleading" else question.place)},
        source=question.place,
    )


def _helped(planted: Planted, first: Head) -> Planted:
    """The same, with a head in front that looks one token back from where the answer is found."""
    peaks = {first: (planted.source, planted.source - 1)} | planted.peaks
    return replace(planted, decisive=(first, *planted.decisive), peaks=peaks)


def _one_head(copier: Copier) -> Head:
    layer = chooser(copier.random, *range(copier.shape.layers))
    return layer, chooser(copier.random, *range(copier.shape.heads))


def _two_heads(copier: Copier) -> tuple[Head, Head]:
    """One head, and another in a later layer."""
    layers = torch.randperm(copier.shape.layers, generator=copier.random)[:2].sort().values
    heads = range(copier.shape.heads)
    first, second = ((int(layer), chooser(copier.random, *heads)) for layer in layers)
    return first, second


def _look_back(copier: Copier, length: float) -> Job:
    """Look at the place before, and note which token stands there."""
    meanings = copier.meanings
    return copier.job(
        meanings.place[1:] / PART,
        meanings.place[:-1] / PART,
        meanings.token / PART,
        length * meanings.before,
    )


def _noisy(kind: type[Model], config: PretrainedConfig, copier: Copier) -> Model:
    """A new model whose weights are the copier's noise."""
    with torch.random.fork_rng(devices=[]):
        model = kind(config).eval()
    fill_with_noise(model, copier.random)
    return model


@torch.no_grad()
def _gpt2(copier: Copier, jobs: dict[Head, Job], said: float) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=copier.shape.width,
        n_layer=copier.shape.layers,
        n_head=copier.shape.heads,
        n_inner=64,
        n_positions=PLACES,
        bos_token_id=START,
        eos_token_id=START,
        tie_word_embeddings=False,
    )
    model = _noisy(GPT2LMHeadModel, config, copier)
    copier.write_heads(gpt2_sites(model), jobs)
    part = PART * copier.length
    model.transformer.wte.weight[:TOKENS] += part * copier.meanings.token
    model.transformer.wte.weight[TOKENS:] += part * copier.meanings.asked
    model.transformer.wpe.weight += part * copier.meanings.place
    copier.write_reader(model, said)
    return model


@torch.no_grad()
def _bart(copier: Copier, jobs: dict[Head, Job]) -> BartForConditionalGeneration:
    shape = copier.shape
    config = BartConfig(
        vocab_size=VOCABULARY,
        d_model=shape.width,
        **bart_halves(shape.layers, shape.heads, 64),
        max_position_embeddings=PLACES,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id"), START),
        pad_token_id=VOCABULARY - 1,
        forced_eos_token_id=None,
        tie_word_embeddings=False,
    )
    model = _noisy(BartForConditionalGeneration, config, copier)
    copier.write_heads(bart_sites(model), jobs)
    part, stacks = PART * copier.length, (model.model.encoder, model.model.decoder)
    for table in {stack.embed_tokens.weight for stack in stacks}:  # one, or one for each
        table[:TOKENS] += part * copier.meanings.token
    for stack in stacks:
        stack.embed_positions.weight[-PLACES:] += part * copier.meanings.place
    copier.write_reader(model, reached(PART))
    return model
