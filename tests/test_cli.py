"""The command line, end to end: what people read, what machines read, and one line for mistakes."""

import json
import subprocess
import sys

import pytest
from words import save_tokenizer
from zoo import FAMILIES

from exhibit_a.cli import main
from exhibit_a.store import read


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    FAMILIES["bert"].build().save_pretrained(path)
    save_tokenizer(path)
    return str(path)


def run(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    told = capsys.readouterr()
    return left.value.code, told.out, told.err


def refusal(capsys, *words):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_the_doctor_says_what_the_model_allows(capsys, folder):
    code, out, _ = run(capsys, "doctor", folder, "--length", 12, "--text", "a fine film")
    assert code == 0
    for word in ("registry tap", "parity 0.0e+00", "up to 8 visible keys", "effective_attention"):
        assert word in " ".join(out.split())
    assert "LABEL_0" in out


def test_the_doctor_speaks_to_machines(capsys, folder):
    code, out, _ = run(capsys, "doctor", folder, "--json", "--text", "a fine film")
    told = json.loads(out)
    assert code == 0
    assert (told["tap"], told["parity"], told["identifiable_up_to"]) == ("registry", 0.0, 8)
    assert sum(told["answer"].values()) == pytest.approx(1)
    refused = {m["method"]: m["reason"] for m in told["methods"] if not m["applies"]}
    assert refused == {}


def test_the_doctor_says_why_a_method_does_not_apply(capsys, tmp_path):
    FAMILIES["llama"].build().save_pretrained(tmp_path)
    _, out, _ = run(capsys, "doctor", tmp_path, "--json")
    told = json.loads(out)
    refused = {m["method"]: m["reason"] for m in told["methods"] if not m["applies"]}
    assert "no tokenizer" in refused["identifiability_by_length"]
    assert told["variants"] == ["grouped keys", "causal"]


def test_mistakes_get_one_line(capsys, folder, tmp_path):
    assert "not among the embedded ones" in refusal(capsys, "doctor", "sentimant")
    assert "holds no model" in refusal(capsys, "doctor", tmp_path)
    assert "empty" in refusal(capsys, "doctor", folder, "--text", " ")
    long = "very " * 100
    assert "102 tokens and the model takes 64" in refusal(capsys, "doctor", folder, "--text", long)
    assert "takes 1 to 64" in refusal(capsys, "doctor", folder, "--length", 65)
    assert "No such option" in refusal(capsys, "doctor", "--nonsense")


def test_truncate_does_what_the_message_says(capsys, folder):
    code, _, _ = run(capsys, "doctor", folder, "--text", "very " * 100, "--truncate", "--json")
    assert code == 0


def test_training_from_the_command_line(capsys, folder, tmp_path):
    rows = ["sentence\tlabel"] + ["fine great film\tgood", "dull dull plot\tbad"] * 12
    data = tmp_path / "data.tsv"
    data.write_text("\n".join(rows))
    out = tmp_path / "trained"
    code, told, _ = run(capsys, "train", folder, data, "--out", out, "--epochs", 1, "--dev", data)
    assert code == 0
    assert str(out) in "".join(told.split())
    assert json.loads((out / "config.json").read_text())["id2label"] == {"0": "bad", "1": "good"}


def test_a_missing_column_lists_the_columns(capsys, folder, tmp_path):
    data = tmp_path / "data.tsv"
    data.write_text("sentence\tlabel\nfine\t1\ndull\t0\n")
    line = refusal(capsys, "train", folder, data, "--out", tmp_path / "o", "--label", "gold")
    assert "gold" in line
    assert "sentence" in line
    assert not (tmp_path / "o").exists()


def test_a_traceback_only_comes_when_asked_for(tmp_path):
    command = [sys.executable, "-m", "exhibit_a", "doctor", str(tmp_path)]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert (plain.returncode, plain.stderr.count("\n")) == (2, 1)
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True)
    assert "Traceback" in debug.stderr


LONG = "the plot is not great but acting saves it . really a very fine film , not dull"


def test_effective_attention_from_the_command_line(capsys, folder, tmp_path):
    out, plot = tmp_path / "result.safetensors", tmp_path / "map.svg"
    code, told, _ = run(capsys, "effective", LONG, "--model", folder, "--out", out, "--plot", plot)
    assert code == 0
    assert "encoder 2" in told
    assert "largest change of a head's output" in told
    assert read(out).provenance.method == "effective_attention"
    assert plot.read_text().startswith("<?xml")


def test_effective_attention_for_machines(capsys, folder):
    code, told, _ = run(capsys, "effective", LONG, "--model", folder, "--json")
    answer = json.loads(told)
    assert code == 0
    assert [row["nullity"] for row in answer["rows"]] == [len(answer["tokens"]) - 8] * 3
    assert answer["checks"]["parity"] == 0


def test_effective_attention_by_length(capsys, folder):
    code, told, _ = run(capsys, "effective", LONG, "--model", folder, "--by-length", "--json")
    rows = {row["tokens"]: row for row in json.loads(told)["rows"]}
    assert code == 0
    assert rows[8]["pearson"] == 1
    assert rows[9]["pearson"] < 1


def test_a_plot_of_no_known_kind_leaves_nothing_behind(capsys, folder, tmp_path):
    line = refusal(capsys, "effective", LONG, "--model", folder, "--plot", tmp_path / "map.txt")
    assert "choose" in line
    assert list(tmp_path.iterdir()) == []
