"""The game of a language model's answer at three lengths, beside an earlier version, in one run.

    python benchmarks/game.py --base MODELS/SmolLM2-135M-Instruct [--before CHECKOUT] [--out FILE]

Each measurement has a process of its own: forward passes as the game counts them, processor time
over that of the text's own pass, and how far the memory rose above what it was with the model
loaded. The earlier version is a checkout of the repository; it plays the rows that it is given.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

LENGTHS = (14, 300, 2000)
WORDS = "When Mary and John went to the store, John gave a drink to"
FILLER = " Later that day the old sailor counted the boats in the harbour and went home."

CHILD = """
import json, resource, sys, time, torch, exhibit_a as xa
torch.set_num_threads(1)
folder, text = sys.argv[1:]
subject = xa.load(folder, dtype="float32")
xa.capture(subject, "a b", rows=[-1])
ids = subject.encode(text)

def megabytes(of):
    lines = open("/proc/self/status")
    return int(next(line for line in lines if line.startswith(of)).split()[1]) / 1024

with torch.no_grad():
    begun = time.process_time()
    subject.model(**ids, use_cache=False)
    own = time.process_time() - begun
open("/proc/self/clear_refs", "w").write("5")
loaded, begun = megabytes("VmRSS"), time.process_time()
result = xa.reliance(xa.capture(subject, text, rows=[-1]))
spent = time.process_time() - begun
print(json.dumps({
    "tokens": ids["input_ids"].shape[1], "passes": result.checks["forward passes"],
    "points": result.checks["points"], "times": spent / own, "seconds": spent,
    "peak": megabytes("VmHWM") - loaded,
    "result": "determined" if result.determined else "undetermined",
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=float, default=240, help="seconds for one measurement")
    given = parser.parse_args()
    here = Path(__file__).parents[1]
    rows = []
    for length in LENGTHS:
        text = FILLER * ((length - 14) // 16) + " " + WORDS if length > 14 else WORDS
        for version, folder in (("now", here), ("before", given.before)):
            if folder is None:
                continue
            row = measured(folder, given.base, text.strip(), given.limit)
            rows.append({"length": length, "version": version} | row)
            print(rows[-1], flush=True)
    if given.out is not None:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def measured(checkout: Path, base: Path, text: str, limit: float) -> dict[str, object]:
    """One game in a process of its own; where it takes too long, that."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", CHILD, str(base), text]
    try:
        run = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return {"result": f"not done in {limit:g} seconds"}
    if run.returncode:
        return {"result": run.stderr.strip().splitlines()[-1][:200]}
    row: dict[str, object] = json.loads(run.stdout.splitlines()[-1])
    return row


if __name__ == "__main__":
    main()
