"""Pictures among the words of a text: packed patches, their places, and what cannot be asked."""

import pytest
import torch
import transformers as hf
from support.subjects import subject_of, trace_of
from support.zoo import DECODER, FAMILIES, IMAGE_TOKEN, WIDTH
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.attribution.self_attribution import self_attribution
from exhibit_a.methods.explanation.companions import companions
from exhibit_a.methods.identifiability.effective import effective_attention
from exhibit_a.methods.mixing.hidden_attribution import hidden_attribution
from exhibit_a.subject.encoding import probe
from exhibit_a.subject.subject import load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture
from exhibit_a.trace.replay import replay

WITH_PICTURES = ("llava", "qwen2-vl")


@pytest.mark.parametrize("name", WITH_PICTURES)
def test_both_stacks_are_reached_and_the_input_is_the_text(name):
    trace = trace_of(name)
    assert [site.stack for site in trace.sites] == ["vision"] * 2 + ["decoder"] * 3
    assert trace.tokens == trace.sequences["decoder"].tokens
    assert len(trace.tokens) == trace.inputs["input_ids"].shape[1]
    pieces = trace.inputs["input_ids"][0] == IMAGE_TOKEN
    assert [token.startswith("image ") for token in trace.tokens] == pieces.tolist()
    assert not trace.special[pieces].any()


def test_packed_patches_are_found_where_the_processor_put_them():
    trace = trace_of("qwen2-vl")
    merged, patch, rows, columns = 2, 2, 4, 6
    number = torch.arange(rows * columns).view(rows, columns)
    pixels = number.repeat_interleave(patch, 0).repeat_interleave(patch, 1).expand(3, -1, -1)
    processor = hf.models.qwen2_vl.image_processing_pil_qwen2_vl.Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=merged, min_pixels=1, do_rescale=False, do_normalize=False
    )
    packed = processor(images=pixels.numpy().astype("uint8"), return_tensors="pt")
    assert packed["image_grid_thw"].tolist() == trace.inputs["image_grid_thw"].tolist()
    (tower,) = trace.grids["vision"]
    assert_close(packed["pixel_values"][tower.flatten()].mean(-1).long(), number.flatten())
    (tokens,) = trace.grids["decoder"]
    assert tokens.tolist() == [[2, 3, 4], [5, 6, 7]]
    assert trace.sequences["vision"].tokens[2] == "1,0"  # the third of the first square


@pytest.mark.parametrize("name", WITH_PICTURES)
def test_copies_are_edited_each_in_its_own_way_in_the_tower_too(name):
    trace = trace_of(name)
    factors = torch.tensor([0.0, 0.3, 1.0])
    for site in (0, 2):
        with torch.no_grad():
            together = replay(trace, edits.scale(site, factors), copies=3).logits
            alone = [replay(trace, edits.scale(site, factor[None])).logits for factor in factors]
        assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(together[0], together[2])


def test_windows_of_a_tower_are_one_site_and_no_place_is_claimed_for_their_patches():
    torch.manual_seed(0)
    vision = {"depth": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48}
    vision |= {"out_hidden_size": WIDTH, "patch_size": 2, "window_size": 8}
    positions = {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}}
    config = hf.Qwen2_5_VLConfig(
        image_token_id=IMAGE_TOKEN,
        vision_config=vision | {"fullatt_block_indexes": [1]},
        text_config=DECODER | positions,
    )
    subject = load(hf.Qwen2_5_VLForConditionalGeneration(config).eval())
    trace = capture(subject, probe(subject.model))
    assert subject.anatomy.parity < 1e-6
    assert [site.stack for site in trace.sites[:2]] == ["vision", "vision"]
    windows, whole = trace.visible[:2]
    assert whole.all()
    assert not windows.any(1).logical_not().any()
    assert (trace.attention[0][:, ~windows] == 0).all()
    assert_close(trace.attention[0].sum(-1), torch.ones(4, len(windows)), rtol=0, atol=1e-5)
    assert trace.grids["vision"] == ()
    assert trace.tokens[3] == "image 0,0"
    with torch.no_grad():
        again = replay(trace, edits.scale(0, torch.ones(2)), copies=2).logits
    assert_close(again, trace.output.logits.expand_as(again), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WITH_PICTURES)
def test_methods_run_over_both_stacks_or_refuse_in_one_line(name):
    trace = trace_of(name)
    assert len(effective_attention(trace).effective) == 5
    across = hidden_attribution(trace, stack="decoder", source="vision", probes=4).contribution
    assert tuple(across.shape[1:]) == (len(trace.tokens), len(trace.sequences["vision"].tokens))
    result = self_attribution(trace, steps=8)
    assert [scores.shape for scores in result.scores] == [maps.shape for maps in trace.attention]
    scores = companions(trace, methods=["rollout", "norm", "gradient_input"])
    assert {len(score.scores) for score in scores.values()} == {len(trace.tokens)}
    with pytest.raises(NotComputableError, match="here is a picture too"):
        companions(trace, methods=["occlusion"])


def test_pictures_that_do_not_fit_are_refused_in_one_line():
    subject, inputs = subject_of("llava"), FAMILIES["llava"].inputs()
    two = inputs | {"pixel_values": inputs["pixel_values"].repeat(2, 1, 1, 1)}
    with pytest.raises(BadRequestError, match="one at a time"):
        capture(subject, two)
    with pytest.raises(BadRequestError, match="image tokens do not match"):
        capture(subject, FAMILIES["llama"].inputs() | {"pixel_values": inputs["pixel_values"]})
