"""A table for a paper: the rows of the terminal, in letters that LaTeX takes as they are."""

import shutil
import subprocess

import pytest
from support.cases import tiny_trial

from exhibit_a.errors import NotComputableError
from exhibit_a.report.describe import summary_table
from exhibit_a.report.latex import LONGEST, escaped, latex_table
from exhibit_a.report.table import cell


@pytest.fixture(scope="module")
def trial():
    return tiny_trial()


def test_every_row_of_the_summary_is_a_row_of_the_table(trial):
    table = latex_table(trial)
    rows = [line.removesuffix(r" \\") for line in table.splitlines() if line.endswith(r"\\")]
    summary = summary_table(trial)
    brief = [column for column in summary.columns if column.brief]
    assert rows[0].split(" & ") == [column.name for column in brief]
    assert rows[1:] == [
        " & ".join(escaped(cell(row[column.key], column.form)) for column in brief)
        for row in summary.rows
    ]
    assert trial.to_latex(top=2).count(r"\\") == 3


def test_no_letter_of_a_word_means_anything_to_latex():
    assert escaped(r"50% & \input{x}_^~$#") == (
        r"50\% \& \textbackslash{}input\{x\}\_\textasciicircum{}\textasciitilde{}\$\#"
    )


def test_a_table_that_fits_no_page_is_refused(trial):
    with pytest.raises(NotComputableError, match="top="):
        latex_table(trial.attribution, top=LONGEST + 1)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_sets_the_table(trial, tmp_path):
    document = (
        r"\documentclass{article}\usepackage{booktabs}\begin{document}"
        + trial.to_latex()
        + r"\end{document}"
    )
    (tmp_path / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", "table.tex"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
