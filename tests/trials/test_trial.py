"""A trial: one pass, every method that applies, and words that follow from numbers."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.subjects import speaker, subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.errors import BadRequestError, NotComputableError
from exhibit_a.methods.identifiability import alternative_maps as other
from exhibit_a.methods.identifiability.alternatives import polytope
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.trials import stages
from exhibit_a.trials.head_numbers import HeadNumbers
from exhibit_a.trials.verdict import (
    CONTESTED,
    EVIDENCE,
    NO_EFFECT,
    UNDETERMINED,
    Thresholds,
    judge,
    judge_text,
)

LONG = "the plot is not great but acting saves it . really a very fine film , not dull"


def ids(count, seed=3):
    drawn = torch.randint(4, 80, (1, count), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": drawn, "attention_mask": torch.ones_like(drawn)}


def bert_with_words():
    return speaker()


@pytest.fixture(scope="module")
def short():
    return xa.trial(subject_of("bert"), ids(7), probes=4)


@pytest.fixture(scope="module")
def long():
    return xa.trial(bert_with_words(), LONG, probes=4)


def test_every_method_is_heard_and_timed(short):
    assert short.skipped == {}
    assert tuple(short.seconds) == stages.STAGES
    parts = (short.effective, short.identifiability, short.hidden, short.mixing, short.attribution)
    assert None not in (*parts, short.tree)
    assert len(short.verdicts) == sum(site.heads for site in short.sites)
    assert sum(short.answer.values()) == pytest.approx(1)
    assert short.answer[short.target.split()[-1]] == max(short.answer.values())


def test_alternatives_are_valid_and_give_the_same_output(long):
    moved = False
    for site, (raw, new) in enumerate(zip(long.attention, long.alternative, strict=True)):
        assert bool((new >= 0).all())
        assert_close(new.sum(-1), raw.sum(-1), atol=1e-5, rtol=0)
        values = long.values[site]
        assert_close(new @ values, raw @ values, atol=1e-5, rtol=1e-5)
        rows = long.reliance.edges[site].sum(-1).abs()
        rows = rows / rows.sum(-1, keepdim=True)  # rows count by what they contribute
        distance = 0.5 * (new - raw).abs().sum(-1)
        told = torch.tensor([long.of(site, head).distance for head in range(len(raw))])
        assert_close((distance * rows).sum(1), told, atol=1e-5, rtol=0)
        moved = moved or bool((distance > 0.05).any())
    assert moved
    assert {one.unique for one in long.verdicts} == {0.0}
    assert long.checks["rows searched for the farthest"] == 3 * 4 * len(long.tokens)
    change, rounding = "change of the answer with all alternatives in place", "rounding"
    assert long.checks[change] <= long.checks[f"{rounding} of the answer"]


@pytest.mark.parametrize("family", ["gpt2", "mistral", "gpt-oss"])
def test_alternatives_see_no_hidden_key_and_keep_the_sum(family):
    trace = capture(subject_of(family), ids(24), keep=("attention", "values", "hidden"))
    counted = xa.attention_identifiability(trace)
    found = other.alternative_maps(trace, tuple(part > 0 for part in counted.same_sum))
    for site, new in enumerate(found.maps):
        raw = trace.attention[site]
        assert not new[:, ~trace.visible[site]].any()
        assert_close(new.sum(-1), raw.sum(-1), atol=1e-5, rtol=0)
        assert_close(new @ trace.values[site], raw @ trace.values[site], atol=1e-4, rtol=1e-4)
    assert found.answer_change <= found.allowed


def test_moved_rows_lie_between_the_bounds_of_the_linear_programs(long):
    for site, head, query in ((0, 0, 1), (1, 3, 4), (2, 2, 9)):
        exact = polytope(long.attention[site][head, query], long.values[site][head], samples=2)
        row = long.alternative[site][head, query].double()
        assert bool((row >= exact.low - 1e-5).all())
        assert bool((row <= exact.high + 1e-5).all())


def edited(change):
    model = FAMILIES["bert"].build()
    with torch.no_grad():
        change(model.bert.encoder.layer[1].attention, slice(8, 16))  # the second of 4 heads
    return xa.trial(load(model), ids(7), probes=4)


def test_a_head_that_looks_everywhere_alike_has_no_effect():
    def blind(attention, head):
        attention.self.query.weight[head] = 0
        attention.self.query.bias[head] = 0

    found = edited(blind).of(1, 1)
    assert found.reliance == pytest.approx(0, abs=1e-5)
    assert found.one_head == pytest.approx(0, abs=1e-5)
    assert found.word == NO_EFFECT


def test_a_head_that_is_not_passed_on_has_no_effect():
    def deaf(attention, head):
        attention.output.dense.weight[:, head] = 0

    found = edited(deaf).of(1, 1)
    assert found.reliance == pytest.approx(0, abs=1e-5)
    assert (found.word, found.null_fraction) == (NO_EFFECT, 1)


def test_a_trial_can_be_kept_and_read_in_another_process(long, tmp_path):
    path = long.save(tmp_path / "trial")
    back = xa.read(path)
    assert (back.verdicts, back.word, back.verdict) == (long.verdicts, long.word, long.verdict)
    assert back.thresholds == long.thresholds
    assert torch.equal(back.effective.effective[1], long.effective.effective[1])
    assert back.effective.raw[0] is back.attention[0]  # kept once
    assert back.tree.edges == long.tree.edges
    code = "import sys, exhibit_a as xa; print(type(xa.read(sys.argv[1])).__name__, xa.trial)"
    told = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("Trial <function trial")


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_both_stacks_and_what_crosses_between_them_are_judged(family):
    found = xa.trial(subject_of(family), FAMILIES[family].inputs(), probes=4)
    assert set(found.skipped) == {"heat_maps"}
    assert {site.kind for site in found.sites} == {"self", "cross"}
    assert {name: len(tokens) for name, tokens in found.sequences.items()} == {
        "encoder": 7,
        "decoder": 5,
    }
    crossing = next(site for site in found.sites if site.kind == "cross")
    assert found.attention[crossing.index].shape[1:] == (5, 7)
    assert len(found.token_scores) == 7
    assert list(map(len, found.tokens_of(crossing.index))) == [5, 7]


def test_a_model_without_a_head_is_judged_as_far_as_it_goes():
    found = xa.trial(subject_of("clip-text"), ids(20), probes=4)
    missing = {"target", "attribution", "tree", "reliance", "heads", "heat_maps"}
    assert set(found.skipped) == missing
    assert "hidden states only" in found.skipped["reliance"]
    assert "It needs attribution" in found.skipped["tree"]
    assert (found.target, found.answer, found.reliance) == ("", {}, None)
    assert found.effective is not None
    assert {one.word for one in found.verdicts} == {UNDETERMINED}
    assert {one.reliance for one in found.verdicts} == {None}
    assert found.word == UNDETERMINED
    assert "not determined" in found.advice


def test_what_cannot_be_asked_for_is_refused():
    with pytest.raises(BadRequestError, match="no label 'good'"):
        xa.trial(subject_of("bert"), ids(7), target="good")
    with pytest.raises(NotComputableError, match="hidden states only"):
        xa.trial(subject_of("clip-text"), ids(7), target="good")
    with pytest.raises(BadRequestError, match="at least 2 probes"):
        xa.trial(subject_of("bert"), ids(7), probes=1)
    with pytest.raises(BadRequestError, match="threshold carries is -1"):
        Thresholds(carries=-1)


def test_too_much_work_is_less_work_or_a_reason(monkeypatch):
    trace = capture(subject_of("bert"), ids(7))
    weights = sum(
        weight.numel()
        for layer in trace.layers
        for weight in trace.subject.model.get_submodule(layer.module).parameters()
    )
    monkeypatch.setattr(stages, "EFFORT", 6 * weights * 49)
    assert stages.affordable_probes(trace, 16) == 6
    assert stages.affordable_probes(trace, 5) == 5
    monkeypatch.setattr(stages, "EFFORT", weights * 49)
    found = xa.trial(trace.subject, ids(7))
    assert set(found.skipped) == {"mixing"}
    assert "Call the method itself" in found.skipped["mixing"]
    assert (found.hidden, found.mixing) == (None, None)


def test_progress_is_told_and_can_end_the_trial():
    told = []

    def until_tree(stage, number, count):
        told.append((stage, number, count))
        if stage == "tree":
            raise BadRequestError("enough")

    with pytest.raises(BadRequestError, match="enough"):
        xa.trial(subject_of("bert"), ids(7), probes=4, progress=until_tree)
    place = stages.STAGES.index("tree")
    assert told == [
        (stage, i, len(stages.STAGES)) for i, stage in enumerate(stages.STAGES[: place + 1])
    ]


share = st.floats(0, 1)


@st.composite
def numbers(draw):
    """Numbers of a head; the margin of its answer is 1 and nothing was sampled."""
    return HeadNumbers(
        site=0,
        head=0,
        reliance=draw(st.floats(-1, 1)),
        error=0.0,
        one_head=draw(st.floats(-1, 1)),
        steering=0.0,
        chance=draw(share),
        pointing=draw(st.floats(-1, 1)),
        coherence=draw(st.floats(-1, 1)),
        unique=draw(share),
        distance=draw(share),
        null_fraction=draw(share),
        learned=draw(st.booleans()),
    )


def word_of(found, reliance, **limits):
    (verdict,) = judge([found], reliance, Thresholds(**limits))
    return verdict.word


@pytest.fixture(scope="module")
def unit(short):
    """A reliance whose margin is 1."""
    return dataclasses.replace(short.reliance, margin=1.0, baseline_margin=0.0, permuted_error=0.01)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers(), share, share)
def test_words_follow_their_thresholds_one_way(unit, found, one, another):
    low, high = sorted((one, another))

    def word(**limits):
        return word_of(found, unit, **limits)

    # a higher line for a share never gives a head an effect
    assert not (word(carries=low) == NO_EFFECT != word(carries=high))
    # a higher line for a distance never makes a head contested
    assert not (word(distance=low) != CONTESTED == word(distance=high))
    for name in ("carries", "points", "coherence"):  # higher lines are harder to pass
        assert not (word(**{name: low}) != EVIDENCE == word(**{name: high}))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers())
def test_what_is_not_known_never_speaks_for_a_head(unit, found):
    for missing in ("distance", "pointing", "coherence"):
        assert word_of(dataclasses.replace(found, **{missing: None}), unit) != EVIDENCE
    assert word_of(dataclasses.replace(found, learned=False), unit) != EVIDENCE
    steering = dataclasses.replace(found, reliance=0.0, one_head=0.0, steering=0.3)
    assert word_of(steering, unit) == UNDETERMINED
    unsure = dataclasses.replace(found, reliance=0.04, one_head=0.0, error=0.03)
    assert word_of(unsure, unit) == UNDETERMINED
    for doubtful in (None, dataclasses.replace(unit, determined=False, reason="it jumps")):
        assert word_of(found, doubtful) == UNDETERMINED


def test_the_word_of_most_of_the_shares_is_the_word_for_the_text(short, unit):
    def with_words(*words):
        parts = (0.6, 0.3, 0.1)
        return [
            dataclasses.replace(short.verdicts[0], word=word, reliance=part)
            for word, part in zip(words, parts, strict=True)
        ]

    calm = dataclasses.replace(unit, permuted_margin=0.1)
    word, said = judge_text(with_words(EVIDENCE, CONTESTED, UNDETERMINED), calm, Thresholds())
    assert word == EVIDENCE
    assert "evidence 60%" in said
    # with permuted rows the answer stays: not told from chance, whatever the heads say
    lucky = dataclasses.replace(unit, permuted_margin=0.99)
    heads = with_words(EVIDENCE, CONTESTED, UNDETERMINED)
    assert judge_text(heads, lucky, Thresholds())[0] == UNDETERMINED
    # or it is not certain that they move it
    unsure = dataclasses.replace(unit, permuted_margin=0.7, permuted_error=0.15)
    word, said = judge_text(heads, unsure, Thresholds())
    assert word == UNDETERMINED
    assert "give or take 30% of its margin: too little for evidence" in said
    surer = dataclasses.replace(unsure, permuted_error=0.05)
    assert judge_text(heads, surer, Thresholds())[0] == EVIDENCE
    still = dataclasses.replace(unit, baseline_margin=0.97)
    idle = with_words(NO_EFFECT, NO_EFFECT, NO_EFFECT)
    assert judge_text(idle, still, Thresholds())[0] == NO_EFFECT


def test_a_table_has_a_row_for_every_head_with_its_verdict(long):
    table = long.to_pandas()
    assert len(table) == len(long.verdicts)
    for row, verdict in zip(table.itertuples(), long.verdicts, strict=True):
        assert (row.layer, row.head) == (long.sites[verdict.site].layer, verdict.head)
        assert (row.word, row.reason) == (verdict.word, verdict.reason)
        assert row.reliance == pytest.approx(verdict.reliance, nan_ok=True)
    assert set(long.to_pandas(what="long")["field"]) >= {"attention", "values"}
    heat_maps = long.to_pandas(what="heat_maps")
    assert list(heat_maps["advice"]) == [heat_map.advice for heat_map in long.heat_maps.values()]
    with pytest.raises(BadRequestError, match="heads, heat_maps, long"):
        long.to_pandas(what="rows")


def test_where_work_is_dear_the_rows_that_carry_most_are_searched(monkeypatch):
    trace = capture(subject_of("bert"), ids(20))
    free = tuple(torch.ones(4, 20, dtype=torch.bool) for _ in trace.sites)
    worth = tuple(torch.arange(20.0).expand(4, 20) for _ in trace.sites)
    worth = tuple(rows * (1 + 9 * (site == 1)) for site, rows in enumerate(worth))
    monkeypatch.setattr(other, "_affordable_rows", lambda _: 80)
    found = other.alternative_maps(trace, free, first=worth)
    assert found.free == 240
    assert [int(marks.sum()) for marks in found.tried] == [16, 48, 16]
    for site, (new, raw) in enumerate(zip(found.maps, trace.attention, strict=True)):
        first = int(found.tried[site][0].nonzero()[0])
        assert first <= 16  # four rows of every head, and more where they are worth more
        assert torch.equal(new[:, :first], raw[:, :first])
        assert not torch.equal(new[:, first:], raw[:, first:])


def test_shares_add_up_to_what_the_answer_rests_on(short):
    total = sum(one.reliance for one in short.verdicts)
    assert total + short.reliance.gap == pytest.approx(short.reliance.whole, abs=1e-4)
    assert_close(
        short.token_scores.sum(), torch.stack([one.sum() for one in short.attribution.scores]).sum()
    )


def test_without_a_wish_mixing_takes_the_probes_that_fit():
    """Each of a few tokens in 8 directions at most, of more tokens in fewer, of many in none."""
    for tokens, probes in ((5, 8), (12, 3), (20, 2)):
        trace = capture(subject_of("bert"), ids(tokens))
        assert stages.affordable_probes(trace, None) == probes
    trace = capture(subject_of("bert"), ids(21))
    with pytest.raises(NotComputableError, match="probes=8"):
        stages.affordable_probes(trace, None)
    assert stages.affordable_probes(trace, 8) == 8


def test_heads_of_the_block_have_no_word_of_their_own(short):
    """What reads the words is one number, and no head of it is without effect by that."""
    relied = dataclasses.replace(short.reliance, block_layers=(0,), block_worth=1.0)
    numbers = [HeadNumbers(site, head, reliance=0.0) for site in (0, 1) for head in range(2)]
    numbers = [dataclasses.replace(each, steering=0.0, one_head=0.0) for each in numbers]
    words = [verdict.word for verdict in judge(numbers, relied, Thresholds())]
    assert words == [UNDETERMINED, UNDETERMINED, NO_EFFECT, NO_EFFECT]
