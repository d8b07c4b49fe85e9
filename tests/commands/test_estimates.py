"""How long does it take? The bar of a command and the doctor say the same, from one function."""

import pytest
from support.subjects import speaker

import exhibit_a as xa
from exhibit_a.commands.options import expect
from exhibit_a.methods import doctor
from exhibit_a.progress import Bar


@pytest.fixture(scope="module")
def subject():
    return speaker()


def recording(*, watched):
    changes = list[dict[str, float]]()
    return Bar(lambda **change: changes.append(change), watched=watched), changes


def test_a_watched_bar_is_told_what_the_doctor_would_say(subject, monkeypatch):
    measured = doctor._timed_pass

    def half_a_second(*asked):
        measured(*asked)  # also looks at the sizes of the maps
        return 0.5

    monkeypatch.setattr(doctor, "_timed_pass", half_a_second)
    bar, changes = recording(watched=True)
    expect(bar, subject, "trial", 12)
    listed = {row.method: row for row in xa.diagnose(subject, length=12).methods}["trial"]
    assert changes == [{"expected": listed.seconds}]
    assert listed.seconds == 0.5 * listed.passes


def test_nothing_is_measured_where_nobody_looks_or_the_work_is_short(subject):
    for name, watched in (("trial", False), ("effective_attention", True)):
        bar, changes = recording(watched=watched)
        expect(bar, subject, name, 12)
        assert changes == []
