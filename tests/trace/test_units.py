"""Units of the original text: whatever the script and the tokenizer, nothing is split or lost."""

from dataclasses import replace
from itertools import pairwise

import pytest
import regex
import torch
from support.tokenizers import texts, tokenizers

import exhibit_a as xa
from exhibit_a.subject.provenance import provenance
from exhibit_a.trace.layout import NO_OFFSETS, NamedPart, read_layout
from exhibit_a.trace.units import units_of, word_spans

COUNT = 500
KINDS = ("bytes", "unigram", "pieces", "fallback")
SOURCE = provenance("nobody", "none", None, None)


@pytest.fixture(scope="module")
def trained():
    return tokenizers()


def layout_of(tokenizer, *given):
    ids = tokenizer(*given)["input_ids"]
    names = tuple(tokenizer.convert_ids_to_tokens(ids))
    special = tuple(i in tokenizer.all_special_ids and i != tokenizer.unk_token_id for i in ids)
    return read_layout(tokenizer, ids, names, special, given)


def attribution(layout, scores):
    return xa.TokenAttribution(
        tokens=layout.names,
        layouts={"decoder": layout},
        provenance=SOURCE,
        method="none",
        target="",
        scores=scores,
    )


def in_turn():
    """Every text with a tokenizer, so that each kind meets each script."""
    for number, text in enumerate(texts(COUNT)):
        yield text, KINDS[number // 8 % len(KINDS)]


def everywhere():
    return ((text, kind) for text in texts(COUNT) for kind in KINDS)


@pytest.mark.parametrize("met", [in_turn, pytest.param(everywhere, marks=pytest.mark.slow)])
def test_no_character_is_split_or_lost_and_sums_stay_in_any_script(trained, met):
    seeded, worst = torch.Generator().manual_seed(0), 0.0
    for text, kind in met():
        layout = layout_of(trained[kind], text)
        require_whole(text, layout, dropped=kind == "pieces")
        scores = torch.randn(len(layout), generator=seeded)
        united = attribution(layout, scores).by("word").scores
        missed = (united.double().sum() - scores.double().sum()).abs()
        worst = max(worst, float(missed / scores.double().abs().sum().clamp_min(1)))
    assert worst < 5e-7  # sums of float32 are rounded


def require_whole(text, layout, *, dropped):
    """Every token in one unit with all of its characters, and no boundary inside a character."""
    units = units_of(layout)
    whole = units.layout
    assert not layout.warning
    spans = [span[1:] for span, mark in zip(whole.spans, whole.special, strict=True) if not mark]
    starts = {match.start() for match in regex.finditer(r"\X", text)} | {len(text)}
    assert {place for span in spans for place in span} <= starts, (text, spans)
    assert all(one[1] <= two[0] for one, two in pairwise(spans)), (text, spans)
    for position, span in enumerate(layout.spans):
        if not layout.special[position]:
            _, start, stop = whole.spans[units.of[position]]
            outside = text[span[1] : min(start, span[2])] + text[max(stop, span[1]) : span[2]]
            assert not outside.strip(), (text, layout.names[position])
    shown = "".join(text[start:stop] for start, stop in spans)
    if not dropped:  # WordPiece leaves characters out that it does not know
        assert "".join(shown.split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The café isn't well-made.", "The|café|isn't|well-made|."),
        ("“film”!? U.S. 1,000 3.14", "“|film|”!?|U.S|.|1,000|3.14"),
        ("好看。很 好", "好|看|。|很|好"),
        ("हिन्दी में", "हिन्दी|में"),
        ("👨‍👩‍👧👍🏽!ok", "👨‍👩‍👧|👍🏽|!|ok"),
        ("جدًّا، نعم", "جدًّا|،|نعم"),
        ("- a--b", "-|a|--|b"),
        ("", ""),
    ],
)
def test_words_are_those_of_unicode(text, words):
    assert "|".join(text[start:stop] for start, stop in word_spans(text)) == words


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("word", "<s>|Two|words|.|⏎|Isn't|it|?|Yes|</s>"),
        ("sentence", "<s>|Two words.|Isn't it?|Yes|</s>"),
        ("line", "<s>|Two words.|Isn't it? Yes|</s>"),
        ("passage", "<s>|Two words.\nIsn't it? Yes|</s>"),
        (["words", "it? Yes"], "<s>|Two|words|.\nIsn't|it? Yes|</s>"),
        ({"start": (0, 9), "end": (0, 21, 24)}, "<s>|start|.\nIsn't it?|end|</s>"),
    ],
)
def test_units_are_stretches_of_the_text(trained, by, names):
    layout = layout_of(trained["bytes"], "Two words.\nIsn't it? Yes")
    assert "|".join(units_of(layout, by).layout.names) == names


def test_a_pair_has_units_of_both_texts(trained):
    layout = layout_of(trained["unigram"], "naïve film", "drags on")
    units = units_of(layout)
    assert units.layout.names == ("<s>", "naïve", "film", "</s>", "drags", "on", "</s>")
    assert units_of(layout, [(1, 0, 5)]).layout.names[-3:-1] == ("drags", "on")
    assert units.layout.spans[4] == (1, 0, 5)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("verse", "There is no unit 'verse'"),
        ([(0, 99)], "none in 11 characters"),
        ([(3, 3)], "none in"),
        (["dull"], "'dull' is not in the text"),
        ([(0, 5), (4, 6)], "overlap"),
        ([], "No span was given"),
    ],
)
def test_a_unit_that_is_not_there_is_refused_in_one_line(trained, by, message):
    layout = layout_of(trained["bytes"], "ask me. now")
    with pytest.raises(xa.BadRequestError, match=message) as problem:
        units_of(layout, by)
    assert "\n" not in str(problem.value)


class Bytes:
    """A tokenizer whose tokens are pieces of UTF-8, some of them half a character."""

    def __init__(self, *tokens):
        self.tokens = tokens

    def decode(self, ids, clean_up_tokenization_spaces=True):
        assert not clean_up_tokenization_spaces
        return b"".join(self.tokens[i] for i in ids).decode(errors="replace")


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((b"The", b" caf", b"\xc3", b"\xa9", b" isn", b"'t", b"."), "The|café|isn't|."),
        ((b"\xe5\xa5\xbd", b"\xe7\x9c\x8b", b"\xe3\x80\x82"), "好|看|。"),
        ((b"one", b" ", b" two"), "one|two"),
        (tuple(bytes([byte]) for byte in "an 👍🏽 é!".encode()), "an|👍🏽|é|!"),
    ],
)
def test_without_offsets_decoded_pieces_stand_in_and_say_so(tokens, expected):
    ids, names = list(range(len(tokens))), tuple(map(str, tokens))
    text = b"".join(tokens).decode()
    layout = read_layout(Bytes(*tokens), ids, names, (False,) * len(ids), (text,))
    assert layout.texts == (text,)
    united = attribution(layout, torch.ones(len(ids))).by("word")
    assert "|".join(united.tokens) == expected
    assert united.checks["units"] == f"words from decoded pieces: {NO_OFFSETS}"
    assert float(united.scores.sum()) == len(ids)


def test_parts_that_are_known_are_units(trained):
    layout = layout_of(trained["bytes"], "ask me. now")
    parts = {"message": (NamedPart("user", 1, 5), NamedPart("assistant", 5, len(layout) - 1))}
    united = units_of(replace(layout, parts=parts), "message").layout
    assert united.names == ("<s>", "user", "assistant", "</s>")
    with pytest.raises(xa.BadRequestError, match="messages"):
        units_of(layout, "message")
