"""What a model allows and costs, against counting it by hand."""

import json

import pytest
import transformers as hf
from support.command import refusal, run
from support.subjects import subject_of
from support.words import save_tokenizer
from support.zoo import ENCODER, FAMILIES

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.doctor import diagnose
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture


@pytest.mark.parametrize("name", ["bert", "bart", "vit", "whisper"])
def test_memory_is_that_of_what_is_kept(name):
    """Images and sound have a length of their own, whatever is asked for."""
    found = diagnose(subject_of(name), length=4)
    inputs = dict(FAMILIES[name].inputs())
    for ids in ("input_ids", "attention_mask", "decoder_input_ids"):
        if ids in inputs:
            inputs[ids] = inputs[ids][:, :4]
    trace = capture(subject_of(name), inputs)
    maps = sum(one.numel() for one in trace.attention)
    states = sum(one.numel() for stack in trace.sequences for one in trace.hidden_of(stack))
    kept = next(one for one in found.methods if one.method == "capture").megabytes
    assert kept * 1e6 / 4 >= maps
    assert kept * 1e6 / 4 == pytest.approx(maps + states, rel=0.5)
    if name in ("bert", "vit"):  # one stack: exact
        assert kept * 1e6 / 4 == pytest.approx(maps + states)


def test_a_length_beyond_the_decoder_is_refused():
    with pytest.raises(BadRequestError, match="takes 1 to 16"):
        diagnose(subject_of("whisper"), length=17)


def test_a_window_longer_than_the_probe_is_seen():
    subject = load(FAMILIES["gpt-neo"].build(window_size=16))
    assert "sliding window of 16" in diagnose(subject, length=32).variants
    assert "sliding window of 16" not in diagnose(subject, length=12).variants


def test_the_answer_is_told_for_pairs_and_for_every_token(capsys, tmp_path):
    save_tokenizer(tmp_path)
    hf.BertForTokenClassification(hf.BertConfig(**ENCODER)).save_pretrained(tmp_path)
    text = ("--text", "a fine film", "--pair", "dull")
    answer = json.loads(run(capsys, "doctor", tmp_path, "--json", *text)[1])["answer"]
    assert [name.split(":")[0] for name in answer] == [
        f"{place} {token}"
        for place, token in enumerate(["[CLS]", "a", "fine", "film", "[SEP]", "dull", "[SEP]"])
    ]
    assert "a fine film | dull" in run(capsys, "doctor", tmp_path, *text)[1]
    assert "text" in refusal(capsys, "doctor", tmp_path, "--pair", "dull")
