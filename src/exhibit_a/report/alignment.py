"""Which source token did each target token look at? The rows of the cross head that carries most.

A decoder's row i is the one from which its token i + 1 is predicted, so the last row, which
predicts the end, stands without a token.
"""

from dataclasses import dataclass

from exhibit_a.subject.site_names import head_name
from exhibit_a.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class Alignment:
    """The source token with the largest weight for every target token, by one head."""

    head: str
    links: tuple[tuple[str, str, float], ...]  # target token, source token, weight


def alignment(trial: Trial) -> Alignment | None:
    """The alignment of a translation; None where nothing crosses from a text to another."""
    crossing = [v for v in trial.verdicts if trial.sites[v.site].kind == "cross"]
    if not crossing:
        return None
    best = max(crossing, key=lambda verdict: abs(verdict.reliance or 0.0))
    rows = trial.attention[best.site][best.head]
    targets, sources = trial.tokens_of(best.site)
    if len(targets) < 2 or (len(targets), len(sources)) != tuple(rows.shape):
        return None
    links = tuple(
        (target, sources[int(row.argmax())], float(row.max()))
        for target, row in zip(targets[1:], rows, strict=False)
    )
    return Alignment(head_name(trial.sites, best.site, best.head), links)
