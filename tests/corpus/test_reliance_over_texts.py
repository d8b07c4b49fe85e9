"""The reliance of every text of a corpus is that of the text alone."""

import json

import pytest
import torch
from support.subjects import opinionated
from torch.testing import assert_close

from exhibit_a import corpus
from exhibit_a.errors import BrokenInvariantError
from exhibit_a.methods.attribution.reliance import reliance
from exhibit_a.trace.capture import capture

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
    (unusable,) = map(json.loads, (run.folder.path / "unusable.jsonl").read_text().splitlines())
    assert "NaN" in unusable["reason"]
