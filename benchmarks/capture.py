"""What does watching cost? One watched pass beside the bare eager pass, in one process.

BERT-base shape (12 layers, 128 and 512 tokens) and a Llama shape of 30 layers (128 tokens), random
weights. Time is the median processor time of interleaved repeats on one thread, so that a noisy
machine disturbs all alike; the library's own maps and states stand beside ours. Peak memory is
measured in a process of its own, with ``keep=()``, against the bare pass.

    python benchmarks/capture.py --out docs/data/capture.json
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import transformers
from support.quiet import begun

from exhibit_a.subject.guard import frozen_eval, without_cache
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import capture

REPEATS = 5


def main() -> None:
    out = begun(__doc__)
    rows = []
    for name, subject, tokens in models():
        seconds = beside(subject, tokens)
        ratios = {way: spent / seconds["bare"] for way, spent in seconds.items()}
        rows.append({"model": name, "tokens": tokens, "bare_seconds": seconds["bare"], **ratios})
        told = "  ".join(f"{way} {ratio:.2f}" for way, ratio in ratios.items() if way != "bare")
        print(
            f"{name:28} {tokens:4} tokens  eager pass {seconds['bare']:.3f} s  {told}", flush=True
        )
    memory = {which: peak(which) for which in ("bare", "watched")}
    print(f"\npeak memory at 512 tokens: bare {memory['bare']:.0f} MB, ", end="")
    print(f"watched with keep=() {memory['watched']:.0f} MB")
    if out:
        out.write_text(json.dumps({"rows": rows, "megabytes": memory}, indent=1) + "\n")


def models() -> list[tuple[str, Subject, int]]:
    """What is run, by name, with the number of tokens."""
    bert = bert_base()
    return [
        ("BERT-base, 12 layers", bert, 128),
        ("BERT-base, 12 layers", bert, 512),
        ("Llama shape, 30 layers", thirty_layers(), 128),
    ]


def thirty_layers() -> Subject:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, attn_implementation="eager",
    )  # fmt: skip
    return load(transformers.LlamaForCausalLM(config).eval())


def bert_base() -> Subject:
    torch.manual_seed(0)
    config = transformers.BertConfig(attn_implementation="eager")
    return load(transformers.BertForSequenceClassification(config).eval())


def beside(subject: Subject, tokens: int) -> dict[str, float]:
    """Median processor seconds of each way to run the same pass, taken in turns."""
    inputs = text(tokens)
    everything = ("attention", "values", "hidden")
    ways: dict[str, Callable[[], object]] = {
        "bare": lambda: bare_pass(subject, inputs),
        "own maps and states": lambda: bare_pass(
            subject, {**inputs, "output_attentions": True, "output_hidden_states": True}
        ),
        "watched": lambda: capture(subject, inputs, keep=()),
        "all kept": lambda: capture(subject, inputs, keep=everything),
    }
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(REPEATS + 1):
        for way, run in ways.items():
            started = time.process_time()
            run()
            spent[way].append(time.process_time() - started)
    return {way: statistics.median(times[1:]) for way, times in spent.items()}


def bare_pass(subject: Subject, inputs: dict) -> None:
    with torch.no_grad(), frozen_eval(subject.model):
        subject.model(**without_cache(subject.model, inputs))


def text(tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(1000, 2000, (1, tokens), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def peak(which: str) -> float:
    """Peak resident memory of a fresh process that runs one kind of pass."""
    told = subprocess.run(
        [sys.executable, __file__, which], check=True, capture_output=True, text=True
    )
    return float(told.stdout)


def alone(which: str) -> None:
    subject = bert_base()
    if which == "bare":
        bare_pass(subject, text(512))
    else:
        capture(subject, text(512), keep=())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


if __name__ == "__main__":
    alone(sys.argv[1]) if sys.argv[1:2] in (["bare"], ["watched"]) else main()
