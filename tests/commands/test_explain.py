"""The main command, end to end: a screen, a page, JSON, and one line for mistakes."""

import json

import pytest
from support.command import run

from exhibit_a.results.store import read
from exhibit_a.trials.verdict import WORDS

LONG = "the plot is not great but acting saves it . really a very fine film , not dull"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def explain(capsys, *words):
    return run(capsys, "explain", *words)


def test_for_machines_and_for_later(capsys, folder, here):
    words = (LONG, "-m", folder, "--json", "--no-html", "--out", "trial", "--plot", "trial.svg")
    code, out, _ = explain(capsys, *words, "--target", "LABEL_2")
    told = json.loads(out)
    assert code == 0
    assert told["target"] == "probability of LABEL_2"
    assert len(told["heads"]) == 12
    assert told["heads"][0]["word"] in WORDS
    assert told["advice"]
    assert told["reliance"]["target"] == "log odds of LABEL_2"
    assert all(len(each["scores"]) == len(each["words"]) for each in told["heat_maps"])
    assert len(told["token_scores"]) == len(told["tokens"])
    assert told["written"] == ["trial", "trial.svg"]
    assert "seconds" not in told  # so that the same seed gives the same bytes
    assert read(here / "trial").verdict == told["verdict"]
    assert sorted(file.name for file in here.iterdir()) == ["trial", "trial.svg"]


def test_a_screen_and_a_page(capsys, folder, here):
    code, out, err = explain(capsys, LONG, "--model", folder, "--timing")
    assert (code, err) == (0, "")
    assert "verdict: " in out
    assert "together" in out
    assert out.endswith("written to report.html\n")
    page = (here / "report.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert [file.name for file in here.iterdir()] == ["report.html"]
