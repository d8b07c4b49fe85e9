"""Words that turn answers: how they are found, where they are put, what they are held against."""

import pytest
import torch
from support.corpora import some_examples
from support.subjects import speaker
from support.words import tokenizer
from torch.testing import assert_close

from exhibit_a.methods.attribution.self_attribution import self_attribution
from exhibit_a.methods.triggers import triggers as module
from exhibit_a.methods.triggers.triggers import Inserted, Pattern, attack, find_triggers, inserted
from exhibit_a.results.store import read
from exhibit_a.trace.capture import capture


@pytest.fixture
def everything_counts(monkeypatch):
    """Random models rest on nothing; let their faint patterns through."""
    monkeypatch.setattr(module, "SETTINGS", module.TriggerSettings(faint=0.0))


def pattern(*tokens):
    """A pattern of (word, segment, place) triples."""
    ids = tokenizer().get_vocab()
    made = tuple(Inserted(ids[word], word, segment, place) for word, segment, place in tokens)
    return Pattern(made, (1.0, 0.5), 0, 0, 0, "made up")


def words_of(subject, inputs):
    return subject.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())


def test_a_pattern_is_the_two_strongest_edges_of_the_strongest_head(everything_counts):
    subject, example = speaker(), some_examples(1)[0]
    (found,) = find_triggers(subject, [example]).patterns
    trace = capture(subject, example.text)
    result = self_attribution(trace)
    site = max(range(3), key=lambda at: float(result.scores[at].max()))
    head = int(result.head_maxima[site].argmax())
    top = result.scores[site][head].flatten().topk(2)
    assert (found.site, found.head) == (site, head)
    assert found.scores == pytest.approx(top.values.tolist(), rel=0.05, abs=1e-6)
    count = len(trace.tokens)
    used = 2 if top.values[1] >= 0.2 * top.values[0] else 1
    places = {place for at in top.indices[:used].tolist() for place in divmod(at, count)}
    written = [trace.tokens[place] for place in sorted(places) if not trace.special[place]]
    assert [one.token for one in found.tokens] == written


def test_tokens_go_to_the_same_place_of_the_same_segment():
    subject = speaker()
    pair = subject.encode("a fine film", "the plot is dull")
    changed = inserted(subject, pair, pattern(("not", 0, 0.0), ("great", 1, 0.75)))
    assert words_of(subject, changed) == (
        [
            "[CLS]",
            "not",
            "a",
            "fine",
            "film",
            "[SEP]",
            "the",
            "plot",
            "is",
            "dull",
            "great",
            "[SEP]",
        ]
    )
    assert changed["token_type_ids"].tolist() == [[0] * 6 + [1] * 6]
    assert changed["attention_mask"].sum() == 12


def test_an_attack_measures_every_class_beside_its_controls(everything_counts, tmp_path):
    subject, examples = speaker(), some_examples(12)
    found = find_triggers(subject, examples)
    result = attack(subject, examples, found, count=2)
    kinds = {one.predicted for one in found.patterns}
    assert {one.predicted for one in result.patterns} == kinds
    assert len(result.patterns) <= 2 * len(kinds)
    gold = torch.tensor([int(one.label) for one in examples])
    for place, one in enumerate(result.patterns):
        right = torch.tensor(
            [
                int(subject.model(**inserted(subject, subject.encode(e.text), one)).logits.argmax())
                for e in examples
            ]
        )
        for label in range(3):
            share = (right[gold == label] == label).float().mean()
            assert_close(result.after[place, label], share)
    assert (result.interval[..., 0] <= result.after).all()
    assert (result.after <= result.interval[..., 1]).all()
    assert result.random.shape == result.attention.shape == result.after.shape
    assert result.counts.tolist() == [4, 4, 4]
    again = attack(subject, examples, found, count=2)
    assert_close(again.random, result.random, rtol=0, atol=0)
    assert read(result.save(tmp_path / "attack")).patterns == result.patterns
    others = [label for label in range(3) if label != result.patterns[0].predicted]
    lost = (result.before - result.after[0])[others].mean()  # classes have the same size
    assert result.drop(0) == pytest.approx(float(lost))
    assert result.drop(0, result.before.expand_as(result.after)) == 0
    result.plot().clear()
    drawn = found.plot(count=3).axes[0]  # the strongest on top
    assert drawn.yaxis_inverted()
    assert drawn.get_yticklabels()[0].get_text().startswith(found.patterns[0].text)


def test_tokens_that_meet_stand_side_by_side():
    subject = speaker()
    one = subject.encode("a fine film")
    changed = inserted(subject, one, pattern(("not", 0, 0.5), ("great", 0, 0.5)))
    assert words_of(subject, changed) == ["[CLS]", "a", "fine", "not", "great", "film", "[SEP]"]
