"""Words: sub-words go together, whatever the tokenizer."""

import pytest

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
