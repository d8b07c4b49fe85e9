"""What may change before a run goes on: nothing that decides a number. A refusal leaves nothing."""

import shutil

import pytest
from support.corpora import contents, examples, save_model, save_texts
from support.subjects import speaker

from exhibit_a import corpus
from exhibit_a.corpus import running
from exhibit_a.corpus.run_folder import Folder, read_sealed, sealed
from exhibit_a.errors import BadRequestError, ExhibitError, NotComputableError

METHOD = "effective_attention"
COUNT, WINDOW = 8, 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("corpus") / "run"
    corpus.run(speaker(), examples(COUNT), METHOD, out, window=WINDOW)
    return out


@pytest.fixture
def interrupted(finished, tmp_path):
    """The same after its first shard."""
    shutil.copytree(finished, tmp_path / "run")
    for path in (tmp_path / "run").rglob("*.*"):
        if path.name not in ("run.json", ".lock") and not path.name.startswith("00000"):
            path.unlink()
    return tmp_path / "run"


def changed(place):
    """The examples with another word in one of them."""
    data = examples(COUNT)
    before = data[place]
    data[place] = type(before)(before.id, f"{before.text} film", before.pair, before.label)
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(0), r"examples 0 to 1 are not what this run began with"),
        (changed(COUNT - 1), r"examples 6 to 7 are not what this run began with"),
        (examples(COUNT)[:-1], r"examples 6 to 6 are not what this run began with"),
        (examples(COUNT)[:-2], r"they now make 3 shards, and 4 earlier in this run"),
        ([*examples(COUNT), examples(COUNT + 1)[-1]], r"examples 8 to 8 are not what"),
    ],
)
@pytest.mark.parametrize("given", [list, iter])
def test_data_that_changed_are_noticed_where_nothing_is_done_yet(interrupted, data, message, given):
    with pytest.raises(BadRequestError, match=f"The data changed: {message}"):
        corpus.resume(interrupted, subject=speaker(), examples=given(data))
    assert not (interrupted / "manifest.json").exists()


def test_changed_data_leave_no_wrong_shard_behind(finished, interrupted):
    with pytest.raises(BadRequestError, match="examples 4 to 5"):
        corpus.resume(interrupted, subject=speaker(), examples=changed(4))
    corpus.resume(interrupted, subject=speaker(), examples=examples(COUNT))
    assert contents(interrupted) == contents(finished)


def test_a_file_that_changes_is_noticed(tmp_path):
    model, data = save_model(tmp_path / "model"), save_texts(tmp_path / "texts.tsv", 6)
    corpus.run(model, data, METHOD, tmp_path / "run", window=2)
    for name in ("manifest.json", "receipts/00002.json"):
        (tmp_path / "run" / name).unlink()
    data.write_text(data.read_text().replace("\t2\n", "\t1\n"))
    with pytest.raises(BadRequestError, match="The data changed: examples 2 to 3 are not what"):
        corpus.resume(tmp_path / "run")


def test_data_that_can_be_read_once_only_are_compared_with_what_is_done(tmp_path):
    out = tmp_path / "run"
    corpus.run(speaker(), iter(examples(COUNT)), METHOD, out, window=WINDOW)
    assert Folder(out).card.data.windows is None
    (out / "manifest.json").unlink()
    with pytest.raises(BadRequestError, match="examples 0 to 1 are not those of shard 0"):
        corpus.resume(out, subject=speaker(), examples=changed(1))
    with pytest.raises(BadRequestError, match="they now make 1 shards, and 4 earlier"):
        corpus.resume(out, subject=speaker(), examples=examples(WINDOW))
    assert corpus.resume(out, subject=speaker(), examples=examples(COUNT)).counts["shards"] == 4


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"tokens": 64}, "plan.tokens: 2048 here, 64 requested"),
        ({"window": 4}, "plan.window: 2 here, 4 requested"),
        ({"seed": 1}, "plan.seed: 0 here, 1 requested"),
        ({"workers": 1, "device": "cuda:0"}, "device: 'cpu' here, 'cuda' requested"),
        ({"colour": 1}, "There is no setting of the plan 'colour'; choose seed, dense, window"),
    ],
)
def test_what_would_change_the_numbers_is_refused_with_the_difference(interrupted, asked, message):
    before = contents(interrupted)
    with pytest.raises(BadRequestError, match=message):
        corpus.resume(interrupted, subject=speaker(), examples=examples(COUNT), **asked)
    assert contents(interrupted) == before


def test_the_same_settings_may_be_repeated(finished, interrupted):
    again = {"tokens": 2048, "window": WINDOW, "seed": 0}
    corpus.resume(interrupted, subject=speaker(), examples=examples(COUNT), **again)
    assert contents(interrupted) == contents(finished)


def test_another_number_of_workers_gives_the_same_bytes(tmp_path):
    model, data = save_model(tmp_path / "model"), save_texts(tmp_path / "texts.tsv", 6)
    corpus.run(model, data, METHOD, tmp_path / "run", window=2)
    before = contents(tmp_path / "run")
    for name in ("manifest.json", "receipts/00001.json", "receipts/00002.json"):
        (tmp_path / "run" / name).unlink()
    corpus.resume(tmp_path / "run", workers=2)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"too_long": "stop", "examples": ["very " * 100]}, "102 tokens and the model takes 64"),
        ({"too_long": "skip", "examples": ["very " * 100]}, "None of the 1 examples"),
        ({"examples": ["fine", "dull", ""]}, "item 2"),
        ({"method": "permutation", "what": "features"}, "nothing"),
    ],
)
@pytest.mark.parametrize("place", ["run", "new/deep/run"])
def test_a_refused_run_leaves_no_folder(tmp_path, monkeypatch, options, message, place):
    given = {"examples": ["fine"], "method": METHOD, "window": 1} | options
    data, method = given.pop("examples"), given.pop("method")
    if method == "permutation":  # a model that the method does not apply to

        def refuse(*_):
            raise NotComputableError("nothing to permute")

        monkeypatch.setattr("exhibit_a.corpus.tasks.require_distribution", refuse)
    with pytest.raises(ExhibitError, match=message):
        corpus.run(speaker(), data, method, tmp_path / place, **given)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays(tmp_path):
    (tmp_path / "run").mkdir()
    texts = ["very " * 100]
    with pytest.raises(BadRequestError, match="102 tokens"):
        corpus.run(speaker(), texts, METHOD, tmp_path / "run", too_long="stop")
    assert list((tmp_path / "run").iterdir()) == []


def test_work_that_is_done_is_kept_when_a_later_text_is_refused(tmp_path):
    texts = ["a fine film", "very " * 100]
    with pytest.raises(BadRequestError, match="102 tokens"):
        corpus.run(speaker(), texts, METHOD, tmp_path / "run", too_long="stop", window=1)
    assert [receipt["shard"] for receipt in Folder(tmp_path / "run").complete()] == [0]


def test_what_fails_without_being_refused_can_go_on(finished, tmp_path, monkeypatch):
    def broken(*_):
        raise ExhibitError("A worker process died.")

    monkeypatch.setattr(running, "finish", broken)
    with pytest.raises(ExhibitError, match="died"):
        corpus.run(speaker(), examples(COUNT), METHOD, tmp_path / "run", window=WINDOW)
    monkeypatch.undo()
    corpus.resume(tmp_path / "run", subject=speaker(), examples=examples(COUNT))
    assert contents(tmp_path / "run") == contents(finished)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"seal": "x"}'])
def test_what_is_not_sealed_has_no_value(tmp_path, data):
    file = tmp_path / "file.json"
    assert read_sealed(file) is None
    for content in (data, sealed({"a": 1}).replace(b"1", b"2", 1), sealed({"a": 1})[:-1]):
        file.write_bytes(content)
        assert read_sealed(file) is None
    file.write_bytes(sealed({"a": 1}))
    assert read_sealed(file) == {"a": 1}
