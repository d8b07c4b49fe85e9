"""What does every method take, in forward passes of the same model on the same text?

    python benchmarks/costs.py [METHOD …] [--lengths 32 128 512 --out docs/data/costs.json]

Every registered method on the embedded model, with the capture that it needs: its processor time
over that of a bare pass, one thread, and the peak of memory above what was there before. What is
declared for it stands beside; the doctor tells its seconds from that. Methods of a data set are
given a few texts, and what they take is divided by their number. Measurements are added to the file
one by one, so that it can be stopped and started again.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from support.peaks import forget_peak, megabytes
from support.quiet import one_quiet_thread, seconds_of_a_pass

import exhibit_a as xa
from exhibit_a.methods.custom_methods import result_of
from exhibit_a.methods.registry import YOURS, Method, methods
from exhibit_a.numerics.memory import give_back

LENGTHS = (32, 128)
TEXTS = 2  # of a data set, if no more are needed
MORE_TEXTS = {"adversarial_keys": 12, "token_identifiability": 60}
PROBES = 8  # directions of every token: with all of them, mixing would take days
REVIEW = """a slow , tender film about two brothers who inherit a failing orchard and cannot agree
what to do with it . the older one wants to sell , the younger one to stay , and for most of its
two hours nothing happens that a postcard could not tell . yet the acting is superb : a look
across the kitchen table says more than the script ever does , and when the rain comes at last you
may find that you have held your breath . the music is too sweet , the ending a little neat"""
OPTIONS: dict[str, dict[str, Any]] = {
    "alternative_attention": {"site": 1, "head": 2},
    "faithfulness": {"attribution": "raw"},
    "hidden_attribution": {"probes": PROBES},
    "head_mixing": {"probes": PROBES},
    "pruning_curve": {"overlap": True},
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("names", nargs="*", help="of methods; without, all that are not known yet")
    asked.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    asked.add_argument("--out", type=Path, help="add the measurements to this file")
    options = asked.parse_args()
    one_quiet_thread()
    subject, out = xa.load("sentiment"), options.out
    known = json.loads(out.read_text()) if out and out.exists() else {}
    every = {name: method for name, method in methods().items() if method.room != YOURS}
    xa.trial(subject, "a warm film")  # what is only done once
    for tokens in options.lengths:
        for name in options.names or sorted(every):
            row = known.setdefault(name, {})
            if str(tokens) in row and not options.names:
                continue
            measured = beside_a_pass(subject, every[name], tokens)
            if measured is None:
                continue
            row[str(tokens)] = measured
            print(
                f"{tokens:4} tokens  {name:26} {measured['passes']:9.1f} passes, declared "
                f"{measured['declared']:9.1f}; peak {measured['megabytes']:6.0f} MB",
                flush=True,
            )
            if out:
                out.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def beside_a_pass(subject: xa.Subject, method: Method, tokens: int) -> dict[str, float] | None:
    """One method on texts of so many tokens; None where it is not asked of this model."""
    count = MORE_TEXTS.get(method.name, TEXTS)
    texts = [text_of(subject, tokens, text / count) for text in range(count)]
    given = subject.tokenizer(texts[0], return_tensors="pt")
    work = work_of(method, subject, texts)
    if work is None:
        return None
    asked = count if {"examples", "texts"} & set(method.takes) else 1
    before = [seconds_of_a_pass(subject, given) for _ in range(5)]
    give_back()
    resting = megabytes("VmRSS")
    forget_peak()
    start = time.process_time()
    work()
    spent, peak = time.process_time() - start, megabytes("VmHWM") - resting
    bare = median(before + [seconds_of_a_pass(subject, given) for _ in range(5)])
    layers, width = len(subject.anatomy.layers), subject.anatomy.d_model
    directions = PROBES if method.name in ("hidden_attribution", "head_mixing") else width
    return {
        "tokens": given["input_ids"].shape[1],
        "passes": round(spent / bare / asked, 2),
        "declared": round(method.cost.passes(layers, tokens, directions), 2),
        "megabytes": round(peak),
    }


def text_of(subject: xa.Subject, tokens: int, first: float) -> str:
    """As many words of the review as make so many tokens, from a place in it on."""
    words = REVIEW.split() * tokens
    words = words[int(first * len(REVIEW.split())) :][:tokens]
    while len(subject.tokenizer(" ".join(words))["input_ids"]) > tokens:
        words.pop()
    return " ".join(words)


def work_of(method: Method, subject: xa.Subject, texts: list[str]) -> Callable[[], object] | None:
    """A call of the method, with what it is made from where that is cheap."""
    options = OPTIONS.get(method.name, {})
    labels = ("positive", "negative")
    examples = [xa.Example(str(n), text, None, labels[n % 2]) for n, text in enumerate(texts)]
    match method.takes:
        case ("trace",) if method.name == "companions":
            return lambda: xa.companions(xa.capture(subject, texts[0]))
        case ("trace",) | ("trace", "target"):
            if method.name == "head_patching":
                options = {"counterfactual": texts[0].replace("slow", "dull")}
            return lambda: result_of(method, xa.capture(subject, texts[0]), **options)
        case ("attribution",):
            return lambda: method.function(xa.self_attribution(xa.capture(subject, texts[0])))
        case ("subject", "text"):
            return lambda: method.function(subject, texts[0])
        case ("subject", "texts"):
            return lambda: method.function(subject, texts)
        case ("subject", "examples"):
            return lambda: method.function(subject, examples, **options)
        case ("subject", "examples", "importance"):
            ranked = xa.head_importance(subject, examples, by="attention")
            return lambda: method.function(subject, examples, ranked, **options)
        case ("subject", "examples", "triggers"):
            found = xa.find_triggers(subject, examples)
            return lambda: method.function(subject, examples, found)
        case ("subject", "heads"):
            return lambda: method.function(subject, [(0, 1)])
    return None


if __name__ == "__main__":
    main()
