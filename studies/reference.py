"""What do the reference models say about attention? The numbers of docs/models.md.

    python studies/reference.py bleu           --data DATA --work FOLDER
    python studies/reference.py alignments     --data DATA [--count 20]
    python studies/reference.py identifiable   --data DATA --work FOLDER
    python studies/reference.py jain-wallace   --data DATA --work FOLDER [--count 100]
    python studies/reference.py poster         --data DATA --work FOLDER
    python studies/reference.py complexity

``bleu``          three translators (`translation.py` trains them in FOLDER): BLEU with beams, by
                  length of the source, cost of the training, and paired bootstrap
``alignments``    attention, effective attention, self-attribution and reliance of both embedded
                  translators against gold links, beside a diagonal; domains differ: parliament
                  and brochures
``identifiable``  SST-2 from nothing: heads side by side or added, seven widths of keys, 3 seeds
``jain-wallace``  a BiLSTM with one attention row beside `sentiment`: Kendall τ with gradients and
                  leave-one-out, permutations, the exact adversary
``poster``        a small Transformer with softmax and with 1.5-entmax, and what shuffled, random
                  and adversarial keys do to each; on SST-2, as the poster's IMDB is not at hand
``complexity``    where the work of one layer goes as texts become longer

Each appends lines to docs/data/reference-PART.jsonl and leaves out what is there already, so that
it can be stopped and started again. ``docs/making/models.py`` makes the page.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from statistics import mean
from time import process_time
from typing import Any

import torch
from alignments import counted, diagonal, linked, over_words, read_gold, words_of
from jain_wallace import agreement, gradient_scores
from make_models import read_sst, sentiment_examples
from poster import PosterConfig
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from translation import RECIPES, TEST, files, translated

import exhibit_a as xa
from exhibit_a.extras import extra
from exhibit_a.models.sublayers import attended
from exhibit_a.training.data import read_pairs
from exhibit_a.training.train import RECORD, accuracy, train
from exhibit_a.training.translating import bleu as bleu_of

DATA = Path("docs/data")
BUCKETS = (0, 8, 12, 16, 24, 1000)  # words of the source
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
SEEDS = (0, 1, 2)
RESAMPLES = 1000  # of the sentences, for the difference of two translators
LONGEST = 40  # words of a pair whose alignment is looked at
Row = dict[str, Any]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("part", choices=PARTS)
    asked.add_argument("--data", type=Path, help="a folder with multi30k, align-de-en, SST-2")
    asked.add_argument("--work", type=Path, help="trained models, kept")
    asked.add_argument("--count", type=int, help="only so many pairs or sentences")
    asked.add_argument("--out", type=Path, default=DATA)
    options = asked.parse_args()
    file = options.out / f"reference-{options.part}.jsonl"
    for key, work in PARTS[options.part](options):
        if key not in finished(file):
            row = {"key": key, **work()}
            with file.open("a", encoding="utf-8") as output:
                output.write(json.dumps(row) + "\n")
            print(key, flush=True)


def finished(file: Path) -> dict[str, Row]:
    """The lines of a file by their keys."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}


Work = Iterable[tuple[str, Callable[[], Row]]]


# a. BLEU


def bleu(options: Any) -> Work:
    known = finished(options.out / "reference-bleu.jsonl")
    there = [name for name in RECIPES if name in known or (options.work / name).is_dir()]
    for name in there:
        yield name, lambda name=name: one_translator(options, name)
    for first, second in pairwise(there):
        key = f"{first} and {second}"
        yield key, lambda first=first, second=second: bootstrapped(options, first, second)


def one_translator(options: Any, name: str) -> Row:
    """Translations of the test set, BLEU in all and by length, and what the training cost."""
    folder = options.work / name
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    written, score = translated(model, tokenizer, options.data / "multi30k", TEST)
    pairs = read_pairs(files(options.data / "multi30k", TEST))
    buckets = []
    for low, high in pairwise(BUCKETS):
        places = [n for n, (text, _) in enumerate(pairs) if low < len(text.split()) <= high]
        part = bleu_of([written[n] for n in places], [pairs[n][1] for n in places])
        buckets.append({"from": low + 1, "to": high, "count": len(places), "bleu": part})
    record = json.loads((folder / RECORD).read_text())
    return {
        "bleu": score,
        "buckets": buckets,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "processor_hours": record["processor_hours"],
        "epochs": record["epochs"],
        "translations": written,
    }


def bootstrapped(options: Any, first: str, second: str) -> Row:
    """Is the difference of two translators chance? Paired bootstrap over sentences."""
    lines = finished(options.out / "reference-bleu.jsonl")
    references = [[target for _, target in read_pairs(files(options.data / "multi30k", TEST))]]
    systems = [(name, lines[name]["translations"]) for name in (first, second)]
    metric = extra("sacrebleu.metrics").BLEU()
    tested = extra("sacrebleu.significance").PairedTest(
        systems, {"BLEU": metric}, references, test_type="bs", n_samples=1000
    )
    _, scores = tested()
    return {
        "scores": [result.score for result in scores["BLEU"]],
        "intervals": [result.ci for result in scores["BLEU"]],
        "p_value": scores["BLEU"][1].p_value,
        "difference": {"interval": of_difference(*(text for _, text in systems), references[0])},
    }


def of_difference(first: list[str], second: list[str], references: list[str]) -> list[float]:
    """The 95 % interval of how far the first is ahead: the same sentences drawn for both.

    BLEU is made of counts that add up over sentences, so a sentence is read once.
    """
    seeded = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(references), (RESAMPLES, len(references)), generator=seeded)
    scores = [resampled(written, references, drawn) for written in (first, second)]
    ahead = torch.tensor(scores, dtype=torch.float64)
    ends = (ahead[0] - ahead[1]).quantile(torch.tensor([0.025, 0.975]).double())
    return ends.tolist()


def resampled(written: list[str], references: list[str], drawn: torch.Tensor) -> list[float]:
    """BLEU of each draw of sentences."""
    metric = extra("sacrebleu.metrics").BLEU()
    counts = []
    for text, gold in zip(written, references, strict=True):
        found = metric.corpus_score([text], [[gold]])
        counts.append([*found.counts, *found.totals, found.sys_len, found.ref_len])
    totals = torch.tensor(counts)[drawn].sum(1).tolist()
    return [metric.compute_bleu(row[:4], row[4:8], *row[8:]).score for row in totals]


# b. alignments


def alignments(options: Any) -> Work:
    for name, embedded in (("transformer", "translation"), ("additive", "translation-additive")):
        subject = xa.load(embedded)
        for file in sorted((options.data / "align-de-en").glob("*.tsv")):
            short = [g for g in read_gold(file) if _longest(g) <= LONGEST and g.sure]
            for number, gold in enumerate(short[: options.count]):
                key = f"{name} {file.stem} {number}"
                yield key, lambda subject=subject, gold=gold: aligned(subject, gold)


def _longest(gold: Any) -> int:
    return max(len(gold.german.split()), len(gold.english.split()))


def aligned(subject: Any, gold: Any) -> Row:
    """The four counts of every map, by cross site, and of the diagonal."""
    trace = xa.capture(subject, gold.english, target_text=gold.german)
    sites = [number for number, site in enumerate(trace.sites) if site.kind == "cross"]
    rows = words_of(subject.tokenizer, gold.german)
    columns = words_of(subject.tokenizer, gold.english)
    target = xa.choose_target(trace, "answer")
    maps = {
        "attention": trace.attention,
        "effective": xa.effective_attention(trace).effective,
        "self-attribution": xa.self_attribution(trace, target=target).scores,
        "reliance": xa.reliance(trace, target=target).edges,
    }
    counts = {
        name: [counted(linked(over_words(found[site].mean(0), rows, columns)), gold) for site in sites]
        for name, found in maps.items()
    }
    lengths = len(gold.german.split()), len(gold.english.split())
    return {"counts": counts, "diagonal": counted(diagonal(*lengths), gold)}


# c. identifiable encoders


def identifiable(options: Any) -> Work:
    for heads in ("con", "add"):
        for width in WIDTHS:
            for seed in SEEDS:
                key = f"{heads} {width} {seed}"
                setting = {"heads": heads, "d_key": width}
                yield key, lambda setting=setting, seed=seed: encoder(options, setting, seed)


def encoder(options: Any, setting: Row, seed: int) -> Row:
    """Accuracy, ranks beside what the equations promise, unique rows, and the verdict."""
    config = xa.models.IdentifiableConfig(vocab_size=8000, **setting)
    name = f"identifiable-{setting['heads']}-{setting['d_key']}-{seed}"
    began = process_time()
    folder = trained_on_sst(config, options, name, seed=seed, epochs=5)
    seconds = process_time() - began
    subject = xa.load(str(folder))
    dev = read_sst(options.data / "SST-2/dev.tsv")
    right = accuracy(subject.model, subject.tokenizer, dev)
    ranks, unique = [], []
    for example in dev[:100]:
        trace = xa.capture(subject, example.text, keep=("attention", "values", "keys", "hidden"))
        site = xa.attention_identifiability(trace)
        free = int(site.same_output[0].max())
        count = len(trace.tokens)
        ranks.append([count - free, min(count, config.d_value)])
        unique.append(site.unique(0).tolist())
    words = [xa.trial(subject, example.text).word for example in dev[:3]]
    return {
        **setting,
        "seed": seed,
        "accuracy": right,
        "examples": len(dev),
        "ranks_as_predicted": mean(found == promised for found, promised in ranks),
        "unique": torch.tensor(unique).mean(0).tolist(),
        "verdicts": words,
        "seconds": seconds,
    }


def trained_on_sst(config: Any, options: Any, name: str, **settings: Any) -> Path:
    """A classifier of film reviews from nothing, from an earlier run if there was one."""
    folder: Path = options.work / name
    if not folder.is_dir():
        learn, aside = sentiment_examples(options.data)
        train(config, learn, dev=aside, out=folder, max_length=64, **settings)
    return folder


# d. Jain & Wallace


def jain_wallace(options: Any) -> Work:
    config = xa.models.RecurrentConfig(vocab_size=12000)
    dev = read_sst(options.data / "SST-2/dev.tsv")
    folder = trained_on_sst(config, options, "recurrent", epochs=5)
    subjects = {"recurrent": xa.load(str(folder)), "sentiment": xa.load("sentiment")}
    for name, subject in subjects.items():
        share = lambda subject=subject: {  # noqa: E731 - a row made when it is wanted
            "accuracy": accuracy(subject.model, subject.tokenizer, dev),
            "examples": len(dev),
        }
        yield f"{name} accuracy", share
        for number, example in enumerate(dev[: options.count]):
            look = lambda subject=subject, text=example.text: one_sentence(subject, text)  # noqa: E731
            yield f"{name} {number}", look


def one_sentence(subject: Any, text: str) -> Row:
    """Attention beside gradients and leave-one-out; shuffled rows; the farthest allowed row.

    Of a Transformer, attention is the last layer's row that the answer is read from, averaged over
    heads, and the adversary changes every map at once.
    """
    trace = xa.capture(subject, text)
    recurrent = isinstance(subject.model, xa.models.RecurrentClassifier)
    names = ["occlusion"] if recurrent else ["raw", "gradient_input", "occlusion"]
    found = xa.companions(trace, methods=names)
    scores = {name: result.scores.double().abs() for name, result in found.items()}
    if recurrent:
        scores["raw"] = trace.attention[0][0, 0].double()
        scores["gradient_input"] = gradient_scores(subject.model, trace.inputs["input_ids"])
    inner = ~trace.special
    if inner.sum() < 3:
        return {"words": int(inner.sum())}
    scores = {name: part[inner] for name, part in scores.items()}
    adversary = xa.adversarial_attention(trace, epsilon=0.01)
    return {
        "words": int(inner.sum()),
        "gradient": agreement(scores["raw"], scores["gradient_input"]),
        "leave_one_out": agreement(scores["raw"], scores["occlusion"]),
        "permuted": float(xa.permutation_test(subject, [text]).change[-1].median()),
        "largest": float(scores["raw"].max()),
        "farthest": float(adversary.divergence[-1]),
        "exact": bool(adversary.exact[-1]),
    }


# e. the poster


def poster(options: Any) -> Work:
    for normaliser in ("softmax", "entmax"):
        yield normaliser, lambda normaliser=normaliser: perturbed(options, normaliser)
        yield f"{normaliser}: losses", lambda normaliser=normaliser: losses(options, normaliser)


def of_poster(options: Any, normaliser: str) -> tuple[xa.Subject, list[xa.Example]]:
    """The poster's classifier, trained if need be, and the sentences that it is judged on."""
    config = PosterConfig(normaliser=normaliser, vocab_size=12000)
    subject = xa.load(str(trained_on_sst(config, options, f"poster-{normaliser}", epochs=5)))
    return subject, read_sst(options.data / "SST-2/dev.tsv")[: options.count]


def losses(options: Any, normaliser: str) -> Row:
    """Accuracy lost where the weights of each row are shuffled, with 95 % intervals, by layer."""
    subject, dev = of_poster(options, normaliser)
    shuffled = xa.permutation_test(subject, dev, repeats=10)
    lost = zip(shuffled.drop.tolist(), shuffled.drop_interval.tolist(), strict=True)
    named = zip(shuffled.conditions, lost, strict=True)
    return {"losses": {name: [drop, *ends] for name, (drop, ends) in named}, "examples": len(dev)}


def perturbed(options: Any, normaliser: str) -> Row:
    """Accuracy as it is, with the other normaliser, with shuffled rows, and with other keys."""
    subject, dev = of_poster(options, normaliser)
    row = {"original": accuracy(subject.model, subject.tokenizer, dev), "examples": len(dev)}
    other = {"softmax": "entmax", "entmax": "softmax"}[normaliser]
    subject.model.config.normaliser = other
    row["other activation"] = accuracy(subject.model, subject.tokenizer, dev)
    subject.model.config.normaliser = normaliser
    shuffled = xa.permutation_test(subject, dev, repeats=3)
    row["shuffled"] = dict(zip(shuffled.conditions, shuffled.accuracy.tolist(), strict=True))
    learn = sentiment_examples(options.data)[1]
    keys = xa.adversarial_keys(subject, learn, held_out=dev)
    row["keys"] = dict(zip(keys.conditions, keys.accuracy.tolist(), strict=True))
    return row


# complexity


def complexity(options: Any) -> Work:  # noqa: ARG001 - every part is given the options
    for count in (16, 64, 128, 256, 512, 1024):
        yield str(count), lambda count=count: work_of_one_layer(count, 128, 4)


@torch.no_grad()
def work_of_one_layer(count: int, width: int, heads: int) -> Row:
    """Operations and processor time of attention itself (n²d) and of the four projections (nd²)."""
    states = torch.randn(1, count, width)
    split = states.view(1, count, heads, -1).transpose(1, 2)
    maps = [torch.randn(width, width) for _ in range(4)]

    def looking() -> None:
        attended(split @ split.mT, None, split)

    def projecting() -> None:
        for matrix in maps:
            states @ matrix

    row: Row = {"tokens": count, "width": width, "heads": heads}
    for name, work in (("looking", looking), ("projecting", projecting)):
        with FlopCounterMode(display=False) as counter:
            work()
        times = max(1, 2**18 // count**2)
        began = process_time()
        for _ in range(times):
            work()
        seconds = (process_time() - began) / times
        row[name] = {"operations": counter.get_total_flops(), "seconds": seconds}
    return row


PARTS: dict[str, Callable[[Any], Work]] = {
    "bleu": bleu,
    "alignments": alignments,
    "identifiable": identifiable,
    "jain-wallace": jain_wallace,
    "poster": poster,
    "complexity": complexity,
}

if __name__ == "__main__":
    main()
