"""What do a few rows of a long text cost? Time and memory beside the model's own fused pass.

A Llama shape (12 layers, 9 heads, 3 of keys and values, width 576, a vocabulary of 49,152) with
random weights; the last 16 rows are asked for. Every length is measured in a process of its own:
the peak of the resident memory above what the loaded model takes, and the ratio to the model's own
pass on the same inputs. Used, the rows give what the figure shows: free dimensions, null fraction
and the weight on the first token of the last row, layer by layer. Then every method that can do
with a few rows, if it is expected to end within ``--patience``; what it takes is told with the
capture, in passes of the model's own.

    python benchmarks/rows.py 2048 8192 32768 --patience 600 --out docs/data/rows.json
"""

import json
from typing import Any

from support.measure import Spent, alone, bare, begun, drawn, known, llama, once, written

import exhibit_a as xa
from exhibit_a.methods.custom_methods import result_of
from exhibit_a.methods.registry import methods

ROWS = 16
LONGEST_BESIDE = 16384  # tokens: beyond, the model's own pass is not run as well


def main() -> None:
    given = begun(__doc__, "lengths", lengths=[2048, 8192], patience=60.0, alone=0)
    if given.alone:
        print(json.dumps(measured(given.alone, given.patience)))
        return
    table = known(given.out)
    for length in given.lengths:
        run = "--alone", str(length), "--patience", str(given.patience)
        row = table[str(length)] = alone(__file__, *run, HF_HUB_OFFLINE="1")
        print(f"{length} tokens, {ROWS} rows:")
        for name, value in {**row, **row["methods"]}.items():  # passes of methods are the last
            if isinstance(value, float):
                print(f"  {name:26} {value:9.3g}", flush=True)
        written(given.out, table)


def measured(length: int, patience: float) -> dict[str, Any]:
    """One length: its own pass and ours, then the rows used."""
    subject = llama(12, max_position_embeddings=65536, tie_word_embeddings=True)
    inputs, repeats = drawn(length, 0, 49152, seed=length), 3 if length < 4096 else 1
    own = Spent([float("nan")], None, float("nan"))
    if length <= LONGEST_BESIDE:
        own = once(lambda: bare(subject, {**inputs, "logits_to_keep": ROWS}), repeats)
    ours = once(lambda: xa.capture(subject, inputs, rows=slice(-ROWS, None)), repeats)
    used = once(lambda: xa.effective_attention(ours.made))
    a_pass = own.least if length <= LONGEST_BESIDE else ours.least
    taken, result = {}, used.made
    for name, method in sorted(methods().items()):
        forwards = method.cost.counted(len(subject.anatomy.layers), length)
        gradients = 3 if method.cost.backwards else 1
        if method.rows and forwards * gradients <= patience / a_pass:
            options = {"site": 1, "head": 2} if "site" in method.options else {}
            work = lambda method=method, options=options: result_of(method, ours.made, **options)  # noqa: E731
            taken[name] = (ours.least + once(work).least) / a_pass
    return {
        "own_seconds": own.least,
        "seconds": ours.least,
        "ratio": ours.least / own.least,
        "effective_ratio": used.least / own.least,
        "own_megabytes": own.megabytes,
        "megabytes": ours.megabytes,
        "effective_megabytes": used.megabytes,
        "parity": ours.made.partial.parity,
        "nullity": [float(site[:, -1].double().mean()) for site in result.nullity],
        "null_fraction": [float(site[:, -1].mean()) for site in result.null_fraction],
        "sink": [float(site[:, -1, 0].mean()) for site in result.raw],
        "methods": taken,
    }


if __name__ == "__main__":
    main()
