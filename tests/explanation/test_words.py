"""Words: sub-words go together, whatever the tokenizer."""

import pytest
import torch
from support.subjects import speaker

import exhibit_a as xa
from exhibit_a.methods.explanation.words import _words, words_of


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


def test_both_texts_of_a_pair_have_words():
    nli = xa.load("nli")
    trace = xa.capture(nli, "the weather is unbelievably nice", pair="it rains")
    words = words_of(trace)
    assert words.names == ("the", "weather", "is", "unbelievably", "nice", "it", "rains")
    assert not any(trace.special[place] for places in words.places for place in places)


def test_without_a_tokenizer_tokens_stand_for_words():
    model = speaker().model
    plain = xa.load(model)
    trace = xa.capture(plain, {"input_ids": torch.tensor([[3, 4, 5, 6]])})
    words = words_of(trace)
    assert not words.joined
    assert words.places == ((0,), (1,), (2,))  # the last is what an answer could be read from
    assert words.names == trace.tokens[:3]


class Bytes:
    """A tokenizer whose tokens are pieces of UTF-8, some of them half a character."""

    def __init__(self, *pieces):
        self.pieces = pieces

    def decode(self, ids, clean_up_tokenization_spaces=True):
        assert not clean_up_tokenization_spaces
        return b"".join(self.pieces[i] for i in ids).decode(errors="replace")


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((b"The", b" caf", b"\xc3", b"\xa9", b" isn", b"'t", b"."), "The|café|isn't|."),
        (
            (b"well", b"-", b"made", b" \xe2\x80\x9c", b"film", b"\xe2\x80\x9d!"),
            "well-made|“|film|”!",
        ),
        ((b"\xe5\xa5\xbd", b"\xe7\x9c\x8b", b"\xe3\x80\x82"), "好|看|。"),
        ((b"one", b" ", b" two"), "one|two"),
    ],
)
def test_words_are_found_by_characters(pieces, expected):
    tokenizer = Bytes(*pieces)
    words = _words(tokenizer, list(range(len(pieces))), range(len(pieces)))
    assert "|".join(name for name, _ in words) == expected
    assert [place for _, places in words for place in places] == list(range(len(pieces)))
