"""Memory as a law: what a pass takes is known before, and what does not fit is not started."""

import pytest
import torch
from support import peaks
from support.subjects import subject_of

import exhibit_a as xa
from exhibit_a.errors import NotComputableError
from exhibit_a.trace import budget


def predicted(work, tokens):
    rows = peaks.ROWS if work == "rows" else None
    diagnosis = xa.diagnose(peaks.subject(), length=tokens, rows=rows)
    name = "capture" if work == "rows" else work
    return next(e.peak_megabytes for e in diagnosis.methods if e.method == name)


def within(work, tokens):
    told = predicted(work, tokens)
    for _ in range(3):  # what the system counts varies, either way
        measured = peaks.peak_of(work, tokens)
        if told / 1.5 <= measured <= told * 1.5:
            break
    assert told / 1.5 <= measured <= told * 1.5, f"{work}: told {told:.0f} MB, took {measured:.0f}"


def test_the_doctor_knows_the_peak_of_a_pass():
    within("capture", 768)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "tokens"),
    [
        ("rows", 3072),
        ("capture", 1024),
        ("effective_attention", 1024),
        ("contribution_weights", 1024),
        ("sink_diagnosis", 1024),
        ("self_attribution", 512),
        ("reliance", 512),
        ("trial", 384),
    ],
)
def test_the_doctor_knows_the_peak_of_a_method(work, tokens):
    within(work, tokens)


def test_a_pass_that_does_not_fit_is_refused_with_the_rows_that_would(monkeypatch):
    subject = subject_of("llama")
    ids = torch.full((1, 60), 5)
    size = budget.pass_size(subject, [(60, 60)] * 3)
    ran = []
    subject.model.register_forward_pre_hook(lambda *_: ran.append(1))
    monkeypatch.setattr(budget, "free_bytes", lambda _: int(size.peak()) - 1)
    with pytest.raises(NotComputableError, match="60 tokens") as said:
        xa.capture(subject, {"input_ids": ids})
    assert not ran
    fitting = int(str(said.value).split("slice(-")[1].split(",")[0])
    few = xa.capture(subject, {"input_ids": ids}, rows=slice(-fitting, None))
    assert len(few.rows) == fitting
    with pytest.raises(NotComputableError, match="All maps of 60 tokens"):
        few.whole()
    monkeypatch.setattr(budget, "free_bytes", lambda _: 1000)
    with pytest.raises(NotComputableError, match="even one row does not fit"):
        xa.capture(subject, {"input_ids": ids}, rows=[-1])
    subject.model._forward_pre_hooks.clear()


def test_the_doctor_says_what_needs_every_row():
    diagnosis = xa.diagnose(subject_of("llama"), length=32, rows=2)
    told = {estimate.method: estimate for estimate in diagnosis.methods}
    assert told["effective_attention"].applies
    assert not told["head_mixing"].applies
    assert "every row" in told["head_mixing"].reason
    all_rows = {e.method: e for e in xa.diagnose(subject_of("llama"), length=32).methods}
    for name in ("capture", "effective_attention"):
        assert told[name].peak_megabytes < all_rows[name].peak_megabytes
    with pytest.raises(xa.BadRequestError, match="33 rows"):
        xa.diagnose(subject_of("llama"), length=32, rows=33)
