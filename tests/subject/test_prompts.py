"""A prompt and its answer in one pass, and the answer as what is explained."""

import json
from dataclasses import replace

import pytest
import torch
from support.command import refusal, run
from support.conversations import TALK, talking_subject
from support.subjects import subject_of
from support.words import marked_tokenizer
from support.zoo import FAMILIES
from tokenizers import Tokenizer, models
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

import exhibit_a as xa
from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.trace.targets import Target, log_odds

PROMPT, ANSWER = "the plot is dull", "but the acting is great"


@pytest.fixture(scope="module")
def speaker():
    return talking_subject()


@pytest.fixture(scope="module")
def trace(speaker):
    return xa.capture(speaker, PROMPT, target_text=ANSWER)


def test_the_answer_is_the_sum_of_its_tokens(trace):
    shares = torch.log_softmax(trace.output.logits[0].double(), -1)
    each = [shares[3 + place, index] for place, index in enumerate(trace.reply.ids)]
    target = xa.choose_target(trace, "answer")
    assert str(target) == f"log probability of the answer '{ANSWER}' (5 tokens)"
    assert_close(target(trace.output)[0].double(), sum(each), rtol=1e-6, atol=1e-5)
    for place, share in enumerate(each):
        token = xa.choose_target(trace, "answer", position=place)
        assert_close(token(trace.output)[0].double(), share, rtol=1e-6, atol=1e-5)
    assert xa.choose_target(trace) == target  # what a trace with an answer is asked about


def test_log_odds_of_an_answer_are_those_of_its_probability():
    logits = torch.randn(4, 3, 7, dtype=torch.double) * 6
    several = Target(2, 0, "log_odds", following=(5, 1))
    share = replace(several, scale="probability").of(logits)
    assert_close(several.of(logits), (share / (1 - share)).log())
    sure = torch.zeros(1, 2, 3, dtype=torch.double)
    sure[..., 0] = 50.0  # 1 - p is lost in p, but not in the log-odds
    assert_close(
        Target(0, 0, "log_odds", following=(0,)).of(sure),
        log_odds(sure[:, 0], 0) - torch.log(torch.tensor([2.0]).double()),
    )


def test_a_margin_is_between_two_answers(trace):
    margin = xa.choose_target(trace, "great", against="dull")
    logits = trace.output.logits[0, 3]
    great, dull = (trace.subject.tokenizer.convert_tokens_to_ids(w) for w in ("great", "dull"))
    assert_close(margin(trace.output)[0], logits[great] - logits[dull])
    assert xa.reliance(trace, target=margin).margin == pytest.approx(float(margin(trace.output)))
    with pytest.raises(BadRequestError, match="between two answers"):
        xa.choose_target(trace, "great", against="great")


def test_a_generated_answer_is_the_models_own(speaker):
    trace = xa.capture(speaker, PROMPT, generate=4)
    choices = trace.output.logits[0].argmax(-1)
    assert trace.reply.ids == tuple(choices[3:7].tolist())
    encoded = {"input_ids": trace.inputs["input_ids"][:, :4]}
    assert xa.capture(xa.load(speaker.model), encoded, generate=4).reply.ids == trace.reply.ids


def test_prompt_and_answer_do_not_merge():
    vocabulary = {"[PAD]": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "bc": 5}
    core = Tokenizer(models.BPE(vocabulary, [("a", "b"), ("b", "c")]))
    subject = xa.load(
        subject_of("llama").model, tokenizer=PreTrainedTokenizerFast(tokenizer_object=core)
    )
    assert xa.capture(subject, "ca", target_text="bc").tokens == ("c", "a", "bc")
    assert xa.capture(subject, "c", target_text="abc").tokens == ("c", "ab", "c")


def test_a_model_with_two_stacks_is_asked_for_its_target():
    subject = xa.load(FAMILIES["bart"].build(), tokenizer=marked_tokenizer())
    trace = xa.capture(subject, "w1 w2 w3", target_text="w7 w8")
    shares = torch.log_softmax(trace.output.logits[0].double(), -1)
    ids = subject.tokenizer("w7 w8")["input_ids"]
    assert trace.reply.ids == tuple(ids)
    assert trace.answer is None
    total = sum(shares[place, index] for place, index in enumerate(ids))
    assert_close(xa.choose_target(trace, "answer")(trace.output)[0].double(), total)
    made = xa.capture(subject, "w1 w2 w3", generate=3)
    assert made.reply.ids == tuple(made.output.logits[0].argmax(-1).tolist())
    assert xa.self_attribution(trace).target == str(xa.choose_target(trace))


def test_an_answer_is_left_alone_when_words_are_taken_away(trace):
    scores = xa.companions(trace, methods=["occlusion"], erase="delete")["occlusion"].scores
    assert scores[[0, *range(3, len(scores))]].eq(0).all()  # the sink stays, too
    target = xa.choose_target(trace)
    shorter = {name: row[:, [0, *range(2, 9)]] for name, row in _rows(trace).items()}
    without = xa.capture(trace.subject, shorter)
    loss = target(trace.output) - replace(target, position=2)(without.output)
    assert_close(scores[1:2], loss)
    early = xa.choose_target(trace, token="film", position=1)
    with pytest.raises(NotComputableError, match="would move"):
        xa.companions(trace, methods=["occlusion"], erase="delete", target=early)


def _rows(trace):
    return {name: row for name, row in trace.inputs.items() if isinstance(row, torch.Tensor)}


def test_the_command_line_takes_answers_and_messages(speaker, tmp_path, capsys):
    speaker.model.save_pretrained(tmp_path / "model")
    speaker.tokenizer.save_pretrained(tmp_path / "model")
    model = ("--model", tmp_path / "model", "--json")
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(TALK))

    def answered(*words):
        code, out, err = run(capsys, *words, *model)
        assert code == 0, err
        return json.loads(out)

    said = answered("attribute", "--messages", file, "--target", "answer")
    assert "not the plot" in json.dumps(said)
    assert "fine" in json.dumps(answered("reliance", PROMPT, "--answer", "fine"))
    assert answered("effective", PROMPT, "--generate", "2")
    file.write_text("[{")
    for words, word in [
        (("attribute", "--messages", file), "messages"),
        (("attribute",), "conversation"),
        (("attribute", PROMPT, "--answer", ""), "empty"),
        (("attribute", PROMPT, "--target", "answer"), "no answer"),
    ]:
        assert word in refusal(capsys, *words, *model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_text": " "}, "empty"),
        ({"target_text": "a", "generate": 2}, "choose one"),
        ({"generate": 0}, "1 or more"),
        ({"target_text": "dull " * 80}, "84 tokens"),
        ({"generate": 61}, "65 tokens"),
    ],
)
def test_what_cannot_be_answered_is_said(speaker, options, message):
    with pytest.raises(BadRequestError, match=message):
        xa.capture(speaker, PROMPT, **options)


def test_a_trial_is_about_the_answer(speaker):
    trial = xa.trial(speaker, TALK, probes=2, heat_maps=False)
    assert trial.target == "log probability of the answer 'not the plot' (3 tokens)"
    assert list(trial.answer) == ["'not the plot'"]
    assert set(trial.skipped) == {"heat_maps"}
