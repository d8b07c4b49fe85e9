"""Texts in company: the same reliance as alone, whoever is beside them, and in a corpus too."""

import shutil

import pytest
import torch
from support.corpora import contents
from support.subjects import opinionated, subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a import corpus
from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.methods.attribution.frozen_maps import FrozenText
from exhibit_a.methods.attribution.head_company import Company
from exhibit_a.methods.attribution.head_game import margin_of
from exhibit_a.methods.attribution.reliance import reliance, relied_together
from exhibit_a.methods.registry import find
from exhibit_a.trace import batches
from exhibit_a.trace.capture import capture
from exhibit_a.trace.targets import chosen_target

TEXTS = ["w1 w2 w3 w4 w5 w6", "w7 w8", "w9 w2 w11 w4", "w3 w14 w15 w16 w17 w1"]
WORDS = ("way", "determined", "reason", "target", "tokens", "sites")
NUMBERS = ("margin", "even_margin", "permuted_margin", "permuted_error", "gap")
BY_SITE = (
    "heads", "one_head", "standard_error", "null", "alignment", "pointing", "coherence", "edges",
)  # fmt: skip
COUNTED = ("points", "forward passes")


def assert_same(one, other):
    """The same words and counts, and the same numbers but for rounding."""
    assert [getattr(one, name) for name in WORDS] == [getattr(other, name) for name in WORDS]
    assert [one.checks[name] for name in COUNTED] == [other.checks[name] for name in COUNTED]
    near = {"atol": 1e-5 * max(1.0, one.size), "rtol": 1e-5}
    for name in NUMBERS:
        assert_close(getattr(one, name), getattr(other, name), **near, msg=name)
    for name in BY_SITE:
        assert_close(getattr(one, name), getattr(other, name), **near, msg=name)


def fed(name, *lengths):
    """Traces of a family over made-up inputs of so many tokens."""
    subject, eaten = subject_of(name), FAMILIES[name].inputs()
    traces = []
    for length in lengths:
        inputs = {
            key: (value[:, :length] if value.ndim == 2 else value).clone()
            for key, value in eaten.items()
        }
        if "input_ids" in inputs:
            inputs["input_ids"][0, 1] = 5 + length  # texts differ in more than their length
        traces.append(capture(subject, inputs))
    return traces


@pytest.mark.parametrize("by", ["path", "orders"])
def test_texts_of_any_length_get_what_they_get_alone(by):
    traces = [capture(opinionated(), text) for text in TEXTS]
    together = relied_together(traces, by=by, budget=40 if by == "path" else 5)
    for trace, found in zip(traces, together, strict=True):
        assert_same(found, reliance(trace, by=by, budget=40 if by == "path" else 5))


def test_order_and_company_do_not_matter():
    traces = [capture(opinionated(), text) for text in TEXTS]
    there, back = relied_together(traces, by="path"), relied_together(traces[::-1], by="path")
    for one, other in zip(there, back[::-1], strict=True):
        assert_same(one, other)
    for one, other in zip(there[1:3], relied_together(traces[1:3], by="path"), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bart", "mpnet", "roberta", "vit"])
def test_every_kind_of_model_takes_company(name, monkeypatch):
    traces = fed(name, 5, 3, 6)
    alone = [reliance(trace, by="path", budget=25) for trace in traces]
    seats = []
    seated = Company.__init__

    def counted(self, texts):
        seats.append(len(texts))
        seated(self, texts)

    monkeypatch.setattr(Company, "__init__", counted)
    together = relied_together(traces, by="path", budget=25)
    assert seats == [3]  # nobody was sent out
    for one, other in zip(together, alone, strict=True):
        assert_same(one, other)


def test_copies_of_all_texts_share_batches(monkeypatch):
    traces = [capture(opinionated(), text) for text in TEXTS]
    rows = []
    played = batches.Batch.rows

    def counted(self, index):
        rows.append(len(index))
        return played(self, index)

    monkeypatch.setattr(batches.Batch, "rows", counted)
    relied_together(traces, by="path")
    shared = len(rows), sum(rows)
    rows.clear()
    for trace in traces:
        reliance(trace, by="path")
    assert shared[1] == sum(rows)
    assert shared[0] <= len(rows) / 2


def test_a_classifier_that_knows_no_padding_goes_text_by_text(monkeypatch):
    traces = [capture(opinionated(), text) for text in TEXTS[:2]]
    monkeypatch.setattr("exhibit_a.trace.batches.stand_alone", lambda subject: True)
    assert not batches.can_share(traces)
    for trace, found in zip(traces, relied_together(traces, by="path"), strict=True):
        assert_same(found, reliance(trace, by="path"))


def test_a_text_whose_answer_depends_on_the_company_is_sent_out(monkeypatch):
    traces = [capture(opinionated(), text) for text in TEXTS]
    alone = [reliance(trace, by="path") for trace in traces]
    honest, seats = batches.padded, []

    def spoilt(subject, inputs):
        joined = honest(subject, inputs)
        if len(inputs) == len(traces):
            joined["input_ids"][1, 1] = 40  # the second text is another one in company
        return joined

    seated = Company.__init__

    def counted(self, texts):
        seats.append(len(texts))
        seated(self, texts)

    monkeypatch.setattr(batches, "padded", spoilt)
    monkeypatch.setattr(Company, "__init__", counted)
    found = relied_together(traces, by="path")
    assert seats == [4, 1, 3]
    for one, other in zip(found, alone, strict=True):
        assert_same(one, other)


def test_dealt_rows_do_not_see_the_padding():
    traces = [capture(opinionated(), text) for text in TEXTS[:2]]
    texts = [FrozenText.of(t, margin_of(chosen_target(t, None))) for t in traces]
    company, lonely = Company(texts), Company(texts[1:])
    in_company = company.permuted(torch.tensor([1]), range(3), seed=4)
    assert_close(in_company, lonely.permuted(torch.tensor([0]), range(3), seed=4))


def test_choices_are_checked_for_several_texts_too():
    together = find("reliance").together
    traces = [capture(opinionated(), text) for text in TEXTS[:2]]
    with pytest.raises(BadRequestError, match="There is no by 'x'"):
        together(traces, by="x")
    with pytest.raises(BadRequestError, match="budget of 2 is too small"):
        together(traces, budget=2)


# In a corpus

SAME_LENGTH = ["w1 w2 w3", "w4 w5 w6", "w7 w2 w9", "w10 w4 w12", "w13 w1 w15"]


def test_a_corpus_gives_what_each_text_gives(tmp_path):
    subject, texts = opinionated(), [*SAME_LENGTH, "w1 w20"]
    corpus.run(subject, texts, "reliance", tmp_path / "run", by="path")
    run = corpus.open(tmp_path / "run")
    rows = run.to_pandas().sort_values("example")
    heads = run.to_pandas("heads")
    for text, (_, row) in zip(texts, rows.iterrows(), strict=True):
        alone = reliance(capture(subject, text), by="path")
        assert row["margin"] == pytest.approx(alone.margin, abs=1e-5, rel=1e-5)
        assert row["gap"] == pytest.approx(alone.gap, abs=1e-5)
        own = heads[heads["example"] == row["example"]].sort_values(["site", "head"])
        assert_close(
            torch.tensor(own["heads"].to_numpy()).float(),
            torch.cat(alone.heads),
            atol=1e-5,
            rtol=1e-4,
        )


def test_a_corpus_can_be_resumed(tmp_path):
    subject, texts = opinionated(), SAME_LENGTH * 2
    options = {"by": "path", "window": 4}
    corpus.run(subject, texts, "reliance", tmp_path / "whole", **options)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for path in (tmp_path / "cut").rglob("*.*"):
        if path.name not in ("run.json", ".lock") and not path.name.startswith("00000"):
            path.unlink()
    corpus.resume(tmp_path / "cut", subject=subject, examples=texts)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_one_bad_text_does_not_spoil_the_others(tmp_path, monkeypatch):
    subject, bad = opinionated(), SAME_LENGTH[2]
    ids = subject.encode(bad)["input_ids"]
    honest = capture

    def failing(subject, text, **options):
        if torch.equal(text["input_ids"], ids):
            raise BrokenInvariantError("The model's answer to this input is NaN or infinite.")
        return honest(subject, text, **options)

    monkeypatch.setattr("exhibit_a.corpus.summaries.capture", failing)
    corpus.run(subject, SAME_LENGTH, "reliance", tmp_path / "run", by="path", unusable="skip")
    run = corpus.open(tmp_path / "run")
    rows = run.to_pandas().sort_values("example")
    assert len(rows) == len(SAME_LENGTH) - 1
    kept = [text for text in SAME_LENGTH if text != bad]
    margins = [reliance(capture(subject, text), by="path").margin for text in kept]
    assert rows["margin"].tolist() == pytest.approx(margins, abs=1e-5, rel=1e-5)
    (unusable,) = run.receipts[0]["unusable"]
    assert "NaN" in unusable["reason"]
