"""The licence of every library that the package or an extra of it needs, for docs/licences.md.

What is needed is read from pyproject.toml and followed through the metadata of what is installed;
what each library says of its own licence is copied, and where it says nothing, so does the page.
"""

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from page_tables import ROOT, table

LONGEST = 60  # letters of a licence's name; longer fields hold the whole text


def libraries() -> str:
    """The table of libraries; what the core needs comes with every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    del groups["peers"]  # benchmarks stand beside them; nothing of the package needs them
    needed = {group: closure(map(Requirement, needs)) for group, needs in groups.items()}
    libraries = {name: library for each in needed.values() for name, library in each.items()}
    body = []
    for name, library in sorted(libraries.items()):
        comes = [group for group, each in needed.items() if name in each]
        body.append([name, licence(library), "core" if "core" in comes else ", ".join(comes)])
    return table(["library", "licence, in its own words", "comes with"], body)


def closure(requirements: Iterable[Requirement]) -> dict[str, Distribution]:
    """Every installed library that these lead to, on this platform."""
    found: dict[str, Distribution] = {}
    waiting = [(need, "") for need in requirements]
    while waiting:
        need, asked = waiting.pop()
        name = canonicalize_name(need.name)
        wanted = need.marker is None or need.marker.evaluate({"extra": asked})
        if not wanted or name in found or name == "exhibit-a":
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        more = map(Requirement, found[name].requires or ())
        waiting += [(one, extra) for one in more for extra in ("", *need.extras)]
    return found


def licence(library: Distribution) -> str:
    """The licence as a library states it: an expression, a short field, or its classifiers."""
    stated = library.metadata
    kinds = [line.split(" :: ") for line in stated.get_all("Classifier") or ()]
    named = [kind[-1] for kind in kinds if kind[0] == "License" and kind[1:] != ["OSI Approved"]]
    field = (stated.get("License") or "").strip()
    short = field if len(field) <= LONGEST and "\n" not in field else ""
    words = stated.get("License-Expression") or short or ", ".join(named)
    return re.sub(r"\s+", " ", words).replace("|", "/") or "not stated in its metadata"
