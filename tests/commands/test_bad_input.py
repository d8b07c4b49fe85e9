"""One line instead of a traceback: names, seeds, half characters and pipes that nobody expects."""

import os

import pytest
from support.command import refusal
from support.corpora import save_model

LONG = "x" * 5000
SEED = str(2**70)
ROWS = {
    "half-text.jsonl": r'{"sentence": "a \ud800 film", "label": "LABEL_0"}',
    "half-label.jsonl": r'{"sentence": "a film", "label": "\udfff"}',
    "half-pair.jsonl": r'{"sentence1": "a film", "sentence2": "\udc00", "label": "LABEL_0"}',
    "half-id.jsonl": r'{"id": "\udcff", "sentence": "a film", "label": "LABEL_0"}',
}
HALF = "half a character"
PIPE = "pipe"
TOO_LONG = "too long"
BITS = "64 bits"

# MODEL, DATA, PIPE and the names of ROWS stand for paths; then a word of the line that is expected.
CASES = [
    (["train", "MODEL", "DATA", "--out", ""], "new"),
    (["train", "MODEL", "DATA", "--out", LONG], TOO_LONG),
    (["train", LONG, "DATA", "--out", "new"], "Cannot load"),
    (["train", "MODEL", "DATA", "--out", "new", "--seed", SEED], BITS),
    (["train", "MODEL", "PIPE", "--out", "new"], PIPE),
    *((["train", "MODEL", name, "--out", "new"], HALF) for name in ROWS),
    (["prune", "DATA", "-m", "MODEL", "--remove", "0.3", "--save", ""], "new"),
    (["corpus", "run", "DATA", "-m", "MODEL", "--out", LONG], TOO_LONG),
    *((["corpus", "run", name, "-m", "MODEL", "--out", "new"], HALF) for name in ROWS),
    (["corpus", "resume", LONG], TOO_LONG),
    (["corpus", "resume", "PIPE"], "corpus run"),
    (["heads", "PIPE", "-m", "MODEL"], PIPE),
    (["heads", "half-label.jsonl", "-m", "MODEL"], HALF),
    (["explain", "a film", "-m", "MODEL", "--no-html", "--seed", SEED], BITS),
    (["explain", "a film", "-m", "MODEL", "--html", LONG], TOO_LONG),
    (["explain", "a film", "-m", "MODEL", "--html", ""], "not a file"),
    (["explain", "a \udcff film", "-m", "MODEL", "--no-html"], HALF),
    (["explain", "a film", "-m", "MODEL", "--no-html", "--target", "\udcff"], r"\udcff"),
    (["adversary", "a film", "-m", "MODEL", "--seed", SEED], BITS),
    (["effective", "a film", "-m", "PIPE"], "no model"),
    (["effective", "a film", "-m", "MODEL", "--plot", f"{LONG}.svg"], TOO_LONG),
    (["view", ""], "not a file"),
    (["view", "PIPE"], "not a file"),
    (["doctor", LONG], "no model"),
    (["doctor", "\udcff"], r"\udcff"),
    (["serve", "--host", ""], "--host"),
    (["context", "what?", "PIPE"], PIPE),
    (["context", "what?", "HUGE"], "zero bytes"),
    (["context", "what?", "half-text.jsonl"], HALF),
    (["context", "what?", "DATA", "--template", ""], "template"),
    (["context", "what?", "one", "two", "--answer", ""], "empty"),
    (["effective", "--messages", "PIPE", "-m", "MODEL"], "messages"),
    (["effective", "--messages", "/dev/zero", "-m", "MODEL"], "messages"),
    (["effective", "--messages", "HUGE", "-m", "MODEL"], "bytes"),
    (["effective", "--messages", "MODEL", "-m", "MODEL"], "folder"),
    (["effective", "a film", "-m", "MODEL", "--plot", "x"], "ending"),
    (["effective", "a film", "-m", "MODEL", "--plot", "x.docx"], ".docx"),
    (["effective", "a film", "-m", "MODEL", "--rows", "::0"], "steps of 0"),
    (["effective", "a film", "-m", "MODEL", "--rows", "99"], "99"),
    (["adversary", "a film", "-m", "MODEL", "--restarts", str(2**64)], "too large"),
    (["train", "transformer", "PIPE", "--translations", "DATA", "--out", "new"], PIPE),
    (["train", "transformer", "DATA", "--translations", "HUGE", "--out", "new"], "too much"),
    (["train", "transformer", "DATA", "--out", "new"], "--translations"),
    (["compare", "a film", "-m", "MODEL"], "second text"),
    (["compare", "PIPE.safetensors", "PIPE.safetensors", "--no-html"], "no such file"),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    model = folder / "model"
    save_model(model)
    data = folder / "data.tsv"
    data.write_text("sentence\tlabel\n" + "a fine film\tLABEL_1\na dull plot\tLABEL_0\n" * 8)
    for name, row in ROWS.items():
        (folder / name).write_text(f"{row}\n")
    os.mkfifo(folder / "pipe.tsv")
    with (folder / "huge.tsv").open("wb") as huge:
        huge.truncate(2**40)
    named = {"MODEL": model, "DATA": data, "PIPE": folder / "pipe.tsv", "HUGE": folder / "huge.tsv"}
    return {word: str(path) for word, path in named.items()} | {n: str(folder / n) for n in ROWS}


@pytest.mark.parametrize(
    ("words", "expected"), CASES, ids=[" ".join(w)[:60].encode("unicode_escape") for w, _ in CASES]
)
def test_it_is_one_line(capsys, monkeypatch, tmp_path, paths, words, expected):
    monkeypatch.chdir(tmp_path)
    assert expected in refusal(capsys, *(paths.get(word, word) for word in words))
    assert list(tmp_path.iterdir()) == []
