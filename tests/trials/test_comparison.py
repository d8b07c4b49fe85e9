"""Two results side by side: what differs is what one would count by hand."""

from dataclasses import replace

import pytest
import torch
from support.cases import tiny_trial

import exhibit_a as xa


@pytest.fixture(scope="module")
def tiny():
    return tiny_trial()


@pytest.fixture(scope="module")
def moved(tiny):
    return replace(tiny, attention=tuple(torch.roll(maps, 1, -1) for maps in tiny.attention))


def test_heads_move_by_total_variation(tiny, moved):
    compared = xa.compare(tiny, moved)
    assert len(compared.heads) == len(tiny.verdicts)
    for change in compared.heads:
        rows = tiny.attention[change.site][change.head].tolist()
        others = moved.attention[change.site][change.head].tolist()
        gaps = [
            sum(abs(one - two) for one, two in zip(*pair, strict=True)) / 2
            for pair in zip(rows, others, strict=True)
        ]
        assert change.moved == pytest.approx(sum(gaps) / len(gaps), abs=1e-5)


def test_a_result_beside_itself_does_not_differ(tiny):
    compared = xa.compare(tiny, tiny)
    assert all(change.moved == 0 and change.first == change.second for change in compared.heads)
    assert all(change.first == change.second for change in (*compared.words, *compared.answers))
    assert "agree" in compared.sentence
    parts = xa.compare(tiny.effective, tiny.effective)
    assert {change.largest for change in parts.tensors} == {0.0}


def test_a_comparison_is_a_result_like_any_other(tiny, moved, tmp_path):
    compared = xa.compare(tiny, moved, names=("before", "after"))
    again = xa.read(compared.save(tmp_path / "compared.safetensors"))
    assert again.heads == compared.heads
    assert again.names == ("before", "after")
    assert (
        again.html(tmp_path / "a.html").read_bytes()
        == compared.html(tmp_path / "b.html").read_bytes()
    )
    assert len(compared.to_pandas()) == len(tiny.verdicts)
    assert list(compared.to_pandas(what="words").columns)[:2] == ["first", "second"]
    assert compared.sentence in compared.summary()


@pytest.mark.parametrize(
    ("pair", "word"),
    [
        (lambda tiny: (tiny, tiny.effective), "kind"),
        (lambda tiny: ("one", "two"), "model"),
        (lambda tiny: (tiny, "two"), "texts"),
    ],
)
def test_what_cannot_be_compared_is_refused(tiny, pair, word):
    with pytest.raises(xa.BadRequestError, match=word):
        xa.compare(*pair(tiny))
