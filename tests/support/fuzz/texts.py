"""Texts that are hard on tokenizers: examined, shown, saved and read again; or refused."""

import contextlib
import io
import random
import tempfile
from pathlib import Path

import exhibit_a as xa
from exhibit_a.report.html import write_page
from support.every_method import same
from support.fuzz import hostile
from support.fuzz.outcomes import Outcomes, outcome_of
from support.subjects import speaker
from support.words import word_piece
from support.zoo import FAMILIES


def texts(seed: int, attempts: int) -> Outcomes:
    """Examine hostile texts with several tokenizers, and take the results everywhere they go."""
    chance, outcomes = random.Random(seed), Outcomes()
    subjects = [
        speaker(),
        xa.load(FAMILIES["bert"].build(), tokenizer=word_piece()),
        xa.load("sentiment"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(attempts):
            subject, text = chance.choice(subjects), hostile.text(chance)
            pair = hostile.text(chance) if chance.random() < 0.2 else None
            outcome, problem = outcome_of(
                lambda subject=subject, text=text, pair=pair: _examined(
                    subject, text, pair, Path(folder)
                )
            )
            outcomes.add(outcome, (subject.name, text, pair), problem)
    return outcomes


def _examined(subject: xa.Subject, text: str, pair: str | None, folder: Path) -> str:
    trace = xa.capture(subject, text, pair=pair, truncate=len(text) % 2 == 0)
    result = xa.effective_attention(trace)
    with contextlib.redirect_stdout(io.StringIO()):
        xa.show(result)
    page = write_page(result, folder / "page.html").read_bytes()
    if any(sign in page for sign in (b"\0", b"\x1b")):
        return "different"
    read = xa.read(result.save(folder / "result.safetensors"))
    return "answered" if same(read, result) else "different"
