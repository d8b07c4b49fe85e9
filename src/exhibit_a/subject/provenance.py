"""Where a number comes from: enough is written down to make it again."""

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
    versions = {name: _installed(name) for name in ("exhibit_a", "torch", "transformers")}
    versions["python"] = platform.python_version()
    return Provenance(model_name, method, revision, used, seed, versions)


@cache  # every result needs it, and to read a package's metadata takes milliseconds
def _installed(name: str) -> str:
    return version(name)
