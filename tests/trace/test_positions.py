"""What stands at each position is named, and marked as special or as padding."""

import pytest
import torch
from support.subjects import speaker, subject_of
from support.words import tokenizer
from support.zoo import FAMILIES

from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture


@pytest.fixture(scope="module")
def reader():
    return speaker()


def test_sound_is_named_by_moments_and_none_of_them_is_special():
    trace = capture(subject_of("whisper"), FAMILIES["whisper"].inputs())
    assert trace.sequences["encoder"].tokens == tuple(map(str, range(12)))
    assert not trace.sequences["encoder"].special.any()


def test_keys_from_outside_have_numbers_for_names():
    model = FAMILIES["bert"].build(is_decoder=True, add_cross_attention=True)
    states = torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(0))
    inputs = FAMILIES["bert"].inputs() | {"encoder_hidden_states": states}
    trace = capture(load(model, tokenizer=tokenizer()), inputs)
    cross = next(site.index for site in trace.sites if site.kind == "cross")
    assert trace.keys_of(cross).tokens == ("0", "1", "2", "3")
    assert len(trace.queries_of(cross).tokens) == 7


def test_padding_is_not_real(reader):
    inputs = reader.encode("fine film")
    padded = {name: torch.nn.functional.pad(row, (0, 2)) for name, row in inputs.items()}
    positions = capture(reader, padded).sequences["encoder"]
    assert positions.tokens[:4] == ("[CLS]", "fine", "film", "[SEP]")
    assert positions.real.tolist() == [True] * 4 + [False] * 2
