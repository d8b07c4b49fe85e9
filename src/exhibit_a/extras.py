"""The optional libraries, and the extra of this package that brings each.

The core needs torch, transformers and a few small libraries. Everything else is imported where it
is used, through ``extra``: a library that is missing is one line that says what to install.
"""

import importlib
from types import ModuleType

from exhibit_a.errors import BadRequestError

BROUGHT_BY = {
    "accelerate": "train",
    "anywidget": "notebook",
    "captum": "compare",
    "datasets": "corpus",
    "duckdb": "corpus",
    "filelock": "corpus",
    "matplotlib": "viz",
    "networkx": "compare",
    "pandas": "viz",
    "PIL": "viz",
    "pyarrow": "corpus",
    "pydantic": "corpus",
    "ray": "ray",
    "sacrebleu": "train",
    "sklearn": "compare",
    "starlette": "web",
    "traitlets": "notebook",
    "uvicorn": "web",
    "xarray": "viz",
}


def extra(module: str) -> ModuleType:
    """A library that an extra of this package brings, or an error that names the extra.

    >>> extra("json").dumps([1])
    '[1]'
    >>> extra("nothing_such")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: nothing_such is missing: pip install nothing_such
    """
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise missing(problem.name or module) from problem


def missing(module: str) -> BadRequestError:
    """The error for a library that is not installed."""
    library = module.partition(".")[0]
    brought = BROUGHT_BY.get(library)
    what = f"'exhibit-a[{brought}]'" if brought else library
    return BadRequestError(f"{library} is missing: pip install {what}")
