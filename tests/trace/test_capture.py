"""One pass remembered: what is kept, and what is refused."""

import numpy as np
import pytest
import torch
import transformers as hf
from support.subjects import speaker, subject_of
from support.words import plain_tokenizer, silent_tokenizer, tokenizer
from support.zoo import FAMILIES, GPT
from torch.testing import assert_close
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.methods.attribution.self_attribution import self_attribution
from exhibit_a.methods.identifiability.effective import observed_bias
from exhibit_a.numerics.parallel import one_thread
from exhibit_a.subject.prompts import prompted
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture, capture_alike
from exhibit_a.trace.passes import KEEPABLE
from exhibit_a.trace.replay import replay


@pytest.fixture(scope="module")
def reader():
    return speaker()


@pytest.fixture(scope="module")
def translator():
    return speaker("bart")


def test_attention_and_states_are_the_models_own(reader):
    trace = capture(reader, "the plot is dull")
    eager = FAMILIES["bert"].build(attn_implementation="eager")
    own = eager(**trace.inputs, output_attentions=True, output_hidden_states=True)
    for ours, theirs in zip(trace.attention, own.attentions, strict=True):
        assert_close(ours, theirs[0], rtol=0, atol=0)
    for ours, theirs in zip(trace.hidden, own.hidden_states, strict=True):
        assert_close(ours, theirs[0], rtol=0, atol=0)


def test_only_what_was_asked_is_kept(reader):
    trace = capture(reader, "fine film", keep=())
    assert not trace.layer_outputs
    for name in ("attention", "values", "hidden", "queries", "keys", "stack_inputs"):
        with pytest.raises(BadRequestError, match="not kept"):
            getattr(trace, name)
    whole = trace.keeping(*KEEPABLE)
    assert len(whole.keys) == len(whole.queries) == len(whole.attention) == 3
    assert whole.keeping("keys") is whole


def test_keys_and_queries_make_the_scores(reader):
    trace = capture(reader, "the plot is dull", keep=KEEPABLE)
    scores = trace.queries[0] @ trace.keys[0].mT / 8**0.5
    assert_close(scores.softmax(-1), trace.attention[0])


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


def test_images_go_through_their_processor(tmp_path):
    from PIL import Image

    model = FAMILIES["vit"].build()
    processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    subject = load(model, tokenizer=processor)
    pixels = np.random.default_rng(0).integers(0, 255, (20, 24, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    trace = capture(subject, image)
    assert len(trace.tokens) == 17
    assert trace.tokens[:3] == ("[CLS]", "0,0", "0,1")
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
    biases = observed_bias(trace)
    with torch.no_grad():
        for part in linear:
            part.bias.zero_()
    without = capture(load(model), FAMILIES[name].inputs())
    assert_close(trace.values[0] - biases[0][:, None], without.values[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["input_ids", "token_type_ids", "attention_mask"])
@pytest.mark.parametrize(
    ("like", "word"),
    [
        ({"dtype": torch.float32}, "float32"),
        ({"dtype": torch.bool}, "bool"),
        ({"dtype": torch.int8}, "int8"),
        ({"device": "meta"}, "meta"),
    ],
)
def test_ids_are_whole_numbers_that_are_there(reader, name, like, word):
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 3]])}
    inputs[name] = torch.ones(1, 4, dtype=torch.long).to(**like)
    if name == "attention_mask" and word != "meta":  # a mask may be of any kind
        assert capture(reader, inputs).tokens
        return
    with pytest.raises(BadRequestError, match=f"{name} was given as .*{word}"):
        capture(reader, inputs)


def test_a_hidden_state_is_what_the_next_layer_gets():
    model = FAMILIES["bert"].build(attn_implementation="eager")
    for number in (0, 2):  # somebody else's hooks, between two layers and after the last
        model.bert.encoder.layer[number].register_forward_hook(lambda _, __, output: 2 * output)
    trace = capture(load(model), FAMILIES["bert"].inputs())
    with torch.no_grad():
        own = model(**FAMILIES["bert"].inputs(), output_hidden_states=True).hidden_states
    for mine, theirs in zip(trace.hidden, own, strict=True):
        assert_close(mine, theirs[0], rtol=0, atol=0)
    assert_close(replay(trace, start=1).logits, trace.output.logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["Bart", "T5"])
def test_a_classifier_of_two_stacks_is_read_as_it_reads_itself(family):
    config = FAMILIES[family.lower()].build().config
    config.num_labels = 3
    model = getattr(hf, f"{family}ForSequenceClassification")(config).eval()
    ids = torch.tensor([[5, 6, 7, config.eos_token_id]])
    subject = load(model, tokenizer=tokenizer())
    trace = capture(subject, {"input_ids": ids})
    with torch.no_grad():
        assert_close(trace.output.logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-6)
    assert subject.anatomy.answers == "classes"
    said = trace.inputs["decoder_input_ids"][0].tolist()
    assert said == [config.decoder_start_token_id, 5, 6, 7]


def test_a_long_text_is_cut_when_that_is_asked(reader):
    assert len(capture(reader, "very " * 100, truncate=True).tokens) == 64


IDS = {"input_ids": torch.ones(1, 2, dtype=torch.long)}


@pytest.mark.parametrize(
    ("name", "given", "options", "word"),
    [
        ("reader", "   ", {}, "empty"),
        ("reader", "very " * 100 + "long text", {}, "104 tokens .* 64"),
        ("reader", 3, {}, "int"),
        ("reader", "half a \ud800 character", {}, "surrogate"),
        ("reader", "fine film", {"keep": ("gradients",)}, "attention, values"),
        ("reader", "fine film", {"target_text": "dull"}, "go on"),
        ("reader", {"input_ids": torch.ones(2, 4, dtype=torch.long)}, {}, "batch of 1"),
        ("reader", {"input_ids": torch.ones(1, 65, dtype=torch.long)}, {}, "65 .* 64"),
        ("reader", {"input_ids": torch.tensor([[1, 9999]])}, {}, "9999"),
        ("reader", {"input_ids": torch.tensor([[1, -1]])}, {}, "-1"),
        ("reader", {"input_ids": torch.tensor([1])}, {}, r"\(1,\)"),
        ("reader", IDS | {"attention_mask": torch.ones(1, 3)}, {}, r"attention_mask \(1, 3\)"),
        ("translator", "fine film", {"target_text": "fine film " * 60}, "122 tokens .* 64"),
        ("images", "no-such-file.png", {}, "images"),
        ("images", 3, {}, "int"),
        ("images", np.zeros((16, 16, 3), dtype=np.uint8), {"pair": "text"}, "one image"),
        ("images", {"pixel_values": torch.zeros(1, 3, 8, 8)}, {}, "pixel_values"),
        ("no tokenizer", "fine film", {}, "tokenizer"),
        ("single texts", "fine film", {"pair": "dull plot"}, "two texts"),
        ("silent", "?!", {}, "nothing"),
        ("silent decoder", "fine film", {}, "decoder"),
    ],
)
def test_inputs_that_the_model_cannot_take_get_one_line(request, name, given, options, word):
    subjects = {
        "images": lambda: load(
            FAMILIES["vit"].build(),
            tokenizer=hf.ViTImageProcessor(size={"height": 16, "width": 16}),
        ),
        "no tokenizer": lambda: subject_of("bert"),
        "single texts": lambda: load(FAMILIES["gpt2"].build(), tokenizer=plain_tokenizer()),
        "silent": lambda: load(FAMILIES["gpt2"].build(), tokenizer=silent_tokenizer()),
        "silent decoder": lambda: load(
            hf.T5Model(FAMILIES["t5"].build().config).eval(), tokenizer=tokenizer()
        ),
    }
    subject = subjects[name]() if name in subjects else request.getfixturevalue(name)
    with pytest.raises(BadRequestError, match=word) as caught:
        capture(subject, given, **options)
    assert "\n" not in str(caught.value)


def test_nan_in_the_answer_is_noticed(reader):
    with pytest.raises(BrokenInvariantError, match="NaN"):
        capture(reader, {"inputs_embeds": torch.full((1, 4, 32), torch.nan)})


def test_copies_need_no_padding_token():
    config = hf.GPT2Config(**GPT, num_labels=3)
    subject = load(hf.GPT2ForSequenceClassification(config).eval(), tokenizer=tokenizer())
    trace = capture(subject, "fine film is dull")
    again = replay(trace, start=1, copies=3).logits
    assert_close(again, trace.output.logits.expand(3, -1), rtol=1e-5, atol=1e-6)
    assert subject.model.config.pad_token_id is None


def test_layers_that_insist_on_contiguous_states_are_served():
    sizes = {"vocab_size": 80, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
    subject = load(hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(**sizes)).eval())
    trace = capture(subject, FAMILIES["gpt2"].inputs())
    again = replay(trace, start=2, copies=2).logits
    assert_close(again, trace.output.logits.expand_as(again), rtol=1e-4, atol=1e-5)


def test_an_answer_near_zero_may_be_rounded_like_the_states_it_comes_from():
    """A text of a batch is rounded otherwise than alone, also where its logits are nearly 0."""
    subject = load("sentiment")
    texts = (
        "not not a the is say", "not the story not of they", "film very the long not they",
        "who people film say not say", "people but who story people they", "two of the who is what",
        "who what long but what is", "of long but people story two",
    )  # fmt: skip
    with one_thread():
        traces = capture_alike(subject, [prompted(subject, text) for text in texts])
        for trace in traces:
            trace.require_same_answer()  # else raises
        found = self_attribution(traces)
    assert [len(each.scores) for each in found] == [6] * len(texts)
