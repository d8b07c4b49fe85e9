"""The command line, end to end: what people read, what machines read, and one line for mistakes."""

import json
import re
import socket
from functools import cache
from importlib.metadata import version

import pytest
from support.command import refusal, run
from support.words import plain_tokenizer, save_tokenizer
from support.zoo import DECODER, FAMILIES, Family

from exhibit_a.commands.options import load_quietly
from exhibit_a.progress import progress_bar
from exhibit_a.results.store import read


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    FAMILIES["bert"].build().save_pretrained(path)
    save_tokenizer(path)
    return str(path)


def test_the_doctor_says_what_the_model_allows(capsys, folder):
    code, out, _ = run(capsys, "doctor", folder, "--length", 12, "--text", "a fine film")
    assert code == 0
    for word in ("registry tap", "parity 0 ", "up to 8 visible keys", "effective_attention"):
        assert word in " ".join(out.split())
    assert "LABEL_0" in out


def test_the_doctor_speaks_to_machines(capsys, folder):
    code, out, _ = run(capsys, "doctor", folder, "--json", "--text", "a fine film")
    told = json.loads(out)
    assert code == 0
    assert (told["tap"], told["parity"], told["identifiable_up_to"]) == ("registry", 0.0, 8)
    assert sum(told["answer"].values()) == pytest.approx(1)
    refused = {m["method"]: m["reason"] for m in told["methods"] if not m["applies"]}
    assert refused == {"context_attribution": "only a language model goes on with a text"}


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
    data = tmp_path / "data.tsv"
    data.write_text("sentence\tlabel\nfine film\tgood\ndull plot\tbad\n")
    words = ("train", folder, data, "--out", tmp_path / "out")
    assert "learning_rate is nan" in refusal(capsys, *words, "--learning-rate", "nan")
    assert "cannot be made" in refusal(capsys, *words[:-1], data / "out", "--dev", data)


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


def test_a_table_can_be_read_in_80_columns(capsys, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, told, _ = run(capsys, "effective", LONG, "--model", folder)
    assert "…" not in told
    assert {"nullity", "Pearson", "fraction", "special"} <= set(told.split())


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


def test_labels_texts_and_folders_are_printed_as_they_are_written(capsys, folder, tmp_path):
    data, out = tmp_path / "data.tsv", tmp_path / "[red]:smile:"
    rows = ["fine great film\t[red]good", "dull dull plot\t[/bold]bad"] * 12
    data.write_text("\n".join(["sentence\tlabel", *rows]))
    code, told, _ = run(capsys, "train", folder, data, "--out", out, "--epochs", 1, "--dev", data)
    assert (code, told) == (0, f"saved in {out}\n")
    code, told, _ = run(capsys, "doctor", out, "--text", "a [/bold] [red]film")
    assert code == 0
    assert "\na [/bold] [red]film\n" in told
    for word in (out, "answers[/bold]bad,[red]good", "[red]good0."):
        assert str(word) in "".join(told.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("effective", "a fine film", "--out", "[red]out"), "written to [red]out\n"),
        (("heads", "[red]a.tsv", "--against", "[b]b.tsv", "--top", 1), "[red]a [b]b"),
        (("corpus", "run", "[red]a.tsv", "--out", "[red]out"), "written to [red]out\n"),
    ],
    ids=lambda words: words[0],
)
def test_files_are_named_as_they_are_written(
    capsys, folder, reviews, tmp_path, monkeypatch, words, expected
):
    monkeypatch.chdir(tmp_path)
    for name in ("[red]a.tsv", "[b]b.tsv"):
        (tmp_path / name).write_text(reviews.read_text())
    code, told, _ = run(capsys, *words, "--model", folder)
    assert code == 0
    assert expected in re.sub(" +", " ", told)


def test_a_bar_shows_words_as_they_are_written(capsys, folder, reviews, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with progress_bar("heads by [/red]"):
        pass
    assert "heads by [/red]" in capsys.readouterr().err
    code, _, err = run(capsys, "heads", reviews, "--model", folder, "--by", "[/red]")
    assert code == 2
    assert "[/red]" in err


def test_mixing_from_the_command_line(capsys, folder):
    rows = rows_of(capsys, "mixing", "a fine film", "--model", folder, "--probes", 4)
    assert rows[0]["own_share"] == 1
    assert all(0 <= row["own_share"] <= 1 for row in rows)


def test_attribution_and_tree_from_the_command_line(capsys, folder, tmp_path):
    rows = rows_of(capsys, "attribute", "a fine film", "--model", folder, "--top", 3)
    assert len(rows) == 3
    assert abs(rows[0]["contribution"]) >= abs(rows[1]["contribution"])
    drawn = tmp_path / "tree.svg"
    code, out, _ = run(capsys, "tree", "a fine film", "--model", folder, "--plot", drawn)
    assert code == 0
    assert drawn.exists()
    assert "→ probability of LABEL_0" in out


@pytest.mark.parametrize("verb", ["attribute", "tree"])
def test_a_label_the_model_does_not_have(capsys, folder, verb):
    told = refusal(capsys, verb, "a fine film", "--model", folder, "--target", "LABEL_9")
    assert "LABEL_9" in told
    assert "LABEL_0" in told


def test_adversary_from_the_command_line(capsys, folder, reviews):
    rows = rows_of(capsys, "adversary", "a fine film", "--model", folder, "--restarts", 1)
    assert rows[-1]["where"] == "all"
    assert all(row["answer_moved"] <= 0.01 + 1e-6 for row in rows)
    rows = rows_of(capsys, "adversary", "--keys", reviews, "--model", folder)
    assert rows[0]["keys"] == "own"
    assert rows[0]["distance"] == 0
    assert "either a text" in refusal(capsys, "adversary", "--model", folder)


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


def test_tokens_from_the_command_line(capsys, folder, tmp_path):
    path = tmp_path / "texts.tsv"
    lines = [f"a fine film is not {word} {other}" for word in "abcdefgh" for other in "klmnopqr"]
    path.write_text("sentence\n" + "\n".join(lines) + "\n")
    rows = rows_of(capsys, "tokens", path, "--model", folder, "--maps", "identity")
    assert rows[0]["found"] == 1


@pytest.mark.parametrize("verb", ["heads", "prune", "adversary"])
def test_labels_are_asked_for(capsys, folder, tmp_path, verb):
    path = tmp_path / "texts.tsv"
    path.write_text("sentence\na fine film\nnot dull\n")
    flag = ["--keys"] if verb == "adversary" else []
    assert "label" in refusal(capsys, verb, *flag, path, "--model", folder)


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


def test_a_page_is_refused_before_the_result_is_read(capsys, tmp_path):
    told = refusal(capsys, "view", tmp_path / "none", "--html", tmp_path / "nofolder" / "x.html")
    assert "nofolder" in told


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
    Family("LlamaForSequenceClassification", "LlamaConfig", options).build().save_pretrained(model)
    plain_tokenizer().save_pretrained(model)
    words = ("prune", reviews, "--model", model, "--rank-on", 6, "--save", place, "--remove")
    assert "--scope site" in refusal(capsys, *words, 0.2)
    assert list(tmp_path.iterdir()) == []
    plot = tmp_path / "smaller.svg"
    (row,) = rows_of(capsys, *words, 0.5, "--scope", "site", "--order", "most", "--plot", plot)
    assert row["can_be_saved"]
    assert plot.exists()
    assert json.loads(run(capsys, "doctor", place, "--json")[1])["heads"] == [2]


@pytest.mark.parametrize("words", [(), ("--debug",), ("corpus",)])
def test_asking_nothing_is_answered_with_the_help(capsys, words):
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert "Usage: exhibit-a" in out


def test_the_version_is_told(capsys):
    assert run(capsys, "--version") == (0, f"exhibit-a {version('exhibit-a')}\n", "")


def test_the_help_names_what_there_is(capsys, monkeypatch):
    from exhibit_a.methods.registry import attributions, commands

    monkeypatch.setenv("COLUMNS", "200")

    def shown(*words):
        return " ".join(run(capsys, *words, "--help")[1].replace("│", " ").split())

    assert all(verb in shown() for verb in commands())
    assert ", ".join(attributions()) in shown("faithful")
    assert "identity|rotation|linear|mlp" in shown("tokens")
    assert "--debug" in shown()
    assert "sentiment" in shown("serve")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("attribute", "a fine film", "--rule", "foo"), "no rule 'foo'; choose gauss, riemann"),
        (("attribute", "a fine film", "--rule", "riemann"), "--steps"),
        (("tokens", "DATA", "--maps", ""), "No map was named; choose identity, rotation"),
        (("tokens", "DATA", "--maps", "foo"), "There is no map 'foo'; choose identity, rotation"),
        (("effective", "", "--by-length"), "empty"),
        (("effective", "film", "--by-length"), "too short to be cut: it has 3 tokens"),
        (("adversary", "--keys", "DATA", "--limit", 3), "examples held out to judge by has"),
        (("adversary", "--keys", "DATA", "--label", "gold"), 'no column "gold"'),
    ],
)
def test_a_message_says_what_to_do(capsys, folder, reviews, words, message):
    asked = [reviews if word == "DATA" else word for word in words]
    assert message in refusal(capsys, *asked, "--model", folder)


def test_a_server_that_cannot_listen_is_not_announced(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = ("serve", "--model", "no such model", "--port", port)
        assert "Address already in use" in refusal(capsys, *asked)
        assert "300.1.1.1" in refusal(capsys, *asked, "--host", "300.1.1.1")
    assert "There is no model" in refusal(capsys, *asked)
    socket.create_server(("127.0.0.1", port)).close()  # nobody listens there any more


def test_files_of_the_same_name_are_told_apart(capsys, folder, reviews, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dev.tsv").write_text(reviews.read_text())
    files = (tmp_path / "one/dev.tsv", "--against", tmp_path / "two/dev.tsv")
    by = ("--by", "attention", "--limit", 4)
    rows = rows_of(capsys, "heads", *files, "--model", folder, *by)
    assert list(rows[0]) == ["layer", "head", "one/dev", "two/dev"]
    rows = rows_of(capsys, "heads", reviews, "--against", reviews, "--model", folder, *by)
    assert list(rows[0])[2:] == ["reviews.tsv", "reviews.tsv (again)"]


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


def test_without_a_page_its_name_is_free(capsys, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("explain", "a film", "--model", folder, "--no-html", "--out", "report.html", "--json")
    assert run(capsys, *words)[0] == 0
    assert read(tmp_path / "report.html").tokens


def test_people_read_words_and_machines_tokens_unless_they_ask(capsys):
    asked = ("attribute", "it never drags", "--top", 3)
    _, out, _ = run(capsys, *asked)
    assert "drags" in out
    assert "##" not in out
    assert "##s" in run(capsys, *asked, "--tokens")[1] + run(capsys, *asked, "--json")[1]
    told = json.loads(run(capsys, *asked, "--json", "--words")[1])
    assert told["tokens"] == ["[CLS]", "it", "never", "drags", "[SEP]"]
    assert told["checks"]["units"] == "words"
