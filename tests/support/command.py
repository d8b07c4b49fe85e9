"""The command line, run in this process: what it leaves with, and what it says where."""

import pytest

from exhibit_a.commands.main import main


def run(capsys, *words):
    """The exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    told = capsys.readouterr()
    return left.value.code, told.out, told.err


def refusal(capsys, *words):
    """The one line of a refusal."""
    code, out, err = run(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    return err
