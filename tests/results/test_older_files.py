"""Result files and run folders that version 0.1.0 wrote still open, wherever their classes live."""

import shutil
from pathlib import Path

import pytest

import exhibit_a as xa
from exhibit_a.corpus.run_folder import Folder
from exhibit_a.results.tables import leaves

OLDER = Path(__file__).parent.parent / "fixtures" / "version-0.1.0"
CLASSES = {
    "bart.identifiability": xa.AttentionIdentifiability,
    "bert.alternative": xa.AlternativeAttention,
    "bert.companions.alti": xa.TokenAttribution,
    "bert.effective": xa.EffectiveAttention,
    "bert.faithfulness": xa.Faithfulness,
    "bert.importance-taylor": xa.HeadImportance,
    "bert.tokens": xa.TokenIdentifiability,
    "bert.tree": xa.AttributionTree,
    "bert.trial": xa.Trial,
    "bert.triggers": xa.Triggers,
    "llama.attribution": xa.SelfAttribution,
    "sentiment-short.by-length": xa.IdentifiabilityByLength,
}
WITHOUT_TENSORS = (xa.AttributionTree, xa.Triggers)
EFFECTIVE, IMPORTANCE = OLDER / "run-effective_attention", OLDER / "run-head_importance"


def test_every_older_file_is_tested():
    files = {path.name.removesuffix(".safetensors") for path in OLDER.glob("*.safetensors")}
    assert files == CLASSES.keys()
    assert {path for path in OLDER.iterdir() if path.is_dir()} == {EFFECTIVE, IMPORTANCE}


@pytest.fixture(params=sorted(CLASSES))
def stored(request):
    return xa.read(OLDER / f"{request.param}.safetensors"), CLASSES[request.param]


def test_an_older_result_opens_as_its_class_with_finite_numbers(stored):
    result, kind = stored
    assert type(result) is kind
    tensors = [leaf.tensor for leaf in leaves(result)]
    assert bool(tensors) == (kind not in WITHOUT_TENSORS)
    assert all(tensor.isfinite().all() for tensor in tensors if tensor.is_floating_point())
    assert result.provenance.versions["exhibit_a"] == "0.1.0"


def test_an_older_trial_still_has_a_page_a_figure_and_a_screen(tmp_path, capsys):
    trial = xa.read(OLDER / "bert.trial.safetensors")
    assert trial.verdict in trial.html(tmp_path / "page.html").read_text("utf-8")
    trial.show()
    assert " ".join(trial.verdict.split()) in " ".join(capsys.readouterr().out.split())
    assert trial.plot().axes


def test_an_older_result_can_be_summed_up_and_put_in_a_table(stored):
    result, kind = stored
    assert result.summary().startswith(f"{kind.__name__}: {result.provenance.method} on ")
    assert result._repr_html_().startswith("<div>")
    if kind in WITHOUT_TENSORS:
        entries = result.edges if kind is xa.AttributionTree else result.patterns
        assert len(result.to_pandas()) >= len(entries)
        assert list(result.to_pandas()) == list(kind.columns)
        return
    table = result.to_pandas(what="long") if kind is xa.Trial else result.to_pandas()
    assert len(table) == sum(leaf.tensor.numel() for leaf in leaves(result))
    assert {"field", "value"} < set(table)


def test_an_older_result_can_be_saved_again(stored, tmp_path):
    result, kind = stored
    again = xa.read(result.save(tmp_path / "again.safetensors"))
    assert type(again) is kind
    assert again.summary() == result.summary()
    pairs = zip(leaves(result), leaves(again), strict=True)
    assert all(before.tensor.equal(after.tensor) for before, after in pairs)


def test_an_older_run_opens_with_its_tables_and_maps():
    run = xa.corpus.open(EFFECTIVE)
    run.verify()
    assert run.card.plan.method == "effective_attention"
    texts, heads = run.to_pandas(), run.to_pandas("heads")
    assert len(texts) == run.manifest["counts"]["examples"] == 14
    sites = run.manifest["sites"]
    assert len(heads) == 14 * sum(site["heads"] for site in sites)
    assert texts["mean_null_fraction"].between(0, 1).all()
    for number, length in enumerate(texts["length"]):
        maps = run.dense(number)
        shapes = {f"effective/{site}": (s["heads"], length, length) for site, s in enumerate(sites)}
        assert {name: tuple(tensor.shape) for name, tensor in maps.items()} == shapes
        assert all(tensor.isfinite().all() for tensor in maps.values())


def test_the_aggregates_of_an_older_run_are_those_of_its_tables():
    run = xa.corpus.open(EFFECTIVE)
    summary = run.summary()
    assert summary.counts == {"examples": 14, "shards": 2, "truncated": 0, "unusable": 0}
    table = summary.to_pandas()
    of_texts = table[table["site"].isna()].set_index("statistic")
    mean = run.to_pandas()["mean_null_fraction"].mean()
    assert of_texts.loc["mean_null_fraction", "mean"] == pytest.approx(mean, abs=1e-12)
    assert {row["difference"] for row in xa.corpus.diff(run, EFFECTIVE)} == {0.0}


def test_the_result_of_an_older_run_opens():
    run = xa.corpus.open(IMPORTANCE)
    run.verify()
    assert run.summary().counts["examples"] == 14
    result = run.result
    assert type(result) is xa.HeadImportance
    assert result.scores.isfinite().all()
    assert result.measure == run.card.plan.parameters["by"]  # which version 0.1.0 wrote as ``by``


def test_heads_over_a_data_set_have_no_words():
    importance = xa.read(OLDER / "bert.importance-taylor.safetensors")
    assert importance.measure == "taylor"
    with pytest.raises(xa.NotComputableError, match=r"^HeadImportance has no sums over words: .*$"):
        importance.by("word")


def test_an_older_finished_run_is_left_as_it_is(tmp_path):
    shutil.copytree(EFFECTIVE, tmp_path / "run")
    (tmp_path / "run" / ".lock").write_text("")  # which a version 0.1.0 leaves behind
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    assert xa.corpus.resume(tmp_path / "run").counts["examples"] == 14
    after = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    assert after == before


def test_the_shards_of_an_older_run_count_as_done(tmp_path):
    shutil.copytree(EFFECTIVE, tmp_path / "run")
    assert [receipt["shard"] for receipt in Folder(tmp_path / "run").complete()] == [0, 1]
