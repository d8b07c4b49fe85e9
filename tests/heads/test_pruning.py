"""Silencing heads by rank, and removing them for good."""

import pytest
import torch
from support.corpora import some_examples
from support.subjects import speaker, subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.errors import BadRequestError, UnsupportedModelError
from exhibit_a.methods.heads.curve import effectiveness, measure_pruning, pruning_curve
from exhibit_a.methods.heads.importance import head_importance, importance_by_example
from exhibit_a.methods.heads.removal import prune
from exhibit_a.numerics.intervals import wilson
from exhibit_a.results.store import read
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.trace.edits import drop_heads
from exhibit_a.trace.replay import replay

QUICK = ("bert", "distilbert", "modernbert", "gpt2", "llama", "gpt-neox", "bart", "vit", "gptj")
QUICK += ("identifiable", "llava")
BOUND = {"t5", "deberta", "deberta-v2", "bloom", "mpnet"}  # positions know how many heads there are
SINGLE = {"additive", "recurrent"}  # one site, one head
PRUNABLE = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(set(FAMILIES) - BOUND - SINGLE)
]


def accuracy_without(subject, examples, gone):
    right = 0
    for one in examples:
        with torch.no_grad():
            answer = replay(capture(subject, one.text), drop_heads(gone), start=0).logits
        right += int(answer.argmax() == int(one.label))
    return right / len(examples)


def test_the_curve_is_accuracy_without_the_lowest_ranked_heads():
    subject, ranked, judged = speaker(), some_examples(6, seed=1), some_examples(9, seed=2)
    importance = head_importance(subject, ranked, by="taylor")
    curve = pruning_curve(subject, judged, importance, counts=[0, 3, 12])
    assert curve.removed.tolist() == [0, 3, 12]
    assert_close(curve.fraction, torch.tensor([0, 0.25, 1]))
    for point, count in enumerate((0, 3, 12)):
        gone = importance.ranking[:count]
        expected = accuracy_without(subject, judged, gone)
        assert float(curve.accuracy[point]) == pytest.approx(expected)
    assert (
        (curve.interval[:, 0] <= curve.accuracy) & (curve.accuracy <= curve.interval[:, 1])
    ).all()
    most = pruning_curve(subject, judged, importance, order="most", counts=[3])
    expected = accuracy_without(subject, judged, importance.ranking[-3:])
    assert float(most.accuracy[0]) == pytest.approx(expected)


def test_every_site_loses_its_share_when_asked():
    subject, judged = speaker(), some_examples(6, seed=2)
    table = torch.arange(12.0).reshape(3, 4)
    curve = pruning_curve(subject, judged, table, fractions=[0.5], scope="site")
    gone = [(site, head) for site in range(3) for head in (0, 1)]
    assert float(curve.accuracy[0]) == pytest.approx(accuracy_without(subject, judged, gone))


def test_what_ranked_the_heads_does_not_judge_them():
    subject, examples = speaker(), some_examples(10)
    importance = head_importance(subject, examples, by="attention", limit=4)
    curve = pruning_curve(subject, examples, importance, fractions=[0.0])
    assert (curve.checks["examples"], curve.checks["left out"]) == (6, 4)
    whole = pruning_curve(subject, examples, importance, fractions=[0.0], overlap=True)
    assert whole.checks["examples"] == 10
    with pytest.raises(BadRequestError, match="4 examples"):
        pruning_curve(subject, examples[:4], importance)


def test_effectiveness_ranks_heads_anew_for_every_example():
    subject, examples = speaker(), some_examples(5)
    tables, _ = importance_by_example(subject, examples, by="attention")
    curve = effectiveness(subject, examples, by="attention", order="most", counts=[0, 1])
    right = 0
    for one, table in zip(examples, tables["row maximum"], strict=True):
        gone = [(site, int(table[site].argmax())) for site in range(3)]
        right += accuracy_without(subject, [one], gone)
    assert curve.removed.tolist() == [0, 3]
    assert float(curve.accuracy[1]) == pytest.approx(right / 5)
    ends = [
        effectiveness(subject, examples, by="attention", order=o).accuracy
        for o in ("most", "least")
    ]
    assert_close(ends[0][[0, -1]], ends[1][[0, -1]])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"order": "best"}, "least, most"),
        ({"scope": "model"}, "scope"),
        ({"fractions": [2.0]}, "between 0 and 1"),
        ({"counts": [13]}, "12 heads"),
        ({"counts": [1], "fractions": [0.1]}, "not both"),
        ({"importance": torch.rand(2, 4)}, r"\(2, 4\)"),
        ({"examples": ["a fine film"]}, "has no label"),
    ],
)
def test_what_cannot_be_asked_is_said(asked, message):
    asked = {"importance": torch.rand(3, 4), "examples": some_examples(3)} | asked
    with pytest.raises(BadRequestError, match=message):
        pruning_curve(speaker(), **asked)


def some_heads(subject):
    """Heads that can go together: a whole group of one site, one of each group of another."""
    first, second = subject.anatomy.sites[:2]
    group = first.heads // first.kv_heads
    together = [(0, head) for head in range(group)]
    if subject.anatomy.sites[0].module == subject.anatomy.sites[1].module:
        return [(site.index, head) for site in subject.anatomy.sites for head in (0, 3)]
    return together + [(1, head) for head in range(second.heads) if head % max(group, 2) == 1]


@pytest.mark.parametrize("name", PRUNABLE)
def test_a_removed_head_is_a_silenced_head(name):
    subject, inputs = subject_of(name), FAMILIES[name].inputs()
    before = {key: weight.clone() for key, weight in subject.model.state_dict().items()}
    heads = some_heads(subject)
    smaller = prune(subject, heads)
    with torch.no_grad():
        silenced = replay(capture(subject, inputs), drop_heads(heads), start=0)[0]
    pruned = capture(smaller, inputs).output[0]
    scale = max(1.0, float(silenced.abs().max()))
    assert_close(pruned, silenced, rtol=0, atol=1e-4 * scale)
    counts = [sum(w.numel() for w in one.model.parameters()) for one in (subject, smaller)]
    assert counts[1] < counts[0]
    for site, now in zip(subject.anatomy.sites, smaller.anatomy.sites, strict=True):
        gone = sum(at == site.index for at, _ in heads)
        assert (now.heads, now.d_head) == (max(site.heads - gone, 1), site.d_head)
    assert all(
        torch.equal(before[key], weight) for key, weight in subject.model.state_dict().items()
    )


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_site_may_lose_all_its_heads(name):
    subject, inputs = subject_of(name), FAMILIES[name].inputs()
    heads = [(1, head) for head in range(4)]
    smaller = prune(subject, heads)
    with torch.no_grad():
        silenced = replay(capture(subject, inputs), drop_heads(heads), start=0).logits
    assert_close(capture(smaller, inputs).output.logits, silenced, rtol=1e-4, atol=1e-5)
    assert smaller.anatomy.sites[1].heads == 1


@pytest.mark.parametrize("name", sorted(BOUND))
def test_what_cannot_be_removed_is_refused_with_the_reason(name):
    with pytest.raises(UnsupportedModelError, match="site 0"):
        prune(subject_of(name), [(0, 0)])


def test_a_pruned_model_is_saved_where_its_configuration_can_say_so(tmp_path):
    subject, inputs = subject_of("llama"), FAMILIES["llama"].inputs()
    smaller = prune(subject, [(site, head) for site in range(3) for head in (0, 1)])
    smaller.model.save_pretrained(tmp_path)
    again = load(tmp_path)
    assert [site.heads for site in again.anatomy.sites] == [2, 2, 2]
    ours, theirs = (capture(one, inputs).output.logits for one in (smaller, again))
    assert_close(ours, theirs, rtol=0, atol=1e-6)
    with pytest.raises(UnsupportedModelError, match="cannot be saved"):
        prune(subject, [(0, 0), (0, 1)]).model.save_pretrained(tmp_path)
    everywhere = [(site, 0) for site in range(3)]
    with pytest.raises(UnsupportedModelError, match="cannot be saved"):
        prune(subject_of("bert"), everywhere).model.save_pretrained(tmp_path)


def test_what_removal_brings_is_measured(tmp_path):
    subject, heads = speaker(), [(0, 0), (1, 2)]
    smaller = prune(subject, heads)
    found = measure_pruning(subject, smaller, heads, some_examples(6), repeats=2)
    assert found.parameters[1] < found.parameters[0]
    assert found.difference < 1e-4
    assert found.speed_up == found.seconds[0] / found.seconds[1]
    assert min(found.seconds) > 0
    assert not found.saves
    assert read(found.save(tmp_path / "pruning")).heads == ((0, 0), (1, 2))
    (size, _) = found.plot().axes[0].patches[:2]
    assert size.get_width() == found.parameters[1] / found.parameters[0]
    assert smaller.tokenizer is subject.tokenizer
    again = prune(smaller, [(0, 0)])
    assert again.anatomy.sites[0].heads == 2


@pytest.mark.parametrize(
    ("name", "heads", "kind", "word"),
    [
        ("bert", [(9, 0)], BadRequestError, "site 9"),
        ("bert", [(0, 4)], BadRequestError, "head 4"),
        ("bert", [], BadRequestError, "heads"),
        ("llama", [(0, 0)], UnsupportedModelError, "in different ways"),
        ("albert", [(0, 0)], UnsupportedModelError, "3 times"),
    ],
)
def test_heads_that_cannot_go_are_refused(name, heads, kind, word):
    with pytest.raises(kind, match=word):
        prune(subject_of(name), heads)


def test_intervals_are_those_of_wilson():
    found = wilson(torch.tensor([0.0, 0.5, 1.0]), 10)
    expected = torch.tensor([[0.0, 0.2775], [0.2366, 0.7634], [0.7225, 1.0]])
    assert_close(found, expected, rtol=0, atol=1e-4)
