"""How long does it take? The bar of a command and the doctor say the same, from one function."""

import pytest
from support.cases import tiny_subject

import exhibit_a as xa
from exhibit_a.commands.options import expect
from exhibit_a.methods.doctor import estimate
from exhibit_a.progress import Bar, progress_bar


@pytest.fixture(scope="module")
def subject():
    return tiny_subject()


def recording(*, watched):
    changes = list[dict[str, float]]()
    return Bar(lambda **change: changes.append(change), watched=watched), changes


@pytest.mark.parametrize("name", ["trial", "reliance", "pictures", "companions"])
def test_the_estimate_is_the_doctors(subject, name):
    alone = estimate(subject, name, length=12)
    listed = {row.method: row for row in xa.diagnose(subject, length=12).methods}[name]
    assert (alone.passes, alone.forwards) == (listed.passes, listed.forwards)
    assert alone.megabytes == listed.megabytes
    diagnosis = xa.diagnose(subject, length=12)
    row = {row.method: row for row in diagnosis.methods}[name]
    assert row.seconds == pytest.approx(row.passes * diagnosis.pass_seconds)


def test_a_watched_bar_is_told_what_the_doctor_would_say(subject):
    bar, changes = recording(watched=True)
    expect(bar, subject, "trial", 12)
    [change] = changes
    known = estimate(subject, "trial", length=12).seconds
    assert known / 5 < change["expected"] < known * 5  # the same passes, timed twice


def test_nothing_is_measured_where_nobody_looks_or_the_work_is_short(subject):
    for name, watched in (("trial", False), ("effective_attention", True)):
        bar, changes = recording(watched=watched)
        expect(bar, subject, name, 12)
        assert changes == []


def test_without_a_terminal_there_is_no_bar(capfd):
    with progress_bar("work") as bar:
        assert not bar.watched
        bar.expect(3.0)
        bar(1, 2)
    assert capfd.readouterr().err == ""


def test_on_a_terminal_the_estimate_is_on_the_bar(monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar("work") as bar:
        assert bar.watched
        bar.expect(3600.0)
        bar.stage("reliance", 1, 11)
    said = capfd.readouterr().err
    assert "reliance" in said
    assert "about 60 min left" in said
