"""What does float32 arithmetic on bfloat16 weights cost? Beside a float32 copy, and bfloat16.

A Llama shape of 30 layers with random weights, held in bfloat16. Times are in those of the float32
copy, the best of three; memory is the peak above what the held model takes.

    python benchmarks/half_precision.py [--layers 30]
"""

import copy
from functools import partial
from typing import Any

import torch
from support.measure import begun, llama, told, turns
from torch import Tensor

from exhibit_a.subject.guard import frozen_eval

COPY, HELD = "float32 copy", "held in bfloat16"
SHAPES = {"14 tokens": (1, 14), "14 tokens × 8": (8, 14), "300 tokens": (1, 300)}


def main() -> None:
    given = begun(__doc__, layers=30)
    held = llama(given.layers).model.bfloat16()
    wide = copy.deepcopy(held).float()
    for name, shape in SHAPES.items():
        ids = torch.randint(5, 1000, shape)
        ways = {COPY: partial(forward, wide, ids), HELD: partial(forward, held, ids)}
        compare(name, ways | {"bfloat16 arithmetic": partial(forward, held, ids, as_held=True)})
    ways = {COPY: partial(forward, wide, ids, True), HELD: partial(forward, held, ids, True)}
    compare("300 tokens, and backwards", ways)


def forward(model: Any, ids: Tensor, backward: bool = False, as_held: bool = False) -> Tensor:
    with torch.set_grad_enabled(backward), frozen_eval(model, as_held=as_held):
        states = model.get_input_embeddings()(ids).detach().requires_grad_(backward)
        answer = model(inputs_embeds=states, use_cache=False).logits[0, -1].float()
    return torch.autograd.grad(answer.logsumexp(0), states)[0] if backward else answer


def compare(name: str, ways: dict) -> None:
    spent, notes = turns(ways), {}
    wanted = spent[COPY].made
    for way, one in spent.items():
        apart = float((one.made - wanted).abs().amax() / wanted.abs().amax())
        notes[way] = f"{one.megabytes:6.0f} MB, off by {apart:.0e}"
    told(name, spent, COPY, notes)


if __name__ == "__main__":
    main()
