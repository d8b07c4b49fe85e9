"""Every method on models held in four ways, beside the same weights in float32: docs/trust.md.

PYTHONPATH=tests python docs/making/dtypes.py      measures again, into docs/data/dtypes.json
"""

import json
import sys
from typing import Any

from page_tables import DATA, read, table

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


def held() -> str:
    """A row for each method: the largest difference over all families, and who refuses."""
    families: Measured = read("dtypes.json")
    body, others, asked = [], 0, 0
    for method in sorted(next(iter(families.values()))["float32"]):
        told = [[f[how][method] for f in families.values() if f[how][method]] for how in HELD]
        largest = [max((one["difference"] for one in each), default=None) for each in told]
        cells = ["" if one is None else f"{one:.0e}" if one else "0" for one in largest]
        differ = sum(one["others"] for each in told for one in each)
        refused = len(families) - min(map(len, told))
        some = f"{refused} of {len(families)} families" if refused else ""
        body.append([f"`{method}`", *cells, differ, some])
        others, asked = others + differ, asked + sum(map(len, told))
    head = ["method", *HELD, "ranks, words, orders that differ", "refused, held in any way"]
    return (
        f"{asked:,} results of {len(body)} methods on {len(families)} families "
        f"({', '.join(families)}): **{others} ranks, words or orders differ**.\n\n"
        + table(head, body, right=range(1, 7))
    )


if __name__ == "__main__":
    (DATA / "dtypes.json").write_text(json.dumps(measured(), indent=1) + "\n", "utf-8")
