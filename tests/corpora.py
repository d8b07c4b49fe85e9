"""A tiny model, some texts and a way to compare run folders, for the tests of many inputs."""

import random
from pathlib import Path

from words import WORDS, save_tokenizer
from zoo import FAMILIES

from exhibit_a.examples import Example


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
