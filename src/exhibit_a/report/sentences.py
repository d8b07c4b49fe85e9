"""What a trial says in sentences to a person who must decide.

The answer, what would become of it if heads could not choose where to look, and the few heads that
carry it: the same sentences on the page, in a terminal and in a notebook.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.explanation.heat_maps import HeatMap, HeatMaps
from exhibit_a.subject.anatomy import Site, head_name, heads_by_layer
from exhibit_a.trials.sentences import (
    CANCELS,
    SEVERAL,
    answer_name,
    cancels,
    format_margin,
    has_probability,
    short_answer_name,
)
from exhibit_a.trials.trial import Trial
from exhibit_a.trials.verdict import HeadVerdict

NAMED = 8  # heads that are listed by name
NOTABLE = 0.05  # of the margin: what sinks do by themselves is said from here on
MARKS = {"show": "✓", "caution": "!", "do not show": "✗"}  # of advice, next to its colour


def reliance_sentences(reliance: Reliance, answer: dict[str, float]) -> list[str]:
    """The answer, and what it becomes with every head levelled and with all rows permuted."""
    name, now = answer_name(reliance), format_margin(reliance, reliance.margin)
    after = format_margin(reliance, reliance.permuted_margin)
    levelled = format_margin(reliance, reliance.baseline_margin)
    if not has_probability(reliance):
        return [
            f"The model answers {now}.",
            f"With levelled attention it answers {levelled}.",
            f"With shuffled attention: {after} on average.",
        ]
    short = short_answer_name(reliance)
    probability = "P" if short == "it" else f"P({short})"
    top = max(answer, key=lambda label: answer[label], default="")
    others = [label for label in answer if label != name]
    if name in answer and len(others) == 1 and reliance.margin > 0 > reliance.baseline_margin:
        then = f"the model answers {others[0]} (P({name}) = {levelled})"
    else:
        then = f"{probability} = {levelled}"
    return [
        f"The model answers {name} (P = {now})."
        if name == top
        else f"The model gives {name} the probability {now}.",
        f"With levelled attention {then}.",
        f"With shuffled attention {probability} = {after}.",
    ]


def game_sentences(reliance: Reliance) -> list[str]:
    """What stands beside the shares: the block, the sinks, and what is not known of steering."""
    sentences = []
    if reliance.block_layers:
        layers = listed([s.layer for s in reliance.sites if s.call in reliance.block_layers])
        sentences.append(
            f"Of the {reliance.whole:.1f} log-odds that levelling all heads costs, "
            f"{reliance.block_worth:.1f} are reading the words ({layers}), which is not shared out."
        )
    if abs(reliance.sink_effect) >= NOTABLE * reliance.size:
        sentences.append(
            f"The weight on the sinks by itself is worth {reliance.sink_effect:+.1f} log-odds."
        )
    if reliance.steering_reason:
        sentences.append(f"What heads steer is not known: {reliance.steering_reason}.")
    return sentences


def listed(layers: Sequence[int]) -> str:
    """Layers as people read them."""
    first, last = min(layers), max(layers)
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def carrying_heads(trial: Trial) -> list[tuple[int, int]]:
    """The heads that carry the answer, where there are such."""
    reliance, carriers = trial.reliance, trial.carriers
    if reliance is None or carriers is None or not reliance.determined:
        return []
    few = abs(reliance.whole) < trial.thresholds.whole * reliance.size
    return [] if few else list(carriers.heads)


def carriers_sentence(trial: Trial) -> str:
    """Which few heads carry the answer, and what becomes of it without their looking."""
    reliance, carriers = trial.reliance, trial.carriers
    if reliance is None or carriers is None or not reliance.determined:
        return ""
    if abs(reliance.whole) < trial.thresholds.whole * reliance.size:
        if cancels(reliance, trial.thresholds.whole):
            return f"No small set of heads carries the answer: {CANCELS}."
        return "No head carries the answer: it stays when all of them are levelled."
    if not carriers.heads:
        return "No small set of heads carries the answer."
    count = len(carriers.heads)
    names = heads_by_layer(trial.sites, carriers.heads[:NAMED])
    more = f" and {count - NAMED} more" if count > NAMED else ""
    which = "This head carries" if count == 1 else f"These {count} heads carry"
    those = "it" if count == 1 else "them"
    named = has_probability(reliance) and short_answer_name(reliance) != "it"
    what = answer_name(reliance) if named else "the answer"
    now, kept, random = (
        format_margin(reliance, reliance.margin - loss)
        for loss in (0.0, carriers.loss, carriers.random_loss)
    )
    sentence = f"{which} it: {names}{more}. With {those} levelled, {what} would have {kept}"
    if carriers.random_sets:
        others = "another head" if count == 1 else f"{count} other heads"
        sentence += f"; with {others} levelled, {random} ({carriers.random_sets} random draws)"
    known = "" if carriers.confirmed else " That is no more than random heads do."
    return f"{sentence}. As it is, {what} has {now}.{known}"


def most_important(trial: Trial) -> Sequence[HeadVerdict]:
    """All heads by the size of their share in the answer, or by distance where that is unknown."""

    def weight(head: HeadVerdict) -> float:
        return abs(head.reliance) if head.reliance is not None else head.distance or 0.0

    return sorted(trial.verdicts, key=lambda head: -weight(head))


def ranked_heat_maps(heat_maps: HeatMaps) -> list[HeatMap]:
    """Those that may be shown first, then by what the answer loses."""
    order = list(MARKS)
    return sorted(
        heat_maps.values(), key=lambda heat_map: (order.index(heat_map.advice), heat_map.rank)
    )


def unshaded(trial: Trial) -> str:
    """Why the words of a trial are not shaded; empty where they are.

    The shades are self-attribution, which is a heat map like any other: where it ranks the words no
    better than chance, colours would say what is not known.
    """
    if trial.token_scores is None:
        why = "did not apply" if trial.attribution is None else "is complete for no layer"
        return f"Attribution {why}, so the words are not shaded."
    heat_map = None if trial.heat_maps is None else trial.heat_maps.get("self_attribution")
    if heat_map is not None and heat_map.advice == "do not show":
        return f"The words are not shaded by self-attribution: {heat_map.reason}."
    return ""


def foretells(trial: Trial, site: Site) -> bool:
    """Whether a row of this layer serves the word after its own.

    So it is where the answer is made of the words that come next, and is no class or number.
    """
    is_token = " at position " in trial.target or trial.target.endswith(SEVERAL)
    return is_token and site.stack in {one.stack for one in trial.sites if one.causal}


def of_margin(trial: Trial, share: float | None) -> float | None:
    """A share as a part of the size of the answer's margin, where both are known."""
    if share is None or trial.reliance is None:
        return None
    return share / (trial.reliance.size or 1.0)


def p_text(value: float) -> str:
    """A p-value in two digits, without its nought."""
    return "<.001" if value < 0.001 else f"{value:.2g}".removeprefix("0")


@dataclass(frozen=True, slots=True)
class Alignment:
    """The source token with the largest weight for every target token, by one head."""

    head: str
    links: tuple[tuple[str, str, float], ...]  # target token, source token, weight


def alignment(trial: Trial) -> Alignment | None:
    """Which source token each target token looks at, in the cross head that carries most.

    A decoder's row i is the one from which its token i + 1 is predicted, so the last row, which
    predicts the end, stands without a token. None where nothing crosses between texts.
    """
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
