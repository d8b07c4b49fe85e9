import json
import sys
from pathlib import Path

import pytest

from exhibit_a.errors import BadRequestError
from exhibit_a.examples import (
    Example,
    iterate_examples,
    label_names,
    read_examples,
    require_known_labels,
    stream_examples,
)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_format_gives_the_same_examples(tmp_path):
    import pyarrow
    import pyarrow.parquet

    rows = [
        {"sentence1": "a cat, asleep", "sentence2": "an animal", "label": "entailment"},
        {"sentence1": "Zoë ran", "sentence2": "Zoë sat", "label": "contradiction"},
    ]
    header = ["sentence1", "sentence2", "label"]
    tsv = "\n".join(["\t".join(header)] + ["\t".join(row.values()) for row in rows])
    csv = "\n".join([",".join(header)] + [",".join(f'"{c}"' for c in r.values()) for r in rows])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "x.parquet")
    sources = [
        write(tmp_path, "x.tsv", tsv),
        write(tmp_path, "x.csv", csv),
        write(tmp_path, "x.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n"),
        tmp_path / "x.parquet",
        rows,
    ]
    expected = [
        Example("0", "a cat, asleep", "an animal", "entailment"),
        Example("1", "Zoë ran", "Zoë sat", "contradiction"),
    ]
    for source in sources:
        assert read_examples(source) == expected


def test_a_list_may_mix_strings_pairs_rows_and_examples():
    given = Example("mine", "fourth")
    examples = read_examples(["first", ("second", "its pair"), {"text": "third", "id": 7}, given])
    assert examples == [
        Example("0", "first"),
        Example("1", "second", "its pair"),
        Example("7", "third"),
        given,
    ]


def test_mrpc_with_its_byte_order_mark_and_lonely_quotes(tmp_path):
    content = (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
        '1\t70\t71\tHe said "it works\tIt works\r\n'
        '0\t72\t73\tSecond\tThe "second\r\n'
    )
    path = write(tmp_path, "mrpc.tsv", content)
    assert read_examples(path) == [
        Example("0", 'He said "it works', "It works", "1"),
        Example("1", "Second", 'The "second', "0"),
    ]


def test_columns_can_be_named(tmp_path):
    path = write(tmp_path, "x.csv", "review,stars,reply\nfine,4,thanks\n")
    (example,) = read_examples(path, text="review", label="stars", pair="reply")
    assert example == Example("0", "fine", "thanks", "4")


def test_examples_come_one_by_one(tmp_path):
    path = write(tmp_path, "x.tsv", b"text\n" + b"first\n" * 100_000 + b"\xff")
    assert next(iterate_examples(path)).text == "first"


def test_labels_are_sorted_whatever_the_order_of_the_examples():
    def labels(*names: str) -> list[str]:
        return label_names([Example("0", "text", None, name) for name in names])

    assert labels("positive", "negative", "positive") == ["negative", "positive"]
    assert labels("10", "9", "-1") == ["-1", "9", "10"]
    assert labels("1", "--1", "½") == ["--1", "1", "½"]
    assert labels("1", "01") == labels("01", "1") == ["01", "1"]
    assert labels("9" * 5000, "10") == ["10", "9" * 5000]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", "", "x.tsv is empty"),
        ("x.tsv", "sentence\tlabel\n", "x.tsv holds no examples"),
        ("x.tsv", "words\tlabel\nfine\t1\n", "no column for the text. Columns found: words, label"),
        ("x.tsv", b"text\n\x89PNG\xff\xfe", "x.tsv is not text in UTF-8"),
        ("x.tsv", b"text\nfi\0ne\n", "x.tsv is not text (it holds zero bytes)"),
        ("x.tsv", "text\tlabel\nfine\n", 'row 1 has nothing in the column "label"'),
        ("x.tsv", "text\tlabel\nfine\t1\textra\n", "row 1 has more cells than the header"),
        ("x.tsv", "text\tlabel\n  \t1\n", "row 1 has an empty text"),
        ("x.jsonl", '{"text": "fine"}\n{"text": ', "line 2 is not JSON"),
        ("x.jsonl", "[1, 2]\n", "line 1 is a list. One object a line"),
        ("x.jsonl", '{"text": ' + "[" * 100_000, "line 1 is not JSON"),
        ("x.jsonl", '{"text": ' + "9" * 5000 + "}", "line 1 is not JSON"),
        ("x.jsonl", '{"text": ["a", "b"]}', 'row 1 has a list in the column "text"'),
        ("x.jsonl", '{"text": NaN}', 'row 1 has nothing in the column "text"'),
        ("x.jsonl", '{"text": "a", "pair": {}}', 'row 1 has a dict in the column "pair"'),
        ("x.jsonl", '{"text": "a", "label": []}', 'row 1 has a list in the column "label"'),
        ("x.parquet", b"PAR0 no PAR1", "x.parquet is not a Parquet file"),
        ("x.doc", "text\nfine\n", "Cannot tell the format of x.doc"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with pytest.raises(BadRequestError) as caught:
        read_examples(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_column_lists_those_that_exist(tmp_path):
    path = write(tmp_path, "x.tsv", "sentence\tlabel\nfine\t1\n")
    with pytest.raises(
        BadRequestError,
        match=r'no column "review"\. Columns found: sentence, label.*\(--text, text=\)',
    ):
        read_examples(path, text="review")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadRequestError, match=r"no file .*nowhere\.tsv"):
        read_examples(tmp_path / "nowhere.tsv")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "holds no examples"),
        ([3], "Item 0 of the list is a int"),
        (["fine", " "], "item 1 has an empty text"),
        ({"text": "fine"}, "A single dictionary is not a data set"),
    ],
)
def test_bad_lists_get_one_clear_line(source, message):
    with pytest.raises(BadRequestError, match=message):
        read_examples(source)


def test_labels_are_demanded_where_they_are_needed(tmp_path):
    path = write(tmp_path, "x.tsv", "sentence\nfine\n")
    assert read_examples(path)[0].label is None
    with pytest.raises(BadRequestError, match="example 0 has no label"):
        read_examples(path, labelled=True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.tsv", "text\tlabel\nfine\t 1 \nlong\t\n"),
        ("x.csv", "text,label\nfine,1\nlong,  \n"),
        ("x.jsonl", '{"text": "fine", "label": 1}\n{"text": "long", "label": NaN}'),
        ("x.jsonl", '{"text": "fine", "label": "1\\n"}\n{"text": "long", "label": null}'),
    ],
)
def test_an_empty_label_is_no_label(tmp_path, name, content):
    path = write(tmp_path, name, content)
    expected = [Example("0", "fine", None, "1"), Example("1", "long")]
    assert read_examples(path) == expected
    streamed = stream_examples(path, unusable="skip")
    assert [(example.text, example.label) for example in streamed] == [
        ("fine", "1"),
        ("long", None),
    ]
    with pytest.raises(
        BadRequestError, match=r"row 2: example 1 has no label.*\(--label, label=\)"
    ):
        read_examples(path, labelled=True)


def test_numbers_are_text_and_bytes_are_not(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "x.parquet"
    columns = {"text": [7, 8.5], "label": [1.0, float("nan")], "raw": [b"fine", b"film"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    assert read_examples(path) == [Example("0", "7.0", None, "1.0"), Example("1", "8.5")]
    with pytest.raises(BadRequestError, match='row 1 has a bytes in the column "raw"'):
        read_examples(path, text="raw")


def test_a_pandas_table_is_its_rows():
    import pandas

    table = pandas.DataFrame({"text": ["fine", "dull"], "label": pandas.array([1, None])})
    assert read_examples(table) == [Example("0", "fine", None, "1"), Example("1", "dull")]
    assert [example.text for example in stream_examples(table)] == ["fine", "dull"]
    with pytest.raises(BadRequestError, match=r'no column "words"\. Columns found: text, label'):
        read_examples(table, text="words")


def test_damaged_parquet_is_refused(tmp_path, monkeypatch):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["fine film"]}), path)
    path.write_bytes(path.read_bytes().replace(b"fine film", b"fine \xff\xff\xff\xff"))
    with pytest.raises(
        BadRequestError, match=r"x\.parquet is not a Parquet file, or a damaged one"
    ):
        read_examples(path)

    def broken(path):
        raise pyarrow.ArrowNotImplementedError("an encoding that nobody knows")

    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", broken)
    with pytest.raises(BadRequestError, match=r"damaged one \(an encoding that nobody knows\)"):
        read_examples(path)


def test_one_class_is_nothing_to_tell_apart():
    with pytest.raises(BadRequestError, match='Every example has the label "good"'):
        label_names([Example("0", "fine", None, "good"), Example("1", "nice", None, "good")])


def test_an_unknown_label_lists_the_known_ones():
    with pytest.raises(BadRequestError, match=r'label "maybe".*Its labels: no, yes'):
        require_known_labels([Example("0", "fine", None, "maybe")], ["no", "yes"])


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write(tmp_path, "x.parquet", b"PAR1")
    with pytest.raises(BadRequestError, match=r"exhibit-a\[corpus\]"):
        read_examples(path)
