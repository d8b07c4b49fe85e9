"""One layer of attention and values at random, and the peak of memory when it is projected.

Run as a program, it imports no more than the projection needs and prints one line of JSON.
"""

import json
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from exhibit_a.methods.identifiability.projection import project

HEADS, WIDTH, LONGEST = 12, 64, 4096


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layer(tokens: int, *, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Random attention and values of one layer, with their mask."""
    generator = seeded(tokens)
    visible = torch.ones(tokens, tokens, dtype=torch.bool)
    visible = visible.tril_() if causal else visible
    attention = torch.randn(HEADS, tokens, tokens, generator=generator)
    values = torch.randn(HEADS, tokens, WIDTH, generator=generator)
    for weights in attention:  # in place: what this leaves in the allocator would be measured too
        weights.exp_().mul_(visible)
        weights.div_(weights.sum(-1, keepdim=True))
    return attention, values, visible


def peak() -> float:
    """The most that this process has held, in GB; the system would add what started it."""
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) * 1024 / 1e9


def main(kind: str) -> None:
    libraries = peak()
    attention, values, visible = layer(LONGEST, causal=kind == "causal")
    started = time.process_time()
    effective = project(attention, values, visible).effective
    told = {
        "kind": kind,
        "tokens": LONGEST,
        "seconds": time.process_time() - started,
        "libraries_gigabytes": libraries,
        "maps_gigabytes": (attention.nbytes + effective.nbytes) / 1e9,
        "peak_gigabytes": peak(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
