"""What does effective attention cost, beside other ways and beside the model itself?

1. One layer of BERT-base shape, bidirectional: the projection beside a full singular value
   decomposition for every head, of T = V·W_O as the paper writes it and of V as the released code
   does it (both written anew here).
2. The same layer, causal: beside one decomposition for every row of every head, timed on a sample
   of rows and scaled up.
3. All twelve layers, the whole of ``effective_attention`` on a trace of them, and two products with
   a thin float32 decomposition: beside one eager forward pass of the model, bidirectional (BERT)
   and causal (GPT-2), taken in turns.
4. The peak memory of one layer at 4096 tokens, in a process of its own (``support.long_layer``).

Decompositions on several threads suffer most where cores are busy, by a factor of ten to a hundred,
so all are timed on one thread.

    python benchmarks/effective.py --out docs/data/effective.json      # writes 3 and 4
"""

from functools import partial
from pathlib import Path

import torch
import transformers
from support.long_layer import HEADS, WIDTH, layer, seeded
from support.measure import alone, bare, begun, bert, drawn, told, turns, written
from torch import Tensor

from exhibit_a.methods.identifiability.effective import effective_attention
from exhibit_a.methods.identifiability.projection import project
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import capture

MODEL = 768
LONG_LAYER = str(Path(__file__).parent / "support/long_layer.py")
OURS, FORWARD = "projection", "forward"
Rows = dict[tuple[int, int], Tensor]


def main() -> None:
    given, peaks = begun(__doc__, tokens=512), []
    for kind, threads in ((k, n) for k in ("bidirectional", "causal") for n in (1, 2)):
        peak = alone(LONG_LAYER, kind, OMP_NUM_THREADS=str(threads)) | {"threads": threads}
        print(peak)
        peaks.append(peak)
    if given.out is None:
        one_layer(given.tokens)
    torch.manual_seed(0)
    eager = {"attn_implementation": "eager"}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(**eager))
    passes = beside_a_pass("bidirectional", bert(**eager), given.tokens)
    passes += beside_a_pass("causal", load(gpt2.eval()), given.tokens)
    written(given.out, {"tokens": given.tokens, "passes": passes, "peaks": peaks})


def one_layer(tokens: int) -> None:
    """One layer, beside decompositions of every head or of every row."""
    weight = torch.randn(HEADS, WIDTH, MODEL, generator=seeded(9)) / WIDTH**0.5
    attention, values, visible = layer(tokens, causal=False)
    ways = {OURS: partial(project, attention, values, visible)}
    ways["full SVD of T"] = partial(by_full_svd, attention, values @ weight)
    ways["full SVD of V"] = partial(by_full_svd, attention, values)
    compare(f"one layer, {HEADS} heads × {WIDTH}, {tokens} tokens", ways)
    attention, values, visible = layer(tokens, causal=True)
    rows = range(16, tokens, 31)
    ways = {OURS: partial(project, attention, values, visible)}
    ways[f"SVD of {len(rows)} rows of the {HEADS * tokens}"] = partial(
        by_rows, attention, values, rows
    )
    compare("the same, causal", ways)


def compare(title: str, ways: dict) -> None:
    """Times, and the largest difference from ours."""
    spent = turns(ways)
    effective, notes = spent[OURS].made.effective.double(), {}
    for way, one in list(spent.items())[1:]:
        apart = max(float((effective[place] - row).abs().max()) for place, row in one.made.items())
        notes[way] = f"apart {apart:.0e}"
    told(title, spent, OURS, notes)


def beside_a_pass(kind: str, subject: Subject, tokens: int) -> list[dict]:
    """The bare projection, the whole method and a rival, each in turns with the forward pass."""
    inputs, rows = drawn(tokens), []
    trace = capture(subject, inputs, keep=("attention", "values"))
    sites = list(zip(trace.attention, trace.values, strict=True))
    rivals = {
        OURS: lambda: [project(*site, trace.visible[0]) for site in sites],
        "effective_attention": lambda: effective_attention(trace),
        "thin float32 SVD of V": lambda: [by_thin_svd(*site) for site in sites],
    }
    for name, work in rivals.items():
        spent = turns({FORWARD: partial(bare, subject, inputs), name: work}, warm=1)
        ours, whole = spent[name].median, spent[FORWARD].median
        print(f"{kind:14} {name:22} {ours:6.2f} s, {ours / whole:5.2f} of a pass", flush=True)
        rows.append({"kind": kind, "work": name, "seconds": ours, "pass_seconds": whole})
    return rows


@torch.no_grad()
def by_full_svd(attention: Tensor, passed: Tensor) -> Rows:
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
def by_rows(attention: Tensor, values: Tensor, rows: range) -> Rows:
    """The definition for causal rows, for one head: a decomposition of the values up to each."""
    found = {}
    for row in rows:
        own = values[0, : row + 1].double()
        left, strength, _ = torch.linalg.svd(own, full_matrices=False)
        left = left[:, strength > max(own.shape) * torch.finfo(values.dtype).eps * strength[0]]
        found[0, row] = torch.zeros(attention.shape[-1], dtype=torch.float64)
        found[0, row][: row + 1] = attention[0, row, : row + 1].double() @ left @ left.T
    return found


if __name__ == "__main__":
    main()
