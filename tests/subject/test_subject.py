"""A model is put on the stand, not changed; what cannot be examined is refused in one line."""

import threading

import pytest
import torch
import transformers as hf
from support.subjects import subject_of
from support.words import save_tokenizer, tokenizer
from support.zoo import FAMILIES, REFUSED
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, BrokenInvariantError, UnsupportedModelError
from exhibit_a.subject.subject import load
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.capture import capture
from exhibit_a.trace.replay import replay


def state(model):
    """Everything a careless guest could leave changed."""
    return (
        [config._attn_implementation for config in (model.config, model.base_model.config)],
        [part.training for part in model.modules()],
        [(weight.requires_grad, weight.dtype, weight.device) for weight in model.parameters()],
        [weight.clone() for weight in model.state_dict().values()],
        [
            (len(p._forward_hooks), len(p._forward_pre_hooks), "forward" in vars(p))
            for p in model.modules()
        ],
    )


def assert_same(before, after):
    for was, now in zip(before, after, strict=True):
        for a, b in zip(was, now, strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "t5", "llama"])
def test_a_model_is_as_it_was_after_every_call(name, implementation):
    model = FAMILIES[name].build(attn_implementation=implementation).train()
    before = state(model)
    subject = load(model)
    assert_same(before, state(model))
    trace = capture(subject, FAMILIES[name].inputs())
    assert_same(before, state(model))
    replay(trace, start=1)
    assert_same(before, state(model))


@pytest.mark.parametrize("name", ["bert", "falcon"])
def test_a_model_is_as_it_was_after_an_exception(name):
    class Fails(Tap):
        def weighting(self, call):
            raise RuntimeError("on purpose")

    model = FAMILIES[name].build().train()
    before = state(model)
    subject = load(model)
    trace = capture(subject, FAMILIES[name].inputs())
    with pytest.raises(RuntimeError, match="on purpose"):
        replay(trace, Fails(), start=0)
    assert_same(before, state(model))


def test_a_forward_of_ones_own_is_put_back():
    model = FAMILIES["bert"].build()
    layer = model.bert.encoder.layer[0]
    own = layer.forward
    layer.forward = lambda *args, **kwargs: own(*args, **kwargs)
    mine = layer.forward
    capture(load(model), FAMILIES["bert"].inputs())
    assert layer.forward is mine


def test_dropout_is_off_though_the_model_is_training():
    model = FAMILIES["bert"].build(hidden_dropout_prob=0.5).train()
    subject = load(model)
    first = capture(subject, FAMILIES["bert"].inputs())
    second = capture(subject, FAMILIES["bert"].inputs())
    assert_close(first.output.logits, second.output.logits, rtol=0, atol=0)


def test_two_models_of_one_config_do_not_disturb_each_other():
    config = hf.BertConfig(**FAMILIES["bert"].options, attn_implementation="sdpa")
    one, other = (hf.BertForSequenceClassification(config).eval() for _ in range(2))
    capture(load(one), FAMILIES["bert"].inputs())
    assert other.config._attn_implementation == "sdpa"


def test_a_folder_gives_the_model_that_was_saved(tmp_path):
    model = FAMILIES["bert"].build()
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    subject = load(str(tmp_path))
    assert type(subject.model) is type(model)
    assert subject.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    mine = capture(load(model), FAMILIES["bert"].inputs()).output.logits
    assert_close(capture(subject, FAMILIES["bert"].inputs()).output.logits, mine)
    assert capture(subject, "a fine film").tokens == ("[CLS]", "a", "fine", "film", "[SEP]")


def test_dtype_is_honoured_and_still_faithful(tmp_path):
    FAMILIES["llama"].build().save_pretrained(tmp_path)
    subject = load(tmp_path, dtype="bfloat16")
    assert subject.model.dtype is torch.bfloat16
    assert subject.anatomy.parity <= subject.anatomy.tolerance


def test_the_anatomy_is_observed():
    llama, t5, albert = subject_of("llama"), subject_of("t5"), subject_of("albert")
    site = llama.anatomy.sites[0]
    assert (site.heads, site.kv_heads, site.d_head, site.causal) == (4, 2, 8, True)
    assert [(s.stack, s.kind) for s in t5.anatomy.sites][-2:] == [
        ("decoder", "self"),
        ("decoder", "cross"),
    ]
    assert [s.layer for s in t5.anatomy.sites] == [0, 1, 2, 0, 0, 1, 1, 2, 2]
    assert len({layer.module for layer in albert.anatomy.layers}) == 1
    assert len(albert.anatomy.layers) == 3
    assert subject_of("mistral").anatomy.sites[0].window == 3
    assert subject_of("gpt-neo").anatomy.sites[1].window == 4
    assert "soft-cap" in subject_of("gemma2").anatomy.sites[0].variants
    assert "sinks" in subject_of("gpt-oss").anatomy.sites[0].variants
    for name in ("t5", "bloom", "deberta", "mpnet"):
        assert "position bias" in subject_of(name).anatomy.sites[0].variants
    assert subject_of("roberta").anatomy.max_length == 62


def test_conv1d_rows_are_read_the_right_way_round():
    subject = subject_of("gpt2")
    weight = subject.output_weight(0)
    projection = subject.model.transformer.h[0].attn.c_proj
    assert_close(weight.reshape(32, 32), projection.weight)


def test_an_unknown_name_lists_the_embedded_models():
    with pytest.raises(BadRequestError, match=r"no model 'sentimant'.*sentiment"):
        load("sentimant")


def test_a_folder_without_weights_is_refused(tmp_path):
    FAMILIES["bert"].build().config.save_pretrained(tmp_path)
    with pytest.raises(BadRequestError, match="holds no model"):
        load(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(BadRequestError, match="holds no model"):
        load(tmp_path)


def test_truncated_weights_are_refused(tmp_path):
    FAMILIES["bert"].build().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(BadRequestError, match="holds no model"):
        load(tmp_path)


def test_a_compiled_model_is_refused():
    with pytest.raises(UnsupportedModelError, match="before compiling"):
        load(torch.compile(FAMILIES["bert"].build()))
    model = FAMILIES["bert"].build()
    model.compile()
    with pytest.raises(UnsupportedModelError, match=r"torch\.compile"):
        load(model)


def test_nan_weights_are_named():
    model = FAMILIES["bert"].build()
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.weight[0, 0] = torch.nan
    with pytest.raises(BrokenInvariantError, match=r"layer\.1\.output\.dense\.weight"):
        load(model)


def test_a_module_that_is_no_transformer_is_refused():
    with pytest.raises(UnsupportedModelError, match="PreTrainedModel"):
        load(torch.nn.Linear(2, 2))


def test_a_model_without_attention_is_refused():
    config = hf.MambaConfig(hidden_size=16, num_hidden_layers=2, vocab_size=40, state_size=4)
    with pytest.raises(UnsupportedModelError, match="no attention that this tap can see"):
        load(hf.MambaForCausalLM(config).eval())


def test_a_model_object_is_never_moved_or_retyped():
    with pytest.raises(BadRequestError, match="never changed"):
        load(FAMILIES["bert"].build(), dtype="float16")


def test_an_unknown_tap_lists_the_taps():
    with pytest.raises(BadRequestError, match="choose auto, registry, softmax"):
        load(FAMILIES["bert"].build(), tap="magic")


def test_the_registry_tap_refuses_families_outside_it_with_a_way_out():
    with pytest.raises(UnsupportedModelError, match='tap="softmax"'):
        load(FAMILIES["deberta-v2"].build(), tap="registry")


def test_the_tokenizer_given_is_the_one_used():
    subject = load(FAMILIES["bert"].build(), tokenizer=tokenizer())
    assert capture(subject, "fine film").tokens == ("[CLS]", "fine", "film", "[SEP]")


def test_half_precision_hides_nothing():
    with pytest.raises(BrokenInvariantError, match="changes its answer by"):
        load(REFUSED["granite-swa"].build().to(torch.bfloat16))


def test_threads_take_turns():
    model = FAMILIES["bert"].build(attn_implementation="sdpa")
    subject = load(model, tokenizer=tokenizer())
    texts = ["the plot is dull", "fine film"]
    alone = [capture(subject, text) for text in texts]
    before, wrong = state(model), []

    def work(text, expected):
        for _ in range(30):
            trace = capture(subject, text)
            pairs = [*zip(trace.hidden, expected.hidden, strict=True)]
            pairs += zip(trace.attention, expected.attention, strict=True)
            wrong.extend(text for mine, theirs in pairs if not torch.equal(mine, theirs))

    crew = [threading.Thread(target=work, args=pair) for pair in zip(texts, alone, strict=True)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert not wrong
    assert_same(before, state(model))


def test_layers_spread_over_several_lists_are_refused():
    config = hf.XLMConfig(vocab_size=80, emb_dim=32, n_layers=2, n_heads=4, num_labels=3)
    with pytest.raises(UnsupportedModelError, match="spread over several lists"):
        load(hf.XLMForSequenceClassification(config).eval())


def test_an_encoder_that_is_not_seen_is_refused():
    sizes = {"vocab_size": 80, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}
    config = hf.LongT5Config(**sizes, num_heads=4, decoder_start_token_id=0)
    with pytest.raises(UnsupportedModelError, match="encoder whose attention this tap does not"):
        load(hf.LongT5ForConditionalGeneration(config).eval())
