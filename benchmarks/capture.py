"""What does watching cost? One watched pass beside the bare eager pass, in one process.

BERT-base shape, random weights, 128 and 512 tokens; time is the median of interleaved repeats, so
that a noisy machine disturbs both alike. Peak memory is measured in a process of its own, with
``keep=()``, against the bare pass.
"""

import resource
import statistics
import subprocess
import sys
import time

import torch
import transformers

from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace.capture import capture

REPEATS = 7


def main() -> None:
    subject = bert_base()
    print(f"{'tokens':>6} {'keep':28} {'eager s':>8} {'watched s':>9} {'ratio':>6}")
    for tokens in (128, 512):
        for keep in ((), ("attention", "values", "hidden")):
            bare, watched = beside(subject, tokens, keep)
            told = ", ".join(keep) or "nothing"
            print(f"{tokens:6} {told:28} {bare:8.3f} {watched:9.3f} {watched / bare:6.2f}")
    print(f"\npeak memory at 512 tokens: bare {peak('bare'):.0f} MB, ", end="")
    print(f"watched with keep=() {peak('watched'):.0f} MB")


def bert_base() -> Subject:
    torch.manual_seed(0)
    config = transformers.BertConfig(attn_implementation="eager")
    return load(transformers.BertForSequenceClassification(config).eval())


def beside(subject: Subject, tokens: int, keep: tuple[str, ...]) -> tuple[float, float]:
    """Median seconds of the bare and of the watched pass, taken in turns."""
    inputs, spent = text(tokens), {"bare": [], "watched": []}
    for _ in range(REPEATS + 1):
        for name, run in (("bare", bare_pass), ("watched", watched_pass)):
            started = time.perf_counter()
            run(subject, inputs, keep)
            spent[name].append(time.perf_counter() - started)
    return tuple(statistics.median(times[1:]) for times in spent.values())


def bare_pass(subject: Subject, inputs: dict, keep: tuple[str, ...]) -> None:  # noqa: ARG001
    with torch.no_grad(), frozen_eval(subject.model):
        subject.model(**inputs)


def watched_pass(subject: Subject, inputs: dict, keep: tuple[str, ...]) -> None:
    capture(subject, inputs, keep=keep)


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
    {"bare": bare_pass, "watched": watched_pass}[which](subject, text(512), ())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


if __name__ == "__main__":
    alone(sys.argv[1]) if len(sys.argv) > 1 else main()
