"""What does effective attention cost, beside other ways and beside the model itself?

1. One layer of BERT-base shape, bidirectional: the projection beside a full singular value
   decomposition for every head, of T = V·W_O as the paper writes it and of V as the released code
   does it (both written anew here).
2. The same layer, causal: beside one decomposition for every row of every head, timed on a sample
   of rows and scaled up.
3. All twelve layers, the whole of ``effective_attention`` on a trace of them, and two products with
   a thin float32 decomposition: beside one eager forward pass of the model, bidirectional (BERT)
   and causal (GPT-2), in processor time on one thread, taken in turns.
4. The peak memory of one layer at 4096 tokens, in a process of its own (``support.long_layer``).

Decompositions on several threads suffer most where cores are busy, by a factor of ten to a hundred,
so 1 and 2 are timed twice: by the clock, with the threads that torch has, and by processor time on
one thread. The second is the fair comparison of the algorithms.

    python benchmarks/effective.py --out docs/data/effective.json      # writes 3 and 4
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from support.long_layer import HEADS, LONGEST, WIDTH, layer, seeded
from support.quiet import begun
from torch import Tensor

from exhibit_a.methods.identifiability.effective import effective_attention
from exhibit_a.methods.identifiability.projection import Projection, project
from exhibit_a.numerics.parallel import one_thread
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import capture

LAYERS, MODEL, TOKENS = 12, 768, 512
LONG_LAYER = Path(__file__).parent / "support/long_layer.py"
REPEATS = 3
SAMPLED_ROWS = range(16, 512, 31)


def main() -> None:
    threads, out = torch.get_num_threads(), begun(__doc__)
    torch.set_num_threads(threads)
    peaks = every_peak()  # first: a child inherits our peak
    if out is None:
        one_layer()
    print(f"{LAYERS * HEADS} heads, {TOKENS} tokens, beside one eager forward pass")
    passes = [row for name, subject in models().items() for row in beside_a_pass(name, subject)]
    if out is not None:
        measured = {"tokens": TOKENS, "passes": passes, "peaks": peaks}
        out.write_text(json.dumps(measured, indent=1) + "\n")


def one_layer() -> None:
    """One layer, beside decompositions of every head or of every row."""
    weight = torch.randn(HEADS, WIDTH, MODEL, generator=seeded(9)) / WIDTH**0.5
    print(f"one layer, {HEADS} heads × {WIDTH}, {TOKENS} tokens")
    attention, values, visible = layer(TOKENS, causal=False)
    ours = partial(project, attention, values, visible)
    compare(
        "bidirectional", "full SVD of T", partial(by_full_svd, attention, values @ weight), ours
    )
    compare("bidirectional", "full SVD of V", partial(by_full_svd, attention, values), ours)
    attention, values, visible = layer(TOKENS, causal=True)
    ours = partial(project, attention, values, visible)
    some = partial(by_rows, attention[:1], values[:1], SAMPLED_ROWS)
    compare("causal", "SVD of every row*", some, ours, len(SAMPLED_ROWS) / (HEADS * TOKENS))
    print(f"* {len(SAMPLED_ROWS)} rows of one head were timed and scaled to {HEADS} × {TOKENS}\n")


def every_peak() -> list[dict[str, Any]]:
    """What one long layer takes, with one thread and with two, each of which has its rows."""
    kinds = ("bidirectional", "causal")
    return [peak_of(kind, threads) for kind in kinds for threads in (1, 2)]


def peak_of(kind: str, threads: int) -> dict[str, Any]:
    """What one long layer takes in a process that does nothing else."""
    command = [sys.executable, str(LONG_LAYER), kind]
    limited = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=limited)
    told: dict[str, Any] = json.loads(done.stdout) | {"threads": threads}
    peak = f"{threads} threads: peak {told['peak_gigabytes']:.2f} GB"
    print(f"one layer at {LONGEST} tokens, {kind}, {peak}")
    return told


def models() -> dict[str, Subject]:
    torch.manual_seed(0)
    eager = {"attn_implementation": "eager"}
    bert = transformers.BertForSequenceClassification(transformers.BertConfig(**eager))
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(**eager))
    return {"bidirectional": load(bert.eval()), "causal": load(gpt2.eval())}


def beside_a_pass(name: str, subject: Subject) -> list[dict[str, Any]]:
    """The bare projection, the whole method and a rival, each in turns with the forward pass."""
    ids = torch.randint(1000, 2000, (1, TOKENS), generator=seeded(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    inputs = inputs if name == "causal" else {k: inputs[k] for k in ("input_ids", "attention_mask")}
    trace = capture(subject, inputs, keep=("attention", "values"))
    maps, values = torch.stack(trace.attention), torch.stack(trace.values)
    rivals: dict[str, Callable[[], object]] = {
        "projection": lambda: [
            project(*site, trace.visible[0]) for site in zip(maps, values, strict=True)
        ],
        "effective_attention": lambda: effective_attention(trace),
        "thin float32 SVD of V": lambda: [
            by_thin_svd(*site) for site in zip(maps, values, strict=True)
        ],
    }
    rows = []
    for rival, run in rivals.items():
        forward, ours = beside(lambda: subject.model(**inputs), run)
        print(
            f"  {name:14} forward {forward:6.2f} s  {rival:21} {ours:6.2f} s"
            f"  {ours / forward:5.2f} of a pass"
        )
        rows.append({"kind": name, "work": rival, "seconds": ours, "pass_seconds": forward})
    return rows


def compare(
    name: str,
    rival: str,
    theirs: Callable[[], dict[tuple[int, int], Tensor]],
    ours: Callable[[], Projection],
    share: float = 1.0,
) -> None:
    """One line: both times by the clock and on one thread, and the largest difference.

    ``share`` is how much of the whole work the rival was given.
    """
    spent, expected = once(theirs)
    clock = (spent / share, best(ours, time.perf_counter))
    with one_thread():
        alone = (best(theirs, time.process_time) / share, best(ours, time.process_time))
    found = ours().effective.double()
    apart = max(float((found[place] - there).abs().max()) for place, there in expected.items())
    told = [
        f"{their:8.2f} s / {own:5.3f} s = {their / own:5.0f} ×" for their, own in (clock, alone)
    ]
    print(f"  {name:13} {rival:17} clock {told[0]}  one thread {told[1]}  apart {apart:.0e}")


def best(run: Callable[[], Any], timer: Callable[[], float]) -> float:
    """The least disturbed of a few runs."""
    spent = []
    for _ in range(REPEATS):
        started = timer()
        run()
        spent.append(timer() - started)
    return min(spent)


@torch.no_grad()
def by_full_svd(attention: Tensor, passed: Tensor) -> dict[tuple[int, int], Tensor]:
    """A − (A N)Nᵀ, with N from a complete n × n basis for every head."""
    found = {}
    for head, (weights, own) in enumerate(zip(attention, passed, strict=True)):
        basis, strength, _ = torch.linalg.svd(own, full_matrices=True)
        line = max(own.shape) * torch.finfo(own.dtype).eps * strength[0]
        null = basis[:, int((strength > line).sum()) :]
        effective = weights - weights @ null @ null.T
        found |= {(head, row): effective[row].double() for row in range(len(weights))}
    return found


def by_thin_svd(attention: Tensor, values: Tensor) -> Tensor:
    """A U Uᵀ in float32: neither ranks nor tolerance nor statistics, and for no mask but none."""
    basis, _, _ = torch.linalg.svd(values, full_matrices=False)
    return attention @ basis @ basis.mT


@torch.no_grad()
def by_rows(attention: Tensor, values: Tensor, rows: range) -> dict[tuple[int, int], Tensor]:
    """The definition for causal rows: a decomposition of the values up to each."""
    found = {}
    for head, row in ((head, row) for head in range(len(attention)) for row in rows):
        own = values[head, : row + 1].double()
        left, strength, _ = torch.linalg.svd(own, full_matrices=False)
        line = max(own.shape) * torch.finfo(values.dtype).eps * strength[0]
        left = left[:, strength > line]
        there = torch.zeros(attention.shape[-1], dtype=torch.float64)
        there[: row + 1] = attention[head, row, : row + 1].double() @ left @ left.T
        found[head, row] = there
    return found


def beside(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Median processor seconds of two things on one thread, taken in turns."""
    spent: tuple[list[float], list[float]] = ([], [])
    with torch.no_grad(), one_thread():
        for _ in range(REPEATS + 1):
            for times, run in zip(spent, (first, second), strict=True):
                started = time.process_time()
                run()
                times.append(time.process_time() - started)
    return statistics.median(spent[0][1:]), statistics.median(spent[1][1:])


def once(run: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = run()
    return time.perf_counter() - started, found


if __name__ == "__main__":
    main()
