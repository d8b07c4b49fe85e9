"""The study of the verdict counts what a trial says, and its data show what is claimed."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import verdict_words as tally
import verdict_words as words
from planted.kinds import planted

import exhibit_a as xa

DATA = Path(__file__).parents[2] / "docs/data"


@pytest.fixture(scope="module")
def reported():
    return words.rows(DATA / "planted.jsonl")


@pytest.mark.parametrize("kind", ["decoy", "free"])
def test_the_study_gives_the_words_of_a_trial(kind):
    model = planted(kind, 101)
    row = words.measured(model.subject, model.inputs)
    trial = xa.trial(model.subject, model.inputs, probes=2, heat_maps=False)
    assert row["word"] == trial.word
    assert [head[:4] for head in row["heads"]] == [
        [v.site, v.head, v.word, v.shared] for v in trial.verdicts
    ]


def test_kept_numbers_give_the_kept_words(reported):
    for row in reported[:40]:
        word, verdicts = words.judged_again(row, words.LIMITS)
        assert word == row["word"]
        assert [verdict.word for verdict in verdicts] == [head[2] for head in row["heads"]]


def test_the_reported_words_are_as_good_as_is_asked(reported):
    assert len(reported) > 200
    heads, texts = tally.of_heads(reported), tally.of_texts(reported)
    asked = {"evidence": 0.95, "no effect": 0.95, "contested": 0.9, "misleading": 0.9}
    for word, least in asked.items():
        assert tally.recall(heads, word).value >= least
        assert tally.recall(texts, word).value >= least
        assert tally.precision(texts, word).value >= least
        assert tally.precision(heads, word).value >= least
    assert tally.decisive_without_effect(reported).right == 0
    untaught = [row for row in reported if row["kind"] == "random"]
    assert len(untaught) >= 56
    assert not any(row["word"] == "evidence" for row in untaught)


def test_seeds_for_calibration_are_not_reported(reported):
    used = {(row["kind"], row["seed"]) for row in words.rows(DATA / "planted-calibration.jsonl")}
    assert used
    assert not used & {(row["kind"], row["seed"]) for row in reported}


def test_the_best_tree_is_the_best_of_all():
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(2, 12)), random.choice(["a", "b", "c"], 12).tolist()
    splits = [column <= value for column in features for value in column]

    def right(chosen):
        return max(Counter(np.array(labels)[chosen]).values(), default=0)

    best = max(
        right(root & left) + right(root & ~left) + right(~root & other) + right(~root & ~other)
        for root, left, other in itertools.product(splits, repeat=3)
    )
    assert tally.best_tree(features.tolist(), labels, depth=2) == pytest.approx(best / 12)
