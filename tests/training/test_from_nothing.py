"""Models from nothing: a configuration or its short name, texts or pairs, and their own words."""

import json

import pytest
from support.command import refusal, run
from transformers import BertConfig

import exhibit_a as xa
from exhibit_a.errors import BadRequestError
from exhibit_a.training.new_models import configuration
from exhibit_a.training.train import train

SIZES = {"vocab_size": 80, "d_model": 16}
CONFIGS = {
    "recurrent": xa.models.RecurrentConfig(**SIZES, d_attention=8, dropout=0.0),
    "identifiable": xa.models.IdentifiableConfig(**SIZES, num_heads=2, d_ff=16, dropout=0.0),
}
PAIRS = [("two dogs run", "zwei Hunde rennen"), ("a cat", "eine Katze")] * 4


def reviews():
    return [
        {"text": f"the {kind} film {number % 7}", "label": kind}
        for number in range(24)
        for kind in ("good", "bad")
    ]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_classifier_learns_its_vocabulary_and_its_task(kind, tmp_path):
    options = {"epochs": 6, "batch_size": 8, "learning_rate": 0.02, "progress": False}
    out = train(CONFIGS[kind], reviews(), out=tmp_path / "one", **options)
    record = json.loads((out / "training.json").read_text())
    assert record["dev_accuracy"] == 1.0
    assert record["base"] == type(CONFIGS[kind]).__name__
    subject = xa.load(out)
    assert list(subject.labels) == ["bad", "good"]
    assert subject.tokenizer.decode(subject.tokenizer("the good film")["input_ids"])[:3] == "<s>"
    again = train(CONFIGS[kind], reviews(), out=tmp_path / "two", **options)
    one, two = ((folder / "model.safetensors").read_bytes() for folder in (out, again))
    assert one == two


@pytest.mark.parametrize(
    ("base", "data", "options", "message"),
    [
        ("transformer", PAIRS, {"max_length": 9}, "max_length"),
        ("additive", PAIRS, {"teacher": "x"}, "teacher"),
        ("recurrent", reviews(), {"warmup": 3}, "warmup"),
        ("recurrent", reviews(), {"freeze_embeddings": True}, "freeze_embeddings"),
        ("somewhere", reviews(), {"batch_tokens": 3}, "batch_tokens"),
        ("transformer", PAIRS, {"warmup": 0}, "warmup is 0"),
        ("transformer", reviews(), {}, "Item 1"),
        ("transformer", (["a"], ["b", "c"]), {}, "2 translations"),
        ("transformer", [("a", " "), ("b", "c")], {}, "line 1"),
        ("transformer", PAIRS[:1], {}, "leave none to learn from"),
        ("recurrent", PAIRS, {}, "."),
        (BertConfig(), reviews(), {}, "BertConfig"),
    ],
)
def test_what_does_not_apply_is_refused_in_one_line(base, data, options, message, tmp_path):
    with pytest.raises(BadRequestError, match=message) as caught:
        train(base, data, out=tmp_path / "model", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_translator_from_the_command_line(capsys, tmp_path):
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    source.write_text("\n".join(pair[0] for pair in PAIRS) + "\n")
    target.write_text("\n".join(pair[1] for pair in PAIRS) + "\n")
    sizes = [f"--size={size}" for size in ("vocab_size=60", "d_model=8", "d_attention=8")]
    words = ["train", "additive", source, "--out", tmp_path / "model", *sizes, "--epochs", "1"]
    assert "give --translations FILE" in refusal(capsys, *words)
    words += ["--translations", target]
    assert "belong together" in refusal(capsys, *words, "--dev", source)
    assert "does not translate" in refusal(capsys, "train", "recurrent", source, *words[3:])
    assert "no size" in refusal(capsys, *words, "--size", "width=3")
    code, out, _ = run(capsys, *words)
    assert (code, out) == (0, f"saved in {tmp_path / 'model'}\n")
    assert xa.load(tmp_path / "model").anatomy.sites[0].kind == "cross"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "text.de", "text.en"]


def test_sizes_are_checked_by_name_and_type(tmp_path, monkeypatch):
    assert configuration("identifiable", {"heads": "con", "dropout": 0}).d_value == 8
    assert configuration("path/to/encoder") is None
    for sizes, message in [
        ({"width": 3}, "d_attention, d_model"),
        ({"d_model": "x"}, "d_model is 'x'"),
        ({"d_model": True}, "d_model is True"),
        ({"d_model": -2}, "d_model is -2"),
        ({"d_model": 3}, "width of 3"),
        ({"readout": "none"}, "readout"),
    ]:
        with pytest.raises(BadRequestError, match=message):
            configuration("additive", sizes)
    with pytest.raises(BadRequestError, match="mine"):
        configuration("mine", {"d_model": 3})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "additive").mkdir()
    assert configuration("additive") is None  # a folder of that name is a model
