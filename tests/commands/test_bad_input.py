"""One line instead of a traceback: names, seeds, half characters and pipes that nobody expects."""

import os

import pytest
from support.words import save_tokenizer
from support.zoo import FAMILIES

from exhibit_a.commands.main import main

LONG = "x" * 5000
SEED = str(2**70)
ROWS = {
    "half-text.jsonl": r'{"sentence": "a \ud800 film", "label": "LABEL_0"}',
    "half-label.jsonl": r'{"sentence": "a film", "label": "\udfff"}',
    "half-pair.jsonl": r'{"sentence1": "a film", "sentence2": "\udc00", "label": "LABEL_0"}',
    "half-id.jsonl": r'{"id": "\udcff", "sentence": "a film", "label": "LABEL_0"}',
}
HALF = "half a character"
PIPE = "is a pipe or a device"
TOO_LONG = "File name too long"
BITS = "A seed has 64 bits"

# MODEL, DATA, PIPE and the names of ROWS stand for paths; then a word of the line that is expected.
CASES = [
    (["train", "MODEL", "DATA", "--out", ""], "Name a new one"),
    (["train", "MODEL", "DATA", "--out", LONG], TOO_LONG),
    (["train", "MODEL", LONG, "--out", "new"], TOO_LONG),
    (["train", LONG, "DATA", "--out", "new"], "Cannot load"),
    (["train", "MODEL", "DATA", "--out", "new", "--dev", LONG], TOO_LONG),
    (["train", "MODEL", "DATA", "--out", "new", "--teacher", LONG], "Cannot load"),
    (["train", "MODEL", "DATA", "--out", "new", "--seed", SEED], BITS),
    (["train", "MODEL", "DATA", "--out", "new", "--seed", f"-{SEED}"], BITS),
    (["train", "MODEL", "PIPE", "--out", "new"], PIPE),
    (["train", "MODEL", "DATA", "--out", "new", "--dev", "PIPE"], PIPE),
    (["train", "PIPE", "DATA", "--out", "new"], "Cannot load"),
    *((["train", "MODEL", name, "--out", "new"], HALF) for name in ROWS),
    (["prune", "DATA", "-m", "MODEL", "--remove", "0.3", "--save", ""], "Name a new one"),
    (["prune", "DATA", "-m", "MODEL", "--remove", "0.3", "--save", LONG], TOO_LONG),
    (["corpus", "run", "DATA", "-m", "MODEL", "--out", ""], "Name a new one"),
    (["corpus", "run", LONG, "-m", "MODEL", "--out", "new"], TOO_LONG),
    (["corpus", "run", "DATA", "-m", "MODEL", "--out", LONG], TOO_LONG),
    (["corpus", "run", "PIPE", "-m", "MODEL", "--out", "new"], PIPE),
    (["corpus", "run", "DATA", "-m", "MODEL", "--out", "new", "--seed", SEED], BITS),
    *((["corpus", "run", name, "-m", "MODEL", "--out", "new"], HALF) for name in ROWS),
    (["corpus", "resume", LONG], TOO_LONG),
    (["corpus", "resume", "PIPE"], "holds no corpus run"),
    (["corpus", "summary", LONG], TOO_LONG),
    (["corpus", "summary", "PIPE"], "holds no corpus run"),
    (["corpus", "diff", LONG, LONG], TOO_LONG),
    (["heads", LONG, "-m", "MODEL"], TOO_LONG),
    (["heads", "PIPE", "-m", "MODEL"], PIPE),
    (["heads", "DATA", "-m", "MODEL", "--against", LONG], TOO_LONG),
    (["heads", "DATA", "-m", "MODEL", "--against", "PIPE"], PIPE),
    (["heads", "half-label.jsonl", "-m", "MODEL"], HALF),
    (["heads", "DATA", "-m", "MODEL", "--out", LONG], TOO_LONG),
    (["tokens", LONG, "-m", "MODEL"], TOO_LONG),
    (["tokens", "DATA", "-m", "MODEL", "--seed", SEED], BITS),
    (["permute", "DATA", "-m", "MODEL", "--seed", SEED], BITS),
    (["faithful", "DATA", "-m", "MODEL", "--seed", SEED], BITS),
    (["explain", "a film", "-m", "MODEL", "--no-html", "--seed", SEED], BITS),
    (["explain", "a film", "-m", "MODEL", "--html", LONG], TOO_LONG),
    (["explain", "a film", "-m", "MODEL", "--html", ""], "not a file"),
    (["explain", "a film", "-m", "MODEL", "--no-html", "--out", LONG], TOO_LONG),
    (["explain", "a film", "-m", "MODEL", "--no-html", "--out", ""], "not a file"),
    (["explain", "a \udcff film", "-m", "MODEL", "--no-html"], HALF),
    (["explain", "a film", "-m", "MODEL", "--no-html", "--target", "\udcff"], r"\udcff"),
    (["adversary", "a film", "-m", "MODEL", "--seed", SEED], BITS),
    (["mixing", "a film", "-m", "MODEL", "--probes", "2", "--seed", SEED], BITS),
    (["effective", "a film", "-m", LONG], "There is no model"),
    (["effective", "a film", "-m", "PIPE"], "There is no model"),
    (["effective", "a film", "-m", "MODEL", "--plot", f"{LONG}.svg"], TOO_LONG),
    (["view", LONG], TOO_LONG),
    (["view", ""], "not a file"),
    (["view", "PIPE"], "not a file"),
    (["view", "DATA", "--html", LONG], TOO_LONG),
    (["doctor", LONG], "There is no model"),
    (["doctor", "\udcff"], r"\udcff"),
    (["doctor", ""], "There is no model"),
    (["serve", "-m", LONG], "There is no model"),
    (["serve", "--host", ""], "--host is empty"),
    (["context", "what?", "PIPE"], PIPE),
    (["context", "what?", LONG], TOO_LONG),
    (["context", "what?", "HUGE"], "is not text (it holds zero bytes)"),
    (["context", "what?", "half-text.jsonl"], HALF),
    (["context", "what?", "DATA", "--template", ""], "A template names"),
    (["context", "what?", "one", "two", "--answer", ""], "The answer is empty"),
    (["heads", "HUGE", "-m", "MODEL"], "is not text (it holds zero bytes)"),
    (["effective", "--messages", "PIPE", "-m", "MODEL"], "holds no messages"),
    (["effective", "--messages", "/dev/zero", "-m", "MODEL"], "holds no messages"),
    (["effective", "--messages", "HUGE", "-m", "MODEL"], "bytes"),
    (["effective", "--messages", "MODEL", "-m", "MODEL"], "folder"),
    (["effective", "a film", "-m", "MODEL", "--plot", "x"], "ending"),
    (["effective", "a film", "-m", "MODEL", "--plot", "x.docx"], ".docx"),
    (["effective", "a film", "-m", "MODEL", "--rows", "::0"], "steps of 0"),
    (["effective", "a film", "-m", "MODEL", "--rows", "99"], "There is no row 99"),
    (["adversary", "a film", "-m", "MODEL", "--restarts", str(2**64)], "too large"),
    (["adversary", "a film", "-m", "MODEL", "--restarts", str(2**60)], "too large"),
    (["train", "transformer", "PIPE", "--translations", "DATA", "--out", "new"], PIPE),
    (["train", "transformer", "DATA", "--translations", "HUGE", "--out", "new"], "too much"),
    (["train", "transformer", "DATA", "--out", "new"], "give --translations"),
    (["compare", "a film", "-m", "MODEL"], "Give a second text"),
    (["compare", "PIPE.safetensors", "PIPE.safetensors", "--no-html"], "there is no such file"),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    model = folder / "model"
    FAMILIES["bert"].build().save_pretrained(model)
    save_tokenizer(model)
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
    with pytest.raises(SystemExit) as left:
        main([paths.get(word, word) for word in words])
    told = capsys.readouterr()
    assert left.value.code == 2
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert expected in told.err
    assert list(tmp_path.iterdir()) == []
