"""What else can a teacher be asked? Pairs that nobody has labelled, made from those at hand.

* reversed: does the first text follow from the second?
* reworded: some words give way to neighbours in the table of word embeddings (as TinyBERT does,
  Jiao et al., 2020). What that does to the answer is for the teacher to say.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

from exhibit_a.examples import Example

WORD = re.compile(r"[a-z]{2,}")


def reversed_pairs(examples: Sequence[Example]) -> list[Example]:
    return [Example(f"{e.id}-reversed", str(e.pair), e.text) for e in examples]


def reworded_pairs(
    examples: Sequence[Example], base: Path, *, rate: float = 0.2, near: int = 10, seed: int = 0
) -> list[Example]:
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
