"""The main verb: everything about one text, on the screen and on one page."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exhibit_a.commands.method_verbs import given
from exhibit_a.commands.options import OneText, WithPage, expect, refuse_together
from exhibit_a.commands.screen import Facts, print_json, print_written
from exhibit_a.commands.verb import option
from exhibit_a.progress import progress_bar

if TYPE_CHECKING:
    from exhibit_a.methods.attribution.reliance import Reliance
    from exhibit_a.methods.explanation.heat_maps import HeatMaps
    from exhibit_a.trials.trial import Trial


@dataclass(frozen=True, kw_only=True)
class Explain(OneText, WithPage):
    """Examine a text with every method: a verdict per head, and a page to look around in."""

    target: str | None = option(
        None, help="Label or token to explain; without, what the model answers."
    )
    target_text: str | None = option(
        None, help="What a model with two stacks says; the same as --answer."
    )
    label: str | None = option(None, help="The true label, shown next to the answer.")
    probes: int | None = option(
        None,
        min=2,
        help="Directions per token with which mixing is estimated; without, as many as fit.",
    )
    timing: bool = option(False, help="Say how long each stage took.")

    def run(self) -> None:
        """Answer."""
        page = self.page()
        text = self.given_text()
        spent = {"load": 0.0, "files": 0.0}
        with _timed(spent, "load"):
            from exhibit_a.methods.registry import find
            from exhibit_a.trials.trial import trial

            subject = self.subject()
        with progress_bar("") as bar:
            if bar.watched and (length := self.length(subject)) is not None:
                expect(bar, subject, "trial", length)
            if self.reply is not None:
                refuse_together("--answer", {"--target-text": self.target_text})
            answer = self.target_text if self.reply is None else self.reply
            options = given(find("trial"), self) | {"target_text": answer}
            outcome = trial(subject, text, **options, progress=bar.stage)
        with _timed(spent, "files"):
            self.write(outcome)
            if page is not None:
                outcome.html(page, by=self.units)
        self._show(outcome, spent, (page, self.out, self.plot))

    def _show(
        self, outcome: "Trial", spent: dict[str, float], written: tuple[Path | None, ...]
    ) -> None:
        """Answer a machine or a person."""
        if self.json:
            from exhibit_a.results.plain import plain

            seconds = {"seconds": outcome.seconds | spent} if self.timing else {}
            files = {"written": [str(file) for file in written if file is not None]}
            print_json(plain(_facts(self.shown(outcome)) | files | seconds))
            return
        from exhibit_a.report.terminal import say, show, timing

        show(outcome, by=self.units)
        if self.timing:
            say(timing(outcome, **spent))
        print_written(written)


@contextmanager
def _timed(spent: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    spent[name] = time.perf_counter() - started


def _facts(outcome: "Trial") -> Facts:
    """Everything but the maps, for machines; the maps are in the file that --out writes."""
    scores = outcome.token_scores
    return {
        "result": "Trial",
        "provenance": asdict(outcome.provenance),
        "tokens": outcome.tokens,
        "token_scores": None if scores is None else scores.tolist(),
        "answer": outcome.answer,
        "target": outcome.target,
        "label": outcome.label,
        "advice": outcome.advice,
        "word": outcome.word,
        "verdict": outcome.verdict,
        "reliance": None if outcome.reliance is None else _reliance(outcome.reliance),
        "carriers": None if outcome.carriers is None else asdict(outcome.carriers),
        "heat_maps": None if outcome.heat_maps is None else _heat_maps(outcome.heat_maps),
        "heads": [asdict(verdict) for verdict in outcome.verdicts],
        "tree": None if outcome.tree is None else [asdict(edge) for edge in outcome.tree.edges],
        "thresholds": asdict(outcome.thresholds),
        "checks": outcome.checks,
        "skipped": outcome.skipped,
    }


def _reliance(reliance: "Reliance") -> Facts:
    names = ("target", "margin", "baseline_margin", "permuted_margin", "permuted_error", "way")
    return {name: getattr(reliance, name) for name in (*names, "determined", "reason")}


def _heat_maps(heat_maps: "HeatMaps") -> list[Facts]:
    return [
        {**vars(heat_map), "scores": heat_map.scores.tolist()} for heat_map in heat_maps.values()
    ]
