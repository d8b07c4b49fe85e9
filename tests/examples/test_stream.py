"""Many formats, one stream: ids that last, and no row lost without a word."""

import json
from itertools import count, islice

import pytest

from exhibit_a.errors import BadRequestError
from exhibit_a.examples import Example, Unusable, read_examples, stream_examples

ROWS = [
    {"sentence": "a cat, asleep", "label": "0"},
    {"sentence": "Zoë ran", "label": "1"},
    {"sentence": "a cat, asleep", "label": "0"},
]


@pytest.fixture
def sources(tmp_path):
    """The same rows in every format."""
    import datasets
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist(ROWS)
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    lines = [f"{row['sentence']}\t{row['label']}" for row in ROWS]
    (tmp_path / "x.tsv").write_text("\n".join(["sentence\tlabel", *lines]))
    quoted = [f'"{row["sentence"]}",{row["label"]}' for row in ROWS]
    (tmp_path / "x.csv").write_text("\n".join(["sentence,label", *quoted]))
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(tmp_path / "saved")
    files = [tmp_path / name for name in ("x.tsv", "x.csv", "x.jsonl", "x.parquet", "saved")]
    return [*files, str(tmp_path / "x.[t]sv"), data, ROWS, iter(ROWS)]


def test_every_source_gives_the_same_examples_with_the_same_ids(sources):
    streams = [list(stream_examples(source)) for source in sources]
    assert all(stream == streams[0] for stream in streams)
    first, other, again = (example.id for example in streams[0])
    assert first.removesuffix("-0") == again.removesuffix("-1")
    assert other.endswith("-0")


def test_ids_stay_when_rows_are_added_or_moved():
    before = {example.text: example.id for example in stream_examples(["a", "b", "c"])}
    after = {example.text: example.id for example in stream_examples(["new", "c", "a", "b"])}
    assert before.items() <= after.items()


def test_a_stream_is_never_read_ahead():
    endless = (f"text {number}" for number in count())
    assert [example.text for example in islice(stream_examples(endless), 2)] == ["text 0", "text 1"]
    assert next(endless) == "text 2"


def test_given_ids_are_kept_and_must_not_occur_twice(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("key\tindex\ttext\nk1\t7\tone\nk2\t7\ttwo\n")
    assert [example.id for example in stream_examples(path, identity="key")] == ["k1", "k2"]
    with pytest.raises(BadRequestError, match="The id '7' occurs twice"):
        list(stream_examples(path))
    assert all("-0" in example.id for example in stream_examples(path, identity=""))
    kept, refused = stream_examples(path, unusable="skip")
    assert (kept.id, str(refused)) == ("7", "The id '7' occurs twice. Ids name one example each.")
    with pytest.raises(BadRequestError, match=r'no column "name"\..*\(--id, identity=\)'):
        list(stream_examples(path, identity="name"))
    with pytest.raises(BadRequestError, match="occurs twice"):
        list(stream_examples([Example("a", "x"), Example("a", "y")]))


def test_rows_that_cannot_be_used_come_out_in_their_place(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\nfine\t1\ntoo\tmany\tcells\n \t0\nshort\nlast\t0\n")
    entries = list(stream_examples(path, unusable="skip"))
    assert [isinstance(entry, Unusable) for entry in entries] == [False, True, True, True, False]
    assert "more cells than the header" in str(entries[1])
    assert "row 3 has an empty text" in str(entries[2])
    assert 'row 4 has nothing in the column "label"' in str(entries[3])
    with pytest.raises(BadRequestError, match="more cells"):
        list(stream_examples(path))
    with pytest.raises(BadRequestError, match="stop or skip"):
        list(stream_examples(path, unusable="ignore"))


def test_files_with_other_columns_are_not_mixed(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nfine,1\n")
    (tmp_path / "b.csv").write_text("sentence,label\ndull,0\n")
    with pytest.raises(BadRequestError, match=r"a\.csv.*b\.csv"):
        list(stream_examples(tmp_path / "*.csv"))
    (tmp_path / "b.csv").write_text("text,label\ndull,0\n")
    assert [example.text for example in stream_examples(tmp_path / "*.csv")] == ["fine", "dull"]
    assert [example.text for example in read_examples(tmp_path / "*.csv")] == ["fine", "dull"]
    with pytest.raises(BadRequestError, match="No file matches"):
        list(stream_examples(tmp_path / "*.tsv"))


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadRequestError, match="is not a saved data set"):
        list(stream_examples(tmp_path / "folder"))
    (tmp_path / "folder" / "train").mkdir()
    (tmp_path / "folder" / "train" / "state.json").write_text("{}")
    with pytest.raises(BadRequestError, match="It has the splits train"):
        list(stream_examples(tmp_path / "folder"))
    with pytest.raises(BadRequestError, match="cannot be read"):
        list(stream_examples(tmp_path / "folder" / "train"))
    loop = tmp_path / "loop.tsv"
    loop.symlink_to(loop)
    with pytest.raises(BadRequestError, match="There is no file"):
        list(stream_examples(loop))
    with pytest.raises(BadRequestError, match="A single dictionary"):
        list(stream_examples({"text": "fine"}))
