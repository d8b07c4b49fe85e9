"""Traps of real checkpoints: a forgotten beginning token, quantised layers."""

import json
import warnings
from functools import cache

import pytest
import torch
from support.words import tokenizer as bert_tokenizer
from support.zoo import DECODER, FAMILIES
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import exhibit_a as xa
from exhibit_a.errors import NotComputableError
from exhibit_a.subject.probing import BOS_TEXT

GRADIENTS = {
    "attention_gradient": lambda trace: xa.companions(trace, methods="attention_gradient"),
    "gradient_input": lambda trace: xa.companions(trace, methods="gradient_input"),
    "raw": lambda trace: xa.companions(trace, methods="raw"),  # which rows are read: by gradient
    "self_attribution": xa.self_attribution,
    "reliance": xa.reliance,
    "hidden_attribution": xa.hidden_attribution,
    "adversarial_attention": xa.adversarial_attention,
}
FORWARD = {
    "effective_attention": xa.effective_attention,
    "contribution_weights": xa.contribution_weights,
    "sink_diagnosis": xa.sink_diagnosis,
    "attention_identifiability": xa.attention_identifiability,
    "alternative_attention": lambda trace: xa.alternative_attention(trace, site=0, head=0),
}


def words_of(text):
    return pre_tokenizers.Whitespace().pre_tokenize_str(text)


def forgetful():
    """A tokenizer that knows a beginning token and never writes it."""
    vocabulary = ["<s>", "<unk>", *dict.fromkeys(word for word, _ in words_of(BOS_TEXT))]
    core = Tokenizer(models.WordLevel({w: n for n, w in enumerate(vocabulary)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", unk_token="<unk>")


@cache
def needs_its_beginning():
    """A language model that knows a text by heart, but only behind its beginning token."""
    torch.manual_seed(0)
    tokenizer = forgetful()
    options = DECODER | {"vocab_size": len(tokenizer), "bos_token_id": 0}
    model = LlamaForCausalLM(LlamaConfig(**options))
    ids = torch.tensor(tokenizer(BOS_TEXT)["input_ids"])
    known = torch.cat([torch.zeros(1, dtype=torch.long), ids])[None]
    even = torch.full((len(tokenizer),), 1 / len(tokenizer))
    steps = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        by_heart = model(known, labels=known).loss
        lost = model(ids[None]).logits[0].log_softmax(-1)
        loss = by_heart - (even * lost).sum(-1).mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
    return model.eval()


def quantised(name):
    model = FAMILIES[name].build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch moves this to torchao
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def test_a_forgotten_beginning_token_is_noticed_and_said():
    subject = xa.load(needs_its_beginning(), tokenizer=forgetful())
    assert subject.beginning.token == "<s>"
    assert "puts no <s> in front" in subject.beginning.warning
    (warning,) = xa.diagnose(subject, length=8).warnings
    assert warning == subject.beginning.warning
    trace = xa.capture(subject, "The sun rises in the east")
    for result in (
        xa.effective_attention(trace),
        xa.companions(trace, methods="raw")["raw"],
        xa.trial(subject, "The sun rises in the east", probes=2, heat_maps=False),
    ):
        assert result.checks["beginning token"] == subject.beginning.warning
    begun = xa.capture(subject, "<s>The sun rises in the east")
    assert begun.tokens[0] == "<s>"
    assert "beginning token" not in xa.effective_attention(begun).checks


def test_models_that_do_not_need_it_are_left_in_peace():
    torch.manual_seed(0)
    options = DECODER | {"vocab_size": len(forgetful()), "bos_token_id": 0}
    random = xa.load(LlamaForCausalLM(LlamaConfig(**options)), tokenizer=forgetful())
    assert random.beginning is None
    assert xa.load("stories").beginning is None
    assert xa.load("sentiment").beginning is None
    assert xa.load(needs_its_beginning()).beginning is None  # no tokenizer, no text


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_quantised_models_run_forward_and_refuse_gradients_in_one_line(name):
    subject = xa.load(quantised(name), tokenizer=bert_tokenizer())
    assert subject.anatomy.parity == 0
    trace = xa.capture(subject, FAMILIES[name].inputs())
    for method in FORWARD.values():
        assert method(trace).checks
    for method in GRADIENTS.values():
        with pytest.raises(NotComputableError, match="Gradients are needed"):
            method(trace)
    refused = {e.method: e.reason for e in xa.diagnose(subject, length=8).methods if not e.applies}
    assert "it needs gradients" in refused["attention_gradient"]


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_quantised_models_of_torchao_run_forward_and_say_whether_gradients_pass(name, tmp_path):
    torchao = pytest.importorskip("torchao.quantization")
    whole, rounding = FAMILIES[name].build(), FAMILIES[name].build()
    torchao.quantize_(whole, torchao.Int8WeightOnlyConfig())  # dequantised before each product
    torchao.quantize_(rounding, torchao.Int8DynamicActivationInt8WeightConfig())
    for model, obstacle in ((whole, False), (rounding, True)):
        subject = xa.load(model, tokenizer=bert_tokenizer())
        assert subject.anatomy.parity == 0
        assert bool(subject.gradient_obstacle) == obstacle
        trace = xa.capture(subject, FAMILIES[name].inputs())
        for method in FORWARD.values():
            assert method(trace).checks
        for method in GRADIENTS.values():
            if obstacle:
                with pytest.raises(NotComputableError, match="Gradients are needed"):
                    method(trace)
            else:
                assert method(trace)
        run = xa.corpus.run(
            subject, ["a fine film"], "effective_attention", tmp_path / str(obstacle)
        )
        assert run.counts["examples"] == 1


def test_a_trial_of_a_quantised_model_is_undetermined_and_says_why():
    subject = xa.load(quantised("bert"), tokenizer=bert_tokenizer())
    trial = xa.trial(subject, "a fine film", probes=2)
    assert trial.word == "undetermined"
    assert "no gradient passes through" in trial.skipped["reliance"]
    json.dumps(trial.skipped)


def test_a_quantised_model_runs_over_a_corpus(tmp_path):
    subject = xa.load(quantised("bert"), tokenizer=bert_tokenizer())
    run = xa.corpus.run(subject, ["a fine film"], "effective_attention", tmp_path / "run")
    assert run.counts["examples"] == 1
