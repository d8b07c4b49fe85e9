"""Where does a number come from? Enough is written down to make it again."""

import platform
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class Provenance:
    """Where a result came from: enough to make it again."""

    model: str
    method: str
    revision: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)


def provenance(
    model_name: str, method: str, revision: str | None = None, seed: int | None = None, **used: Any
) -> Provenance:
    """Provenance of a result made here and now, by the installed versions."""
    return Provenance(model_name, method, revision, used, seed, dict(_versions()))


@cache  # each is read from a file, which takes as long as a short pass
def _versions() -> tuple[tuple[str, str], ...]:
    """What is installed, by name."""
    packages = ("exhibit_a", "torch", "transformers")
    installed = [(name, version(name)) for name in packages]
    return (*installed, ("python", platform.python_version()))
