"""Every method on models held in four ways, beside the same weights in float32: docs/trust.md.

PYTHONPATH=tests python docs/making/dtypes.py      measures again, into docs/data/dtypes.json
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs/data/dtypes.json"
HELD = ("float32", "bfloat16", "float16", "mixed")

Measured = dict[str, dict[str, dict[str, Any]]]  # by family, number type and method


def measured() -> Measured:
    """The largest difference of every method's numbers, or that it refuses, and what else differs."""
    from support.half_precision import FAMILIES, every_method

    found: Measured = {}
    for name in FAMILIES:
        found[name] = {}
        for how in HELD:
            sys.stderr.write(f"{name} {how}\n")
            found[name][how] = {
                method: None
                if isinstance(outcome, str)
                else {"difference": outcome.difference, "others": len(outcome.others)}
                for method, outcome in every_method(name, how).items()
            }
    return found


def table(found: Measured) -> str:
    """A row for each method: the largest difference over all families, and who refuses."""
    methods = sorted(next(iter(found.values()))["float32"])
    rows = [
        f"| method | {' | '.join(HELD)} | ranks, words, orders that differ | refused, held in any way |",
        f"|---|{'---:|' * (len(HELD) + 2)}",
    ]
    others = asked = 0
    for method in methods:
        cells, refused, differ = [], 0, 0
        for how in HELD:
            outcomes = [family[how][method] for family in found.values()]
            told = [outcome for outcome in outcomes if outcome is not None]
            refused = max(refused, len(outcomes) - len(told))
            differ += sum(outcome["others"] for outcome in told)
            asked += len(told)
            cells.append(f"{max(o['difference'] for o in told):.0e}" if told else "")
        others += differ
        cells = ["0" if cell == "0e+00" else cell for cell in cells]
        some = f"{refused} of {len(found)} families" if refused else ""
        rows.append(f"| `{method}` | {' | '.join(cells)} | {differ} | {some} |")
    total = (
        f"{asked:,} results of {len(methods)} methods on {len(found)} families "
        f"({', '.join(found)}): **{others} ranks, words or orders differ**."
    )
    return "\n".join([total, "", *rows])


def parts() -> dict[str, str]:
    """The table of what was measured."""
    return {"dtypes": table(json.loads(DATA.read_text("utf-8")))}


if __name__ == "__main__":
    DATA.write_text(json.dumps(measured(), indent=1) + "\n", "utf-8")
