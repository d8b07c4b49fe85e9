"""A run starts, resumes after a crash, and ends.

1. The data are read before anything is written, so that bad input leaves no folder behind. Every
   window's digest goes into the card. Of an iterator, which can be read only once, the first window
   is read and no digest is known.
2. The folder is locked and the card is written.
3. The data are read, always from the start, and every window is compared with the card. A window
   whose shard exists is compared with that and skipped; the engine processes the others, and each
   shard is committed as it arrives.
4. The aggregates are computed over the shards in their order, and the manifest is written.

Resuming repeats steps 2 to 4 with the card in the folder. A run that is refused before it has a
shard with an example leaves no folder.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

from exhibit_a.corpus.engines import Engine, engine_named
from exhibit_a.corpus.plan import (
    COLUMNS,
    PLANNED,
    Card,
    Data,
    Model,
    Plan,
    Window,
    checked_plan,
    versions,
    windows,
)
from exhibit_a.corpus.read import Run, Summary
from exhibit_a.corpus.run_folder import CARD, Folder
from exhibit_a.corpus.statistics import finish
from exhibit_a.corpus.tasks import SetTask, task_named
from exhibit_a.errors import (
    BadRequestError,
    ExhibitError,
    NotComputableError,
    UnsupportedModelError,
    require_choice,
)
from exhibit_a.examples import stream_examples
from exhibit_a.methods.registry import is_of_this_session
from exhibit_a.subject.guard import default_torch_state
from exhibit_a.subject.prompts import require_language_model
from exhibit_a.subject.subject import Subject, load

Source = str | Path | Iterable[object]
Progress = Callable[[int], None]  # is called with the number of examples that are done

REFUSALS = (BadRequestError, NotComputableError, UnsupportedModelError)
SHORT = 16  # characters of a window's digest in the card


@default_torch_state()
def run(
    subject: Subject | str | Path,
    examples: Source,
    method: str,
    out: str | PathLike[str],
    *,
    engine: str = "local",
    workers: int = 0,
    address: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Summary:
    """Run a method on every example and store the results in the folder ``out``.

    ``subject`` is a subject, or a name or folder that ``load`` takes. ``workers`` is the number of
    worker processes (0: this process does the work); they put their model on ``device``. Among the
    ``parameters``, text, pair, label, answer and identity name columns; seed, dense, window,
    tokens, too_long and unusable belong to the plan; the others are the method's. A method
    of a language model is about the answer of each example, where it has one.

    >>> texts = ["a fine film", "dull and far too long"]
    >>> summary = xa.corpus.run(subject, texts, "effective_attention", tmp_path / "effective")
    >>> summary.counts
    {'examples': 2, 'shards': 1, 'truncated': 0, 'unusable': 0}
    >>> summary.rows[0]["statistic"], summary.rows[0]["mean"]  # in tokens
    ('length', 6.0)
    >>> xa.corpus.run(subject, texts, "effective_attention", tmp_path / "effective")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: ...effective already holds a run. Resume it ...
    """
    if Path(out) == Path():  # also what an empty name becomes
        raise BadRequestError(
            "A run needs a folder of its own, not the current one. Name a new one."
        )
    settings = {name: parameters.pop(name) for name in PLANNED if name in parameters}
    columns = {name: parameters.pop(name) for name in COLUMNS if name in parameters}
    task = task_named(method, parameters)
    if (engine != "local" or workers > 0) and is_of_this_session(method):
        raise BadRequestError(
            f"The method {method!r} was registered in this session, and worker processes do not "
            "know it. Offer it by entry point (exhibit_a.methods), or run with workers=0."
        )
    plan = checked_plan(method=method, parameters=task.model_dump(mode="json"), **settings)
    if plan.dense and not task.can_be_dense:
        raise BadRequestError(f"{method} has no maps to keep; leave dense out.")
    chosen = engine_named(engine, workers, address, device)
    data = Data(source=str(examples) if isinstance(examples, str | Path) else None, **columns)
    todo = _not_empty(_windows(examples, data, plan), examples)
    if not isinstance(examples, Iterator):  # read twice: first for the digest of every window
        digests = tuple(window.digest[:SHORT] for window in todo)
        data, todo = data.model_copy(update={"windows": digests}), _windows(examples, data, plan)
    loaded = subject if isinstance(subject, Subject) else load(subject)
    if data.answer is not None:
        require_language_model(loaded, "An answer")
    card = _card(plan, loaded, data, device)
    folder = Folder(Path(out))
    with folder.locked(new=True), _removed_if_refused(folder):
        folder.begin(card)
        return _process(folder, card, loaded, todo, chosen, progress)


@default_torch_state()
def resume(
    path: str | PathLike[str],
    *,
    subject: Subject | str | None = None,
    examples: Source | None = None,
    engine: str = "local",
    workers: int = 0,
    address: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Summary:
    """Continue a run that was interrupted, or repair a finished one whose files are damaged.

    A model or data that were given as objects have to be given again; they must be the same. The
    engine and the number of workers may be others: they change no number. ``settings`` of the plan
    (seed, window, tokens …) need not be repeated; where they are, they must be the same.

    >>> texts = ["a fine film", "dull and far too long"]
    >>> summary = xa.corpus.run(subject, texts, "effective_attention", tmp_path / "killed")
    >>> (tmp_path / "killed" / "manifest.json").unlink()  # as if it had not ended
    >>> again = xa.corpus.resume(tmp_path / "killed", subject=subject, examples=texts)
    >>> again.counts == summary.counts
    True
    >>> xa.corpus.resume(tmp_path / "nothing")
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: There is no run folder ...nothing.
    """
    folder, chosen = Folder(Path(path)), engine_named(engine, workers, address, device)
    with folder.locked():
        card = folder.card
        for name in settings:
            require_choice("setting of the plan", name, PLANNED)
        plan = card.plan.model_copy(update=settings)
        _require_same(card, card.model_copy(update={"plan": plan}))
        damaged = folder.damage() if folder.finished else []
        if folder.finished and not damaged:
            return Run(folder).summary()
        if CARD in damaged:
            folder.begin(card)
        source = card.data.source if examples is None else examples
        if source is None:
            raise BadRequestError(
                "The examples of this run came from memory; give them again with examples=."
            )
        loaded = subject if isinstance(subject, Subject) else load(subject or card.model.name)
        _require_same(card, _card(card.plan, loaded, card.data, device))
        todo = _not_empty(_windows(source, card.data, card.plan), source)
        return _process(folder, card, loaded, todo, chosen, progress)


def _card(plan: Plan, subject: Subject, data: Data, device: str | None) -> Card:
    """A run of today: the versions that are installed, the device on which the work is done."""
    kind = (device or str(subject.device)).partition(":")[0]
    return Card(plan=plan, model=Model.of(subject), data=data, versions=versions(), device=kind)


def _require_same(card: Card, now: Card) -> None:
    """Refuse to go on where something that decides the numbers is no longer what it was."""
    if differences := card.differences(now):
        raise BadRequestError(
            f"This run cannot go on, because something changed: {'; '.join(differences)}. "
            "Numbers from both would not belong together."
        )


@contextmanager
def _removed_if_refused(folder: Folder) -> Iterator[None]:
    """Leave nothing of a run that is refused before it has an example, or cannot begin."""
    try:
        yield
    except ExhibitError as problem:
        begun = (folder.path / CARD).is_file()
        empty = not any(receipt["examples"] for receipt in folder.complete())
        if not begun or (empty and isinstance(problem, REFUSALS)):
            folder.discard()
        raise


def _windows(source: Source, data: Data, plan: Plan) -> Iterator[Window]:
    whole = isinstance(task_named(plan.method, dict(plan.parameters)), SetTask)
    stream = stream_examples(source, data.columns, identity=data.identity, unusable=plan.unusable)
    return windows(stream, None if whole else plan.window)


def _not_empty(todo: Iterator[Window], source: Source) -> Iterator[Window]:
    """The windows; data without any example are refused."""
    first = next(todo, None)
    if first is None or not first.examples:
        name = Path(source).name if isinstance(source, str | Path) else "The list"
        unusable = (
            f" ({len(first.unusable)} rows could not be used: {first.unusable[0]})" if first else ""
        )
        raise BadRequestError(f"{name} holds no examples{unusable}. Give at least one text.")
    return chain([first], todo)


def _process(
    folder: Folder,
    card: Card,
    subject: Subject,
    todo: Iterator[Window],
    engine: Engine,
    progress: Progress | None,
) -> Summary:
    """Steps 3 and 4."""
    done = {receipt["shard"]: receipt for receipt in folder.complete()}
    began_with = card.data.windows
    count = examples = 0

    def report(more: int) -> None:
        nonlocal examples
        examples += more
        if progress is not None:
            progress(examples)

    def unfinished() -> Iterator[Window]:
        nonlocal count
        for window in todo:
            receipt = done.get(count)
            if began_with and began_with[count : count + 1] != (window.digest[:SHORT],):
                raise _changed(window, "what this run began with")
            if receipt is not None and receipt["window"] != window.digest:
                raise _changed(window, f"those of shard {count}")
            count += 1
            if receipt is None:
                yield window
            else:
                report(receipt["examples"])

    for shard in engine.shards(card, subject, unfinished()):
        folder.commit(shard)
        report(shard.receipt["examples"])
    before = len(began_with) if began_with else max(done, default=-1) + 1
    if count < before:
        raise BadRequestError(
            f"The data changed: they now make {count} shards, and {before} earlier in this run. "
            "Start a new run in another folder."
        )
    return finish(folder, card, subject, count)


def _changed(window: Window, before: str) -> BadRequestError:
    last = window.start + max(len(window.examples) - 1, 0)
    return BadRequestError(
        f"The data changed: examples {window.start} to {last} are not {before}. Start a new run in "
        "another folder."
    )
