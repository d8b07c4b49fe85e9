"""The heat maps that people show are drawn as their methods say, and have names for people."""

import pytest
import torch

import exhibit_a as xa
from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.explanation.drawing import OF_THE_GAME, ONE_HEAD, USUAL, Drawing, drawn
from exhibit_a.trace.targets import chosen_target

MIXED = "the plot is thin and the jokes are old , but the cast is a joy"


@pytest.fixture(scope="module")
def trace():
    return xa.capture(xa.load("sentiment"), MIXED)


def test_the_usual_heat_maps_are_drawn(trace):
    result = xa.heat_maps(trace)
    assert tuple(result) == USUAL
    assert result["one_head"].label.startswith("layer ")
    assert result["raw"].label == "last-layer attention"
    assert result.passes <= 250


def test_the_most_important_head_is_the_row_of_a_known_reliance(trace):
    known = xa.reliance(trace, by="path", budget=5)
    drawing = Drawing(trace, chosen_target(trace, None), {"reliance": known})
    scores, label = drawing.of(ONE_HEAD)
    layer = max(range(len(known.heads)), key=lambda site: float(known.heads[site].amax()))
    head = int(known.heads[layer].argmax())
    assert label == f"layer {layer}, head {head}"
    torch.testing.assert_close(scores, trace.attention[layer][head, 0])
    assert torch.equal(drawing.of("reliance")[0], known.token_scores)


def test_what_is_drawn_only_if_known_is_left_out_with_its_reason(trace):
    drawing = Drawing(trace, chosen_target(trace, None), {}, known_only=("reliance",))
    with pytest.raises(NotComputableError, match="reliance"):
        drawn(drawing, [ONE_HEAD])
    usual = drawn(drawing, None)
    assert set(usual.left_out) == {"reliance", *OF_THE_GAME}
    assert set(usual.scores) == set(usual.labels) == set(USUAL) - set(usual.left_out)


def test_bad_requests_are_one_clear_line(trace):
    with pytest.raises(BadRequestError, match=r"heat map.*'gnorm'"):
        xa.heat_maps(trace, methods=["gnorm"])
    with pytest.raises(BadRequestError, match="No heat map was named"):
        xa.heat_maps(trace, methods=[])
    with pytest.raises(BadRequestError, match="'own' has"):
        xa.heat_maps(trace, methods={"own": torch.ones(3)})
