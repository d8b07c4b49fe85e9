"""What does a corpus run cost beside the bare model, and what do batches and workers bring?

Each part is asked for by name (``single`` if none is), and each prints what it measured:

1. ``whole``: effective-attention statistics over all texts, from the file to the aggregates,
   against the bare batched forward pass. After every shard the same texts go through the bare
   model, so that both meet the same machine. Seconds are of the clock and of the processor: on a
   busy machine only the second are the work's own. Peak memory of the process is told, too.
2. ``workers``: the same run by so many workers of an engine, and how fast it was after start-up.
3. ``single``: hidden attribution (sketch), self-attribution and reliance, in batches against one
   by one; at most three texts of one length go one by one.
4. ``costs``: seconds per 1,000 texts of every method, for models of several sizes and lengths.

    python benchmarks/corpus.py whole --data train.tsv
    python benchmarks/corpus.py workers --data train.tsv --texts 8000 --workers 1 2
"""

import os
import random
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.measure import WORDS, begun, bert, by_length, made_up, megabytes, once

import exhibit_a as xa
from exhibit_a.corpus.plan import Card, Data, Model, Plan, versions, windows
from exhibit_a.corpus.work import Worker
from exhibit_a.examples import Example, stream_examples
from exhibit_a.trace.batches import padded

METHOD, WINDOW, TOGETHER = "effective_attention", 1024, 2048  # tokens of a batch
SINGLY = {
    "hidden_attribution": lambda trace, probes: xa.hidden_attribution(trace, probes=probes),
    "self_attribution": lambda trace, _: xa.self_attribution(trace),
    "reliance": lambda trace, _: xa.reliance(trace),
}
METHODS: dict[str, dict[str, Any]] = {
    "effective_attention": {},
    "attention_identifiability": {},
    "hidden_attribution": {"probes": 8},
    "self_attribution": {},
    "permutation": {"repeats": 20},
    "reliance": {},
}


def main() -> None:
    given = begun(
        __doc__, "part", part="single", data=str, texts=0, workers=[1, 2], engines=["local"],
        probes=8, methods=["hidden_attribution", "self_attribution"], every=1, lengths=[8, 16, 32],
    )  # fmt: skip
    subject, count = xa.load("sentiment"), given.texts or (2**40 if given.data else 240)
    texts = partial(texts_of, given.data, count)
    if given.part == "whole":
        against_the_model(subject, texts)
    elif given.part == "workers":
        for engine, workers in ((e, n) for e in given.engines for n in given.workers):
            by_workers(engine, workers, list(texts()))
    elif given.part == "single":
        for method in given.methods:
            batches_against_single(subject, list(texts()), method, given.probes, given.every)
    else:
        large = bert(vocab_size=subject.model.config.vocab_size, attn_implementation="eager")
        large = xa.load(large.model, tokenizer=subject.tokenizer)
        for length in given.lengths:
            costs(subject, "sentiment", length, 8)
        for length in given.lengths[:2]:
            costs(large, "base", length, 2)


def texts_of(path: str | None, count: int) -> Iterator[Example]:
    """The first examples of a file, as a stream, or made-up ones of 2 to 30 words."""
    return islice(stream_examples(path or made_up(count, range(2, 31))), count)


def clocks() -> np.ndarray:
    """Seconds of the clock, and of this process on a processor."""
    return np.array([time.perf_counter(), time.process_time()])


@torch.no_grad()
def bare(subject: xa.Subject, examples: Iterable[Example]) -> np.ndarray:
    """What tokenizing takes, and the model alone on batches of one length."""
    start = clocks()
    groups, encoded = by_length(subject, (one.text for one in examples)), clocks()
    for length, same in groups.items():
        size = max(1, TOGETHER // length)
        for first in range(0, len(same), size):
            subject.model(**padded(subject, same[first : first + size]))
    return np.array([encoded - start, clocks() - encoded])


def against_the_model(subject: xa.Subject, texts: Any) -> None:
    """A whole run; between its shards the bare model has its turn, and is not counted."""
    again, beside, done = windows(texts(), WINDOW), np.zeros((2, 2)), [0]

    def between(so_far: int) -> None:
        beside[:] += bare(subject, next(again).examples)
        done[0] = so_far
        print(f"  {so_far} texts, peak {megabytes('VmHWM'):.0f} MB", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        start, place = clocks(), Path(folder) / "run"
        xa.corpus.run(subject, texts(), METHOD, place, window=WINDOW, progress=between)
        took = clocks() - start - beside.sum(0)
        disk = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    print(f"{done[0]} texts, from the file to the aggregates: a second and beside the run")
    ways = {"run": took, "bare forward": beside[1], "with its tokenizing": beside.sum(0)}
    for name, spent in ways.items():
        for kind, of, whole in zip(("clock", "processor"), spent, took, strict=True):
            print(f"  {name:20} by the {kind:9}: {done[0] / of:8.1f} ({of / whole:.3f})")
    print(f"  peak memory {megabytes('VmHWM'):.0f} MB; {disk / 2**20:.0f} MB on disk")


def by_workers(engine: str, workers: int, texts: list[Example]) -> None:
    """A run by some workers: as a whole, and from its first shard to its last."""
    seen: list[tuple[int, float]] = []
    progress = lambda done: seen.append((done, time.perf_counter()))  # noqa: E731
    how = {"window": 256, "engine": engine, "workers": workers, "progress": progress}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        xa.corpus.run("sentiment", texts, METHOD, Path(folder) / "run", **how)
        took = time.perf_counter() - start
    (first, begin), (last, end) = seen[0], seen[-1]
    between = (last - first) / (end - begin) if end > begin else float("nan")
    print(
        f"{engine}, {workers} workers: {last} texts in {took:.1f} s ({last / took:.1f} a second; "
        f"{between:.1f} between the first shard and the last); load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def worker(subject: xa.Subject, method: str, **parameters: Any) -> Worker:
    plan, model = Plan(method=method, parameters=parameters), Model.of(subject)
    return Worker(Card(plan=plan, model=model, data=Data(), versions=versions()), subject)


def batches_against_single(
    subject: xa.Subject, examples: list[Example], method: str, probes: int, every: int
) -> None:
    """Texts of one length together, and the first few of them one by one, length after length."""
    groups: dict[int, list[Example]] = {}
    for one in examples:
        groups.setdefault(len(subject.encode(one.text)["input_ids"][0]), []).append(one)
    parameters = {"probes": probes} if method == "hidden_attribution" else {}
    together = worker(subject, method, **parameters)
    ask = lambda text: SINGLY[method](xa.capture(subject, text), probes)  # noqa: E731
    ask(examples[0].text)  # the first time costs more
    total = np.zeros(3)
    for length in sorted(length for length in groups if length % every == 0):
        same, some = groups[length], [one.text for one in groups[length][:3]]
        (window,) = windows(same, None)
        single = once(lambda some=some: [ask(text) for text in some]).least / len(some)
        batch = once(lambda window=window: together(window)).least / len(same)
        total += np.array([1, single, batch]) * len(same)
        print(
            f"{method}, {length:3} tokens, {len(same):3} texts: {single / batch:.2f} times",
            flush=True,
        )
    count, single, batch = total
    print(
        f"{method}: {count:.0f} of {len(examples)} texts: one by one {1000 * single / count:.0f}, "
        f"in batches {1000 * batch / count:.0f} s per 1,000 texts, {single / batch:.2f} times"
    )


def costs(subject: xa.Subject, name: str, length: int, count: int) -> None:
    """Seconds per 1,000 texts of one length, by method; eight times as many for the cheap one."""
    chance, texts = random.Random(length), list[str]()
    while len(texts) < 8 * count:
        text = " ".join(chance.choices(WORDS.split(), k=length - 2))
        if len(subject.encode(text)["input_ids"][0]) == length:
            texts.append(text)
    examples = [Example(str(n), text) for n, text in enumerate(texts)]
    (many,), (few,) = windows(examples, None), windows(examples[:count], None)
    worker(subject, METHOD)(few)  # the first time costs more
    for method, parameters in METHODS.items():
        window, asked = many if method == METHOD else few, worker(subject, method, **parameters)
        took = once(lambda asked=asked, window=window: asked(window)).least / len(window.examples)
        print(f"{name}, {length} tokens, {method}: {1000 * took:.1f} s", flush=True)


if __name__ == "__main__":
    main()
