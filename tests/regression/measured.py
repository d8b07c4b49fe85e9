"""The numbers of every method on a few small subjects, through public names alone.

``python tests/regression/measured.py FOLDER`` saves each result whole (to compare two versions
byte for byte) and writes ``numbers.json``: of every tensor its shape, sums and some entries.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import exhibit_a as xa

HERE = Path(__file__).parent
SHORT = "a gripping , beautifully shot film"
LONG = (
    "the plot is a little thin at the end , some jokes fall flat and the hero never finds a reason "
    "to be there , but the acting is fine , the music carries every scene , the camera finds faces "
    "that stay with you , and when the lights come on you have laughed , wept and learned "
    "something about an old man and the sea"
)
TINY = ("bert", "llama", "bart", "mpnet")  # an encoder, grouped keys, two stacks, the softmax tap
SAMPLES = 8  # entries of a tensor that are written down


def subjects() -> Iterator[tuple[str, xa.Subject, Any]]:
    from support.words import tokenizer
    from support.zoo import FAMILIES

    for name in TINY:
        family = FAMILIES[name]
        tokens = None if family.eats == "two texts" else tokenizer()
        yield name, xa.load(family.build(), tokenizer=tokens), family.inputs()
    sentiment = xa.load("sentiment")
    yield "sentiment-short", sentiment, SHORT
    yield "sentiment-long", sentiment, LONG


def methods(name: str, subject: xa.Subject, text: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every method that applies to the subject, as name and work."""
    trace = xa.capture(subject, text, keep=("attention", "values", "hidden", "queries", "keys"))
    quick = len(trace.tokens) < 30
    target = xa.choose_target(trace, scale="probability")  # the default then, also for tokens
    yield "effective", lambda: xa.effective_attention(trace)
    yield "effective-simplex", lambda: xa.effective_attention(trace, simplex=True)
    yield "effective-unbiased", lambda: xa.effective_attention(trace, value_bias="exclude")
    yield "identifiability", lambda: xa.attention_identifiability(trace)
    yield "alternative", lambda: xa.alternative_attention(trace, site=0, head=1, samples=4)
    yield "hidden-sketch", lambda: xa.hidden_attribution(trace, probes=4, seed=1)
    yield "mixing-sketch", lambda: xa.head_mixing(trace, probes=4, seed=1)
    yield "attribution", lambda: xa.self_attribution(trace, target=target)
    yield (
        "attribution-paper",
        lambda: xa.self_attribution(trace, target=target, rule="riemann", steps=20),
    )
    yield "tree", lambda: xa.attribution_tree(xa.self_attribution(trace, target=target))
    yield (
        "tree-exact",
        lambda: xa.attribution_tree(xa.self_attribution(trace, target=target), algorithm="exact"),
    )
    yield "trial", lambda: xa.trial(subject, text, seed=3)
    if quick:
        yield "adversarial", lambda: xa.adversarial_attention(trace, seed=2, restarts=2)
    if quick and name != "bart":
        yield "hidden", lambda: xa.hidden_attribution(trace)
        yield "mixing", lambda: xa.head_mixing(trace)
        yield (
            "companions",
            lambda: xa.companions(trace, target=target, erase="delete", seed=1, samples=64),
        )
    if isinstance(text, str):
        yield "by-length", lambda: xa.identifiability_by_length(subject, text)


def set_methods(name: str, subject: xa.Subject) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The methods over a data set, on classifiers that can read."""
    if name == "bert":
        texts = [" ".join(LONG.split()[i : i + 4 + i % 5]) for i in range(0, 24, 2)]
        labels = ["0", "1", "2"]
    elif name == "sentiment-short":
        texts = [" ".join(LONG.split()[i : i + 8]) for i in range(0, 24, 2)]
        labels = ["negative", "positive"]
    else:
        return
    examples = [xa.Example(str(i), t, None, labels[i % len(labels)]) for i, t in enumerate(texts)]
    for by in ("attribution", "taylor", "ablation", "attention"):
        yield f"importance-{by}", lambda by=by: xa.head_importance(subject, examples, by=by)
    ranked = xa.head_importance(subject, examples[:6], by="taylor")
    yield "curve", lambda: xa.pruning_curve(subject, examples, ranked)
    yield "effectiveness", lambda: xa.effectiveness(subject, examples[:4])
    yield (
        "similarity",
        lambda: xa.head_similarity(ranked, xa.head_importance(subject, examples, by="ablation")),
    )
    yield "triggers", lambda: xa.find_triggers(subject, examples)
    yield "attack", lambda: xa.attack(subject, examples, xa.find_triggers(subject, examples))
    for what in ("attention", "keys", "features"):
        yield (
            f"permutation-{what}",
            lambda what=what: xa.permutation_test(subject, examples, what=what, repeats=3),
        )
    yield "keys", lambda: xa.adversarial_keys(subject, examples, hidden=8, seed=4)
    yield (
        "faithfulness",
        lambda: xa.faithfulness(
            subject,
            examples[:4],
            attribution=("raw", "effective", "self_attribution", "lime"),
            erase="delete",
        ),
    )
    yield "tokens", lambda: xa.token_identifiability(subject, texts, maps=("identity", "linear"))


def save_all(folder: Path) -> None:
    """Save every result; what refuses is written down in words."""
    folder.mkdir(parents=True, exist_ok=True)
    refused = {}
    for name, subject, text in subjects():
        for method, work in [*methods(name, subject, text), *set_methods(name, subject)]:
            try:
                result = work()
            except xa.ExhibitError as reason:
                refused[f"{name}.{method}"] = f"{type(reason).__name__}: {reason}"
                continue
            parts = result if isinstance(result, dict) else {"": result}
            for part, found in parts.items():
                found.save(folder / f"{name}.{method}{part and '.' + part}.safetensors")
    (folder / "refused.json").write_text(json.dumps(refused, indent=1, sort_keys=True) + "\n")
    (folder / "numbers.json").write_text(
        json.dumps(digest(folder), indent=0, sort_keys=True) + "\n"
    )


def digest(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """Of every tensor of every saved result: shape, sum, size, and a few entries."""
    return {
        file.stem: {name: described(tensor) for name, tensor in sorted(load_file(file).items())}
        for file in sorted(folder.glob("*.safetensors"))
    }


def described(tensor: torch.Tensor) -> list[Any]:
    flat = tensor.double().reshape(-1).nan_to_num(-9.0)
    places = torch.linspace(0, max(len(flat) - 1, 0), min(SAMPLES, len(flat))).long()
    numbers = [float(flat.sum()), float(flat.abs().sum()), *flat[places].tolist()]
    return [list(tensor.shape), *(float(f"{number:.8g}") for number in numbers)]


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    torch.set_num_threads(1)
    save_all(Path(sys.argv[1]))
