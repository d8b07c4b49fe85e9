"""Writes the table of a result for a paper.

The rows are those that the command line prints. The table is plain LaTeX with the rules of
``booktabs``, numbers on the right, and every letter that means something to LaTeX escaped.
"""

from exhibit_a.control_characters import escape_controls
from exhibit_a.errors import NotComputableError
from exhibit_a.report.describe import summary_table
from exhibit_a.report.table import cell, split_intervals
from exhibit_a.results.result import Result

LONGEST = 60  # rows that fit a page
MEANING = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "–": "--",
    "✓": "",
    "✗": "",
}


def latex_table(result: Result, *, top: int | None = None) -> str:
    """The summary of a result as a LaTeX table; needs the package ``booktabs``.

    >>> print(latex_table(xa.effective_attention(trace), top=1).splitlines()[0])
    % raw and effective attention, 8 tokens, means over heads and rows
    >>> escaped("50 % of a_b")
    '50 \\\\% of a\\\\_b'

    Args:
        result: any result.
        top: the rows that are kept, where a result ranks them.
    """
    table = summary_table(result, top)
    rows = table.rows if isinstance(table.rows, list) else []
    if not rows:
        raise NotComputableError(f"{type(result).__name__} has no rows to put in a table.")
    if len(rows) > LONGEST:
        raise NotComputableError(
            f"The table has {len(rows)} rows and a page takes {LONGEST}; ask for the first with "
            "top=."
        )
    known = [column for column in table.columns if column.brief] or table.columns
    columns = [
        (heading, values, column.form)
        for column in known
        for heading, values in split_intervals(column.name, [row[column.key] for row in rows])
    ]
    sides = "".join(
        "l" if any(isinstance(value, str) for value in values) else "r" for _, values, _ in columns
    )
    head = " & ".join(escaped(heading.replace("_", " ")) for heading, _, _ in columns)
    cells = [[escaped(cell(value, form)) for value in values] for _, values, form in columns]
    body = [" & ".join(row) + r" \\" for row in zip(*cells, strict=True)]
    lines = [
        f"% {escape_controls(table.title, lines=False)}",
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        head + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text in which no letter means anything to LaTeX."""
    return "".join(MEANING.get(letter, letter) for letter in text).strip()
