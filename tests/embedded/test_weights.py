import re
import string

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from study import measured_card

from exhibit_a.embedded.weights import (
    EMBEDDED,
    SCALE,
    embedded_names,
    load_embedded,
    quantise,
    unpack,
)
from exhibit_a.errors import BadRequestError

LEAST_ACCURACY = {"sentiment": 89.5, "nli": 70.0}
PLAIN_TEXT = """
    serendipitous quixotic xylophone antidisestablishmentarianism onomatopoeia rhythm zephyr jazz
    unputdownable mellifluous sesquipedalian kerfuffle bamboozled ubiquitous defenestration gnu
    queue wombat crwth syzygy pneumonoultramicroscopicsilicovolcanoconiosis the a of I we it's don't
    mother-in-law e-mail naïve café résumé U.S.A. 3.14159 1,000,000 42nd 1990s £20 $5 50% C++ @home
    #hashtag (really?) "quoted" semi;colon slash/back\\slash under_score tilde~ [sic] {braces} a&b
"""


@pytest.fixture(scope="module", params=sorted(LEAST_ACCURACY))
def embedded(request):
    return request.param, *load_embedded(request.param)


def answer(model, tokenizer, *texts: str) -> str:
    with torch.no_grad():
        scores = model(**tokenizer(*texts, return_tensors="pt")).logits[0]
    return model.config.id2label[int(scores.argmax())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a gripping , beautifully shot film", "positive"),
        ("I loved every minute of it.", "positive"),
        ("a dull, lifeless mess", "negative"),
        ("The plot is boring and the acting is terrible.", "negative"),
        ("not a good film", "negative"),
    ],
)
def test_obvious_sentences_are_judged_right(text, expected):
    assert answer(*load_embedded("sentiment"), text) == expected


@pytest.mark.parametrize(
    ("text", "pair", "expected"),
    [
        ("A man is playing a guitar on stage.", "A man is playing an instrument.", "entailment"),
        ("A man is playing a guitar on stage.", "Nobody is playing music.", "contradiction"),
        ("Two dogs are running through a field.", "The animals are asleep.", "contradiction"),
        ("A man is walking down the street.", "The man is going to meet his wife.", "neutral"),
    ],
)
def test_obvious_pairs_are_judged_right(text, pair, expected):
    assert answer(*load_embedded("nli"), text, pair) == expected


def test_the_package_stays_small_and_holds_no_pickle():
    files = [file for file in EMBEDDED.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert sum(file.stat().st_size for file in files) <= 70e6
    assert {file.suffix for file in files} == {".safetensors", ".json", ".md", ".py"}


def test_plain_english_is_never_unknown(embedded):
    _, model, tokenizer = embedded
    for word in [*PLAIN_TEXT.split(), *string.ascii_letters, *string.digits, *string.punctuation]:
        assert tokenizer.unk_token not in tokenizer.tokenize(word), word
    assert len(tokenizer) == model.config.vocab_size


@pytest.mark.parametrize("name", embedded_names())
def test_the_card_names_the_licences_of_the_data(name):
    """Also of a model that is added: every collection it learnt from, or that none is stated."""
    card = (EMBEDDED / name / "README.md").read_text(encoding="utf-8")
    (data,) = re.findall(r"^\* Data: (.*)$", card, re.MULTILINE)
    (licences,) = re.findall(r"^\* Licences of the data: (.*)$", card, re.MULTILINE)
    collections = set(re.findall(r"\b(SST|SNLI|MNLI|TinyStories|Multi30k)\b", data))
    assert collections
    assert all(name in licences for name in collections)


@pytest.mark.parametrize("name", embedded_names())
def test_a_recipe_writes_the_numbers_into_the_card_and_leaves_its_words(name, tmp_path):
    (tmp_path / name).mkdir()
    card = (EMBEDDED / name / "README.md").read_text(encoding="utf-8")
    _, *rows = card.partition("\n|---|")[2].partition("\n\n")[0].splitlines()
    assert rows
    measured_card(name, rows, tmp_path)
    assert (tmp_path / name / "README.md").read_text(encoding="utf-8") == card
    measured_card(name, ["| new |"], tmp_path)
    assert "---|\n| new |\n\n" in (tmp_path / name / "README.md").read_text(encoding="utf-8")


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 64), st.floats(1e-6, 1e6))
def test_no_entry_moves_by_more_than_half_a_scale(seed, rows, columns, size):
    matrix = size * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    stored, scale = quantise(matrix)
    restored = unpack({"weight": stored, "weight" + SCALE: scale})["weight"]
    assert ((restored - matrix).abs() <= 0.501 * scale[:, None]).all()


def test_an_unknown_name_lists_the_embedded_ones():
    with pytest.raises(BadRequestError, match=r'"sentimental".*nli, sentiment'):
        load_embedded("sentimental")
