"""A model is put on the stand, not changed; what cannot be examined is refused in one line."""

import threading
from functools import partial

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


def with_nan():
    model = FAMILIES["bert"].build()
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.weight[0, 0] = torch.nan
    return model


def without_attention():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 40, "state_size": 4}
    return hf.MambaForCausalLM(hf.MambaConfig(**sizes)).eval()


def layers_in_several_lists():
    config = hf.XLMConfig(vocab_size=80, emb_dim=32, n_layers=2, n_heads=4, num_labels=3)
    return hf.XLMForSequenceClassification(config).eval()


def unseen_encoder():
    sizes = {"vocab_size": 80, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}
    config = hf.LongT5Config(**sizes, num_heads=4, decoder_start_token_id=0)
    return hf.LongT5ForConditionalGeneration(config).eval()


def compiled(part):
    model = FAMILIES["bert"].build()
    if part == "all":
        return torch.compile(model)
    if part == "in place":
        model.compile()
    elif part == "layer":
        model.bert.encoder.layer[0].compile()
    else:
        model.forward = torch.compile(model.forward)
    return model


@pytest.mark.parametrize(
    ("build", "options", "kind", "word"),
    [
        (lambda: "sentimant", {}, BadRequestError, "sentimant"),
        (lambda: "x" * 300, {}, BadRequestError, "model"),
        (lambda: "sentiment", {"device": "banana"}, BadRequestError, "banana"),
        (lambda: "sentiment", {"dtype": "int8"}, BadRequestError, "int8"),
        (lambda: "sentiment", {"banana": 3}, BadRequestError, "banana"),
        (FAMILIES["bert"].build, {"dtype": "float16"}, BadRequestError, "never changed"),
        (FAMILIES["bert"].build, {"tap": "magic"}, BadRequestError, "registry"),
        (FAMILIES["deberta-v2"].build, {"tap": "registry"}, UnsupportedModelError, "softmax"),
        (lambda: torch.nn.Linear(2, 2), {}, UnsupportedModelError, "PreTrainedModel"),
        (without_attention, {}, UnsupportedModelError, "attention"),
        (layers_in_several_lists, {}, UnsupportedModelError, "several lists"),
        (unseen_encoder, {}, UnsupportedModelError, "encoder"),
        (with_nan, {}, BrokenInvariantError, r"layer\.1\.output\.dense\.weight"),
        (
            lambda: REFUSED["granite-swa"].build().to(torch.bfloat16),
            *({}, BrokenInvariantError, "answer"),
        ),
        *(
            (partial(compiled, part), {}, UnsupportedModelError, "compil")
            for part in ("all", "in place", "layer", "forward")
        ),
    ],
)
def test_what_cannot_be_examined_is_refused_in_one_line(build, options, kind, word):
    with pytest.raises(kind, match=word) as caught:
        load(build(), **options)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_spread_over_devices_is_refused_in_one_line():
    model = FAMILIES["bert"].build()
    model.bert.encoder.layer[1].to("meta")
    with pytest.raises(UnsupportedModelError, match="one device") as problem:
        load(model)
    assert "cpu, meta" in str(problem.value)
    assert "\n" not in str(problem.value)
