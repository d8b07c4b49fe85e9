"""One pass remembered: what is kept, how positions are named, what is refused."""

import numpy as np
import pytest
import torch
import transformers as hf
from conftest import subject_of
from torch.testing import assert_close
from transformers.pytorch_utils import Conv1D
from words import plain_tokenizer, tokenizer
from zoo import FAMILIES

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import KEEPABLE, capture
from exhibit_a.trace.replay import replay
from exhibit_a.trace.value_bias import value_bias


@pytest.fixture(scope="module")
def reader():
    return load(FAMILIES["bert"].build(), tokenizer=tokenizer())


@pytest.fixture(scope="module")
def translator():
    return load(FAMILIES["bart"].build(), tokenizer=tokenizer())


def test_a_text_gives_tokens_maps_and_states(reader):
    trace = capture(reader, "the plot is dull")
    n = len(trace.tokens)
    assert trace.tokens == ("[CLS]", "the", "plot", "is", "dull", "[SEP]")
    assert trace.special.tolist() == [True, False, False, False, False, True]
    assert trace.real.all()
    assert [m.shape for m in trace.attention] == [(4, n, n)] * 3
    assert [v.shape for v in trace.values] == [(4, n, 8)] * 3
    assert [h.shape for h in trace.hidden] == [(n, 32)] * 4


def test_attention_and_states_are_the_models_own(reader):
    trace = capture(reader, "the plot is dull")
    eager = FAMILIES["bert"].build(attn_implementation="eager")
    own = eager(**trace.inputs, output_attentions=True, output_hidden_states=True)
    for ours, theirs in zip(trace.attention, own.attentions, strict=True):
        assert_close(ours, theirs[0], rtol=0, atol=0)
    for ours, theirs in zip(trace.hidden, own.hidden_states, strict=True):
        assert_close(ours, theirs[0], rtol=0, atol=0)


def test_a_pair_is_two_texts(reader):
    trace = capture(reader, "fine film", pair="dull plot")
    assert trace.tokens == ("[CLS]", "fine", "film", "[SEP]", "dull", "plot", "[SEP]")
    assert trace.inputs["token_type_ids"][0].tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_an_unknown_word_is_not_special(reader):
    trace = capture(reader, "fine zebra")
    assert trace.tokens[2] == "[UNK]"
    assert not trace.special[2]


def test_only_what_was_asked_is_kept(reader):
    trace = capture(reader, "fine film", keep=())
    for held in (trace.attention, trace.values, trace.layer_outputs, trace.entries):
        assert not held
    with pytest.raises(BadRequestError, match="not kept"):
        _ = trace.hidden
    whole = trace.keeping(*KEEPABLE)
    assert len(whole.keys) == len(whole.queries) == len(whole.attention) == 3
    assert whole.keeping("keys") is whole


def test_masks_are_shared_between_layers():
    trace = capture(subject_of("llama"), FAMILIES["llama"].inputs())
    assert len({id(visible) for visible in trace.visible}) == 1


def test_keys_and_queries_make_the_scores(reader):
    trace = capture(reader, "the plot is dull", keep=KEEPABLE)
    scores = trace.queries[0] @ trace.keys[0].mT / 8**0.5
    assert_close(scores.softmax(-1), trace.attention[0])


@pytest.mark.parametrize("name", ["deberta-v2", "bloom", "falcon", "gptj"])
def test_the_softmax_tap_finds_queries_and_keys_too(name):
    trace = capture(subject_of(name), FAMILIES[name].inputs(), keep=KEEPABLE)
    site = trace.sites[0]
    assert trace.queries[0].shape == trace.keys[0].shape == (site.heads, 7, site.d_head)


def test_two_stacks_have_two_sequences(translator):
    trace = capture(translator, "the plot is dull", target_text="fine film")
    assert trace.tokens[:2] == ("[CLS]", "the")
    assert trace.sequences["decoder"].tokens[1:] == ("[CLS]", "fine", "film")
    cross = next(site for site in trace.sites if site.kind == "cross")
    assert trace.attention[cross.index].shape == (4, 4, 6)
    assert trace.queries_of(cross.index).tokens == trace.sequences["decoder"].tokens
    assert trace.keys_of(cross.index).tokens == trace.tokens
    assert len(trace.hidden) == 4
    assert len(trace.hidden_of("decoder")) == 3
    with pytest.raises(BadRequestError, match="found encoder, decoder"):
        trace.hidden_of("pooler")


def test_a_target_that_is_not_given_is_generated(translator):
    trace = capture(translator, "the plot is dull")
    said = translator.model.generate(
        **translator.encode("the plot is dull"), do_sample=False, num_beams=1, max_new_tokens=64
    )
    assert torch.equal(trace.inputs["decoder_input_ids"], said[:, :-1])


def test_sound_is_named_by_moments_and_none_of_them_is_special():
    trace = capture(subject_of("whisper"), FAMILIES["whisper"].inputs())
    assert trace.sequences["encoder"].tokens == tuple(map(str, range(12)))
    assert not trace.sequences["encoder"].special.any()


def test_images_go_through_their_processor(tmp_path):
    from PIL import Image

    model = FAMILIES["vit"].build()
    processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    subject = load(model, tokenizer=processor)
    pixels = np.random.default_rng(0).integers(0, 255, (20, 24, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    trace = capture(subject, image)
    assert len(trace.tokens) == 17
    assert trace.tokens[:3] == ("[0]", "0,0", "0,1")
    assert trace.special.tolist() == [True] + [False] * 16
    image.save(tmp_path / "picture.png")
    again = capture(subject, str(tmp_path / "picture.png"))
    assert_close(again.output.logits, trace.output.logits)
    with pytest.raises(BadRequestError, match="not a readable image"):
        capture(subject, "a sentence")


def test_encoder_states_given_by_hand_wake_cross_attention():
    model = FAMILIES["bert"].build(is_decoder=True, add_cross_attention=True)
    bert = load(hf.BertLMHeadModel(model.config).eval())
    inputs = FAMILIES["bert"].inputs() | {"encoder_hidden_states": torch.randn(1, 4, 32)}
    trace = capture(bert, inputs)
    assert [site.kind for site in trace.sites] == ["self", "cross"] * 3
    assert trace.attention[1].shape == (4, 7, 4)
    assert_close(replay(trace, start=2).logits, trace.output.logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gpt-neox", "falcon", "bloom", "t5"])
def test_the_value_bias_is_observed(name):
    """Leaving the bias out of the values equals a model whose biases are zero at that place."""
    model = FAMILIES[name].build()
    linear = [
        part
        for part in model.modules()
        if isinstance(part, torch.nn.Linear | Conv1D) and part.bias is not None
    ]
    with torch.no_grad():
        for part in linear:
            part.bias.normal_(generator=torch.Generator().manual_seed(1))
    trace = capture(load(model), FAMILIES[name].inputs())
    biases = value_bias(trace)
    with torch.no_grad():
        for part in linear:
            part.bias.zero_()
    without = capture(load(model), FAMILIES[name].inputs())
    assert_close(trace.values[0] - biases[0][:, None], without.values[0], rtol=1e-4, atol=1e-4)


def test_empty_text_is_refused(reader):
    for text in ("", "   "):
        with pytest.raises(BadRequestError, match="empty"):
            capture(reader, text)


def test_a_text_past_the_limit_says_both_numbers(reader):
    text = "very " * 100 + "long text"
    with pytest.raises(BadRequestError, match="104 tokens and the model takes 64"):
        capture(reader, text)
    assert len(capture(reader, text, truncate=True).tokens) == 64


def test_a_pair_for_a_tokenizer_of_single_texts_is_refused():
    subject = load(FAMILIES["gpt2"].build(), tokenizer=plain_tokenizer())
    with pytest.raises(BadRequestError, match="no way to mark two texts"):
        capture(subject, "fine film", pair="dull plot")


def test_text_without_a_tokenizer_is_refused():
    with pytest.raises(BadRequestError, match="no tokenizer"):
        capture(subject_of("bert"), "fine film")


def test_a_batch_is_refused(reader):
    with pytest.raises(BadRequestError, match="batch of 1"):
        capture(reader, {"input_ids": torch.ones(2, 4, dtype=torch.long)})


def test_something_else_than_text_is_refused(reader):
    with pytest.raises(BadRequestError, match="Text was expected, int was given"):
        capture(reader, 3)


def test_unknown_things_cannot_be_kept(reader):
    with pytest.raises(BadRequestError, match="choose from attention, values"):
        capture(reader, "fine film", keep=("gradients",))


def test_a_target_text_for_one_stack_is_refused(reader):
    with pytest.raises(BadRequestError, match="no decoder"):
        capture(reader, "fine film", target_text="dull")


def test_nan_in_the_answer_is_noticed(reader):
    inputs = reader.encode("fine film")
    embeddings = torch.full((1, 4, 32), torch.nan)
    with pytest.raises(BrokenInvariantError, match="NaN"):
        capture(reader, {"inputs_embeds": embeddings, "attention_mask": inputs["attention_mask"]})
