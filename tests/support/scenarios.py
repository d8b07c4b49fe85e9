"""Everything that writes files, as scenarios in which the disk can fail: the smallest of each.

``fault_outcomes`` tries them all and says how often each outcome came.
"""

import io
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import torch
from transformers import BertConfig, BertModel

from exhibit_a import corpus
from exhibit_a.commands.main import main
from exhibit_a.errors import ExhibitError
from exhibit_a.examples import Example
from exhibit_a.methods.identifiability.effective import effective_attention
from exhibit_a.models import TransformerConfig
from exhibit_a.report.html import write_page
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.training import trainer
from exhibit_a.training.train import CHECKPOINTS, train
from exhibit_a.training.trainer import Checkpoints
from support.corpora import save_model
from support.faults import Scenario, points, sweep
from support.words import tokenizer, word_piece
from support.zoo import FAMILIES

NAMES = (
    *("result", "page", "figure", "run", "resume", "finish", "training"),
    *("translator", "translator that goes on", "command"),
)
TEXTS = ("a fine film", "the dull plot", "it is not very long text")
LESSONS = [
    Example(str(n), f"the film {'good' if n % 2 else 'bad'}", None, "yes" if n % 2 else "no")
    for n in range(8)
]
SENTENCES = [("two dogs", "zwei Hunde"), ("a cat", "eine Katze"), ("two cats", "zwei Katzen")]


def fault_outcomes(
    folder: Path, *, seed: int = 0, count: int | None = None, names: Sequence[str] = NAMES
) -> dict[str, Counter[str]]:
    """The outcomes of scenarios, with all faults or ``count`` of each; and how many calls.

    ``folder`` is scratch room. An outcome that must not be is an AssertionError.
    """
    outcomes = {}
    for scenario in scenarios(folder / "material"):
        if scenario.name not in names:
            continue
        calls = len(points(scenario, folder / "work"))
        counted = sweep(scenario, folder / "work", seed=seed, count=count)
        outcomes[scenario.name] = counted + Counter({"calls": calls})
    return outcomes


def scenarios(material: Path) -> list[Scenario]:
    """All of them; what they need is made once, in a folder."""
    material.mkdir(parents=True, exist_ok=True)
    training = [_training(material), *_translators(material)]
    return [*_files(), *_runs(material), *training, _command(material)]


def _files() -> list[Scenario]:
    """A file of each kind, over an older one."""
    subject = load(FAMILIES["bert"].build(), tokenizer=tokenizer())
    result = effective_attention(capture(subject, TEXTS[0]))
    writers = {
        "result": lambda folder: result.save(folder / "file"),
        "page": lambda folder: write_page(result, folder / "file"),
        "figure": lambda folder: result.plot().savefig(folder / "file", format="png"),
    }

    def older(folder):
        (folder / "file").write_bytes(b"as it was before")

    return [Scenario(name, act=write, prepare=older) for name, write in writers.items()]


def _runs(material: Path) -> list[Scenario]:
    """A corpus run from its beginning, from its middle, and its last step."""
    subject = load(FAMILIES["bert"].build(), tokenizer=tokenizer())
    whole = material / "run"

    def begin(folder):
        corpus.run(subject, TEXTS, "effective_attention", folder / "run", window=2, dense=True)

    def go_on(folder):
        corpus.resume(folder / "run", subject=subject, examples=TEXTS)

    def either(folder):
        (go_on if (folder / "run" / "run.json").exists() else begin)(folder)

    def interrupted(folder):
        unfinished(folder)
        for place in ("receipts/00001.json", "heads/00001.parquet"):
            (folder / "run" / place).unlink()

    def unfinished(folder):
        shutil.copytree(whole, folder / "run")
        for name in ("manifest.json", "aggregates.parquet", "replicates.safetensors"):
            (folder / "run" / name).unlink()

    if not whole.exists():
        begin(material)
    return [
        Scenario("run", act=begin, again=either),
        Scenario("resume", act=go_on, prepare=interrupted),
        Scenario("finish", act=go_on, prepare=unfinished),
    ]


PASSING = f"model{CHECKPOINTS}"  # gone when a training is done


def _training(material: Path) -> Scenario:
    """A training, which goes on from its checkpoints when a file could not be written."""
    base = material / "base"
    words = word_piece()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    lengths = {"vocab_size": len(words), "max_position_embeddings": 16, "intermediate_size": 8}
    torch.manual_seed(0)
    BertModel(BertConfig(**sizes, **lengths)).save_pretrained(base)
    words.save_pretrained(base)

    def trained(folder):
        options = {"epochs": 1, "holdout": 0.5, "progress": False}
        return train(base, LESSONS, out=folder, **options)

    return Scenario("training", lambda folder: trained(folder / "model"), passing=PASSING)


def _translators(material: Path) -> list[Scenario]:
    """A translator from nothing, and one whose training was killed after its first epoch."""
    begun = material / "begun"
    sizes = {"vocab_size": 40, "d_model": 8, "d_ff": 8, "num_heads": 1}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    options = {"dev": SENTENCES[:1], "average": 1, "learning_rate": 0.05, "warmup": 1}

    def trained(folder, epochs=2):
        config = TransformerConfig(**sizes, **layers)
        with patch.object(trainer, "process_time", lambda: 0.0):  # times differ, rightly
            train(config, SENTENCES, out=folder, epochs=epochs, **options, progress=False)

    def act(folder):
        trained(folder / "model")

    if not begun.exists():
        with patch.object(Checkpoints, "remove"):  # what a killed training leaves behind
            trained(material / "short", epochs=1)
        (material / f"short{CHECKPOINTS}").rename(begun)
    return [
        Scenario("translator", act, passing=PASSING),
        Scenario(
            "translator that goes on",
            act,
            prepare=lambda folder: shutil.copytree(begun, folder / PASSING),
            passing=PASSING,
        ),
    ]


def _command(material: Path) -> Scenario:
    """A verb that writes two files, and says in one line why it could not."""
    model = save_model(material / "model")

    def act(folder):
        files = ("--out", str(folder / "result.safetensors"), "--plot", str(folder / "figure.png"))
        told = io.StringIO()
        with redirect_stdout(io.StringIO()), redirect_stderr(told):
            try:
                main(["effective", TEXTS[0], "--model", model, *files])
            except SystemExit as left:
                code = left.code
        if code != 0:
            assert (code, told.getvalue()[:7]) == (2, "error: ")
            raise ExhibitError(told.getvalue().removesuffix("\n"))

    return Scenario("command", act=act)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for name, counted in fault_outcomes(Path(scratch), names=sys.argv[1:] or NAMES).items():
            sys.stdout.write(f"{name}: {dict(counted)}\n")
