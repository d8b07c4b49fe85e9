"""Words: sub-words go together, whatever the tokenizer."""

import pytest
import torch
from support.subjects import speaker

import exhibit_a as xa
from exhibit_a.methods.explanation.words import words_of


@pytest.fixture(scope="module")
def sentiment():
    return xa.load("sentiment")


def test_a_word_of_several_pieces_is_one_word(sentiment):
    trace = xa.capture(sentiment, "an unflinchingly honest film .")
    words = words_of(trace)
    assert words.joined
    assert words.names == ("an", "unflinchingly", "honest", "film", ".")
    assert len(words.places[1]) > 1
    placed = [place for places in words.places for place in places]
    assert placed == (~trace.special).nonzero()[:, 0].tolist()


def test_without_a_tokenizer_tokens_stand_for_words():
    model = speaker().model
    plain = xa.load(model)
    trace = xa.capture(plain, {"input_ids": torch.tensor([[3, 4, 5, 6]])})
    words = words_of(trace)
    assert not words.joined
    assert words.places == ((0,), (1,), (2,))  # the last is what an answer could be read from
    assert words.names == trace.tokens[:3]
