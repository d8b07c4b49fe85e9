"""Do the numbers of docs/claims.md come out again?

    python studies/again.py --data DATA [--work FOLDER] [--models FOLDER]

The cheap studies on small samples, one after the other in one process, into FOLDER/claims.jsonl.
A study whose command is there already is left out, so that a stopped run goes on; so is one whose
model is not in the folder of models (``studies/bases.py`` fills it). Then every number is laid
beside the stored one: it comes out again where the two 95 % intervals meet; a number without an
interval, where every test of a claim says the same of both. Ends with an error where one does not.
"""

import argparse
import importlib
import sys
from pathlib import Path

from claims import CLAIMS
from measurements import FILE, Measurement, kept

KEPT = "--docs WORK/docs"  # small samples must not replace what pages are made of
MPNET = "--base MODELS/all-mpnet-base-v2"
EXPLANATION = "explanation --data SST --out WORK/explanation"
STUDIES = (
    "stored",
    "collapse --data DATA --sentences 10",
    f"mixing --base sentiment --data SST --sentences 12 --probes 8 --parts mixing {KEPT}",
    f"mixing --base sentiment --data SST --texts 300 --maps linear --parts tokens {KEPT}",
    f"mixing --base sentiment --data SST --sentences 60 --probes 4 --parts heads {KEPT}",
    f"tasks train --data DATA --work WORK/tasks --tasks SST-2 MNLI {KEPT}",
    f"tasks effectiveness --data DATA --work WORK/tasks --tasks SST-2 --ranked 30 {KEPT}",
    f"identifiability {MPNET} --data DATA --texts 2 --longest 512 --parts length {KEPT}",
    f"mixing {MPNET} --data SST --sentences 4 --probes 4 --parts mixing {KEPT}",
    f"causal --base MODELS/SmolLM2-135M-Instruct --data DATA --texts 2 --probes 4 {KEPT}",
    "edges --data DATA --sentences 12 --out WORK/edges.jsonl",
    f"{EXPLANATION} --sentences 100 --shuffles keys --parts permutation report",
    f"{EXPLANATION} --sentences 25 --by raw --parts faithfulness report",
    f"identifiability --base sentiment --data DATA --texts 4 --counted 2 {KEPT}",
    "gold --data DATA --sentences 40 --out WORK/gold.jsonl",
    f"{EXPLANATION} --sentences 4 --parts adversary report",
)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    asked.add_argument("--work", type=Path, default=Path("build/claims"), help="kept between runs")
    asked.add_argument("--models", type=Path, help="folder of larger models; usually WORK/models")
    asked.add_argument("--first", type=int, help="only so many studies")
    options = asked.parse_args()
    options.models = options.models or options.work / "models"
    options.work.mkdir(parents=True, exist_ok=True)
    new, marks = options.work / "claims.jsonl", options.work / "done.txt"
    for study in STUDIES[: options.first]:
        if not marks.exists() or study not in marks.read_text().splitlines():
            if missing := absent_model(study, options.models):
                print(f"left out, for there is no {missing}: {study}")
                continue
            run(study, options, new)
            with marks.open("a") as file:
                file.write(f"{study}\n")
    sys.exit(compared(kept(FILE), kept(new)))


def absent_model(study: str, models: Path) -> Path | None:
    """The model that a study needs and that is not there."""
    needed = [models / word.removeprefix("MODELS/") for word in study.split() if "MODELS/" in word]
    return next((folder for folder in needed if not folder.is_dir()), None)


def run(study: str, options: argparse.Namespace, ledger: Path) -> None:
    """One study, as its command line would run it."""
    name, *given = study.split()
    folders = {"DATA": options.data, "SST": options.data / "SST-2", "WORK": options.work}
    folders["MODELS"] = options.models
    for place, argument in enumerate(given):
        folder, _, rest = argument.partition("/")
        if folder in folders:
            given[place] = str((folders[folder] / rest).absolute())
    sys.argv = [f"studies/{name}.py", *given, "--ledger", str(ledger)]
    importlib.import_module(name).main()


def compared(stored: dict[str, Measurement], new: dict[str, Measurement]) -> int:
    """How many numbers do not come out again; each is printed beside the stored one."""
    off = 0
    for name in stored.keys() & new.keys():
        before, after = stored[name], new[name]
        same = alike(before, after)
        off += not same
        print(f"{'' if same else 'NOT '}again: {name}: {told(before)}; now {told(after)}")
    missing = sorted(stored.keys() - new.keys())
    print(f"{len(stored.keys() & new.keys()) - off} numbers came out again, {off} did not.")
    print(f"{len(missing)} of {len(stored)} stored ones take longer than this run: make studies")
    return off


def alike(before: Measurement, after: Measurement) -> bool:
    """Whether intervals meet; without intervals, whether the claims would be judged alike."""
    if not (before.exact and after.exact):
        return before.overlaps(after)
    tests = [test for claim in CLAIMS for test in claim.tests if test.id == before.id]
    return all(test.outcome(before) == test.outcome(after) for test in tests)


def told(found: Measurement) -> str:
    low, high = found.interval
    return f"{found.value:.3g} [{low:.3g}, {high:.3g}] ({found.count} {found.of})"


if __name__ == "__main__":
    main()
