"""What does one text cost by itself and in a batch, by method, model and length?

All seconds are of the processor, not of the clock, so that a busy machine does not count.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import exhibit_a as xa
from exhibit_a.corpus.plan import Card, Data, Model, Plan, versions, windows
from exhibit_a.corpus.work import Worker
from exhibit_a.examples import Example

MADE_UP = "the film is a very long but not dull story of two people who never say what they mean"
SINGLY: dict[str, Callable[[Any, int], Any]] = {
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


def worker(subject: xa.Subject, method: str, **parameters: Any) -> Worker:
    plan = Plan(method=method, parameters=parameters)
    model = Model.of(subject)
    return Worker(Card(plan=plan, model=model, data=Data(), versions=versions()), subject)


def spent(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def batches_against_single(
    subject: xa.Subject, examples: Sequence[Example], method: str, probes: int, every: int
) -> None:
    """Texts of one length together, and the first few of them one by one, length after length.

    Only lengths that ``every`` divides are taken, and at most three texts of one length go one by
    one; the sums count every text of these lengths.
    """
    by_length: dict[int, list[Example]] = {}
    for one in examples:
        by_length.setdefault(len(subject.encode(one.text)["input_ids"][0]), []).append(one)
    parameters = {"probes": probes} if method == "hidden_attribution" else {}
    asked, ask = worker(subject, method, **parameters), SINGLY[method]
    ask(xa.capture(subject, examples[0].text), probes)  # the first time costs more
    texts, alone, together = 0, 0.0, 0.0
    for length in sorted(length for length in by_length if length % every == 0):
        same = by_length[length]
        (window,) = windows(same, None)
        some = [one.text for one in same[:3]]
        single = spent(lambda s=some: [ask(xa.capture(subject, t), probes) for t in s]) / len(some)
        batch = spent(lambda w=window: asked(w)) / len(same)
        texts, alone, together = (
            texts + len(same),
            alone + single * len(same),
            together + batch * len(same),
        )
        print(
            f"{method}, {length:3} tokens, {len(same):3} texts: one by one {single:.3f} s, in "
            f"batches {batch:.3f} s a text, {single / batch:.2f} times",
            flush=True,
        )
    print(
        f"{method}: {texts} texts of {len(examples)}: one by one {1000 * alone / texts:.0f} s, in "
        f"batches {1000 * together / texts:.0f} s per 1,000 texts, {alone / together:.2f} times"
    )


def costs(subject: xa.Subject, name: str, length: int, count: int) -> None:
    """Seconds per 1,000 texts of one length, by method; eight times as many for the cheap one."""
    chance, words, texts = random.Random(length), MADE_UP.split(), list[str]()
    while len(texts) < 8 * count:
        text = " ".join(chance.choices(words, k=length - 2))
        if len(subject.encode(text)["input_ids"][0]) == length:
            texts.append(text)
    examples = [Example(str(n), text) for n, text in enumerate(texts)]
    (many,), (few,) = windows(examples, None), windows(examples[:count], None)
    worker(subject, "effective_attention")(few)  # the first time costs more
    for method, parameters in METHODS.items():
        window = many if method == "effective_attention" else few
        asked = worker(subject, method, **parameters)
        took = spent(lambda a=asked, w=window: a(w)) / len(window.examples)
        print(f"{name}, {length} tokens, {method}: {1000 * took:.1f} s", flush=True)


def of_base_size(small: xa.Subject) -> xa.Subject:
    """A model of the size of BERT-base that was never trained, with the small one's words."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=small.model.config.vocab_size, attn_implementation="eager")
    return xa.load(BertForSequenceClassification(config).eval(), tokenizer=small.tokenizer)
