"""The embedded language model: from llama2.c's file to a story, with nothing lost on the way."""

import random
import struct

import numpy as np
import pytest
import torch
from make_stories import model_of
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.embedded.vocabulary import VOCABULARY, read_vocabulary
from exhibit_a.embedded.weights import EMBEDDED

FOLDER = EMBEDDED / "stories"
BEGINNING = "Once upon a time, there was a little girl named Lily. She loved to play with her"


@pytest.fixture(scope="module")
def stories():
    return xa.load("stories")


def llama2c(numbers: np.ndarray, ids: list[int], dim: int, inner: int, heads: int, words: int):
    """One layer of llama2.c's forward pass, position after position, from its description."""
    taken = 0

    def take(*sizes):
        nonlocal taken
        block = numbers[taken : taken + np.prod(sizes)].reshape(sizes).astype(np.float64)
        taken += block.size
        return block

    def norm(x, weight):
        return weight * x / np.sqrt((x * x).mean() + 1e-5)

    def turn(x, position):
        size = dim // heads
        turned = x.reshape(heads, size).copy()
        for i in range(0, size, 2):
            angle = position / 10000 ** (i / size)
            a, b = x.reshape(heads, size)[:, i], x.reshape(heads, size)[:, i + 1]
            turned[:, i] = a * np.cos(angle) - b * np.sin(angle)
            turned[:, i + 1] = a * np.sin(angle) + b * np.cos(angle)
        return turned

    table, before = take(words, dim), take(dim)
    query, key, value, out = (take(dim, dim) for _ in range(4))
    between, gate, down, up = take(dim), take(inner, dim), take(dim, inner), take(inner, dim)
    last = take(dim)
    keys, values, logits = [], [], []
    for position, word in enumerate(ids):
        x = table[word]
        normed = norm(x, before)
        keys.append(turn(key @ normed, position))
        values.append((value @ normed).reshape(heads, -1))
        scores = np.einsum("hd,thd->ht", turn(query @ normed, position), np.array(keys))
        weights = np.exp(scores / np.sqrt(dim // heads))
        weights /= weights.sum(-1, keepdims=True)
        x = x + out @ np.einsum("ht,thd->hd", weights, np.array(values)).reshape(-1)
        normed = norm(x, between)
        gated = gate @ normed
        x = x + down @ (gated / (1 + np.exp(-gated)) * (up @ normed))
        logits.append(table @ norm(x, last))
    return torch.tensor(np.array(logits))


def test_a_checkpoint_of_llama2c_gives_the_same_logits_in_transformers():
    dim, inner, heads, words, longest = 24, 40, 3, 50, 16
    count = 2 * dim + words * dim + 4 * dim * dim + 3 * dim * inner + dim + longest * dim // heads
    numbers = np.random.default_rng(0).normal(size=count).astype("<f4") / 2
    header = struct.pack("7i", dim, inner, 1, heads, heads, words, longest)
    model = model_of(header + numbers.tobytes())
    ids = [1, 7, 33, 7, 2, 49, 0, 12]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    expected = llama2c(numbers, ids, dim, inner, heads, words)
    assert_close(logits.double(), expected, rtol=1e-4, atol=1e-4)


def merged_by_score(text: str, vocabulary) -> list[int]:
    """llama2.c's loop: characters or their bytes, then the best pair, the leftmost of equals."""
    ids = {piece: place for place, piece in enumerate(vocabulary.pieces)}
    scores = [vocabulary.scores.get(piece, -place) for piece, place in ids.items()]
    tokens = []
    for character in "▁" + text.replace(" ", "▁"):
        bytes_of_it = [3 + byte for byte in character.encode()]
        tokens += [ids[character]] if character in ids else bytes_of_it
    while True:
        best, place = -1e10, -1
        for i in range(len(tokens) - 1):
            if min(tokens[i : i + 2]) < vocabulary.unmerged:
                continue
            pair = ids.get(vocabulary.pieces[tokens[i]] + vocabulary.pieces[tokens[i + 1]], -1)
            if pair >= vocabulary.unmerged and scores[pair] > best:
                best, place = scores[pair], i
        if place < 0:
            return tokens
        tokens[place : place + 2] = [ids["".join(vocabulary.pieces[t] for t in tokens[place:][:2])]]


def test_encoding_is_merging_the_best_pair_first(stories):
    vocabulary = read_vocabulary(FOLDER / VOCABULARY)
    letters = random.Random(0)
    texts = [
        BEGINNING,
        'She said, "Oh no!" — naïve café, 3.14159,\n\ta tab and\r\na <0x41> and a < s >',
        "ein Übermaß an Größe; и ещё немного; 你好,世界; 🙂👩‍👩‍👧 und ▁ selbst",
        *(" " * n + "a" + " " * (40 - n) + "b" * n + " " * n for n in (1, 5, 17, 33)),
        *("".join(letters.choices("aab  ntheT.\n", k=60)) for _ in range(30)),
    ]
    for text in texts:
        encoded = stories.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert encoded == merged_by_score(text, vocabulary), text
        assert stories.tokenizer.decode(encoded) == text.replace("▁", " ")
    assert stories.tokenizer(BEGINNING)["input_ids"][0] == stories.tokenizer.bos_token_id


def test_it_is_small_and_its_card_says_what_it_is():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 16e6
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "* Data: TinyStories (Eldan and Li, 2023)" in card
    assert "* Licences of the data: TinyStories: CDLA-Sharing-1.0" in card
    assert "license: mit" in card
    assert "Permission is hereby granted" in (FOLDER / "LICENSE.md").read_text(encoding="utf-8")
    rows = [line.split("|")[3:5] for line in card.splitlines() if line.startswith("| stories")]
    before, shipped = map(float, rows[0])
    assert shipped < 10
    assert shipped / before < 1.02
