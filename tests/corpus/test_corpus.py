"""Many texts: the same numbers as one by one, whole or not at all, and one line for mistakes."""

import itertools
import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from support.command import run
from support.corpora import contents, examples, save_model, save_texts, sentences
from support.subjects import speaker
from support.words import plain_tokenizer
from support.zoo import FAMILIES

from exhibit_a import corpus
from exhibit_a.corpus.engines import AHEAD, Processes
from exhibit_a.corpus.plan import Window, windows
from exhibit_a.corpus.run_folder import Folder
from exhibit_a.corpus.statistics import finish
from exhibit_a.corpus.work import (
    Encoded,
    ExampleFindings,
    Shard,
    files_of,
    receipt_of,
)
from exhibit_a.errors import BadRequestError, BrokenInvariantError
from exhibit_a.examples import Example
from exhibit_a.methods.explanation.permutation import permutation_test
from exhibit_a.methods.heads.importance import head_importance
from exhibit_a.methods.identifiability.counts import attention_identifiability
from exhibit_a.methods.identifiability.effective import effective_attention
from exhibit_a.methods.mixing.hidden_attribution import hidden_attribution
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture

METHOD = "effective_attention"
SMALL = {"window": 8, "tokens": 64}


@pytest.fixture(scope="module")
def subject():
    return speaker()


@pytest.fixture(scope="module")
def finished(subject, tmp_path_factory):
    """A finished run over 30 examples; tests copy it before they spoil it."""
    out = tmp_path_factory.mktemp("corpus") / "run"
    corpus.run(subject, examples(30), METHOD, out, **SMALL)
    return out


@pytest.fixture
def copy(finished, tmp_path):
    for name, data in contents(finished).items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_bytes(data)
    return tmp_path / "run"


# The numbers


def by_head(run, name):
    """(example, site, head) of a statistic."""
    table = run.to_pandas("heads").sort_values(["example", "site", "head"])
    sites = table["site"].max() + 1
    return torch.tensor(table[name].to_numpy()).reshape(table["example"].nunique(), sites, -1)


def test_effective_statistics_are_those_of_one_text_at_a_time(subject, finished):
    run = corpus.open(finished)
    results = [effective_attention(capture(subject, example.text)) for example in examples(30)]
    for name in ("null_fraction", "moved", "rank", "nullity"):
        single = torch.stack(
            [
                torch.stack([s.double().mean(-1) for s in getattr(result, name)])
                for result in results
            ]
        )
        tolerance = 0 if name in ("rank", "nullity") else 2e-5
        assert (by_head(run, name) - single).abs().max() <= tolerance
    for name in ("pearson", "special_raw", "special_effective", "first_raw", "first_effective"):
        single = torch.stack(
            [torch.stack([s.double() for s in getattr(result, name)]) for result in results]
        )
        assert (by_head(run, name) - single).abs().max() <= 2e-5
    lengths = run.to_pandas()["length"]
    assert lengths.min() < 8 < lengths.max()  # below and above the width of a head


def test_hidden_attribution_is_that_of_one_text_at_a_time(subject, tmp_path):
    texts = [
        "a fine film",
        "the dull plot",
        "it is not very long text",
        "great acting saves it really",
    ]
    corpus.run(subject, texts, "hidden_attribution", tmp_path / "run", probes=4, seed=3, dense=True)
    run = corpus.open(tmp_path / "run")
    table = run.to_pandas()
    for number, text in enumerate(texts):
        result = hidden_attribution(capture(subject, text), probes=4, seed=3)
        contribution = result.self_contribution[1:].mean(1).numpy()
        np.testing.assert_allclose(table["own_contribution"][number], contribution, atol=1e-5)
        np.testing.assert_allclose(
            table["not_own_top"][number], result.not_own_top[1:].numpy(), atol=1e-6
        )
        doubt = result.standard_error[1:].mean((1, 2)).numpy()
        np.testing.assert_allclose(table["standard_error"][number], doubt, atol=1e-5)
        kept = run.dense(number)["contribution/0"]
        np.testing.assert_allclose(kept.numpy(), result.contribution[1:].numpy(), atol=1e-5)
    assert table["adjoint_gap"].max() < 1e-3


def test_permutation_is_that_of_the_whole_data_set(subject, tmp_path):
    data = examples(10)
    corpus.run(subject, data, "permutation", tmp_path / "run", repeats=3, seed=5, **SMALL)
    whole = permutation_test(subject, data, repeats=3, seed=5)
    table = corpus.open(tmp_path / "run").to_pandas()
    assert np.abs(np.stack(table["change"]) - whole.change.mean(1).T.numpy()).max() <= 1e-5
    assert np.abs(np.stack(table["uniform_change"]) - whole.uniform_change.T.numpy()).max() <= 1e-5


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("head_importance", {"by": "taylor"}),
        ("permutation_test", {"repeats": 2}),
        ("token_identifiability", {"maps": ["identity"]}),
    ],
)
def test_questions_to_a_whole_data_set_give_their_one_result(subject, tmp_path, method, options):
    summary = corpus.run(subject, examples(12), method, tmp_path / "run", **options)
    assert summary.counts["examples"] == 12
    result = corpus.open(tmp_path / "run").result
    assert result.provenance.method == method
    if method == "head_importance":
        wanted = head_importance(subject, examples(12), by="taylor").scores
        torch.testing.assert_close(result.scores, wanted)
        out = tmp_path / "curve"
        saved = tmp_path / "run" / "result" / "00000.safetensors"
        with pytest.raises(BadRequestError, match="were used to rank"):
            corpus.run(subject, examples(12), "pruning_curve", out, importance=str(saved))


# The aggregates


@pytest.fixture(scope="module")
def made_up(subject, finished, tmp_path_factory):
    """A finished run of numbers that are given, some of them missing, in shards of 64."""
    chance = np.random.default_rng(0)
    card = corpus.open(finished).card
    sites = subject.anatomy.sites
    rows = {
        "wide": chance.normal(size=500) * 10,
        "count": chance.integers(-49, 50, 500).astype(float),
        "nearly one": np.where(chance.random(500) < 0.6, 1 - 1e-8, chance.random(500) * 0.99),
        "none": np.full(500, np.nan),
    }
    rows["wide"][::7], rows["count"][3], rows["nearly one"][8] = np.nan, np.inf, -np.inf
    heads = chance.normal(size=(500, sum(site.heads for site in sites))).astype(np.float32)
    heads[5, 1] = np.nan
    folder = Folder(tmp_path_factory.mktemp("made-up") / "run")
    with folder.locked(new=True):
        folder.begin(card)
        for window in windows(examples(500), 64):
            found = [
                ExampleFindings(
                    Encoded(number, example, None, ("a", "film"), None, False),
                    {name: float(column[number]) for name, column in rows.items()},
                    {"pair": [float(number), -1.0]},
                    {"share": heads[number]},
                    {},
                )
                for number, example in enumerate(window.examples, window.start)
            ]
            files = files_of(found, sites, window.number)
            folder.commit(Shard(receipt_of(window, len(found), (), files), files))
        finish(folder, card, subject, window.number + 1)
    return folder.path, rows, heads


def described(numbers):
    """What a summary says about numbers, as numpy says it."""
    numbers = numbers[np.isfinite(numbers)]
    shares = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
    return {
        "count": len(numbers),
        "mean": numbers.mean(),
        "variance": numbers.var(ddof=1),
        "minimum": numbers.min(),
        "maximum": numbers.max(),
        **{name: np.quantile(numbers, q, method="lower") for name, q in shares.items()},
    }


def test_the_summary_is_that_of_all_numbers_at_once(made_up):
    path, rows, heads = made_up
    summary = corpus.open(path).summary()
    assert summary.counts == {"examples": 500, "shards": 8, "truncated": 0, "unusable": 0}
    by_place = {(row["statistic"], row["site"], row["head"]): row for row in summary.rows}
    places = list(itertools.product(range(heads.shape[1] // 4), range(4)))
    of_heads = {("share", *place): heads[:, i] for i, place in enumerate(places)}
    of_texts = {(name, None, None): rows[name] for name in ("wide", "count", "nearly one")}
    of_texts |= {("pair[0]", None, None): np.arange(500.0), ("pair[1]", None, None): -np.ones(500)}
    for place, numbers in (of_texts | of_heads).items():
        for name, value in described(numbers.astype(float)).items():
            tolerance = 1e-12 if name in ("mean", "variance") else 0
            assert by_place[place][name] == pytest.approx(value, rel=tolerance, abs=0), place
    missing = by_place["none", None, None]
    assert missing["count"] == 0
    assert all(np.isnan(missing[name]) for name in ("mean", "variance", "q50", "interval_low"))


def test_a_run_without_a_difference_has_none_and_a_real_one_is_found(subject, finished, tmp_path):
    corpus.run(subject, examples(30), METHOD, tmp_path / "sum", simplex=True, **SMALL)
    same = corpus.diff(finished, finished)
    assert all(row["difference"] == 0 == row["interval_low"] for row in same)
    differences = {
        row["statistic"]: row
        for row in corpus.diff(finished, tmp_path / "sum")
        if row["site"] is None
    }
    moved = differences["mean_null_fraction"]
    assert moved["interval_low"] <= moved["difference"] <= moved["interval_high"] < 0
    corpus.run(subject, examples(29), METHOD, tmp_path / "fewer", **SMALL)
    with pytest.raises(BadRequestError, match="examples"):
        corpus.diff(finished, tmp_path / "fewer")
    corpus.run(subject, examples(4), "permutation", tmp_path / "other", repeats=1)
    with pytest.raises(BadRequestError, match="methods"):
        corpus.diff(finished, tmp_path / "other")


# Whole or not at all


def test_tables_are_there_for_other_tools(finished):
    run = corpus.open(finished)
    assert run.to_pandas()["id"].tolist() == [f"n{i}" for i in range(30)]
    assert run.to_polars("heads").select("head").collect().height == 30 * 12
    (count,) = run.to_duckdb("heads").aggregate("count(distinct id)").fetchall()[0]
    assert count == 30
    assert sum(len(batch) for batch in run.batches()) == 30
    run.verify()


def spoil(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name",
    ["heads/00001.parquet", "receipts/00002.json", "aggregates.parquet", "manifest.json"],
)
def test_a_damaged_file_is_found_and_repaired(subject, finished, copy, name):
    spoil(copy / name)
    with pytest.raises(BrokenInvariantError, match="damaged"):
        corpus.open(copy).verify()
    corpus.resume(copy, subject=subject, examples=examples(30))
    assert contents(copy) == contents(finished)


def test_a_finished_run_is_left_alone(subject, finished):
    before = contents(finished)
    with pytest.raises(BadRequestError, match="already holds a run"):
        corpus.run(subject, examples(3), METHOD, finished)
    summary = corpus.resume(finished)  # neither model nor data are needed
    assert summary.counts == {"examples": 30, "shards": 4, "truncated": 0, "unusable": 0}
    assert contents(finished) == before


# Mistakes


def test_rows_that_cannot_be_used_are_named(subject, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a fine film"}\nnot json\n{"text": " "}\n{"text": "dull"}\n')
    with pytest.raises(BadRequestError, match="line 2 is not JSON"):
        corpus.run(subject, path, METHOD, tmp_path / "strict")
    assert not (tmp_path / "strict").exists()
    summary = corpus.run(subject, path, METHOD, tmp_path / "run", unusable="skip")
    assert (summary.counts["examples"], summary.counts["unusable"]) == (2, 2)
    named = [
        json.loads(line) for line in (tmp_path / "run/unusable.jsonl").read_text().splitlines()
    ]
    assert [row["where"] for row in named] == ["texts.jsonl, line 2", "texts.jsonl, row 3"]


def test_texts_that_are_too_long_are_cut_left_out_or_refused(subject, tmp_path):
    texts = ["a fine film", "very " * 100, "dull"]
    cut = corpus.run(subject, texts, METHOD, tmp_path / "cut")
    assert (cut.counts["examples"], cut.counts["truncated"]) == (3, 1)
    left = corpus.run(subject, texts, METHOD, tmp_path / "left", too_long="skip")
    assert (left.counts["examples"], left.counts["unusable"]) == (2, 1)
    (named,) = (tmp_path / "left/unusable.jsonl").read_text().splitlines()
    assert "102 tokens and the model takes 64" in json.loads(named)["reason"]
    with pytest.raises(BadRequestError, match="102 tokens"):
        corpus.run(subject, texts, METHOD, tmp_path / "stop", too_long="stop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guessing"}, "guessing.*effective_attention"),
        ({"nonsense": 1}, "value_bias, simplex, rtol"),
        ({"rtol": 2.0}, "relative tolerance"),
        ({"window": 0}, "window"),
        ({"engine": "spark"}, "local, ray"),
        ({"examples": []}, "no examples"),
        ({"examples": ["", " "], "unusable": "skip"}, "item 0"),
        ({"examples": [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}]}, "'1'"),
        ({"method": "permutation", "dense": True}, "maps"),
        ({"method": "pruning_curve"}, "importance"),
    ],
)
def test_mistakes_get_one_line_and_leave_nothing(subject, tmp_path, options, message):
    given = {"examples": ["fine"], "method": METHOD} | options
    data, method = given.pop("examples"), given.pop("method")
    with pytest.raises(BadRequestError, match=message) as caught:
        corpus.run(subject, data, method, tmp_path / "run", **given)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", b"text\tlabel\n", "no examples"),
        ("x.parquet", b"PAR1 and no more", r"x\.parquet"),
        ("x.jsonl", b'{"text": "fine"}\n{"sentence": "dull"}\n', "row 2"),
    ],
)
def test_a_file_that_cannot_be_used_gets_one_line(subject, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadRequestError, match=message) as caught:
        corpus.run(subject, tmp_path / name, METHOD, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("too_long", ["skip", "stop"])
def test_only_what_is_too_long_is_treated_as_too_long(tmp_path, too_long):
    alone = load(FAMILIES["bert"].build(), tokenizer=plain_tokenizer())
    pairs = [Example("one", "a fine film", None, None), Example("two", "dull", "plot", None)]
    run = partial(corpus.run, alone, pairs, METHOD, too_long=too_long)
    with pytest.raises(BadRequestError, match=r"two.*pair"):
        run(tmp_path / "strict")
    assert run(tmp_path / "run", unusable="skip").counts["unusable"] == 1


# The command line


def test_the_command_line_runs_resumes_sums_up_and_compares(tmp_path, capsys):
    model, data = save_model(tmp_path / "model"), save_texts(tmp_path / "texts.tsv", 20)

    outcome = partial(run, capsys, "corpus")
    code, out, _ = outcome("run", data, "--model", model, "--out", tmp_path / "a", "--window", 8)
    assert code == 0
    assert "examples: 20" in " ".join(out.split())
    code, out, _ = outcome(
        *("run", data, "--model", model, "--out", tmp_path / "b", "--window", 8),
        *("--set", "simplex=true", "--json"),
    )
    assert json.loads(out)["run"]["plan"]["parameters"]["simplex"] is True
    (tmp_path / "b/manifest.json").unlink()
    code, out, err = outcome("summary", tmp_path / "b")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "(effective_attention) is not finished. Resume it first." in err
    assert outcome("resume", tmp_path / "b")[0] == 0
    code, out, _ = outcome("summary", tmp_path / "b", "--verify", "--json")
    assert json.loads(out)["counts"]["examples"] == 20
    code, out, _ = outcome("diff", tmp_path / "a", tmp_path / "b")
    assert "differences exclude zero" in " ".join(out.split())
    code, _, err = outcome("run", data, "--out", tmp_path / "a", "--model", model)
    assert (code, err.count("\n")) == (2, 1)
    assert "already holds a run" in err
    assert "name=value" in outcome("run", data, "--out", tmp_path / "c", "--set", "x")[2]
    assert not (tmp_path / "c").exists()


def started(program):
    """What a fresh Python says."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", f"import sys; {program}"]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_help_does_not_wait_for_heavy_libraries():
    heavy = ("torch", "pyarrow", "duckdb", "pandas", "ray")
    look = f"print([m for m in {heavy} if m in sys.modules])"
    assert started(f"from exhibit_a.commands import main as cli; {look}").stdout.strip() == "[]"


def test_a_slow_writer_does_not_fill_the_memory(subject, tmp_path):
    """No window is read without room for its shard."""
    model = save_model(tmp_path / "model")
    corpus.run(model, ["fine"], METHOD, tmp_path / "run")
    taken = []

    def many():
        for number in range(100):
            taken.append(number)
            yield Window(number, number, tuple(examples(1)))

    shards = Processes(workers=2).shards(corpus.open(tmp_path / "run").card, subject, many())
    for written, _ in enumerate(itertools.islice(shards, 9)):
        assert len(taken) <= written + 2 * AHEAD
    shards.close()
    assert len(taken) < 100


def test_identifiability_is_that_of_one_text_at_a_time(subject, tmp_path):
    texts = sentences(6, seed=1)
    corpus.run(subject, texts, "attention_identifiability", tmp_path / "run", **SMALL)
    single = [attention_identifiability(capture(subject, text)) for text in texts]
    for name in ("same_output", "same_sum", "generated"):
        wanted = torch.stack(
            [torch.stack([s.double().mean(-1) for s in getattr(result, name)]) for result in single]
        )
        assert torch.equal(
            by_head(corpus.open(tmp_path / "run"), name).double(), wanted.float().double()
        )
