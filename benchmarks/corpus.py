"""What does a corpus run cost beside the bare model, and what do batches and workers bring?

1. Effective-attention statistics against the bare batched forward pass of the same model, both on
   one thread in one process; two worker processes against one.
2. Peak memory of the run from few texts to all of them.
3. Hidden token attribution (sketch) and self-attention attribution in batches against one by one.

    python benchmarks/corpus.py --data train.tsv --texts 67349
"""

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import exhibit_a as xa
from exhibit_a.corpus.plan import Card, Data, Model, Plan, versions
from exhibit_a.corpus.windows import windows
from exhibit_a.corpus.work import Worker
from exhibit_a.examples import Example, stream_examples
from exhibit_a.methods.batches import padded

MADE_UP = "the film is a very long but not dull story of two people who never say what they mean"


def texts_of(path: str | None, count: int) -> list[Example]:
    """The first examples of a file, or made-up ones of 2 to 30 words."""
    if path is not None:
        return list(islice(stream_examples(path), count))  # type: ignore[arg-type]
    chance, words = random.Random(0), MADE_UP.split()
    made = (" ".join(chance.choices(words, k=chance.randint(2, 30))) for _ in range(count))
    return list(stream_examples(made))  # type: ignore[arg-type]


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def worker(subject: xa.Subject, method: str, **parameters: Any) -> Worker:
    plan = Plan(method=method, parameters=parameters)
    return Worker(
        Card(plan=plan, model=Model.of(subject), data=Data(), versions=versions()), subject
    )


def bare(subject: xa.Subject, examples: list[Example]) -> None:
    """The model alone, on the same batches: texts of one length, 2048 tokens at most."""
    by_length: dict[int, list[dict[str, Any]]] = {}
    for one in examples:
        inputs = subject.encode(one.text, truncate=True)
        by_length.setdefault(inputs["input_ids"].shape[1], []).append(inputs)
    with torch.no_grad():
        for length, same in by_length.items():
            size = max(1, 2048 // length)
            for start in range(0, len(same), size):
                subject.model(**padded(subject, same[start : start + size]))


def against_the_forward(subject: xa.Subject, examples: list[Example]) -> None:
    """Window by window, now one and now the other, so that both meet the same machine."""
    asked, plain, ours = worker(subject, "effective_attention"), 0.0, 0.0
    for window in windows(examples, 1024):
        plain += timed(lambda w=window: bare(subject, list(w.examples)))  # type: ignore[misc]
        ours += timed(lambda w=window: asked(w))  # type: ignore[misc]
    count = len(examples)
    print(f"bare forward          {count / plain:8.1f} texts/s")
    print(f"effective statistics  {count / ours:8.1f} texts/s   ratio {plain / ours:.2f}")


def whole_runs(examples: list[Example], workers: list[int], engine: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for count in workers:
            out = Path(folder) / f"{engine}{count}"
            seen: list[tuple[int, float]] = []
            run = partial(
                xa.corpus.run,
                *("sentiment", examples, "effective_attention", out),
                engine=engine,
                workers=count,
                progress=lambda done, seen=seen: seen.append((done, time.perf_counter())),
            )
            took = timed(run)
            (first, start), (last, end) = seen[0], seen[-1]
            steady = (last - first) / (end - start) if end > start else float("nan")
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{engine}, {count} workers: {len(examples)} texts in {took:.1f} s "
                f"({len(examples) / took:.1f} a second; {steady:.1f} after start-up); "
                f"peak {peak:.0f} MB"
            )


def batched_against_single(subject: xa.Subject, examples: list[Example], probes: int) -> None:
    (window,) = windows(examples, None)
    asked = worker(subject, "hidden_attribution", probes=probes)
    single = timed(
        lambda: [
            xa.hidden_attribution(xa.capture(subject, one.text), probes=probes) for one in examples
        ]
    )
    together = timed(lambda: asked(window))
    told("hidden attribution", len(examples), single, together)
    asked = worker(subject, "self_attribution")
    single = timed(lambda: [xa.self_attribution(xa.capture(subject, one.text)) for one in examples])
    together = timed(lambda: asked(window))
    told("self attribution", len(examples), single, together)


def told(name: str, count: int, single: float, together: float) -> None:
    print(
        f"{name:20} one by one {1000 * single / count:7.1f} s, in batches "
        f"{1000 * together / count:7.1f} s per 1,000 texts   {single / together:.2f} times"
    )


def costs(subject: xa.Subject, examples: list[Example]) -> None:
    """Seconds per 1,000 texts of every method that goes text by text."""
    (window,) = windows(examples, None)
    asked = {
        "effective_attention": {},
        "attention_identifiability": {},
        "hidden_attribution": {"probes": 8},
        "self_attribution": {},
        "permutation": {"repeats": 20},
    }
    length = sum(len(subject.encode(one.text)["input_ids"][0]) for one in examples) / len(examples)
    print(f"cost per 1,000 texts of {length:.1f} tokens on average, one core:")
    for name, parameters in asked.items():
        method = worker(subject, name, **parameters)
        took = timed(lambda m=method: m(window))  # type: ignore[misc]
        print(f"  {name:28} {1000 * took / len(examples):8.1f} s")


def sample(subject: xa.Subject, examples: list[Example], count: int) -> list[Example]:
    """About ``count`` texts of a window, with as many of one length as the window has."""
    by_length: dict[int, list[Example]] = {}
    for one in examples:
        by_length.setdefault(len(subject.encode(one.text)["input_ids"][0]), []).append(one)
    lengths, found = sorted(by_length), list[Example]()
    chance = random.Random(0)
    while lengths and len(found) < count:
        found += by_length[lengths.pop(chance.randrange(len(lengths)))]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="file of texts; without it they are made up")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--single", type=int, default=16, help="texts for batches against single")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--engines", nargs="*", default=["local"])
    parser.add_argument("--probes", type=int, default=8)
    parser.add_argument("--parts", nargs="*", default=["forward", "runs", "single", "costs"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    subject, examples = xa.load("sentiment"), texts_of(options.data, options.texts)
    few = sample(subject, examples[:1024], options.single)
    if "forward" in options.parts:
        against_the_forward(subject, examples)
    if "single" in options.parts:
        batched_against_single(subject, few, options.probes)
    if "costs" in options.parts:
        costs(subject, few)
    if "runs" in options.parts:
        for engine in options.engines:
            whole_runs(examples, options.workers, engine)


if __name__ == "__main__":
    main()
