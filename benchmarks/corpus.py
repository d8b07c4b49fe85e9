"""What does a corpus run cost beside the bare model, and what do batches and workers bring?

Each part is asked for by name (``single`` if none is), and each prints what it measured:

1. ``whole``: effective-attention statistics over all texts, from the file to the aggregates,
   against the bare batched forward pass. After every shard the same texts go through the bare
   model, so that both meet the same machine. Seconds are of the clock and of the processor: on a
   busy machine only the second are the work's own. Peak memory of the process is told, too.
2. ``workers``: the same run by so many workers of an engine, and how fast it was after start-up.
3. ``single``: hidden attribution (sketch), self-attribution and reliance, in batches against one
   by one.
4. ``costs``: seconds per 1,000 texts of every method, for models of several sizes and lengths.

    python benchmarks/corpus.py whole --data train.tsv
    python benchmarks/corpus.py workers --data train.tsv --texts 8000 --workers 1 2
"""

import argparse
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from corpus_parts import MADE_UP, batches_against_single, costs, of_base_size

import exhibit_a as xa
from exhibit_a.corpus.plan import windows
from exhibit_a.examples import Example, stream_examples
from exhibit_a.trace.batches import padded

METHOD, WINDOW = "effective_attention", 1024


def texts_of(path: str | None, count: int) -> Iterator[Example]:
    """The first examples of a file, as a stream, or made-up ones of 2 to 30 words."""
    if path is not None:
        return islice(stream_examples(path), count)  # type: ignore[arg-type]
    chance, words = random.Random(0), MADE_UP.split()
    made = (" ".join(chance.choices(words, k=chance.randint(2, 30))) for _ in range(count))
    return stream_examples(made)  # type: ignore[return-value]


def clocks() -> np.ndarray:
    """Seconds of the clock, and of this process on a processor."""
    return np.array([time.perf_counter(), time.process_time()])


def bare(subject: xa.Subject, examples: list[Example]) -> tuple[np.ndarray, np.ndarray]:
    """What tokenizing takes, and the model alone on texts of one length, 2048 tokens at most."""
    by_length: dict[int, list[dict[str, Any]]] = {}
    start = clocks()
    for one in examples:
        inputs = subject.encode(one.text, truncate=True)
        by_length.setdefault(inputs["input_ids"].shape[1], []).append(inputs)
    encoded = clocks()
    with torch.no_grad():
        for length, same in by_length.items():
            size = max(1, 2048 // length)
            for first in range(0, len(same), size):
                subject.model(**padded(subject, same[first : first + size]))
    return encoded - start, clocks() - encoded


def against_the_model(subject: xa.Subject, data: str | None, count: int) -> None:
    """A whole run; between its shards the bare model has its turn, and is not counted."""
    again = windows(texts_of(data, count), WINDOW)
    encoding, model, done = np.zeros(2), np.zeros(2), 0

    def between(so_far: int) -> None:
        nonlocal encoding, model, done
        spent = bare(subject, list(next(again).examples))
        encoding, model, done = encoding + spent[0], model + spent[1], so_far
        if so_far // WINDOW % 8 == 0:
            print(f"  {so_far} texts, peak {peak():.0f} MB", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        start, texts = clocks(), texts_of(data, count)
        xa.corpus.run(subject, texts, METHOD, Path(folder) / "run", window=WINDOW, progress=between)
        took = clocks() - start - encoding - model
        written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    print(
        f"{done} texts on one thread, from the file to the aggregates; texts per second and ratio"
    )
    for place, kind in enumerate(("clock", "processor")):
        alone, with_text = model[place], model[place] + encoding[place]
        print(
            f"  by the {kind:9}: run {done / took[place]:.1f}; bare forward {done / alone:.1f} "
            f"({alone / took[place]:.3f}), with its tokenizing {done / with_text:.1f} "
            f"({with_text / took[place]:.3f})"
        )
    print(f"  peak memory {peak():.0f} MB; {written / 2**20:.0f} MB on disk")


def peak() -> float:
    """The most memory this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def by_workers(engine: str, workers: int, data: str | None, count: int) -> None:
    seen: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        run = partial(
            xa.corpus.run,
            *("sentiment", list(texts_of(data, count)), METHOD, Path(folder) / "run"),
            window=256,
            engine=engine,
            workers=workers,
            progress=lambda done: seen.append((done, time.perf_counter())),
        )
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run()
        took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    (first, begun), (last, end) = seen[0], seen[-1]
    print(
        f"{engine}, {workers} workers: {last} texts in {took:.1f} s ({last / took:.1f} a second; "
        f"{(last - first) / (end - begun):.1f} between the first shard and the last); "
        f"processor seconds of the local workers: {after.ru_utime - before.ru_utime:.1f}; "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parts = ["whole", "workers", "single", "costs"]
    parser.add_argument("part", nargs="?", choices=parts, default="single")
    parser.add_argument("--data", help="file of texts; without it they are made up")
    parser.add_argument("--texts", type=int, help="how many at most; all, or 240 made-up ones")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--engines", nargs="*", default=["local"])
    parser.add_argument("--probes", type=int, default=8)
    parser.add_argument("--methods", nargs="*", default=["hidden_attribution", "self_attribution"])
    parser.add_argument("--every", type=int, default=1, help="take lengths that it divides")
    parser.add_argument("--lengths", type=int, nargs="*", default=[8, 16, 32])
    options = parser.parse_args()
    options.texts = options.texts or (2**40 if options.data else 240)
    torch.set_num_threads(1)
    if options.part == "workers":
        for engine in options.engines:
            for workers in options.workers:
                by_workers(engine, workers, options.data, options.texts)
        return
    subject = xa.load("sentiment")
    if options.part == "whole":
        against_the_model(subject, options.data, options.texts)
    elif options.part == "single":
        examples = list(texts_of(options.data, options.texts))
        for method in options.methods:
            batches_against_single(subject, examples, method, options.probes, options.every)
    else:
        for length in options.lengths:
            costs(subject, "sentiment", length, 8)
        large = of_base_size(subject)
        for length in options.lengths[:2]:
            costs(large, "base", length, 2)


if __name__ == "__main__":
    main()
