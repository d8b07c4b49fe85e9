"""How are the weights of a translator trained? The loop over pairs of sentences, and only that.

1. Batches hold so many tokens, padding counted, of sentences of nearly equal length; their order
   is drawn anew in each epoch, from the seed and the epoch alone.
2. Adam; the rate rises for ``warmup`` steps, then falls with 1/√step (Vaswani et al., 2017, §5.3).
   Answers are smoothed (§5.4): a part of the target is spread over all tokens.
3. After each epoch, or every few, the weights of the last few are averaged (§6.1). The average
   translates the development set greedily; the best average by BLEU is kept, and patience ends the
   training.
4. Every epoch is kept whole (``checkpoints``): the same call goes on where a killed one was.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import process_time

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.models.base import IGNORED
from exhibit_a.numerics.seeds import generator
from exhibit_a.progress import Bar
from exhibit_a.training.checkpoints import Checkpoints, Epoch, Weights
from exhibit_a.training.parallel_text import Pairs
from exhibit_a.training.translating import bleu, translate

BETAS, EPSILON = (0.9, 0.98), 1e-9


@dataclass(frozen=True)
class TranslatorSchedule:
    """How a translator is trained, and for how long."""

    epochs: int = 40
    batch_tokens: int = 2000  # of source or target, whichever is longer, with padding
    learning_rate: float = 3e-3  # at the end of the warm-up
    warmup: int = 800  # steps
    label_smoothing: float = 0.1
    average: int = 5  # epochs whose weights are averaged
    patience: int = 10  # epochs without a better average before stopping
    bleu_every: int = 1  # epochs; the last is always measured
    clip: float = 1.0
    half: bool = False  # matrix products in bfloat16; weights and sums stay in float32
    seed: int = 0


Ids = tuple[list[int], list[int]]  # of a sentence and its translation


def fit_translator(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: tuple[Pairs, Pairs],
    schedule: TranslatorSchedule,
    kept: Checkpoints,
    bar: Bar,
) -> list[Epoch]:
    """Train until epochs or patience run out, and leave the best weights in the model.

    ``pairs`` are those to learn from and those to choose by. Returned is what was measured after
    each epoch: loss, BLEU, seconds of processor time.
    """
    learn, check = [_ids(tokenizer, part) for part in pairs]
    if schedule.half:
        model.set_attn_implementation("eager")  # backwards, the fused one is slow in bfloat16
    optimizer = torch.optim.Adam(
        model.parameters(), schedule.learning_rate, BETAS, EPSILON, fused=True
    )
    history = kept.history()
    if history:
        weights, moments = kept.latest(len(history))
        _put(model, weights)
        _set_moments(optimizer, moments)
    step = history[-1]["step"] if history else 0
    while len(history) < schedule.epochs and not _out_of_patience(history, schedule.patience):
        epoch, began = len(history) + 1, process_time()
        bar.title(f"epoch {epoch}")
        batches = list(_batches(learn, schedule, epoch))
        torch.manual_seed(_seed(schedule.seed, epoch))
        model.train()
        total = 0.0
        for number, batch in enumerate(batches, 1):
            step += 1
            examples = [learn[place] for place in batch]
            total += float(_one_step(model, optimizer, examples, schedule, step))
            bar((epoch - 1) * len(batches) + number, schedule.epochs * len(batches))
        measured: Epoch = {"step": step, "bleu": None}
        measured["loss"] = total / len(batches)
        kept.write_weights(epoch, _weights(model))
        if epoch % schedule.bleu_every == 0 or epoch == schedule.epochs:
            averaged = kept.average(range(max(1, epoch - schedule.average + 1), epoch + 1))
            measured |= _measured(model, tokenizer, averaged, pairs[1], check, schedule)
            if measured["bleu"] > max(_scores(history).values(), default=-1.0):
                kept.write_best(averaged)
            bar.note(f"BLEU {measured['bleu']:.1f}")
        measured["processor_seconds"] = process_time() - began
        history.append(measured)
        kept.write_state(_moments(optimizer), history, schedule.average)
    if not _scores(history):  # begun with more epochs than are asked for now
        raise BadRequestError(
            f"None of the {len(history)} epochs that there are was measured; ask for more epochs."
        )
    _put(model, kept.best())
    return history


def _measured(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    averaged: Weights,
    pairs: Pairs,
    ids: Sequence[Ids],
    schedule: TranslatorSchedule,
) -> dict[str, float]:
    """Loss and BLEU of averaged weights on pairs; the model's own weights are back afterwards."""
    current = {name: weight.clone() for name, weight in _weights(model).items()}
    _put(model, averaged)
    model.eval()
    with torch.no_grad():
        losses = [
            (float(_loss(model, [ids[place] for place in batch])), len(batch))
            for batch in _batches(ids, schedule, 0)
        ]
    written = translate(model, tokenizer, [source for source, _ in pairs])
    _put(model, current)
    if not all(math.isfinite(loss) for loss, _ in losses):
        raise NotComputableError("The loss is no longer a number; lower the learning rate.")
    mean = sum(loss * count for loss, count in losses) / sum(count for _, count in losses)
    return {"dev_loss": mean, "bleu": bleu(written, [target for _, target in pairs])}


def _one_step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[Ids],
    schedule: TranslatorSchedule,
    step: int,
) -> Tensor:
    """Move the weights once; the loss before it."""
    for group in optimizer.param_groups:
        group["lr"] = schedule.learning_rate * _rate(step, schedule.warmup)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=schedule.half):
        loss = _loss(model, batch, schedule.label_smoothing)
    if not loss.isfinite():
        raise NotComputableError(
            f"The loss is no longer a number after {step} steps; lower the learning rate."
        )
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _rate(step: int, warmup: int) -> float:
    """The part of the learning rate at a step: up to one, then down with 1/√step."""
    return min(step / warmup, math.sqrt(warmup / step))


def _loss(model: PreTrainedModel, batch: Sequence[Ids], smoothing: float = 0.0) -> Tensor:
    source = _padded([ids for ids, _ in batch], model.config.pad_token_id)
    labels = _padded([ids for _, ids in batch], IGNORED).to(model.device)
    shift = model.prepare_decoder_input_ids_from_labels
    logits = model(
        input_ids=source.to(model.device),
        attention_mask=(source != model.config.pad_token_id).long().to(model.device),
        decoder_input_ids=shift(labels),  # type: ignore[operator]  # translators have it
    ).logits
    return cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing
    )


def _batches(ids: Sequence[Ids], schedule: TranslatorSchedule, epoch: int) -> Iterator[list[int]]:
    """Places of pairs of nearly equal length, as many as make ``batch_tokens``; in random order."""
    shuffle = generator(schedule.seed, epoch)
    noise = torch.rand(len(ids), generator=shuffle).tolist()
    lengths = [(max(len(source), len(target)), noise[n]) for n, (source, target) in enumerate(ids)]
    batches: list[list[int]] = [[]]
    for place in sorted(range(len(ids)), key=lengths.__getitem__):
        if batches[-1] and (len(batches[-1]) + 1) * lengths[place][0] > schedule.batch_tokens:
            batches.append([])
        batches[-1].append(place)
    for number in torch.randperm(len(batches), generator=shuffle).tolist():
        yield batches[number]


def _ids(tokenizer: PreTrainedTokenizerBase, pairs: Pairs) -> list[Ids]:
    sources = tokenizer([source for source, _ in pairs])["input_ids"]
    targets = tokenizer(text_target=[target for _, target in pairs])["input_ids"]
    return list(zip(sources, targets, strict=True))


def _padded(rows: Sequence[list[int]], padding: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [padding] * (longest - len(row)) for row in rows])


def _seed(seed: int, epoch: int) -> int:
    return int(torch.randint(2**62, (), generator=generator(seed, epoch, 1)))


def _out_of_patience(history: Sequence[Epoch], patience: int) -> bool:
    scores = _scores(history)
    return bool(scores) and len(history) - max(scores, key=scores.__getitem__) >= patience


def _scores(history: Sequence[Epoch]) -> dict[int, float]:
    """BLEU by epoch, where it was measured."""
    measured = enumerate((entry["bleu"] for entry in history), 1)
    return {epoch: score for epoch, score in measured if score is not None}


def _weights(model: PreTrainedModel) -> Weights:
    """Every weight once; what is tied to another is left out."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


@torch.no_grad()
def _put(model: PreTrainedModel, weights: Weights) -> None:
    for name, weight in model.named_parameters():
        weight.copy_(weights[name])


def _moments(optimizer: torch.optim.Optimizer) -> Weights:
    return {
        f"{number}.{name}": value
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def _set_moments(optimizer: torch.optim.Optimizer, moments: Weights) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in moments.items():
        number, name = key.split(".")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
