"""Command lines with hostile values for every option of every verb: answered, or one line."""

import contextlib
import io
import os
import random
import tempfile
from pathlib import Path
from typing import Any

from typer.main import get_command

from exhibit_a.commands import main as command
from support.corpora import save_model, save_texts
from support.fuzz import hostile
from support.fuzz.outcomes import Outcomes

LEFT_OUT = ("serve",)  # it would listen; its options are checked with wrong values alone
BUSY = ("--epochs", "--samples", "--repeats", "--restarts", "--steps", "--hidden", "--workers")
NONSENSE = ("-1", "0", "x", "", "nan", "18446744073709551616")


def command_lines(seed: int, attempts: int) -> Outcomes:
    """Give verbs hostile words, in a folder where nothing can be lost."""
    chance, outcomes = random.Random(seed), Outcomes()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = save_model(folder / "model")
        save_texts(folder / "texts.tsv", 12)
        known = verbs()
        with contextlib.chdir(folder):
            for _ in range(attempts):
                words = _words(known, model, chance)
                outcome, problem = _outcome(words)
                outcomes.add(outcome, words, problem)
    return outcomes


def verbs(left_out: tuple[str, ...] = LEFT_OUT) -> dict[tuple[str, ...], list[Any]]:
    """Every verb with its parameters, as the command line reads them."""
    whole: Any = get_command(command.app)
    found: dict[tuple[str, ...], list[Any]] = {}
    context = whole.make_context("exhibit-a", ["--help"], resilient_parsing=True)
    for verb in whole.list_commands(context):
        if verb in left_out:
            continue
        entry = whole.resolve_command(context, [verb])[1]
        inner = getattr(entry, "commands", None)
        if inner is None:
            found[(verb,)] = list(entry.params)
        else:
            found |= {(verb, name): list(part.params) for name, part in inner.items()}
    return found


def _words(verbs: dict[tuple[str, ...], list[Any]], model: str, chance: random.Random) -> list[str]:
    """A verb, sensible words for what it must be given, and one to three hostile ones."""
    verb = chance.choice(sorted(verbs))
    options = [part for part in verbs[verb] if part.param_type_name == "option"]
    words = [*verb]
    if chance.random() < 0.05:
        words = [chance.choice(hostile.WORDS)]
    for part in verbs[verb]:
        if part.param_type_name == "argument":
            words.append(_argument(part.name, chance))
    if any("--model" in part.opts for part in options) and chance.random() < 0.9:
        words += ["--model", model]
    for part in chance.sample(options, min(len(options), chance.randint(1, 3))):
        words += _option(part, chance)
    return words


def _argument(name: str, chance: random.Random) -> str:
    sensible = {
        **dict.fromkeys(("text", "question", "first", "second"), "a fine film"),
        **dict.fromkeys(("data", "examples", "passages"), "texts.tsv"),
    }
    if name in sensible and chance.random() < 0.7:
        return sensible[name]
    return chance.choice(hostile.WORDS)


def _option(part: Any, chance: random.Random) -> list[str]:
    name = chance.choice(part.opts)
    if getattr(part, "is_flag", False):
        return [name]
    return [name, chance.choice(NONSENSE if name in BUSY else hostile.WORDS)]


def _outcome(words: list[str]) -> tuple[str, str]:
    """How a command line ends."""
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command.main(words)
    except SystemExit as left:
        lines = [line for line in err.getvalue().splitlines() if line.strip()]
        if left.code in (0, None):
            return "answered", ""
        is_one_line = (
            lines and lines[-1].startswith("error: ") and "Traceback" not in err.getvalue()
        )
        errors = [line for line in lines if line.startswith("error: ")]
        if left.code == 2 and is_one_line and len(errors) == 1:
            return "refused", ""
        return "many lines", f"exit {left.code}: {err.getvalue()[-300:]}"
    except BaseException as problem:  # what an attack is looking for
        return "traceback", f"{type(problem).__name__}: {problem}"
    finally:
        os.chdir(before)
    return "answered", ""
