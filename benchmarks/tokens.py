"""The linear map of token identifiability: ridge regression beside training it with Adam.

    python benchmarks/tokens.py [--base FOLDER] [--data FILE] [--texts 1000]

Both get the same hidden states of all layers, already computed, and the same validation rows. Adam
stops as soon as its validation loss is within one percent of ridge's. Without --base a BERT of the
shape of MiniLM-L6 with random weights stands in, without --data texts of random tokens. Everything
runs on one thread, and seconds are processor seconds.
"""

import argparse
import time
from typing import Any

import torch
from mixing import _bert
from support.quiet import one_quiet_thread
from torch import Tensor

from exhibit_a.examples import read_examples
from exhibit_a.methods.mixing.token_maps import Moments, ridge
from exhibit_a.methods.mixing.token_search import Texts, states
from exhibit_a.subject.subject import load

BATCH, RATES, PATIENCE = 256, (1e-2, 3e-3, 1e-3), 100  # rows a step, rates tried, most epochs


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--base", help="folder of a model; default: random weights")
    asked.add_argument("--data", help="file of texts; default: random tokens")
    asked.add_argument("--texts", type=int, default=1000)
    options = asked.parse_args()
    one_quiet_thread()

    subject = load(options.base or _bert(384, 6, 12))
    data = Texts(
        read_examples(options.data)[: options.texts] if options.data else _noise(options.texts), 0
    )
    train, held = (_rows(subject, data, part) for part in ("train", "validation"))
    print(f"{subject.name}: {len(train[1])} train and {len(held[1])} validation tokens\n")

    start = time.process_time()
    sums = [Moments(len(train[0]), train[0].shape[-1], 1, train[1].shape[-1]) for _ in range(2)]
    for found, (hidden, wanted) in zip(sums, (train, held), strict=True):
        for part in torch.arange(len(wanted)).split(1024):
            found.add(hidden[:, part], wanted[part].unsqueeze(0))
    fitted = ridge(*sums)
    spent = time.process_time() - start
    target = float(fitted.loss.sum())
    print(f"{'way':16} {'seconds':>9} {'ridge is':>9} {'validation loss':>16}  epochs")
    print(f"{'ridge':16} {spent:9.2f} {1:8.1f}x {target:16.4f}  1")
    for rate in RATES:
        seconds, loss, epochs = _adam(train, held, target * 1.01, rate)
        spoken = f"{epochs}" if loss <= target * 1.01 else f"{epochs}, not reached"
        ratio = seconds / spent
        print(f"Adam, rate {rate:<5g} {seconds:9.2f} {ratio:8.1f}x {loss:16.4f}  {spoken}")


def _adam(
    train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], goal: float, rate: float
) -> tuple[float, float, int]:
    """Train weights and biases for all layers at once, from standardised states."""
    (hidden, wanted), start = train, time.process_time()
    mean, spread = hidden.mean(1, keepdim=True), hidden.std(1, keepdim=True).clamp_min(1e-6)
    weight = torch.zeros(len(hidden), hidden.shape[-1], wanted.shape[-1], requires_grad=True)
    bias = wanted.mean(0).repeat(len(hidden), 1, 1).requires_grad_()
    optimizer = torch.optim.Adam([weight, bias], lr=rate)
    chance = torch.Generator().manual_seed(0)
    best, stale, epoch = float("inf"), 0, 0
    while best > goal and stale < 5 and epoch < PATIENCE:
        epoch += 1
        for part in torch.randperm(len(wanted), generator=chance).split(BATCH):
            optimizer.zero_grad()
            guess = ((hidden[:, part] - mean) / spread) @ weight + bias
            (guess - wanted[part]).square().sum(-1).mean(1).sum().backward()
            optimizer.step()
        with torch.no_grad():
            guess = ((held[0] - mean) / spread) @ weight + bias
            loss = float((guess - held[1]).square().sum(-1).mean(1).sum())
        stale = 0 if loss < best else stale + 1
        best = min(best, loss)
    return time.process_time() - start, best, epoch


def _rows(subject: Any, data: Texts, part: str) -> tuple[Tensor, Tensor]:
    batches = list(states(subject, data.split(part)))
    hidden = torch.cat([batch.hidden.flatten(1, 2) for batch in batches], 1)
    return hidden, hidden[0]


def _noise(count: int) -> list[dict[str, Tensor]]:
    chance = torch.Generator().manual_seed(0)
    lengths = torch.randint(6, 40, (count,), generator=chance).tolist()
    drawn = [torch.randint(1000, 20000, (1, length), generator=chance) for length in lengths]
    return [{"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in drawn]


if __name__ == "__main__":
    main()
