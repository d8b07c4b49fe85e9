"""What a plain installation is asked: command lines, and the extra that each must name."""

import re
from pathlib import Path

from support.words import save_tokenizer
from support.zoo import FAMILIES

ABSENT = (  # what no library of the core brings along
    "accelerate",
    *("PIL", "pandas", "pyarrow", "datasets", "matplotlib", "xarray"),
    *("captum", "starlette", "uvicorn", "anywidget", "ray", "sacrebleu"),
)
TEXT = "a fine film"

Case = tuple[list[str], str | None]  # a command line, and the extra that it needs


def cases(folder: Path) -> list[Case]:
    """Command lines, and the extra that each must name; None where none is needed."""
    text, writer, images = (folder / name for name in ("text-model", "writer", "image-model"))
    for family, model in (("bert", text), ("gpt2", writer)):
        FAMILIES[family].build().save_pretrained(model)
        save_tokenizer(model)
    FAMILIES["vit"].build().save_pretrained(images)
    data = folder / "texts.tsv"
    data.write_text("sentence\tlabel\n" + f"{TEXT}\tLABEL_1\na dull plot\tLABEL_0\n" * 6)
    table = folder / "texts.parquet"
    table.write_bytes(b"PAR1")
    on, saved, run = ["--model", str(text)], str(folder / "saved"), str(folder / "run")
    page = ["--html", str(folder / "page.html")]
    trained = ["--dev", str(data), "--out", str(folder / "trained"), "--epochs", "1"]
    lines = folder / "lines.txt"
    lines.write_text("two dogs\na cat\n")
    translated = ["--translations", str(lines), "--out", str(folder / "translator")]
    asked = ["context", "--model", str(writer), "a film", TEXT, "a dull plot", "--answer", "film"]
    return [
        (["doctor", str(text)], None),
        (["doctor", str(images)], None),
        (["effective", *on, TEXT], None),
        (["effective", *on, TEXT, "--json", "--out", saved], None),
        (["view", saved, *page, "--no-open"], None),
        (["explain", *on, TEXT, *page], None),
        (["heads", *on, str(data)], None),
        (["compare", *on, TEXT, "a dull plot", *page], None),
        ([*asked, "--samples", "0", "--methods", "raw"], None),
        (["train", str(text), str(data), *trained], "train"),
        (["train", "transformer", str(lines), *translated], "train"),
        (["effective", *on, TEXT, "--plot", str(folder / "plot.svg")], "viz"),
        (["effective", "--model", str(images), "picture.png"], "viz"),
        (["heads", *on, str(table)], "corpus"),
        (["corpus", "run", str(data), *on, "--out", run], "corpus"),
        (["corpus", "summary", run], "corpus"),
        (["corpus", "resume", run], "corpus"),
        (["corpus", "diff", run, run], "corpus"),
        (["faithful", *on, str(data), "--by", "lime"], "compare"),
        (["serve", *on], "web"),
    ]


def fault(case: Case, code: object, told: str) -> str | None:
    """What is wrong with the answer to a command line, or None."""
    words, needed = case
    if needed is None:
        right = code == 0
    else:
        line = rf"error: .*pip install 'exhibit-a\[{needed}\]'\n"
        right = code == 2 and re.fullmatch(line, told) is not None
    return None if right else f"exhibit-a {' '.join(words)}: exit {code}, {told[-800:]}"
