"""Many texts: the same numbers as one by one, whole or not at all, and one line for mistakes."""

import ctypes
import itertools
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from support.corpora import contents, examples, save_model, save_texts, sentences
from support.words import plain_tokenizer, tokenizer
from support.zoo import FAMILIES

from exhibit_a import corpus
from exhibit_a.corpus.engines import AHEAD, Processes
from exhibit_a.corpus.plan import Window, windows
from exhibit_a.corpus.run_folder import Folder
from exhibit_a.corpus.statistics import finish, poisson_weights
from exhibit_a.corpus.work import (
    Encoded,
    ExampleFindings,
    Shard,
    files_of,
    receipt_of,
    return_memory,
)
from exhibit_a.errors import BadRequestError, BrokenInvariantError, ExhibitError
from exhibit_a.examples import Example
from exhibit_a.methods.attribution.self_attribution import self_attribution
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
    return load(FAMILIES["bert"].build(), tokenizer=tokenizer())


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


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_causal_models_need_no_padding_either(tmp_path, family):
    causal = load(FAMILIES[family].build(), tokenizer=tokenizer())
    texts = sentences(12)
    corpus.run(causal, texts, METHOD, tmp_path / "run", **SMALL)
    single = [effective_attention(capture(causal, text)) for text in texts]
    wanted = torch.stack(
        [torch.stack([s.double().mean(-1) for s in result.null_fraction]) for result in single]
    )
    assert (by_head(corpus.open(tmp_path / "run"), "null_fraction") - wanted).abs().max() <= 2e-5


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


def test_self_attribution_is_that_of_one_text_at_a_time(subject, tmp_path):
    texts = ["a fine film", "the dull plot", "not the film", "great acting saves it really"]
    corpus.run(subject, texts, "self_attribution", tmp_path / "run", dense=True)
    run = corpus.open(tmp_path / "run")
    singles = [self_attribution(capture(subject, text)) for text in texts]
    wanted = torch.stack([torch.stack(list(result.head_maxima)) for result in singles])
    assert (by_head(run, "largest") - wanted).abs().max() <= 1e-5
    for number, result in enumerate(singles):
        assert run.to_pandas()["points"][number].tolist() == result.points.tolist()
        assert (run.dense(number)["scores/0"] - result.scores[0]).abs().max() <= 1e-5


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


def test_dense_maps_are_those_of_one_text(subject, tmp_path):
    corpus.run(subject, examples(5), METHOD, tmp_path / "run", dense=True, window=2)
    single = effective_attention(capture(subject, examples(5)[4].text))
    kept = corpus.open(tmp_path / "run").dense(4)
    for site, wanted in enumerate(single.effective):
        torch.testing.assert_close(kept[f"effective/{site}"], wanted, atol=2e-5, rtol=1e-4)


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


def test_intervals_are_as_wide_as_the_error_of_the_mean(made_up):
    path, rows, _ = made_up
    wide = next(row for row in corpus.open(path).summary().rows if row["statistic"] == "wide")
    error = np.nanstd(rows["wide"]) / np.sqrt(np.isfinite(rows["wide"]).sum())
    width = (wide["interval_high"] - wide["interval_low"]) / 2
    assert width == pytest.approx(1.96 * error, rel=0.25)


def test_intervals_do_not_depend_on_the_order_of_the_examples():
    ids = [f"e{i}" for i in range(300)]
    weights = poisson_weights(ids)
    assert np.array_equal(weights[::-1], poisson_weights(ids[::-1]))
    assert abs(weights.mean() - 1) < 0.01
    assert abs(weights.var() - 1) < 0.02


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
    with pytest.raises(BadRequestError, match="different examples"):
        corpus.diff(finished, tmp_path / "fewer")


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


def test_two_runs_cannot_share_a_folder(subject, tmp_path):
    folder = Folder(tmp_path / "run")
    with folder.locked(new=True), pytest.raises(BadRequestError, match="being written by process"):
        corpus.run(subject, examples(3), METHOD, tmp_path / "run")
    corpus.run(subject, examples(3), METHOD, tmp_path / "run")  # the lock file is no content
    assert not (tmp_path / "run" / ".holder").exists()


def interrupted(copy, shard=2):
    """As if the run had been killed with one shard half-written."""
    (copy / "manifest.json").unlink()
    (copy / f"receipts/{shard:05d}.json").unlink()
    (copy / f"heads/{shard:05d}.parquet").write_bytes(b"half of it")
    (copy / "heads/.exhibit-a-dead.tmp").write_bytes(b"left behind")


def test_what_is_missing_is_done_again_and_nothing_else(subject, finished, copy):
    interrupted(copy)
    kept = (copy / "heads/00001.parquet").stat().st_mtime_ns
    corpus.resume(copy, subject=subject, examples=iter(examples(30)))
    assert contents(copy) == contents(finished)
    assert (copy / "heads/00001.parquet").stat().st_mtime_ns == kept


def test_a_changed_model_is_refused_with_the_difference(copy):
    interrupted(copy)
    other = FAMILIES["bert"].build()
    with torch.no_grad():
        next(other.parameters()).mul_(1.01)
    with pytest.raises(BadRequestError, match=r"model\.weights: '\w+' here"):
        corpus.resume(copy, subject=load(other, tokenizer=tokenizer()), examples=examples(30))


def test_changed_data_are_refused(subject, copy):
    interrupted(copy)
    changed = [*examples(5), *examples(31)[6:]]
    with pytest.raises(BadRequestError, match="The data changed: examples 0 to 7"):
        corpus.resume(copy, subject=subject, examples=changed)
    with pytest.raises(BadRequestError, match="The data changed: they now make 3 shards"):
        corpus.resume(copy, subject=subject, examples=examples(24))
    with pytest.raises(BadRequestError, match="came from memory"):
        corpus.resume(copy, subject=subject)


def test_a_full_disk_stops_the_run_and_resuming_ends_it(subject, finished, tmp_path, monkeypatch):
    written, fsync = [], os.fsync

    def full(descriptor):
        written.append(descriptor)
        if len(written) == 6:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExhibitError, match="No space left"):
        corpus.run(subject, examples(30), METHOD, tmp_path / "run", **SMALL)
    assert not list((tmp_path / "run").rglob("*.tmp"))
    corpus.resume(tmp_path / "run", subject=subject, examples=examples(30))
    assert contents(tmp_path / "run") == contents(finished)


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
    with pytest.raises(BadRequestError, match="102 tokens and the model takes 64"):
        corpus.run(subject, texts, METHOD, tmp_path / "stop", too_long="stop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guessing"}, "There is no method 'guessing'; choose .*effective_attention"),
        (
            {"nonsense": 1},
            "nonsense: Extra inputs are not permitted. It takes value_bias, simplex, rtol",
        ),
        ({"rtol": 2.0}, "relative tolerance"),
        ({"window": 0}, "window: Input should be greater than 0"),
        ({"engine": "spark"}, "There is no engine 'spark'; choose local, ray"),
        ({"examples": []}, "holds no examples"),
        ({"examples": ["", " "], "unusable": "skip"}, r"2 rows could not be used: item 0"),
        ({"examples": [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}]}, "'1' occurs twice"),
        ({"method": "permutation", "dense": True}, "has no maps to keep"),
        ({"method": "pruning_curve"}, "importance: Field required"),
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
        ("x.tsv", b"", r"x\.tsv is empty"),
        ("x.tsv", b"text\tlabel\n", "holds no examples"),
        ("x.tsv", b"text\n\xff\xfe\n", r"x\.tsv is not text in UTF-8"),
        ("x.parquet", b"PAR1 and no more", r"x\.parquet is not a Parquet file"),
        ("x.docx", b"text", "Cannot tell the format"),
        ("x.tsv", b"id\ttext\n1\tfine\n1\tdull\n", "The id '1' occurs twice"),
        ("x.jsonl", b'{"text": "fine"}\n{"sentence": "dull"}\n', "row 2 has nothing in"),
        ("x.csv", b"text,label\nfine,1\ndull,0,1\n", "row 2 has more cells"),
    ],
)
def test_a_file_that_cannot_be_used_gets_one_line(subject, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadRequestError, match=message) as caught:
        corpus.run(subject, tmp_path / name, METHOD, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def forbidden(monkeypatch, path):
    """Opening this path is refused, whoever asks; a test may be run by one who may do anything."""

    def refusing(opened):
        def refuse(name, *args, **kwargs):
            if Path(name) == path:
                raise PermissionError(13, "Permission denied", str(name))
            return opened(name, *args, **kwargs)

        return refuse

    monkeypatch.setattr(Path, "open", refusing(Path.open))
    monkeypatch.setattr(os, "open", refusing(os.open))


def test_what_may_not_be_read_or_written_is_named(subject, tmp_path, monkeypatch):
    data = save_texts(tmp_path / "x.tsv", 3)
    forbidden(monkeypatch, tmp_path / "run" / ".lock")
    with pytest.raises(BadRequestError, match=r"run cannot be written to: Permission denied\.$"):
        corpus.run(subject, data, METHOD, tmp_path / "run")
    forbidden(monkeypatch, data)
    with pytest.raises(BadRequestError, match=r"x\.tsv cannot be read: Permission denied\.$"):
        corpus.run(subject, data, METHOD, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("too_long", ["skip", "stop"])
def test_only_what_is_too_long_is_treated_as_too_long(tmp_path, too_long):
    alone = load(FAMILIES["bert"].build(), tokenizer=plain_tokenizer())
    pairs = [Example("one", "a fine film", None, None), Example("two", "dull", "plot", None)]
    run = partial(corpus.run, alone, pairs, METHOD, too_long=too_long)
    with pytest.raises(BadRequestError, match=r"two.*pair"):
        run(tmp_path / "strict")
    assert run(tmp_path / "run", unusable="skip").counts["unusable"] == 1


def test_different_methods_are_not_compared(subject, finished, tmp_path):
    corpus.run(subject, examples(4), "permutation", tmp_path / "run", repeats=1)
    with pytest.raises(BadRequestError, match=r"different methods .effective_attention and perm"):
        corpus.diff(finished, tmp_path / "run")


def test_a_folder_that_cannot_be_written_is_named(subject, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadRequestError, match="cannot be made: Not a directory"):
        corpus.run(subject, ["fine"], METHOD, tmp_path / "file" / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    with pytest.raises(BadRequestError, match=r"is not empty \(thesis.tex\)"):
        corpus.run(subject, ["fine"], METHOD, tmp_path / "full")
    with pytest.raises(BadRequestError, match="holds no corpus run"):
        corpus.open(tmp_path / "full")


def test_a_model_object_that_cannot_be_loaded_again_is_refused_to_workers(subject, tmp_path):
    with pytest.raises(ExhibitError, match=r"There is no model|does not load"):
        corpus.run(subject, ["a fine film"], METHOD, tmp_path / "run", workers=1)


def test_a_device_is_for_workers_and_must_exist(subject, tmp_path):
    with pytest.raises(BadRequestError, match="is for workers, and there are none"):
        corpus.run(subject, ["fine"], METHOD, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
    model = save_model(tmp_path / "model")
    with pytest.raises(BadRequestError, match="The model cannot be put on 'abacus'"):
        corpus.run(model, ["fine"], METHOD, tmp_path / "run", workers=1, device="abacus")
    assert not (tmp_path / "run").exists()
    corpus.run(model, ["fine"], METHOD, tmp_path / "run", workers=1, device="cpu")


# The command line


def test_the_command_line_runs_resumes_sums_up_and_compares(tmp_path, capsys):
    from exhibit_a.commands.main import main

    model, data = save_model(tmp_path / "model"), save_texts(tmp_path / "texts.tsv", 20)

    def outcome(*words):
        with pytest.raises(SystemExit) as left:
            main(["corpus", *map(str, words)])
        return left.value.code, *capsys.readouterr()

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


def test_a_missing_library_is_named_with_the_extra_that_brings_it():
    ask = "from exhibit_a.commands.main import main; main(['corpus', 'summary', 'folder'])"
    process = started(f"sys.modules['pyarrow'] = None; {ask}")
    line = "error: pyarrow is missing: pip install 'exhibit-a[corpus]'\n"
    assert (process.returncode, process.stdout, process.stderr) == (2, "", line)


def test_a_missing_library_of_no_extra_is_named(finished, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(BadRequestError, match=r"^polars is missing: pip install polars$"):
        corpus.open(finished).to_polars()


def test_shards_are_plain_parquet(finished):
    schema = pq.read_schema(finished / "heads/00000.parquet")
    assert schema.names[:5] == ["example", "id", "site", "layer", "head"]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library")
def test_holes_in_memory_are_given_back():
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pieces = [bytearray(100_000) for _ in range(2000)]
    del pieces[::2]
    before = resident()
    return_memory()
    assert before - resident() > 50e6
    assert len(pieces) == 1000  # in use until here


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
