"""The licence of every library that the package or an extra of it needs, for docs/licences.md.

What is needed is read from pyproject.toml and followed through the metadata of what is installed;
what each library says of its own licence is copied, and where it says nothing, so does the page.
"""

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
CORE = "core"
LONGEST = 60  # letters of a licence's name; longer fields hold the whole text


def parts() -> dict[str, str]:
    """The table of libraries."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {CORE: project["dependencies"], **project["optional-dependencies"]}
    del groups["peers"]  # benchmarks stand beside them; nothing of the package needs them
    needed: dict[str, list[str]] = {}
    for group, requirements in groups.items():
        for name in closure(map(Requirement, requirements)):
            needed.setdefault(name, []).append(group)
    rows = [row(name, needed[name]) for name in sorted(needed) if name != "exhibit-a"]
    head = ["| library | licence, in its own words | comes with |", "|---|---|---|"]
    return {"libraries": "\n".join([*head, *rows])}


def closure(requirements: Iterable[Requirement]) -> set[str]:
    """Every library that these lead to, on this platform."""
    names: set[str] = set()
    waiting = [(need, "") for need in requirements]
    while waiting:
        need, asked = waiting.pop()
        if need.marker is not None and not need.marker.evaluate({"extra": asked}):
            continue
        name = canonicalize_name(need.name)
        library = installed(name)
        if name in names or library is None or name == "exhibit-a":
            continue
        names.add(name)
        for more in map(Requirement, library.requires or ()):
            waiting += [(more, extra) for extra in ("", *need.extras)]
    return names


def installed(name: str) -> Distribution | None:
    """What is installed of a library."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def row(name: str, groups: list[str]) -> str:
    """A line of the table; what the core needs comes with every extra."""
    library = installed(name)
    shown = CORE if CORE in groups else ", ".join(group for group in groups if group != "all")
    return f"| {name} | {licence(library)} | {shown} |"


def licence(library: Distribution) -> str:
    """The licence as a library states it: an expression, a short field, or its classifiers."""
    stated = library.metadata
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in stated.get_all("Classifier") or ()
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    field = (stated.get("License") or "").strip()
    short = field if len(field) <= LONGEST and "\n" not in field else ""
    words = stated.get("License-Expression") or short or ", ".join(classifiers)
    return re.sub(r"\s+", " ", words).replace("|", "/") or "not stated in its metadata"
