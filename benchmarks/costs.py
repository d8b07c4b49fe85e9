"""What does every method take, in forward passes of the same model on the same text?

    python benchmarks/costs.py [METHOD …] [--lengths 32 128 512 --out docs/data/costs.json]

Every registered method on the embedded model, with the capture that it needs: its processor time
over that of a bare pass, and the peak of memory above what was there before. What is declared for
it stands beside; the doctor tells its seconds from that. Methods of a data set are given a few
texts, and what they take is divided by their number. Measurements are added to the file one by one,
so that it can be stopped and started again.
"""

from collections.abc import Callable
from statistics import median
from typing import Any

from support.measure import REVIEW, bare, begun, known, once, written

import exhibit_a as xa
from exhibit_a.methods.custom_methods import result_of
from exhibit_a.methods.registry import YOURS, Method, methods
from exhibit_a.numerics.memory import give_back

TEXTS = 2  # of a data set, if no more are needed
MORE_TEXTS = {"adversarial_keys": 12, "token_identifiability": 60}
PROBES = 8  # directions of every token: with all of them, mixing would take days
OPTIONS: dict[str, dict[str, Any]] = {
    "alternative_attention": {"site": 1, "head": 2},
    "faithfulness": {"attribution": "raw"},
    "hidden_attribution": {"probes": PROBES},
    "head_mixing": {"probes": PROBES},
    "pruning_curve": {"overlap": True},
}


def main() -> None:
    given = begun(__doc__, "names", names=[""], lengths=[32, 128])
    subject, measured = xa.load("sentiment"), known(given.out)
    every = {name: method for name, method in methods().items() if method.room != YOURS}
    xa.trial(subject, "a warm film")  # what is only done once
    names = [name for name in given.names if name]
    for tokens in map(str, given.lengths):
        for name in names or sorted(every):
            row = measured.setdefault(name, {})
            if names or tokens not in row:
                found = beside_a_pass(subject, every[name], int(tokens))
                if found is not None:
                    row[tokens] = found
                    print(f"{tokens:>4} tokens  {name:26} {found}", flush=True)
                    written(given.out, dict(sorted(measured.items())))


def beside_a_pass(subject: xa.Subject, method: Method, tokens: int) -> dict[str, float] | None:
    """One method on texts of so many tokens; None where it is not asked of this model."""
    count = MORE_TEXTS.get(method.name, TEXTS)
    texts = [text_of(subject, tokens, text / count) for text in range(count)]
    given = subject.tokenizer(texts[0], return_tensors="pt")
    work = work_of(method, subject, texts)
    if work is None:
        return None
    asked = count if {"examples", "texts"} & set(method.takes) else 1
    passes = once(lambda: bare(subject, given), 5).times
    give_back()
    spent = once(work)
    a_pass = median(passes + once(lambda: bare(subject, given), 5).times)
    layers, width = len(subject.anatomy.layers), subject.anatomy.d_model
    directions = PROBES if method.name in ("hidden_attribution", "head_mixing") else width
    return {
        "tokens": given["input_ids"].shape[1],
        "passes": round(spent.least / a_pass / asked, 2),
        "declared": round(method.cost.passes(layers, tokens, directions), 2),
        "megabytes": round(spent.megabytes),
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
