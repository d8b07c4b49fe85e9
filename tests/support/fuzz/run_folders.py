"""Run folders with a damaged, shortened or missing file: refused, or read as what it was."""

import random
import shutil
import tempfile
from pathlib import Path

import exhibit_a as xa
from support.corpora import examples
from support.fuzz.damage import damaged
from support.fuzz.outcomes import Outcomes, outcome_of
from support.subjects import speaker


def run_folders(seed: int, attempts: int) -> Outcomes:
    """Damage one file of a finished run, and read all of the run."""
    chance, outcomes = random.Random(seed), Outcomes()
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        xa.corpus.run(speaker(), examples(12), "effective_attention", run)
        sound = _everything(run)
        files = sorted(path for path in run.rglob("*") if path.is_file())
        for _ in range(attempts):
            file = chance.choice(files)
            content = file.read_bytes()
            words = f"{file.relative_to(run)}: {_any_damage(file, content, chance)}"
            outcome, problem = outcome_of(
                lambda: "same" if _everything(run) == sound else "different"
            )
            outcomes.add(outcome, words, problem)
            if file.is_dir():
                shutil.rmtree(file)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
    return outcomes


def _any_damage(file: Path, content: bytes, chance: random.Random) -> str:
    way = chance.random()
    if way < 0.1 or not content:
        file.unlink()
        return "deleted"
    if way < 0.15:
        file.unlink()
        file.mkdir()
        return "a folder in its place"
    changed, words = damaged(content, chance)
    file.write_bytes(changed)
    return words


def _everything(run: Path) -> tuple[str, ...]:
    """All that a run says, in words that can be compared."""
    opened = xa.corpus.open(run)
    summary = opened.summary()
    return (
        repr(summary.counts),
        repr(summary.rows),
        repr(summary.checks),
        opened.to_pandas().to_json(double_precision=15),
        opened.to_pandas("heads").to_json(double_precision=15),
    )
