"""Every method on models held in four ways, beside the same weights in float32: docs/trust.md.

PYTHONPATH=tests python docs/making/dtypes.py      measures again, into docs/data/dtypes.json
"""

import json
import sys
from typing import Any

from page_tables import DATA

HELD = ("float32", "bfloat16", "float16", "mixed")
Measured = dict[str, dict[str, dict[str, Any]]]  # by family, number type and method


def measured() -> Measured:
    """The largest difference of every method's numbers, or that it refuses, and what else differs."""
    from support.half_precision import FAMILIES, every_method

    found: Measured = {name: {} for name in FAMILIES}
    for name, how in ((name, how) for name in FAMILIES for how in HELD):
        sys.stderr.write(f"{name} {how}\n")
        found[name][how] = {
            method: None
            if isinstance(outcome, str)
            else {"difference": outcome.difference, "others": len(outcome.others)}
            for method, outcome in every_method(name, how).items()
        }
    return found


if __name__ == "__main__":
    (DATA / "dtypes.json").write_text(json.dumps(measured(), indent=1) + "\n", "utf-8")
