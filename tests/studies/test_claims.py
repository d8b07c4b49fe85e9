"""The word of a claim follows from its measurements, and a measurement says how it came about."""

import json
import sys
from types import SimpleNamespace

import claims
import pytest
from claims import (
    CANNOT,
    CLAIMS,
    DOCUMENTS,
    HOLDS,
    IN_PART,
    NOT_HERE,
    UNDECIDED,
    UNMEASURED,
    Claim,
    above,
    below,
    between,
)
from study import Ledger, Measurement, kept, parse, spoken


def found(name, low, high):
    middle = (low + high) / 2
    return Measurement(name, middle, (low, high), 9, "texts", "m", "d", "python studies/x.py", {})


def word(*tests, known, cannot=""):
    claim = Claim("title", "hao", "says", "", "python studies/x.py", tests, cannot)
    return claim.word({one.id: one for one in known})


def test_a_word_follows_from_the_intervals():
    clear, astride = found("a", 0.1, 0.2), found("b", -0.1, 0.2)
    assert word(above("a"), known=[clear]) == HOLDS
    assert word(above("a"), below("a", 0.15), known=[clear]) == IN_PART
    assert word(above("a"), above("b"), known=[clear, astride]) == IN_PART
    assert word(above("a", 0.3), known=[clear]) == NOT_HERE
    assert word(above("a", 0.3), above("b"), known=[clear, astride]) == NOT_HERE
    assert word(above("b"), known=[astride]) == UNDECIDED
    assert word(above("a"), above("c"), known=[clear]) == UNMEASURED
    assert word(above("a"), known=[clear], cannot="no such machine") == CANNOT
    assert word(between("a", 0.1, 0.2), known=[clear]) == HOLDS


def test_every_claim_can_be_judged_or_says_why_not():
    assert len(CLAIMS) >= 24
    assert {claim.document for claim in CLAIMS} == set(DOCUMENTS)
    assert len({claim.title for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert bool(claim.tests) != bool(claim.cannot), claim.title
        assert claim.command.startswith(("python studies/", "python benchmarks/")), claim.title


def test_a_measurement_is_written_with_its_interval_and_command(tmp_path, monkeypatch):
    file = tmp_path / "claims.jsonl"
    monkeypatch.setattr("sys.argv", ["/x/mixing.py", "--data", "/y/SST-2", "--ledger", str(file)])
    ledger = Ledger(file, "`sentiment`", "SST-2 dev")
    ledger.mean("a", [1.0, 2.0, float("nan"), 3.0])
    ledger.share("b", 9, 10)
    ledger.exact("c", 64, 64, "tokens")
    ledger.exact("a", 5, 1, "texts")  # the last one counts
    Ledger(file, "`larger`", "SST-2 dev", apart=True).exact("a", 7, 1, "texts")
    known = kept(file)
    first = json.loads(file.read_text().splitlines()[0])
    assert first["interval"] == pytest.approx([2 - 2.484, 2 + 2.484], abs=1e-3)  # t = 4.303
    assert first["count"] == 3
    assert known["b"].interval == pytest.approx((0.596, 0.982), abs=1e-3)
    assert known["c"].exact
    assert not known["b"].exact
    assert known["a"].value == 5
    assert known["a, `larger`"].value == 7
    assert known["a"].command == "python studies/mixing.py --data DATA/SST-2"
    assert set(known["a"].versions) == {"exhibit-a", "torch", "transformers"}
    assert kept(tmp_path / "none") == {}


def test_a_command_names_no_folder_of_this_machine():
    said = spoken(["studies/edges.py", "--data", "/a/b", "--sentences", "4", "--out", "/c/d.jsonl"])
    assert said == "python studies/edges.py --data DATA --sentences 4 --out OUT"
    said = spoken(["studies/mixing.py", "--base", "/a/mpnet", "--data", "/b/SST-2"])
    assert said == "python studies/mixing.py --base MODELS/mpnet --data DATA/SST-2"


def test_numbers_that_do_not_come_out_again_are_told(capsys):
    stored = {"a": found("a", 0.1, 0.3), "b": found("b", 0.1, 0.3), "c": found("c", 0, 1)}
    new = {"a": found("a", 0.25, 0.5), "b": found("b", 0.4, 0.5)}
    assert claims.compared(stored, new) == 1
    printed = capsys.readouterr().out
    assert "NOT again: b" in printed
    assert "\nagain: a" in "\n" + printed
    assert "1 of 3 stored ones take longer" in printed


def test_numbers_without_an_interval_are_judged_by_their_tests():
    name = "largest change of a logit with collapsed heads, float64"
    assert claims.alike(found(name, 2e-15, 2e-15), found(name, 9e-15, 9e-15))
    assert not claims.alike(found(name, 2e-15, 2e-15), found(name, 1e-3, 1e-3))


def test_studies_run_one_after_the_other_and_are_not_run_twice(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(claims, "STUDIES", ("mixing --data SST", "edges --out WORK/edges.jsonl"))
    study = SimpleNamespace(main=lambda: asked.append(sys.argv))
    monkeypatch.setattr(claims, "import_module", lambda name: study)
    for _ in range(2):
        command = [
            "claims.py",
            "again",
            "--data",
            str(tmp_path / "data"),
            "--work",
            str(tmp_path / "work"),
        ]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            claims.main()
        assert ended.value.code == 0
    ledger = ["--ledger", str(tmp_path / "work/claims.jsonl")]
    assert asked == [
        ["studies/mixing.py", "--data", str(tmp_path / "data/SST-2"), *ledger],
        ["studies/edges.py", "--out", str(tmp_path / "work/edges.jsonl"), *ledger],
    ]


def test_a_study_without_its_model_is_left_out(tmp_path):
    assert claims.absent_model("mixing --base sentiment --data SST", tmp_path) is None
    study = "causal --base MODELS/small --data DATA"
    assert claims.absent_model(study, tmp_path) == tmp_path / "small"
    (tmp_path / "small").mkdir()
    assert claims.absent_model(study, tmp_path) is None


def test_small_samples_never_replace_what_pages_are_made_of():
    keeping = ("mixing", "identifiability", "causal", "tasks")
    for study in claims.STUDIES:
        if study.startswith(keeping):
            assert claims.KEPT in study, study


def test_every_command_that_a_page_or_a_target_names_can_be_given(monkeypatch):
    """Options of a study that takes hours are tried by nobody else."""
    named = {claim.command for claim in claims.CLAIMS} | {
        found.command for found in kept().values()
    }
    given = [one.split("studies/")[1].replace(".py", "", 1) for one in named if "studies/" in one]
    for name, *arguments in (command.split() for command in (*given, *claims.STUDIES)):
        study = claims.import_module(name)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        monkeypatch.setattr(study, "parse", parsed_only)
        with pytest.raises(ParsedError):
            study.main()
        monkeypatch.setattr(study, "parse", parse)


class ParsedError(Exception):
    """A study would begin."""


def parsed_only(*asked, **given):
    parse(*asked, **given)
    raise ParsedError
