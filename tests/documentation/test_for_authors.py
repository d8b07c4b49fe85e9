"""From a folder of one's own to a figure for a paper, in the lines that the docs give."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
from support.words import save_tokenizer
from support.zoo import FAMILIES

PAGE = Path(__file__).parents[2] / "docs/for-authors.md"


def test_a_figure_for_a_paper_takes_at_most_five_lines(tmp_path, monkeypatch):
    snippet = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
    assert len([line for line in snippet.splitlines() if line.strip()]) <= 5
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "path/to/your/folder"
    FAMILIES["bert"].build().save_pretrained(folder)
    save_tokenizer(folder)
    exec(compile(snippet, str(PAGE), "exec"), {})
    plt.close("all")
    assert (tmp_path / "effective.pdf").read_bytes().startswith(b"%PDF")
