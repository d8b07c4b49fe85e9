"""Weighing heads: each measure against its definition, and batches against single examples."""

import pytest
import torch
from support.corpora import some_examples
from support.subjects import speaker
from support.words import tokenizer
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError
from exhibit_a.examples import Example
from exhibit_a.methods.attribution.path_integral import PathPlan, integrate
from exhibit_a.methods.attribution.self_attribution import self_attribution
from exhibit_a.methods.heads.importance import (
    MEASURES,
    head_importance,
    head_similarity,
    importance_by_example,
)
from exhibit_a.results.store import read
from exhibit_a.subject.subject import load
from exhibit_a.trace.batches import of_one
from exhibit_a.trace.capture import capture
from exhibit_a.trace.edits import drop_heads
from exhibit_a.trace.replay import replay


@pytest.mark.parametrize("by", sorted(MEASURES))
@pytest.mark.parametrize("name", ["bert", "roberta", "deberta"])
def test_a_padded_batch_says_what_its_examples_say_alone(by, name, monkeypatch):
    subject, examples = speaker(name), some_examples()
    together, _ = importance_by_example(subject, examples, by=by)
    monkeypatch.setattr("exhibit_a.methods.heads.importance.stand_alone", lambda subject: True)
    alone, _ = importance_by_example(subject, examples, by=by)
    for measure, table in together.items():
        assert_close(table, alone[measure], rtol=1e-3, atol=2e-6)


def test_attribution_is_the_largest_entry_for_the_gold_class():
    subject, examples = speaker(), some_examples(5)
    found = head_importance(subject, examples)
    expected = []
    for one in examples:
        result = self_attribution(capture(subject, one.text), target=int(one.label))
        expected.append(torch.stack(result.head_maxima))
    assert_close(found.scores, torch.stack(expected).mean(0), rtol=1e-2, atol=1e-6)
    assert found.checks["median gap as a share of the change"] <= 0.01
    assert found.checks["largest gap as a share of the change"] < 1
    assert found.checks["mean points"] >= 3


def test_taylor_is_the_single_point_rule_at_the_end_of_the_path_for_the_loss():
    subject, examples = speaker(), some_examples(4)
    found = head_importance(subject, examples, by="taylor").scores
    expected = torch.zeros_like(found)
    for one in examples:
        batch = of_one(capture(subject, one.text))
        gold = torch.tensor([int(one.label)])

        def loss(output, rows, gold=gold):
            wanted = gold.expand(len(rows))
            return torch.nn.functional.cross_entropy(output.logits, wanted, reduction="none")

        whole = loss(batch.output, torch.zeros(1).long())
        for site in range(len(found)):
            plan = PathPlan("riemann", 1)  # its one point is α = 1
            scores = integrate(batch, site, loss, whole, plan=plan).scores
            expected[site] += scores[0].sum((1, 2)).abs() / len(examples)
    assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_ablation_is_what_dropping_one_head_does():
    subject, examples = speaker(), some_examples(6)
    found = head_importance(subject, examples, by="ablation")
    accuracy, loss = torch.zeros(3, 4), torch.zeros(3, 4)
    for one in examples:
        trace, gold = capture(subject, one.text), torch.tensor([int(one.label)])

        def judge(logits, gold=gold):
            return float(logits.argmax() == gold), torch.nn.functional.cross_entropy(logits, gold)

        right, before = judge(trace.output.logits)
        for site in range(3):
            for head in range(4):
                with torch.no_grad():
                    now, after = judge(replay(trace, drop_heads([(site, head)])).logits)
                accuracy[site, head] += (right - now) / len(examples)
                loss[site, head] += (after - before) / len(examples)
    assert_close(found.scores, accuracy, rtol=0, atol=1e-6)
    assert_close(found.details["loss"], loss, rtol=1e-3, atol=1e-5)


def test_two_data_sets_can_be_compared(tmp_path):
    subject = speaker()
    first, second = (
        head_importance(subject, some_examples(8, seed=seed), by="taylor") for seed in (1, 2)
    )
    found = head_similarity(first, second, names=("films", "plots"))
    table = torch.stack([first.scores.flatten(), second.scores.flatten()])
    assert found.pearson == pytest.approx(float(torch.corrcoef(table)[0, 1]), abs=1e-5)
    assert found.interval[0] < found.pearson < found.interval[1]
    assert head_similarity(first, first).pearson == pytest.approx(1)
    assert read(found.save(tmp_path / "similarity")).pearson == found.pearson
    found.plot().clear()
    first.plot().clear()
    smaller = load(FAMILIES["bert"].build(num_hidden_layers=2), tokenizer=tokenizer())
    other = head_importance(smaller, some_examples(4), by="taylor")
    with pytest.raises(BadRequestError, match="not the same heads"):
        head_similarity(first, other)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (["a fine film", "dull"], "label"),
        (
            [Example("7", "a fine film", None, "joy"), Example("8", "dull", None, "LABEL_0")],
            "Example 7 has the label 'joy', which the model does not know. It knows 0 LABEL_0",
        ),
        ([Example("7", "a", None, "3"), Example("8", "dull", None, "1")], "label '3'"),
        ([Example("7", "a", None, "1"), Example("8", "dull", None, "1")], "nothing to tell apart"),
    ],
)
def test_examples_that_cannot_be_used_are_refused(examples, message):
    with pytest.raises(BadRequestError, match=message):
        head_importance(speaker(), examples, by="taylor")


def test_what_cannot_be_asked_is_said():
    with pytest.raises(BadRequestError, match="attribution, taylor"):
        head_importance(speaker(), some_examples(3), by="beauty")
    with pytest.raises(BadRequestError, match="limit of 0"):
        head_importance(speaker(), some_examples(3), limit=0)
    model = speaker("gpt2")
    with pytest.raises(BadRequestError, match="answer="):
        head_importance(model, some_examples(3))
