"""Verbs about a model: what it allows, and how to get one that knows a task."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from exhibit_a.commands.options import load_quietly, parameters_of, words_of
from exhibit_a.commands.screen import console, print_json
from exhibit_a.commands.verb import Verb, argument, option
from exhibit_a.errors import BadRequestError
from exhibit_a.progress import duration

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from exhibit_a.methods.doctor import Diagnosis
    from exhibit_a.subject.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Doctor(Verb):
    """Say what a model allows, how faithfully it is followed, and what the methods would cost."""

    model: str = argument("sentiment", help="A model inside, a folder or a hub id.")
    length: int = option(32, help="Tokens to estimate time and memory for.")
    rows: int | None = option(None, min=1, help="Rows of attention that are kept, if not all.")
    text: str | None = option(None, help="Also say what the model answers to this.")
    pair: str | None = option(None, help="The second text, for models of pairs.")
    truncate: bool = option(False, help="Cut a text that is too long for the model.")
    json: bool = option(False, help="Answer in JSON, for machines.")

    def run(self) -> None:
        """Answer."""
        from exhibit_a.methods.doctor import diagnose

        if self.text is None and (self.pair is not None or self.truncate):
            raise BadRequestError("--pair and --truncate belong to --text, and no text was given.")
        subject = load_quietly(self.model)
        diagnosis = diagnose(subject, length=self.length, rows=self.rows)
        answer = None
        if self.text is not None:
            answer = _answer(subject, words_of(self.text), self.pair, self.truncate)
        if self.json:
            facts = {} if answer is None else {"text": self.text, "answer": answer}
            print_json(diagnosis.to_dict() | facts)
            return
        screen = console()
        screen.print(_body(diagnosis))
        screen.print(_methods(diagnosis))
        if answer is not None:
            shares = ", ".join(f"{name} {share:.3f}" for name, share in answer.items())
            screen.print(*filter(None, (self.text, self.pair)), sep=" | ", style="bold")
            screen.print(f"  {shares}")


@dataclass(frozen=True, kw_only=True)
class Train(Verb):
    """Fine-tune an encoder on labelled text, or make a classifier or a translator from nothing."""

    base: str = argument(
        help="Folder or hub id of an encoder; or transformer, additive, recurrent, identifiable "
        "for a new model."
    )
    data: Path = argument(
        help="TSV, CSV, JSONL or Parquet file of labelled text; for a translator, sentences."
    )
    out: Path = option(short="-o", help="New folder for the model.")
    translations: Path | None = option(None, help="Line n translates line n of DATA.")
    dev: Path | None = option(None, help="Labelled text or sentences to choose the epoch by.")
    dev_translations: Path | None = option(None, help="Line n translates line n of --dev.")
    size: list[str] | None = option(None, help="name=value: a size of a new model.")
    teacher: str | None = option(None, help="Folder or hub id of a model to learn from as well.")
    text: str | None = option(None, help="Column of the text.")
    pair: str | None = option(None, help="Column of the second text.")
    label: str | None = option(None, help="Column of the label.")
    epochs: int | None = option(None, min=1, help="Times that the data are read, at most.")
    batch_size: int | None = option(None, min=1, help="Texts in a batch.")
    batch_tokens: int | None = option(None, min=1, help="Tokens in a batch of a translator.")
    learning_rate: float | None = option(None, help="Size of the steps, at their largest.")
    warmup: int | None = option(None, min=1, help="Steps of a translator up to the largest.")
    label_smoothing: float | None = option(None, help="Part of the target spread over all answers.")
    average: int | None = option(None, min=1, help="Epochs of a translator that are averaged.")
    patience: int | None = option(None, min=1, help="Epochs without a new best before stopping.")
    bleu_every: int | None = option(None, min=1, help="Epochs between translations of --dev.")
    max_length: int | None = option(None, min=4, help="Longer texts are cut.")
    half: bool | None = option(None, help="Matrix products of a translator in bfloat16.")
    train_embeddings: bool = option(False, help="Also train the word vectors of an encoder.")
    seed: int = option(0, help="Same seed, same numbers.")

    def run(self) -> None:
        """Train, and say where the model is."""
        from exhibit_a.training.new_models import configuration
        from exhibit_a.training.train import train

        config = configuration(self.base, parameters_of(self.size or []))
        learn, dev = (self.data, self.translations), (self.dev, self.dev_translations)
        translates = config is not None and config.is_encoder_decoder is True
        if translates and self.translations is None:
            raise BadRequestError("A translator learns from two files; give --translations FILE.")
        if translates and (self.dev is None) != (self.dev_translations is None):
            raise BadRequestError("--dev and --dev-translations belong together; give both.")
        if not translates and (self.translations or self.dev_translations):
            raise BadRequestError(f'"{self.base}" does not translate; leave the translations out.')
        apart = ("base", "data", "translations", "dev", "dev_translations", "size")
        options = {k: v for k, v in vars(self).items() if k not in apart}
        frozen = False if options.pop("train_embeddings") else None
        folder = train(
            config or self.base,
            learn if self.translations else self.data,
            dev=dev if self.dev_translations else self.dev,
            freeze_embeddings=frozen,
            **options,
        )
        console().print(f"saved in {folder}", soft_wrap=True)


def _answer(subject: "Subject", text: str, pair: str | None, truncate: bool) -> dict[str, float]:
    """The model's answer in words: classes, numbers, a class for each token, or the next token."""
    import torch

    from exhibit_a.trace.answers import in_words
    from exhibit_a.trace.capture import capture
    from exhibit_a.trace.targets import choose_target

    trace = capture(subject, text, pair=pair, keep=(), truncate=truncate)
    if subject.labels:
        if subject.anatomy.answers != "token classes":
            return in_words(subject, trace.output, choose_target(trace).position)
        shares = torch.softmax(trace.output.logits[0].float(), -1)
        best = enumerate(zip(trace.tokens, *shares.max(-1), strict=True))
        return {
            f"{place} {token}: {subject.labels[label]}": float(share)
            for place, (token, share, label) in best
        }
    scale = "probability" if subject.anatomy.answers == "tokens" else None
    target = choose_target(trace, scale=scale)
    return {str(target): float(target.value(trace)[0])}


def _body(diagnosis: "Diagnosis") -> "Table":
    """What the model is made of."""
    from rich.table import Table

    from exhibit_a.subject.anatomy import ANSWERS

    table = Table(
        show_header=False, box=None, title=f"{diagnosis.model} · {diagnosis.architecture}"
    )
    table.title_justify = "left"
    table.add_column(style="bold")
    table.add_column()
    stacks = ", ".join(f"{count} {name} layers" for name, count in diagnosis.stacks.items())
    shared = (
        ""
        if diagnosis.heads == diagnosis.kv_heads
        else f", {_listed(diagnosis.kv_heads)} with own keys"
    )
    held = diagnosis.dtype == diagnosis.computed_in
    computed = "" if held else f" (computed in {diagnosis.computed_in})"
    parity = "0" if diagnosis.parity == 0 else f"{diagnosis.parity:.1e}"
    rows = {
        "reached by": f"the {diagnosis.tap} tap, parity {parity} "
        f"(rounding would explain {diagnosis.tolerance:.0e})",
        "made of": f"{stacks}, {_listed(diagnosis.heads)} heads{shared} of width "
        f"{_listed(diagnosis.d_head)}, d_model {diagnosis.d_model}, "
        f"{diagnosis.parameters / 1e6:.1f} M parameters, {diagnosis.dtype}{computed}",
        "attention": ", ".join(diagnosis.variants) or "plain softmax, every token sees every token",
        "answers": ", ".join(diagnosis.labels) or ANSWERS[diagnosis.answers],
        "longest input": str(diagnosis.max_length or "no limit stated"),
        "identifiable": f"up to {diagnosis.identifiable_up_to} visible keys; from "
        f"{diagnosis.identifiable_up_to + 1} on, other weights give the same head output "
        f"(from {diagnosis.identifiable_up_to + 2} on, others that sum to one)",
        "output projection": "; ".join(diagnosis.sites_without_projection)
        or "found in every layer",
    }
    if diagnosis.warnings:
        rows["warnings"] = "; ".join(diagnosis.warnings)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _methods(diagnosis: "Diagnosis") -> "Group":
    """What may be computed, and the estimated cost; notes stand below, where they have room."""
    from rich.console import Group

    from exhibit_a.report.table import ResponsiveTable

    title = (
        f"methods at {diagnosis.length} tokens{_rows(diagnosis.rows)} "
        f"(one pass took {diagnosis.pass_seconds:.3f} s)"
    )
    costs = [
        {
            "method": row.method,
            "applies": "yes" if row.applies else "no",
            "passes": "" if row.forwards is None else f"{row.forwards:.0f}",
            "about": "" if row.seconds is None else duration(row.seconds),
            "keeps": "" if row.megabytes is None else f"{row.megabytes:.1f} MB",
            "peak": "" if row.peak_megabytes is None else f"{row.peak_megabytes:.1f} MB",
        }
        for row in diagnosis.methods
    ]
    names = list(COSTS)
    narrow = [name for name in names if name not in ("applies", "keeps")]
    tables = ResponsiveTable([partial(_cost_table, costs, shown) for shown in (names, narrow)])
    notes = (f"{row.method}: {row.reason}" for row in diagnosis.methods if row.reason)
    legend = "; ".join(f"{name}: {meaning}" for name, meaning in COSTS.items() if meaning)
    return Group(f"\n{title}", tables, f"\n{legend}", *notes)


COSTS = {  # the columns of the doctor's table, and what their names do not say
    "method": "",
    "applies": "",
    "passes": "runs of the model",
    "about": "time on this machine",
    "keeps": "memory of the result",
    "peak": "memory while it runs",
}


def _cost_table(costs: list[dict[str, str]], shown: list[str]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in shown:
        words = name in ("method", "applies")
        table.add_column(name, justify="left" if words else "right", no_wrap=True)
    for row in costs:
        table.add_row(*(row[name] for name in shown))
    return table


def _rows(count: int | None) -> str:
    return "" if count is None else f", {count} of their rows"


def _listed(numbers: tuple[int, ...]) -> str:
    return "/".join(map(str, numbers))
