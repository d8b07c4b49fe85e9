import json
import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.words import word_piece
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

from exhibit_a.errors import BadRequestError, ExhibitError, NotComputableError
from exhibit_a.examples import Example
from exhibit_a.training.data import encode
from exhibit_a.training.train import RECORD, accuracy, answers, train

FAST = {"learning_rate": 3e-3, "batch_size": 8, "epochs": 5, "progress": False}


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A bare encoder, as a base usually is: no head, no labels."""
    folder = tmp_path_factory.mktemp("base")
    tokenizer = word_piece()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    lengths = {"vocab_size": len(tokenizer), "max_position_embeddings": 32}
    config = BertConfig(intermediate_size=32, initializer_range=0.2, **sizes, **lengths)
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def reviews(count: int = 160) -> list[Example]:
    """The label is in one word, somewhere among others."""
    draw = random.Random(0)
    examples = []
    for number in range(count):
        words = draw.choices(["film", "the", "a", "very", "plot"], k=draw.randint(1, 8))
        verdict = draw.choice(["good", "bad"])
        words.insert(draw.randint(0, len(words)), verdict)
        label = {"good": "positive", "bad": "negative"}[verdict]
        examples.append(Example(str(number), " ".join(words), None, label))
    return examples


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory) -> Path:
    return train(base, reviews(), out=tmp_path_factory.mktemp("out") / "model", **FAST)


def loaded(folder: Path):
    return (
        AutoModelForSequenceClassification.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )


def test_a_task_is_learnt_and_survives_saving(trained):
    record = json.loads((trained / RECORD).read_text())
    assert record["dev_accuracy"] == 1.0
    assert record["train_examples"] == 152
    assert record["dev_examples"] == 8
    assert accuracy(*loaded(trained), reviews()) > 0.95


def test_the_same_seed_gives_the_same_bytes_and_leaves_the_callers_randomness_alone(
    base, trained, tmp_path
):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    again = train(base, reviews(), out=tmp_path / "again", **FAST)
    assert torch.equal(torch.rand(4), expected)
    files = sorted(file.name for file in trained.iterdir())
    assert files == sorted(file.name for file in again.iterdir())
    for name in files:
        assert (trained / name).read_bytes() == (again / name).read_bytes(), name
    other = train(base, reviews(), out=tmp_path / "other", seed=1, **FAST)
    weights = "model.safetensors"
    assert (other / weights).read_bytes() != (again / weights).read_bytes()


def test_training_stops_when_it_no_longer_helps(base, tmp_path):
    contradictory = [
        Example(str(n), "the film", None, label) for n, label in enumerate(["bad", "good"] * 8)
    ]
    patient = {**FAST, "epochs": 40, "patience": 2}
    out = train(base, contradictory, dev=contradictory, out=tmp_path / "model", **patient)
    record = json.loads((out / RECORD).read_text())
    assert record["dev_accuracy_by_epoch"] == [0.5, 0.5, 0.5]


def unlabelled(examples: list[Example]) -> list[Example]:
    return [replace(example, label=None) for example in examples]


def test_a_teacher_is_enough_where_nobody_has_labelled(base, trained, tmp_path):
    out = tmp_path / "student"
    train(base, unlabelled(reviews()), dev=reviews(16), out=out, teacher=trained, **FAST)
    assert accuracy(*loaded(out), reviews()) > 0.95
    assert json.loads((out / RECORD).read_text())["teacher"] == trained.name


def test_a_teacher_outvotes_wrong_labels(base, trained, tmp_path):
    """Half label, half opinion: six labels in ten are wrong, and the student still learns."""
    turned = {"positive": "negative", "negative": "positive"}
    noisy = [
        replace(example, label=turned[example.label]) if number % 10 < 6 else example
        for number, example in enumerate(reviews())
    ]
    out = train(base, noisy, dev=reviews(16), out=tmp_path / "model", teacher=trained, **FAST)
    assert accuracy(*loaded(out), reviews()) > 0.95


def test_a_teacher_is_asked_about_each_label_by_its_name(base, trained, tmp_path):
    """A teacher may keep its labels in another order than the student's own head."""
    model, tokenizer = loaded(trained)
    model.config.id2label, model.config.label2id = {0: "a", 1: "b"}, {"a": 0, "b": 1}
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    model.config.id2label, model.config.label2id = {0: "b", 1: "a"}, {"b": 0, "a": 1}
    model.save_pretrained(tmp_path / "teacher")
    tokenizer.save_pretrained(tmp_path / "teacher")
    names = {"positive": "a", "negative": "b"}  # the other way round than the base believes
    learn = [replace(example, label=names[str(example.label)]) for example in reviews()]
    out = tmp_path / "out"
    train(
        tmp_path / "base",
        unlabelled(learn),
        dev=learn,
        out=out,
        teacher=tmp_path / "teacher",
        **FAST,
    )
    assert accuracy(*loaded(out), learn) > 0.95


def test_without_any_label_something_must_be_given_to_choose_by(base, trained, tmp_path):
    with pytest.raises(BadRequestError, match="dev"):
        train(base, unlabelled(reviews(16)), out=tmp_path / "model", teacher=trained, **FAST)
    assert list(tmp_path.iterdir()) == []


def test_answers_come_in_the_order_of_the_questions(trained):
    model, tokenizer = loaded(trained)
    examples = reviews(20)
    together = answers(model, encode(model, tokenizer, examples, 32), size=6)
    for row, example in zip(together, examples, strict=True):
        alone = model(**tokenizer(example.text, return_tensors="pt")).logits[0]
        torch.testing.assert_close(row, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["roberta", "mpnet"])
def test_a_long_text_is_cut_to_the_positions_a_model_really_has(family):
    """These families never use the first rows of their table of positions."""
    tokenizer = word_piece()
    tokenizer.model_max_length = 10**30
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "pad_token_id": 1}
    config = AutoConfig.for_model(family, max_position_embeddings=16, intermediate_size=8, **sizes)
    model = AutoModelForSequenceClassification.from_config(config)
    (encoded,) = encode(model, tokenizer, [Example("0", "film " * 50)], 128)
    assert len(encoded["input_ids"]) == 14
    assert answers(model, [encoded]).isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teacher": "nowhere-at-all/model"}, "nowhere-at-all/model"),
        ({"teacher": "base"}, "positive|negative"),
        ({"train": [Example("0", "a", None, "x"), Example("1", "b", None, "x")]}, "Every example"),
        ({"train": [Example("0", "good film")]}, "example 0 has no label"),
        ({"train": [{"words": "good", "label": "x"}]}, "words, label"),
        ({"text": "review", "train": [{"words": "a", "label": "x"}]}, 'no column "review"'),
        ({"dev": [Example("9", "a", None, "odd")]}, 'label "odd".*negative, positive'),
        ({"train": "nowhere.tsv"}, "no file"),
        ({"epochs": 0}, "epochs is 0"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"max_length": -3}, "max_length is -3"),
        ({"holdout": math.nan}, "holdout is nan"),
        ({"holdout": 1.0}, "holdout is 1.0"),
        ({"label_smoothing": 3}, "label_smoothing is 3"),
        ({"base": "nowhere-at-all/model"}, "Cannot load"),
    ],
)
def test_bad_requests_are_refused_and_leave_nothing(base, tmp_path, change, message):
    if change.get("teacher") == "base":  # no head of its own, so other labels
        change = {"teacher": base}
    request = {"base": base, "train": reviews(16), **FAST} | change
    with pytest.raises(BadRequestError, match=message) as caught:
        train(**request, out=tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def interrupted(monkeypatch):
    """Somebody presses Ctrl-C as soon as the loop begins."""

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        sys.modules["exhibit_a.training.train"], "fit", stop
    )  # xa.train is the function


@pytest.mark.parametrize("place", ["file/model", "/proc/model", "loop/model", "long" * 100])
@pytest.mark.usefixtures("interrupted")
def test_a_place_that_cannot_be_made_is_refused_before_the_work(base, tmp_path, place):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BadRequestError, match="cannot be made"):
        train(base, reviews(16), out=tmp_path / place, **FAST)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.usefixtures("interrupted")
def test_an_interruption_leaves_nothing(base, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(base, reviews(16), out=tmp_path / "new" / "deep" / "model", **FAST)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("interrupted")
def test_a_disk_that_is_too_small_is_refused_before_the_work(base, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(BadRequestError, match=r"0\.001 MB"):
        train(base, reviews(16), out=tmp_path / "model", **FAST)
    assert list(tmp_path.iterdir()) == []


def test_a_base_with_broken_weights_is_refused(base, tmp_path):
    model = BertModel.from_pretrained(base)
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight.fill_(float("nan"))
    model.save_pretrained(tmp_path / "broken")
    word_piece().save_pretrained(tmp_path / "broken")
    with pytest.raises(NotComputableError, match="loss"):
        train(tmp_path / "broken", reviews(16), out=tmp_path / "model", **FAST)
    assert not (tmp_path / "model").exists()


def test_a_model_that_cannot_be_written_is_written_by_the_same_call(base, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise ExhibitError("No space left on device.")

    few = {**FAST, "epochs": 1}
    places = (  # before an epoch is complete, and after all of them
        (BertForSequenceClassification, []),
        (PreTrainedTokenizerFast, ["model.checkpoints"]),
        (sys.modules["exhibit_a.training.train"], ["model.checkpoints"]),
    )
    for place, left in places:
        name = "save_model" if hasattr(place, "save_model") else "save_pretrained"
        with monkeypatch.context() as patched:
            patched.setattr(place, name, full)
            with pytest.raises(ExhibitError, match="No space left"):
                train(base, reviews(16), out=tmp_path / "model", **few)
        assert [path.name for path in tmp_path.iterdir()] == left
    train(base, reviews(16), out=tmp_path / "model", **few)
    train(base, reviews(16), out=tmp_path / "again", **few)
    one, two = (tmp_path / name / "model.safetensors" for name in ("model", "again"))
    assert one.read_bytes() == two.read_bytes()


def test_an_existing_model_is_never_overwritten(base, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(BadRequestError, match="already exists"):
        train(base, reviews(16), out=tmp_path, **FAST)
    assert [file.name for file in tmp_path.iterdir()] == ["precious.txt"]
