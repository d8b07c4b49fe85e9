"""A tiny model, some texts and a way to compare run folders, for the tests of many inputs."""

import random
from pathlib import Path

import torch

from exhibit_a.examples import Example
from support.words import NUMBERED, WORDS, save_tokenizer
from support.zoo import FAMILIES


def save_model(folder: Path, family: str = "bert") -> str:
    FAMILIES[family].build().save_pretrained(folder)
    save_tokenizer(folder)
    return str(folder)


def sentences(count: int, seed: int = 0) -> list[str]:
    """Texts of 1 to 24 words, some of them twice."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 24))) for _ in range(count)]


def examples(count: int) -> list[Example]:
    return [Example(f"n{i}", text, None, str(i % 3)) for i, text in enumerate(sentences(count))]


def save_texts(path: Path, count: int) -> Path:
    rows = [f"{text}\t{i % 3}" for i, text in enumerate(sentences(count))]
    path.write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run, by its place."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def some_examples(count=9, labels=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for place in range(count):
        length = 3 + int(torch.randint(8, (), generator=generator))
        picked = torch.randint(len(WORDS), (length,), generator=generator).tolist()
        text = " ".join(WORDS[word] for word in picked)
        made.append(Example(str(place), text, None, str(place % labels)))
    return made


def numbered_sentences(count, *, longest=9, labels=2):
    seeded = torch.Generator().manual_seed(5)
    data = []
    for number in range(count):
        length = int(torch.randint(3, longest, (), generator=seeded))
        picked = torch.randint(len(NUMBERED), (length,), generator=seeded).tolist()
        text = " ".join(NUMBERED[i] for i in picked)
        data.append(Example(str(number), text, label=str(number % labels)))
    return data
