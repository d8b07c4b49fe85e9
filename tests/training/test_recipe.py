"""The recipe of the embedded models, on models small enough to run it in a second."""

from pathlib import Path

import pytest
import torch
from make_models import reworded_pairs
from support.words import WHOLE as WORDS
from support.words import word_piece
from transformers import BertConfig, BertModel

from exhibit_a.examples import Example


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tokenizer = word_piece()
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(tokenizer), intermediate_size=8, **sizes)).save_pretrained(
        folder
    )
    return folder


def test_words_are_exchanged_for_near_ones_and_the_rest_is_left(base):
    examples = [Example(str(n), "The good film, 1984!", "a very bad xylophone") for n in range(50)]
    for example in reworded_pairs(examples, base, rate=1.0, near=2):
        first, second = example.text.split(), example.pair.split()
        assert {first[0], first[1], first[2].rstrip(","), second[1], second[2]} <= set(WORDS)
        assert (first[0], first[1], first[2]) != ("the", "good", "film,")
        assert first[3] == "1984!"
        assert second[0] == "a"  # one letter is no word to exchange
        assert second[3] == "xylophone"  # nor is one of many pieces
        assert example.label is None
    same = reworded_pairs(examples[:1], base, rate=0.0, near=2)[0]
    assert (same.text, same.pair) == ("the good film, 1984!", "a very bad xylophone")
    once, again = (reworded_pairs(examples, base, rate=0.5, near=2) for _ in range(2))
    assert once == again
