"""The linear map of token identifiability: ridge regression beside training it with Adam.

    python benchmarks/tokens.py [--base FOLDER] [--data FILE] [--texts 1000]

Both get the same hidden states of all layers, already computed, and the same validation rows. Adam
stops as soon as its validation loss is within one percent of ridge's. Without --base a BERT of the
shape of MiniLM-L6 with random weights stands in, without --data texts of random tokens.
"""

from functools import partial

import torch
from support.measure import begun, bert, drawn, told, turns
from torch import Tensor

from exhibit_a.examples import read_examples
from exhibit_a.methods.mixing.token_maps import Moments, ridge
from exhibit_a.methods.mixing.token_search import SplitTexts, states
from exhibit_a.subject.subject import load

BATCH, RATES, PATIENCE = 256, (1e-2, 3e-3, 1e-3), 100  # rows a step, rates tried, most epochs
RIDGE = "ridge"
Rows = tuple[Tensor, Tensor]


def main() -> None:
    given = begun(__doc__, base=str, data=str, texts=1000)
    subject = load(given.base) if given.base else bert(384, 6)
    lengths = torch.randint(6, 40, (given.texts,)).tolist()
    noise = [drawn(length, 1000, 20000, seed) for seed, length in enumerate(lengths)]
    data = SplitTexts(read_examples(given.data)[: given.texts] if given.data else noise, 0)
    batches = [list(states(subject, data.split(part))) for part in ("train", "validation")]
    hidden = [torch.cat([b.hidden.flatten(1, 2) for b in part], 1) for part in batches]
    train, held = [(each, each[0]) for each in hidden]
    fitted = turns({RIDGE: lambda: solved(train, held)}, 1)
    goal = 1.01 * fitted[RIDGE].made[0]
    ways = {f"Adam, rate {rate:g}": partial(adam, train, held, goal, rate) for rate in RATES}
    spent = fitted | turns(ways, 1)
    notes = {
        way: f"validation loss {one.made[0]:.4f}, {one.made[1]} epochs"
        for way, one in spent.items()
    }
    told(
        f"{subject.name}: {len(train[1])} train and {len(held[1])} validation tokens",
        spent,
        RIDGE,
        notes,
    )


def solved(train: Rows, held: Rows) -> tuple[float, int]:
    """Ridge regression: the loss, after one epoch."""
    sums = [Moments(len(train[0]), train[0].shape[-1], 1, train[1].shape[-1]) for _ in range(2)]
    for found, (hidden, wanted) in zip(sums, (train, held), strict=True):
        for part in torch.arange(len(wanted)).split(1024):
            found.add(hidden[:, part], wanted[part].unsqueeze(0))
    return float(ridge(*sums).loss.sum()), 1


def adam(train: Rows, held: Rows, goal: float, rate: float) -> tuple[float, int]:
    """Train weights and biases for all layers at once, from standardised states."""
    hidden, wanted = train
    mean, spread = hidden.mean(1, keepdim=True), hidden.std(1, keepdim=True).clamp_min(1e-6)
    weight = torch.zeros(len(hidden), hidden.shape[-1], wanted.shape[-1], requires_grad=True)
    bias = wanted.mean(0).repeat(len(hidden), 1, 1).requires_grad_()
    optimizer = torch.optim.Adam([weight, bias], lr=rate)
    chance = torch.Generator().manual_seed(0)

    def loss(hidden: Tensor, wanted: Tensor) -> Tensor:
        return (((hidden - mean) / spread) @ weight + bias - wanted).square().sum(-1).mean(1).sum()

    best, stale, epoch = float("inf"), 0, 0
    while best > goal and stale < 5 and epoch < PATIENCE:
        epoch += 1
        for part in torch.randperm(len(wanted), generator=chance).split(BATCH):
            optimizer.zero_grad()
            loss(hidden[:, part], wanted[part]).backward()
            optimizer.step()
        with torch.no_grad():
            now = float(loss(*held))
        stale, best = 0 if now < best else stale + 1, min(best, now)
    return best, epoch


if __name__ == "__main__":
    main()
