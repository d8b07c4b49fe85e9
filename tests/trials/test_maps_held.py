"""Memory as a law: at most two sets of maps are held at a time, those of one pass and one copy."""

import pytest
from support.live_maps import LiveMaps

import exhibit_a as xa
from exhibit_a.numerics import spilling
from exhibit_a.trace.batches import TOKENS_AT_ONCE

TEXT = "a gripping , beautifully shot film that never lets go of its audience " * 4
LONG = TEXT * 3  # long enough for a trial to leave token mixing out, which holds more
PASSING = 4  # maps of one site that an operation makes of others


@pytest.fixture
def large_sets(monkeypatch):
    """Everything counts as large, so that a short text shows what a long one takes."""
    monkeypatch.setattr(spilling, "LARGE", 2**12)


def sets_held(subject, work, monkeypatch, text=TEXT):
    """The peak in sets, and what a few maps of one site are beside it."""
    trace = xa.capture(subject, text)
    a_set = sum(maps.nbytes for maps in trace.attention)
    site = max(maps.nbytes for maps in trace.attention)
    length = len(trace.tokens)
    del trace
    live = LiveMaps(length, monkeypatch)
    with live:
        made = work(subject)
    assert live.peak >= a_set  # the model's own were seen
    del made
    return live.peak / a_set, PASSING * site / a_set


@pytest.mark.usefixtures("large_sets")
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda s: xa.self_attribution(xa.capture(s, TEXT)), id="self_attribution"),
        pytest.param(lambda s: xa.reliance(xa.capture(s, TEXT)), id="reliance"),
        pytest.param(
            lambda s: xa.companions(
                xa.capture(s, TEXT), methods=["attention_gradient", "relevance", "rollout"]
            ),
            id="companions",
        ),
        pytest.param(lambda s: xa.effective_attention(xa.capture(s, TEXT)), id="effective"),
    ],
)
def test_two_sets_of_maps_at_most(work, monkeypatch):
    held, passing = sets_held(xa.load("sentiment"), work, monkeypatch)
    assert held <= 2 + passing


@pytest.mark.slow
@pytest.mark.usefixtures("large_sets")
def test_a_trial_holds_two_sets_of_maps_at_most(monkeypatch):
    subject = xa.load("sentiment")
    held, passing = sets_held(subject, lambda s: xa.trial(s, LONG), monkeypatch, text=LONG)
    # Texts with words hidden are as long as the text, and run together, site by site.
    together = TOKENS_AT_ONCE // int(subject.encode(LONG)["input_ids"].shape[1])
    assert held <= 2 + passing + together / len(subject.anatomy.sites)


def test_more_sets_are_noticed(monkeypatch):
    def careless(subject):
        trace = xa.capture(subject, TEXT)
        return [[maps * factor for maps in trace.attention] for factor in (1, 2, 3)]

    held, _ = sets_held(xa.load("sentiment"), careless, monkeypatch)
    assert held == pytest.approx(4, abs=0.5)
