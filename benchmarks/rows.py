"""What do a few rows of a long text cost? Time and memory beside the model's own fused pass.

A Llama shape (12 layers, 9 heads, 3 of keys and values, width 576, a vocabulary of 49,152) with
random weights; the last 16 rows are asked for. Every length is measured in a process of its own, on
one thread and by processor time: the peak of the resident memory above what the loaded model takes,
and the ratio to the model's own pass on the same inputs. Used, the rows give what the figure shows:
free dimensions, null fraction and the weight on the first token of the last row, layer by layer.
Then every method that can do with a few rows, if it is expected to end within ``--patience``;
what it takes is told with the capture, in passes of the model's own.

    python benchmarks/rows.py 2048 8192 32768 --patience 600 --out docs/data/rows.json
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from support.peaks import forget_peak, megabytes
from support.quiet import one_quiet_thread

import exhibit_a as xa
from exhibit_a.methods.custom_methods import result_of
from exhibit_a.methods.registry import Method, methods
from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.subject import Subject

ROWS = 16
LONGEST_BESIDE = 16384  # tokens: beyond, the model's own pass is not run as well


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("lengths", type=int, nargs="*", default=[2048, 8192])
    asked.add_argument("--out", type=Path, help="add the measurements to this file")
    asked.add_argument(
        "--patience", type=float, default=60, help="seconds a method may take by what it declares"
    )
    asked.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.alone:
        print(json.dumps(measured(options.alone, options.patience)))
        return
    table = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for length in options.lengths:
        run = [sys.executable, __file__, "--alone", str(length)]
        run += ["--patience", str(options.patience)]
        row = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
        print(
            f"{length:6} tokens: own pass {row['own_seconds']:.1f} s, with rows "
            f"{row['ratio']:.2f} of it, with effective attention {row['effective_ratio']:.2f}; "
            f"peak {row['own_megabytes']:.0f} MB and {row['megabytes']:.0f} MB above the model, "
            f"parity {row['parity']:.0e}",
            flush=True,
        )
        for name, passes in row["methods"].items():
            print(f"              {name:26} {passes:7.2f} passes")
        table[str(length)] = row
        if options.out:
            options.out.write_text(json.dumps(table, indent=1) + "\n")


def llama() -> Subject:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=12,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=65536,
        tie_word_embeddings=True,
    )
    return xa.load(transformers.LlamaForCausalLM(config).eval())


def measured(length: int, patience: float) -> dict[str, Any]:
    """One length: its own pass and ours in turns, then the rows used."""
    one_quiet_thread()
    subject = llama()
    ids = torch.randint(0, 49152, (1, length), generator=torch.Generator().manual_seed(length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    few = {**inputs, "use_cache": False, "logits_to_keep": ROWS}

    def own() -> None:
        with torch.no_grad(), frozen_eval(subject.model):
            subject.model(**few)

    repeats = 3 if length < 4096 else 1
    own_seconds, own_peak = float("nan"), float("nan")
    if length <= LONGEST_BESIDE:
        own_seconds, own_peak, _ = _spent(own, repeats)
    seconds, peak, trace = _spent(
        lambda: xa.capture(subject, inputs, rows=slice(-ROWS, None)), repeats
    )
    used, used_peak, result = _spent(lambda: xa.effective_attention(trace), 1)
    a_pass = own_seconds if math.isfinite(own_seconds) else seconds
    return {
        "own_seconds": own_seconds,
        "seconds": seconds,
        "ratio": seconds / own_seconds,
        "effective_ratio": used / own_seconds,
        "own_megabytes": own_peak,
        "megabytes": peak,
        "effective_megabytes": used_peak,
        "parity": trace.partial.parity,
        "nullity": [float(site[:, -1].double().mean()) for site in result.nullity],
        "null_fraction": [float(site[:, -1].mean()) for site in result.null_fraction],
        "sink": [float(site[:, -1, 0].mean()) for site in result.raw],
        "methods": {
            name: (seconds + _spent(partial(result_of, method, trace, **options), 1)[0]) / a_pass
            for name, (method, options) in _affordable(subject, length, patience / a_pass).items()
        },
    }


def _affordable(
    subject: Subject, length: int, passes: float
) -> dict[str, tuple[Method, dict[str, int]]]:
    """The methods that can do with these rows and end in time, with what they must be told."""
    affordable = {}
    for name, method in sorted(methods().items()):
        forwards = method.cost.counted(len(subject.anatomy.layers), length)
        gradients = 3 if method.cost.backwards else 1
        if method.rows and forwards * gradients <= passes:
            options = {"site": 1, "head": 2} if "site" in method.options else {}
            affordable[name] = (method, options)
    return affordable


def _spent(work: Any, repeats: int) -> tuple[float, float, Any]:
    """The least processor time of some repeats, the peak of memory above now, and what came."""
    forget_peak()
    before, times, made = megabytes("VmRSS"), [], None
    for _ in range(repeats):
        del made
        started = time.process_time()
        made = work()
        times.append(time.process_time() - started)
    return min(times), megabytes("VmHWM") - before, made


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
