"""Saved results with damaged bytes: each is refused, or read as what it was."""

import random
import tempfile
from pathlib import Path

import exhibit_a as xa
from support.every_method import TEXT, same
from support.fuzz.damage import damaged
from support.fuzz.outcomes import Outcomes, outcome_of
from support.subjects import opinionated


def result_files(seed: int, attempts: int) -> Outcomes:
    """Damage a saved result in many ways, and read it."""
    chance, outcomes = random.Random(seed), Outcomes()
    trace = xa.capture(opinionated(), TEXT)
    results = [
        xa.effective_attention(trace),
        xa.attribution_tree(xa.self_attribution(trace)),
        xa.trial(opinionated(), TEXT),
    ]
    with tempfile.TemporaryDirectory() as folder:
        saved = [
            (result, result.save(Path(folder) / f"{place}.safetensors").read_bytes())
            for place, result in enumerate(results)
        ]
        for _ in range(attempts):
            result, content = chance.choice(saved)
            changed, words = damaged(content, chance)
            file = Path(folder) / "damaged.safetensors"
            file.write_bytes(changed)
            outcome, problem = outcome_of(
                lambda file=file, result=result: (
                    "same" if same(xa.read(file), result) else "different"
                )
            )
            outcomes.add(outcome, f"{type(result).__name__}, {words}", problem)
    return outcomes
