"""The command line, end to end: what people read, what machines read, and one line for mistakes."""

import json
import re
import socket
from functools import cache
from importlib.metadata import version

import pytest
from support.command import refusal, run
from support.words import plain_tokenizer
from support.zoo import DECODER, Family

from exhibit_a.commands.options import load_quietly
from exhibit_a.methods.registry import commands
from exhibit_a.results.store import read


def test_the_doctor_speaks_to_machines(capsys, folder):
    code, out, _ = run(capsys, "doctor", folder, "--json", "--text", "a fine film")
    told = json.loads(out)
    assert code == 0
    assert (told["tap"], told["parity"], told["identifiable_up_to"]) == ("registry", 0.0, 8)
    assert sum(told["answer"].values()) == pytest.approx(1)
    refused = {m["method"]: m["reason"] for m in told["methods"] if not m["applies"]}
    assert refused == {"context_attribution": "only a language model goes on with a text"}


def test_mistakes_get_one_line(capsys, folder, tmp_path):
    assert "not among the embedded ones" in refusal(capsys, "doctor", "sentimant")
    assert "holds no model" in refusal(capsys, "doctor", tmp_path)
    assert "empty" in refusal(capsys, "doctor", folder, "--text", " ")
    long = "very " * 100
    assert "102 tokens and the model takes 64" in refusal(capsys, "doctor", folder, "--text", long)
    assert "takes 1 to 64" in refusal(capsys, "doctor", folder, "--length", 65)
    assert "No such option" in refusal(capsys, "doctor", "--nonsense")
    data = tmp_path / "data.tsv"
    data.write_text("sentence\tlabel\nfine film\tgood\ndull plot\tbad\n")
    words = ("train", folder, data, "--out", tmp_path / "out")
    assert "learning_rate is nan" in refusal(capsys, *words, "--learning-rate", "nan")
    assert "cannot be made" in refusal(capsys, *words[:-1], data / "out", "--dev", data)


def test_a_traceback_only_comes_when_asked_for(capsys, tmp_path):
    assert str(tmp_path) in refusal(capsys, "doctor", tmp_path)
    code, told, err = run(capsys, "doctor", tmp_path, "--debug")
    assert (code, told) == (1, "")
    assert "Traceback" in err


LONG = "the plot is not great but acting saves it . really a very fine film , not dull"


def test_effective_attention_from_the_command_line(capsys, folder, tmp_path):
    out, plot = tmp_path / "result.safetensors", tmp_path / "map.svg"
    code, told, _ = run(capsys, "effective", LONG, "--model", folder, "--out", out, "--plot", plot)
    assert code == 0
    assert "layer" in told
    assert "largest change of a head's output" in told
    assert read(out).provenance.method == "effective_attention"
    assert plot.read_text().startswith("<?xml")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """Labelled texts; some of each class, none of them twice."""
    path = tmp_path_factory.mktemp("data") / "reviews.tsv"
    words = ["a", "fine", "film", "is", "not", "dull", "and", "the", "acting", "was", "good", "bad"]
    rows = [
        f"{' '.join(words[(start + step) % len(words)] for step in range(3 + start % 4))}\t"
        f"LABEL_{start % 2}"
        for start in range(12)
    ]
    path.write_text("sentence\tlabel\n" + "\n".join(rows) + "\n")
    return path


def rows_of(capsys, *words):
    code, out, err = run(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)["rows"]


def test_attribution_and_tree_from_the_command_line(capsys, folder, tmp_path):
    rows = rows_of(capsys, "attribute", "a fine film", "--model", folder, "--top", 3)
    assert len(rows) == 3
    assert abs(rows[0]["contribution"]) >= abs(rows[1]["contribution"])
    drawn = tmp_path / "tree.svg"
    code, out, _ = run(capsys, "tree", "a fine film", "--model", folder, "--plot", drawn)
    assert code == 0
    assert drawn.exists()
    assert "→ probability of LABEL_0" in out


def test_shuffling_and_erasing_from_the_command_line(capsys, folder, reviews):
    rows = rows_of(capsys, "permute", reviews, "--model", folder, "--repeats", 2, "--limit", 6)
    assert all(0 <= row["accuracy"] <= 1 for row in rows)
    words = ("faithful", reviews, "--model", folder, "--limit", 4, "--by", "raw,gradient_input")
    assert {row["attribution"] for row in rows_of(capsys, *words)} == {
        "raw",
        "gradient_input",
        "random",
    }
    assert "shap" in refusal(capsys, "faithful", reviews, "--model", folder, "--by", "tarot")


def test_heads_from_the_command_line(capsys, folder, reviews, tmp_path):
    rows = rows_of(capsys, "heads", reviews, "--model", folder, "--top", 4)
    assert [row["importance"] for row in rows] == sorted(
        (row["importance"] for row in rows), reverse=True
    )
    _, out, _ = run(capsys, "heads", reviews, "--model", folder, "--against", reviews)
    assert "Pearson 1.00 (1.00 to 1.00)" in " ".join(out.split())
    rows = rows_of(capsys, "prune", reviews, "--model", folder, "--rank-on", 6)
    assert rows[0]["heads_gone"] == 0
    assert rows[-1]["share"] == 1


def test_a_pruned_model_is_saved_from_the_command_line(capsys, folder, reviews, tmp_path):
    words = ("prune", reviews, "--model", folder, "--rank-on", 6)
    assert "--remove" in refusal(capsys, *words, "--save", tmp_path / "small")
    (row,) = rows_of(capsys, *words, "--remove", 0.25)
    assert row["parameters"] < row["of"]
    assert row["answers_differ_by"] < 1e-4


def test_triggers_from_the_command_line(capsys, tmp_path):
    """With the embedded model: answers of a tiny random one rest on nothing."""
    data = tmp_path / "films.tsv"
    words = "the plot is a little thin at the end , some jokes fall flat and the hero never finds"
    texts = [" ".join(words.split()[i : i + 8]) for i in range(0, 10, 2)]
    lines = [f"{text}\t{('negative', 'positive')[i % 2]}" for i, text in enumerate(texts)]
    data.write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    patterns = rows_of(capsys, "triggers", data, "--count", 2)
    assert 1 <= len(patterns) <= 4
    assert all(row["score"] > 0 and row["pattern"] for row in patterns)
    attacked = rows_of(capsys, "triggers", data, "--attack", data, "--count", 2)
    assert {row["pattern"] for row in attacked} == {row["pattern"] for row in patterns}
    assert {row["class"] for row in attacked} == {"negative", "positive"}
    for row in attacked:
        low, high = row["interval"]
        assert 0 <= low <= row["after"] <= high <= 1


@pytest.fixture
def idle(monkeypatch):
    """Whoever begins to work on a model is found out."""

    def work(*_, **__):
        raise AssertionError("work began before the request was checked")

    for name in (
        "heads.importance.head_importance",
        "triggers.triggers.find_triggers",
        "attribution.path_integral.integrate",
    ):
        monkeypatch.setattr(f"exhibit_a.methods.{name}", work)
    monkeypatch.setattr("exhibit_a.commands.options.load_quietly", cache(load_quietly))


WORKING = {
    "explain": ("a fine film", "--no-html"),
    **dict.fromkeys(("effective", "mixing", "attribute", "tree", "adversary"), ("a fine film",)),
    **dict.fromkeys(("tokens", "permute", "faithful", "heads", "prune", "triggers"), ("no.tsv",)),
}


@pytest.mark.parametrize("verb", WORKING)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(capsys, tmp_path, verb):
    asked = (verb, *WORKING[verb], "--model", "no such model")
    place = tmp_path / "nofolder" / "x.svg"
    for option in ("--out", "--plot"):
        assert f"no folder {place.parent}" in refusal(capsys, *asked, option, place)
    assert "choose" in refusal(capsys, *asked, "--plot", tmp_path / "x.doc")


@pytest.mark.usefixtures("idle")
def test_bad_input_is_refused_before_the_work(capsys, folder, reviews, tmp_path):
    def told(*words):
        return refusal(capsys, *words, "--model", folder)

    assert "--rank-on 200 leaves none of the 12" in told("prune", reviews)
    unlabelled = tmp_path / "unlabelled.tsv"
    unlabelled.write_text("sentence\na fine film\nnot dull\n")
    for verb, option in (("heads", "--against"), ("triggers", "--attack")):
        assert "nofile" in told(verb, reviews, option, tmp_path / "nofile")
        assert "label" in told(verb, reviews, option, unlabelled)
    assert "choose greedy, exact" in told("tree", "a fine film", "--algorithm", "best")
    ordered = tmp_path / "ordered.tsv"
    ordered.write_text("sentence\tlabel\nfine\t1\nfilm\t0\ndull\t0\nbad\t0\n")
    assert "the 2 examples to judge by has" in told("prune", ordered, "--rank-on", 2)
    assert "the 1 examples to rank on has" in told("prune", ordered, "--rank-on", 1)


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        (("effective", LONG, "--by-length", "--pair", "too"), "--pair"),
        (("effective", LONG, "--by-length", "--simplex"), "--simplex"),
        (("effective", LONG, "--by-length", "--value-bias", "nonsense"), "--value-bias"),
        (("mixing", LONG, "--exact", "--probes", 4), "--probes"),
        (("explain", LONG, "--no-html", "--html", "page.html"), "--html"),
        (("adversary", LONG, "--label", "gold"), "--label"),
        (("adversary", "--keys", "no.tsv", "--epsilon", 0.1), "--epsilon"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(capsys, words, idle):
    assert refusal(capsys, *words).startswith(f"error: {idle} has no meaning with")


@pytest.mark.usefixtures("idle")
def test_what_cannot_be_removed_or_saved_is_refused_before_the_work(
    capsys, folder, reviews, tmp_path
):
    for option in ("--order", "--scope"):
        asked = ("prune", reviews, "--remove", 0.1, option, "foo")
        assert "There is no" in refusal(capsys, *asked, "--model", "no such model")
    for taken in (reviews.parent, reviews / "y"):
        asked = ("prune", reviews, "--remove", 0.1, "--save", taken)
        assert str(taken) in refusal(capsys, *asked, "--model", "no such model")
    asked = ("prune", reviews, "--model", folder, "--remove")
    assert "is none of them" in refusal(capsys, *asked, 0.01)
    told = refusal(capsys, *asked, 0.5, "--save", tmp_path / "y")  # BERT can never say it
    assert "ties the width of heads to their number" in told


def test_a_smaller_model_is_saved_when_every_site_loses_as_many_heads(
    capsys, reviews, tmp_path_factory, tmp_path
):
    model, place = tmp_path_factory.mktemp("llama"), tmp_path / "nofolder" / "y"
    options = DECODER | {"num_key_value_heads": 4, "num_labels": 2}
    Family("LlamaForSequenceClassification", options).build().save_pretrained(model)
    plain_tokenizer().save_pretrained(model)
    words = ("prune", reviews, "--model", model, "--rank-on", 6, "--save", place, "--remove")
    assert "--scope site" in refusal(capsys, *words, 0.2)
    assert list(tmp_path.iterdir()) == []
    plot = tmp_path / "smaller.svg"
    (row,) = rows_of(capsys, *words, 0.5, "--scope", "site", "--order", "most", "--plot", plot)
    assert row["can_be_saved"]
    assert plot.exists()
    assert json.loads(run(capsys, "doctor", place, "--json")[1])["heads"] == [2]


def test_a_server_that_cannot_listen_is_not_announced(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = ("serve", "--model", "no such model", "--port", port)
        assert "Address already in use" in refusal(capsys, *asked)
        assert "300.1.1.1" in refusal(capsys, *asked, "--host", "300.1.1.1")
    assert "There is no model" in refusal(capsys, *asked)
    socket.create_server(("127.0.0.1", port)).close()  # nobody listens there any more


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("effective", "a film", "--out", "same.svg", "--plot", "same.svg"), "--out and --plot"),
        (
            ("effective", "a film", "--out", "./same.svg", "--plot", "here/same.svg"),
            "--out and --plot",
        ),
        (("explain", "a film", "--out", "page.html", "--html", "page.html"), "--out and --html"),
        (("explain", "a film", "--out", "report.html"), "--out and --html"),
        (("view", "kept.safetensors", "--html", "kept.safetensors"), "RESULT and --html"),
        (("permute", "texts.tsv", "--out", "texts.tsv"), "DATA and --out"),
        (("prune", "texts.tsv", "--save", "smaller", "--out", "smaller"), "--save and --out"),
        (("context", "what?", "texts.tsv", "--out", "texts.tsv"), "PASSAGES and --out"),
        (("context", "what?", "texts.tsv", "--html", "here/texts.tsv"), "PASSAGES and --html"),
        (
            ("compare", "kept.safetensors", "other.safetensors", "--out", "kept.safetensors"),
            "FIRST and --out",
        ),
        (("compare", "a", "b", "--out", "compare.html"), "--out and --html"),
    ],
)
def test_two_options_cannot_name_one_file(capsys, tmp_path, monkeypatch, words, names):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").symlink_to(tmp_path)
    for name in ("kept.safetensors", "texts.tsv"):
        (tmp_path / name).write_text("mine")
    error = refusal(capsys, *words)
    assert all(name in error for name in names.split(" and "))
    assert "name one file" in error
    assert (tmp_path / "kept.safetensors").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


def test_people_read_words_and_machines_tokens_unless_they_ask(capsys):
    asked = ("attribute", "it never drags", "--top", 3)
    _, out, _ = run(capsys, *asked)
    assert "drags" in out
    assert "##" not in out
    assert "##s" in run(capsys, *asked, "--tokens")[1] + run(capsys, *asked, "--json")[1]
    told = json.loads(run(capsys, *asked, "--json", "--words")[1])
    assert told["tokens"] == ["[CLS]", "it", "never", "drags", "[SEP]"]
    assert told["checks"]["units"] == "words"


@pytest.mark.parametrize(
    ("words", "word"),
    [((), "Usage"), (("--debug",), "Usage"), (("--version",), version("exhibit-a"))],
)
def test_without_a_verb_there_is_help(capsys, words, word):
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert word in out


def test_the_help_lists_every_verb(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(re.search(rf"\b{verb}\b", out) for verb in commands())
