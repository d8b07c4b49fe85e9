import json
from pathlib import Path

import pytest

from exhibit_a.errors import BadRequestError
from exhibit_a.examples import (
    Example,
    iterate_examples,
    label_names,
    read_examples,
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
        ("x.tsv", "sentence\tlabel\n", "no examples"),
        ("x.tsv", "words\tlabel\nfine\t1\n", "words, label"),
        ("x.tsv", b"text\n\x89PNG\xff\xfe", "UTF-8"),
        ("x.tsv", b"text\nfi\0ne\n", "x.tsv"),
        ("x.tsv", "text\tlabel\nfine\n", "row 1"),
        ("x.tsv", "text\tlabel\nfine\t1\textra\n", "row 1"),
        ("x.tsv", "text\tlabel\n  \t1\n", "row 1"),
        ("x.jsonl", '{"text": "fine"}\n{"text": ', "line 2"),
        ("x.jsonl", "[1, 2]\n", "line 1"),
        ("x.jsonl", '{"text": ' + "[" * 100_000, "line 1"),
        ("x.jsonl", '{"text": ' + "9" * 5000 + "}", "line 1"),
        ("x.jsonl", '{"text": ["a", "b"]}', '"text"'),
        ("x.jsonl", '{"text": NaN}', '"text"'),
        ("x.jsonl", '{"text": "a", "pair": {}}', '"pair"'),
        ("x.jsonl", '{"text": "a", "label": []}', '"label"'),
        ("x.parquet", b"PAR0 no PAR1", "x.parquet"),
        ("x.doc", "text\nfine\n", "x.doc"),
        ("x.csv", 'text,label\n"He said,1\nfine,0\ndull,1\n', "x.csv"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, name, content, message):
    path = write(tmp_path, name, content)
    with pytest.raises(BadRequestError) as caught:
        read_examples(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "no examples"),
        ([3], "Item 0"),
        (["fine", " "], "item 1"),
        ({"text": "fine"}, "dictionary"),
    ],
)
def test_bad_lists_get_one_clear_line(source, message):
    with pytest.raises(BadRequestError, match=message):
        read_examples(source)


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
    with pytest.raises(BadRequestError, match=r"row 2.*label="):
        read_examples(path, labelled=True)


def test_a_pandas_table_is_its_rows():
    import pandas

    table = pandas.DataFrame({"text": ["fine", "dull"], "label": pandas.array([1, None])})
    assert read_examples(table) == [Example("0", "fine", None, "1"), Example("1", "dull")]
    assert [example.text for example in stream_examples(table)] == ["fine", "dull"]
