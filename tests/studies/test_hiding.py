"""The study of hiding and deleting: its texts, its sums, and that it goes on where it stopped."""

import json
import sys
from collections import Counter

import hiding
import pytest
from prompts import DISTANCES, NAMES, PROMPTS, filler

TEXTS = ["a gripping film", "the plot is thin and the jokes are old , but the cast is a joy"]


def test_there_are_enough_prompts_of_every_kind():
    kinds = Counter(prompt.kind for prompt in PROMPTS)
    assert min(kinds.values()) >= 10
    assert len({prompt.text for prompt in PROMPTS}) == len(PROMPTS) >= 70
    for prompt in PROMPTS:
        assert prompt.answer is None or prompt.answer.startswith(" ")
        assert prompt.chat or not prompt.text.endswith(" ")


@pytest.mark.parametrize("tokens", DISTANCES)
def test_filler_is_always_the_same_and_names_nobody(tokens):
    assert filler(tokens) == filler(tokens)
    assert 0.8 < 1.2 * len(filler(tokens).split()) / tokens < 1.3
    assert not any(name in filler(tokens) for name in NAMES)


def test_a_text_is_judged_four_times_and_only_once_measured(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "SST-2"
    folder.mkdir(parents=True)
    (folder / "dev.tsv").write_text("sentence\tlabel\n" + "".join(f"{t}\t1\n" for t in TEXTS))
    given = {"--data": tmp_path / "data", "--work": tmp_path / "work", "--twice": 1}
    given["--out"] = tmp_path / "hiding.json"
    arguments = [str(part) for pair in given.items() for part in pair]
    monkeypatch.setattr(sys, "argv", ["hiding.py", *arguments])
    hiding.main()
    rows = (tmp_path / "work/sentiment.jsonl").read_text()
    first = json.loads(rows.splitlines()[0])
    assert [len(json.loads(line)["hide"]) for line in rows.splitlines()] == [2, 1]
    assert first["hide"][0]["maps"].keys() == {*hiding.MAPS, hiding.OF_CLASSIFIERS}
    found = json.loads((tmp_path / "hiding.json").read_text())["sentiment"]
    assert (found["texts"], found["twice"], found["refused"]) == (2, 1, 0)
    hiding.main()
    assert (tmp_path / "work/sentiment.jsonl").read_text() == rows


def entry(advice, p):
    judged = {"advice": advice, "p": p, "loss": 2.0, "probability_loss": 0.5}
    return {"passes": 9, "maps": {"raw": judged}}


def test_sums_are_shares_of_texts():
    rows = [
        {"hide": [entry("show", 0.01)] * 2, "delete": [entry("show", 0.01), entry("caution", 0.2)]},
        {"hide": [entry("caution", 0.2)], "delete": [entry("show", 0.05)]},
        {"refused": "There is no token in this text that could be taken away."},
    ]
    found = hiding.summary([*rows, rows[0]])
    raw = found["maps"]["raw"]
    assert (found["texts"], found["refused"], found["twice"]) == (3, 1, 2)
    assert raw["agreement"]["value"] == pytest.approx(2 / 3)
    assert raw["hide"]["better"]["value"] == pytest.approx(2 / 3)
    assert (raw["hide"]["steady"]["value"], raw["delete"]["steady"]["value"]) == (1, 0)
    assert raw["delete"]["better"]["value"] == 1
