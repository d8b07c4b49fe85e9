"""How much of the model does a corpus run, for methods that run it more than once?

    python benchmarks/corpus_passes.py [--label NAME] [--out docs/data/corpus-passes.json]

Self-attribution (96 texts) and token identifiability (240 texts, maps identity and linear) on the
embedded model: the work of its matrices going forwards, and processor time on one thread, both
beside one bare pass over the same texts in batches of one length. With ``PYTHONPATH`` set to the
sources of another version, and its name as the label, that version stands beside in the file.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import exhibit_a as xa

WORDS = "the film is a very long but not dull story of two people who never say what they mean"
REPEATS = 2


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--label", default="now")
    asked.add_argument("--out", type=Path, help="add the measurements to this file")
    options = asked.parse_args()
    torch.set_num_threads(1)
    subject = xa.load("sentiment")
    few, many = made_up(96, (6, 14, 22)), made_up(240, range(4, 31))
    rows = {
        "self_attribution": beside(subject, few, lambda: corpus(subject, few)),
        "token_identifiability": beside(subject, many, lambda: tokens(subject, many)),
    }
    for name, row in rows.items():
        print(
            f"{name}: {row['texts']} texts, forward work {row['work']:.2f} passes, "
            f"time {row['time']:.2f} passes ({row['seconds']:.2f} s)"
        )
    if options.out is not None:
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps(known | {options.label: rows}, indent=1) + "\n")


def made_up(count: int, lengths: Any) -> list[str]:
    chance, words = random.Random(0), WORDS.split()
    return [" ".join(chance.choices(words, k=chance.choice(lengths))) for _ in range(count)]


def corpus(subject: xa.Subject, texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        xa.corpus.run(subject, texts, "self_attribution", Path(folder) / "run")


def tokens(subject: xa.Subject, texts: list[str]) -> None:
    xa.token_identifiability(subject, texts, maps=("identity", "linear"))


def beside(subject: xa.Subject, texts: list[str], run: Callable[[], None]) -> dict[str, float]:
    """A method beside the bare model."""
    by_length: dict[int, list[Any]] = {}
    for text in texts:
        inputs = subject.encode(text)
        by_length.setdefault(inputs["input_ids"].shape[1], []).append(inputs)

    @torch.no_grad()
    def bare() -> None:
        for same in by_length.values():
            subject.model(**{name: torch.cat([one[name] for one in same]) for name in same[0]})

    with counted() as work:
        bare()
    with counted() as more:
        run()
    alone, seconds = least(bare), least(run)
    return {
        "texts": len(texts),
        "work": more[0] / work[0],
        "time": seconds / alone,
        "seconds": seconds,
    }


@contextmanager
def counted() -> Iterator[list[float]]:
    """The multiplications of all linear layers that run forwards."""
    real, work = functional.linear, [0.0]

    def linear(states: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        work[0] += states.numel() * len(weight)
        return real(states, weight, bias)

    functional.linear = linear
    try:
        yield work
    finally:
        functional.linear = real


def least(work: Callable[[], None]) -> float:
    spent = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


if __name__ == "__main__":
    main()
