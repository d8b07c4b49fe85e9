"""Bad values for what people give to functions of Python: refused in one line, or answered.

Rows, spans, answers, conversations, passages, heat_maps, pairs to translate, options of a training,
results to compare, functions of one's own. Each has a pool of values that do not make sense there.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import exhibit_a as xa
from exhibit_a.examples.passages import read_passages
from exhibit_a.methods import registry
from exhibit_a.methods.custom_methods import result_of
from exhibit_a.models import TransformerConfig
from exhibit_a.subject.images import read_picture
from exhibit_a.subject.prompts import read_messages
from support.every_method import TEXT
from support.fuzz.outcomes import Outcomes, outcome_of
from support.subjects import opinionated, talking

NAN, INFINITE = float("nan"), float("inf")
SIZES = {"vocab_size": 40, "d_model": 8, "d_ff": 8, "num_heads": 1}
PAIRS = [("two dogs", "zwei Hunde"), ("a cat", "eine Katze"), ("two cats", "zwei Katzen")]
HALF = "a \ud800 film"
GOOD_PASSAGES = ["The cat sat.", "It rained."]

APART = """
import json, sys
from support.fuzz.given import given
found = given(*map(int, sys.argv[1:]))
print(json.dumps([found.counts, found.examples]))
"""

Given = tuple[Callable[[Any], object], Sequence[Any]]  # what is called, and what with


def given(seed: int, attempts: int) -> Outcomes:
    """Give bad values to functions: every one, or so many of them."""
    chance, outcomes = random.Random(seed), Outcomes()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pools = everything(folder, bad_files(folder))
        tried = [(name, call, value) for name, (call, pool) in pools.items() for value in pool]
        before = set(folder.iterdir())
        for name, call, value in chance.sample(tried, min(attempts, len(tried))):
            outcome, problem = outcome_of(lambda call=call, value=value: _answered(call, value))
            left = set(folder.iterdir()) - before
            if outcome == "refused" and left:
                outcome, problem = "different", "it left something behind"
            outcomes.add(outcome, (name, repr(value)[:80]), problem)
            for path in left:
                shutil.rmtree(path)
    return outcomes


def given_apart(seed: int, attempts: int) -> Outcomes:
    """The same in a process of its own: in tests, annotations refuse wrong types before we do."""
    done = subprocess.run(
        [sys.executable, "-c", APART, str(seed), str(attempts)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    counts, examples = json.loads(done.stdout.splitlines()[-1])
    return Outcomes(Counter(counts), examples)


def everything(folder: Path, files: dict[str, Path]) -> dict[str, Given]:
    """What can be given something, by name, with values that it should not be given."""
    return {**_to_passes(), **_to_results(), **_files(files), **_to_training(folder, files)}


def _to_passes() -> dict[str, Given]:
    reader, writer = opinionated(), talking("llama")
    rows = (
        *(slice(None, None, 0), slice(5, 2), [], (), [99], -99, 2**70, [0, 2**70], "all", ""),
        *(NAN, [1.5], ["a"], [None], slice(0.5, 2), slice("a", None), [[0]], torch.ones(2)),
    )
    answers = ("", " ", HALF, (), (10**9,), (-1,), (2**70,), ("a",), 3, b"x", [], (1.5,))
    spoken = [{"role": "user", "content": "hello"}]
    talks = (
        *(
            [{}],
            [{"role": "user"}],
            [{"role": 3, "content": "x"}],
            [{"role": "user", "content": 3}],
        ),
        *([{"role": "user", "content": HALF}], [{"role": "user", "content": ""}], spoken, []),
        *([{"role": "assistant", "content": "x"}], [None], {"role": "user"}, ["a", "b"], 3, None),
    )
    passages = ([], ["one"], ["a", ""], ["a", HALF], ["a", 3], [None, "b"], "text", 3, None, {})
    return {
        "rows": (lambda value: xa.capture(reader, TEXT, rows=value), rows),
        "answer": (lambda value: xa.capture(writer, TEXT, target_text=value), answers),
        "answer of a reader": (lambda value: xa.capture(reader, TEXT, target_text=value), answers),
        "generate": (
            lambda value: xa.capture(writer, TEXT, generate=value),
            (0, -1, -(2**70), "3", 1.5, NAN),
        ),
        "messages": (lambda value: xa.capture(writer, value), talks),
        "keep": (
            lambda value: xa.capture(reader, TEXT, keep=value),
            ("", ["nothing"], [3], "hidden"),
        ),
        "passages": (lambda value: xa.context_attribution(writer, "What sat?", value), passages),
        "template": (
            lambda value: xa.context_attribution(writer, "q", GOOD_PASSAGES, template=value),
            ("", "{passages}", "{question}", "{", "{passages}{passages}{question}", HALF, "{0}"),
        ),
        "question": (
            lambda value: xa.context_attribution(writer, value, GOOD_PASSAGES),
            ("", " ", HALF, 3, None),
        ),
    }


def _to_results() -> dict[str, Given]:
    subject = opinionated()
    trace = xa.capture(subject, TEXT)
    result = xa.companions(trace, methods=["raw"])["raw"]
    spans = (
        *("", "letter", [], {}, [(0, 0)], [(3, 1)], [(-1, 2)], [(0, 10**9)], [(0, 4), (2, 6)]),
        *(
            [(0,)],
            [(0, 1, 2, 3)],
            [(9, 0, 1)],
            ["nowhere"],
            [""],
            [None],
            [3],
            [(0.5, 2)],
            [("a", 2)],
        ),
        *({"a": None}, {"a": "nowhere"}, {"a": (NAN, 2)}, [HALF], [[0, 2**70]], 3, None),
    )
    others = ("text", 3, None, subject, trace, xa.effective_attention(trace), [], HALF)
    return {
        "by": (result.by, spans),
        "compare": (lambda value: xa.compare(result, value), others),
        "compare texts": (
            lambda value: xa.compare(TEXT, value, subject=subject),
            ("", HALF, 3, None),
        ),
        "compare models": (
            lambda value: xa.compare(subject, value, text=TEXT),
            ("", 3, None, result),
        ),
        "a function of one's own": (lambda value: _registered(value, "tokens"), FUNCTIONS),
        "maps of one's own": (lambda value: _registered(value, "maps"), FUNCTIONS),
    }


def _failing(trace):
    raise RuntimeError("two\nlines")


FUNCTIONS: tuple[Any, ...] = (
    *(None, 3, "name", min, print, _failing),
    lambda: None,
    lambda trace: None,
    lambda trace: "words",
    lambda trace: [],
    lambda trace: [1.0],
    lambda trace: torch.full((len(trace.tokens),), NAN),
    lambda trace: torch.ones(len(trace.tokens), dtype=torch.complex64),
    lambda trace: (torch.ones(len(trace.tokens)), 3),
    lambda trace: (torch.ones(len(trace.tokens)), None),
    lambda trace: (torch.ones(len(trace.tokens)), {"standard error": "none"}),
    lambda trace: {"a": 1},
    lambda trace: [None] * len(trace.tokens),
    lambda trace: ["a"] * len(trace.tokens),
    lambda trace: np.array(["a", None], dtype=object),
    lambda trace: [torch.ones(1)] * 99,
    lambda trace: [[1.0], [1.0, 2.0]],
    lambda trace, needed: torch.ones(len(trace.tokens)),
    lambda *anything: torch.ones(99, 99),
    lambda trace: iter([1.0, 2.0]),
    lambda trace: trace,
)


def _registered(function: Any, gives: str) -> object:
    """Make a function a method for as long as it is asked once."""
    try:
        xa.register(function, name="badly_made", gives=gives)
        return result_of("badly_made", xa.capture(opinionated(), TEXT))
    finally:
        registry._known.pop("badly_made", None)


def _files(files: dict[str, Path]) -> dict[str, Given]:
    paths = [
        *files.values(),
        Path("nowhere"),
        Path("x" * 5000),
        Path("a\0b.txt"),
        Path("/dev/zero"),
    ]
    return {
        "a file of passages": (read_passages, paths),
        "a file of messages": (read_messages, paths),
        "a file of a picture": (read_picture, paths),
        "a file of a result": (xa.read, paths),
        "a file of texts": (xa.read_examples, paths),
    }


def _to_training(folder: Path, files: dict[str, Path]) -> dict[str, Given]:
    config = TransformerConfig(**SIZES, encoder_layers=1, decoder_layers=1)

    def taught(pairs: Any = PAIRS, **options: Any) -> object:
        usual = {"epochs": 1, "dev": PAIRS[:1], "progress": False, "out": folder / "new"}
        return xa.train(config, pairs, **{**usual, **options})

    pairs = (
        *([], [("a",)], [("a", "b", "c")], [("a", "")], [("", "b")], [("a", HALF)], [("a", 3)]),
        *("text", 3, None, {}, [None], (["a"], ["b", "c"]), (["a"], 3), (3, 3), [("a", None)]),
        *((path, path) for path in files.values()),
    )
    numbers = (0, -1, 1.5, NAN, INFINITE, -INFINITE, "3", None, [], 2**70, True, 1e300)
    options = [
        (name, number)
        for name in ("epochs", "batch_tokens", "warmup", "average", "patience", "bleu_every")
        for number in numbers
        if number is not None and not (name in ("epochs", "patience") and number in (2**70, True))
    ]
    options += [("learning_rate", n) for n in (0, -1, NAN, INFINITE, "x", 1e300)]
    options += [("label_smoothing", n) for n in (-1, 1, 2, NAN, "x")]
    options += [("holdout", n) for n in (0, 1, NAN, "x")]
    options += [("seed", n) for n in (2**70, "x", 1.5, None)]
    options += [("device", n) for n in ("nowhere", 3, "cuda:99")]
    options += [("out", n) for n in ("", ".", "x" * 5000, "a\0b", files["text.txt"])]
    options += [("max_length", 9), ("teacher", "x"), ("text", "x"), ("half", "x")]
    return {
        "pairs": (lambda value: taught(value), pairs),
        "an option of a training": (lambda value: taught(**{value[0]: value[1]}), options),
        "a base": (
            lambda value: xa.train(value, PAIRS, out=folder / "new", progress=False),
            (
                "",
                "nothing",
                3,
                None,
                opinionated().model.config,
                opinionated().model,
                HALF,
                "x" * 5000,
            ),
        ),
    }


def bad_files(folder: Path) -> dict[str, Path]:
    """Files of every kind that hold nothing of that kind, by name."""
    good_table = b"passage\na cat\na dog\n"
    contents: dict[str, bytes] = {
        "text.txt": b"only one passage",
        "bytes.txt": bytes(range(256)) * 4,
        "empty.txt": b"",
        "blank.txt": b"\n \n\n",
        "empty.jsonl": b"",
        "wrong.jsonl": b'{"colour": 1}\n{"colour": 2}\n',
        "list.jsonl": b"[1]\n",
        "numbers.jsonl": b'{"passage": 3}\n{"passage": null}\n',
        "half.jsonl": b'{"passage": "a \\ud800"}\n{"passage": "b"}\n',
        "deep.jsonl": b"[" * 100_000,
        "digits.jsonl": b'{"passage": ' + b"9" * 5000 + b"}\n",
        "bytes.parquet": b"PAR1" + bytes(range(256)) + b"PAR1",
        "cut.tsv": b"passage\tpassage\n\t\n",
        "bytes.csv": bytes(range(256)),
        "quote.csv": b'passage\n"never closed\n',
        "empty.json": b"",
        "deep.json": b"[" * 100_000,
        "digits.json": b"9" * 5000,
        "object.json": b"{}",
        "half.json": b'[{"role": "user", "content": "\\ud800"}]',
        "table.png": good_table,
        "empty.png": b"",
        "cut.png": _png(8, 8)[:-30],
        "bomb.png": _png(40_000, 40_000),
        "huge.png": _png(2**31 - 1, 2**31 - 1),
        "text.safetensors": good_table,
        "long.safetensors": (2**62).to_bytes(8, "little") + good_table,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    named = {name: folder / name for name in contents}
    for ending in ("txt", "jsonl", "json", "png", "safetensors"):
        os.mkfifo(folder / f"pipe.{ending}")
        (folder / f"folder.{ending}").mkdir()
        with (folder / f"sparse.{ending}").open("wb") as sparse:
            sparse.truncate(2**40)
        kinds = ("pipe", "folder", "sparse")
        named |= {f"{kind}.{ending}": folder / f"{kind}.{ending}" for kind in kinds}
    return named


def _png(width: int, height: int) -> bytes:
    """A heat map whose data end early; a large one is small as a file."""
    packed = zlib.compress(bytes(min(10**6, 3 * width * height)))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", packed)]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in [*parts, (b"IEND", b"")]
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _answered(call: Callable[[Any], object], value: Any) -> str:
    call(value)
    return "answered"
