"""Words of foreign origin reach a terminal or a pipe with their control characters shown."""

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console
from support.cases import tiny_trial
from support.command import run
from support.words import save_tokenizer
from support.zoo import FAMILIES

from exhibit_a.control_characters import escape_controls, visible_json
from exhibit_a.progress import progress_bar
from exhibit_a.report.terminal import show

TITLE = "\x1b]0;owned\x07"  # sets the title of a window
HOSTILE = {
    "title": TITLE,
    "clipboard": "\x1b]52;c;b3duZWQ=\x1b\\",
    "clear": "\x1b[2J\x1b[H",
    "colour": "\x1b[31mred",
    "C1": "\x9b2J\x9d0;owned\x9c",
    "backspace": "good\b\b\b\bbad",
    "return": "good\rerror",
    "bidi": "\u202edoog\u2066",
    "marks": "\u200e\u200f\u061c",
    "delete": "a\x7fb",
    "bell": "\a\v\f",
    "half": "\ud800",
    "lines": "a\u2028b\u2029c\x85d",
}
ORDERS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
COLOUR = re.compile(r"\x1b\[[\d;]*m")  # rich's own, on a terminal
CURSOR = re.compile(r"\r|\x1b\[\?25[lh]|\x1b\[\d*[AK]")  # of a bar


def model(folder, **names):
    """A tiny model with these labels."""
    labels = dict(enumerate(names.values()))
    built = FAMILIES["bert"].build(num_labels=len(labels))
    built.config.id2label, built.config.label2id = labels, {v: k for k, v in labels.items()}
    built.save_pretrained(folder)
    save_tokenizer(folder)
    return str(folder)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    return model(tmp_path_factory.mktemp("hostile"), **HOSTILE)


VERBS = {
    "doctor": ["doctor", "MODEL", "--text", "a fine film"],
    "explain": ["explain", "a fine film", "-m", "MODEL", "--no-html"],
    "attribute": ["attribute", "a fine film", "-m", "MODEL"],
    "heads": ["heads", "DATA", "-m", "MODEL", "--limit", "2"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    rows = [{"sentence": "a fine film", "label": word} for word in (TITLE, HOSTILE["bidi"])]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize("place", ["pipe", "terminal"])
@pytest.mark.parametrize("verb", VERBS)
def test_labels_are_shown_and_not_sent(capsys, monkeypatch, labelled, data, verb, place):
    if place == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    named = {"MODEL": labelled, "DATA": data}
    code, out, err = run(capsys, *(named.get(word, word) for word in VERBS[verb]))
    assert code == 0
    assert bool(COLOUR.search(out)) == (place == "terminal")
    assert not ORDERS.findall(COLOUR.sub("", out))
    assert not ORDERS.findall(CURSOR.sub("", COLOUR.sub("", err)))
    if verb == "doctor":
        for word in HOSTILE.values():
            assert escape_controls(word) in COLOUR.sub("", out)


def test_machines_get_the_same_words(capsys, labelled):
    code, out, _ = run(capsys, "doctor", labelled, "--json")
    assert code == 0
    assert not ORDERS.findall(out)
    assert json.loads(out)["labels"] == list(HOSTILE.values())


@pytest.mark.parametrize("word", HOSTILE.values(), ids=HOSTILE)
def test_error_lines_show_them(capsys, tmp_path, labelled, word):
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({f"column {word}": "a film", "gold": word}))
    asked = [
        ("doctor", f"no{word}model"),
        ("heads", data, "-m", labelled),
        (
            "heads",
            data,
            "-m",
            labelled,
            "--text",
            f"column {word}",
            "--label",
            "gold",
            "--by",
            word,
        ),
        ("explain", "a film", "-m", labelled, "--no-html", "--target", f"{word} none"),
        (f"{word}verb",),
        ("doctor", f"--{word}"),
        ("view", tmp_path / f"no {word}"),
    ]
    for words in asked:
        code, out, err = run(capsys, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert not ORDERS.findall(err)


def test_bars_show_them(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar(f"first {TITLE}") as bar:
        bar.stage(f"second {TITLE}", 1, 2)
        bar.note(f"third {TITLE}")
    err = COLOUR.sub("", capsys.readouterr().err)
    assert escape_controls(TITLE) in err
    assert not ORDERS.findall(CURSOR.sub("", err))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_result_shows_them_on_any_console(terminal):
    words = tuple(f"{TITLE}{n}" for n in range(len(tiny_trial().tokens)))
    trial = replace(tiny_trial(), tokens=words, answer=dict.fromkeys(HOSTILE.values(), 0.5))
    file = io.StringIO()
    show(trial, console=Console(file=file, force_terminal=terminal, width=120))
    assert escape_controls(TITLE) in COLOUR.sub("", file.getvalue())
    assert not ORDERS.findall(COLOUR.sub("", file.getvalue()))


def test_every_control_character_has_a_visible_form():
    for number in [*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)]:
        shown = escape_controls(f"a{chr(number)}b", lines=False)
        assert shown.isascii()
        assert shown.isprintable()
        assert json.loads(visible_json(chr(number))) == chr(number)
