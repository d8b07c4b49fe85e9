"""What happens when the input is bad? Each target is attacked with seeded chance.

One function for each target: it makes so many attempts and counts their outcomes. ``python -m
support.fuzz`` runs them all. An attempt ends in one of these ways:

* ``answered``: the input was good enough after all, and got an answer;
* ``same``: what was damaged gave exactly what it gave before;
* ``refused``: one clear line said what was wrong;
* one of the ``BAD`` ways, which must never happen.
"""

from support.fuzz.calls import calls
from support.fuzz.command_lines import command_lines
from support.fuzz.given import given
from support.fuzz.outcomes import BAD, Outcomes
from support.fuzz.requests import requests
from support.fuzz.result_files import result_files
from support.fuzz.run_folders import run_folders
from support.fuzz.texts import texts

TARGETS = {
    "result files": result_files,
    "run folders": run_folders,
    "command lines": command_lines,
    "calls of methods": calls,
    "values given to functions": given,
    "requests to the server": requests,
    "hostile texts": texts,
}

__all__ = ["BAD", "TARGETS", "Outcomes"]
