"""What does a command do before it answers, and how long does each part take?

    python benchmarks/start.py [--runs 3] [--out docs/data/start.json]

``exhibit-a explain`` of a text of 20 words, cold: every run is a process of its own, on one thread,
in processor seconds, so that a busy machine counts little; the least of the runs is kept. On a
quiet machine with several cores the trial takes less by the clock, and imports do not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TEXT = "The film is slow and far too long , but the acting is superb and the end is worth it"
PROGRAM = """
import json, sys, time
spent, last = {}, time.process_time()
def lap(name):
    global last
    now = time.process_time()
    spent[name], last = now - last, now
spent["interpreter"] = last
from exhibit_a.commands import main
lap("command line")
import torch
lap("torch")
from transformers import BertForSequenceClassification
lap("transformers")
import exhibit_a as xa
from exhibit_a.trials.trial import trial
lap("methods")
subject = xa.load("sentiment")
lap("model")
outcome = trial(subject, sys.argv[1])
lap("trial")
outcome.html(sys.argv[2])
lap("page")
print(json.dumps(spent))
"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--runs", type=int, default=3)
    asked.add_argument("--out", type=Path, help="write the measurements to this file")
    options = asked.parse_args()
    runs = [_run() for _ in range(options.runs)]
    least = {part: min(run[part] for run in runs) for part in runs[0]}
    for part, seconds in least.items():
        print(f"  {part:14} {seconds:6.2f} s")
    print(f"  {'together':14} {sum(least.values()):6.2f} s, the least of {len(runs)} runs")
    if options.out is not None:
        options.out.write_text(json.dumps({"runs": len(runs), "seconds": least}, indent=1) + "\n")


def _run() -> dict[str, float]:
    alone = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PROGRAM, TEXT, str(Path(folder) / "page.html")]
        told = subprocess.run(command, check=True, capture_output=True, text=True, env=alone)
    seconds: dict[str, float] = json.loads(told.stdout)
    return seconds


if __name__ == "__main__":
    main()
