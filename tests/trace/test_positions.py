"""What stands at each position is named, and marked as special or as padding."""

import torch
from support.words import tokenizer
from support.zoo import FAMILIES

from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture


def test_keys_from_outside_have_numbers_for_names():
    model = FAMILIES["bert"].build(is_decoder=True, add_cross_attention=True)
    states = torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(0))
    inputs = FAMILIES["bert"].inputs() | {"encoder_hidden_states": states}
    trace = capture(load(model, tokenizer=tokenizer()), inputs)
    cross = next(site.index for site in trace.sites if site.kind == "cross")
    assert trace.keys_of(cross).tokens == ("0", "1", "2", "3")
    assert len(trace.queries_of(cross).tokens) == 7
