"""What does a command do before it answers, and how long does each part take?

    python benchmarks/start.py [--runs 3] [--out docs/data/start.json]

``exhibit-a explain`` of a text of 20 words, cold: every run is a process of its own, in processor
seconds; the least of the runs is kept. On a quiet machine with several cores the trial takes less
by the clock, and imports do not.
"""

import tempfile
from pathlib import Path

from support.measure import alone, begun, written

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
    given = begun(__doc__, runs=3)
    with tempfile.TemporaryDirectory() as folder:
        command = ["-c", PROGRAM, TEXT, str(Path(folder) / "page.html")]
        quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        runs = [alone(*command, **quiet) for _ in range(given.runs)]
    least = {part: min(run[part] for run in runs) for part in runs[0]}
    for part, seconds in {**least, "together": sum(least.values())}.items():
        print(f"  {part:14} {seconds:6.2f} s")
    written(given.out, {"runs": len(runs), "seconds": least})


if __name__ == "__main__":
    main()
