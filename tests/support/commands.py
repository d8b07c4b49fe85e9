"""The command line in this process: what it says, and how it refuses."""

import pytest

from exhibit_a.commands.main import main


def run(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    told = capsys.readouterr()
    return left.value.code, told.out, told.err


def refusal(capsys, *words):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err
