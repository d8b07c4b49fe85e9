"""Write the table of number types in docs/trust.md: every method, as a model may be held.

``--measure`` asks every method about small models of eight families, held in four ways, beside the
same stored weights held in float32, and keeps the differences in docs/data/dtypes.json; without it
the page is written from them.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE, DATA = ROOT / "docs/trust.md", ROOT / "docs/data/dtypes.json"
BETWEEN = re.compile(r"(<!-- dtypes -->\n).*?(<!-- /dtypes -->)", re.S)
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


def page() -> str:
    """The page with the table of what was measured."""
    found: Measured = json.loads(DATA.read_text("utf-8"))
    text = PAGE.read_text("utf-8")
    return BETWEEN.sub(lambda marks: marks[1] + "\n" + table(found) + "\n\n" + marks[2], text)


def main() -> None:
    """Measure if that is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="ask every method again")
    if parser.parse_args().measure:
        DATA.write_text(json.dumps(measured(), indent=1) + "\n", "utf-8")
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
