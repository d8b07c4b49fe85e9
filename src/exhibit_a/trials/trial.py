"""The trial: all the evidence on one text, and a verdict on every head.

Every method that applies examines one and the same pass of the model, and every head gets a verdict
(``verdict.py`` has the three questions and the words). A method that does not apply is listed with
its reason and never stops the others.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, ExhibitError, require_choice
from exhibit_a.methods.attribution.head_game import SETTINGS as GAME
from exhibit_a.methods.attribution.reliance import Reliance
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.attribution.tree import AttributionTree
from exhibit_a.methods.explanation.heat_maps import HeatMaps
from exhibit_a.methods.identifiability.counts import AttentionIdentifiability
from exhibit_a.methods.identifiability.effective import EffectiveAttention
from exhibit_a.methods.mixing.head_mixing import HeadMixing
from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.seeds import require_seed
from exhibit_a.results.making import build_result
from exhibit_a.results.over_units import Rule
from exhibit_a.results.result import SiteResult
from exhibit_a.results.tables import record_table
from exhibit_a.shapes import Options, SiteMap, SiteValues
from exhibit_a.subject.anatomy import Site, key_stack, main_stack
from exhibit_a.subject.subject import Subject
from exhibit_a.trace.answers import in_words
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.targets import Target, chosen_target
from exhibit_a.trials.advice import advice_for
from exhibit_a.trials.carriers import MinimalHeadSet
from exhibit_a.trials.examination import Examination, TrialOptions, examine
from exhibit_a.trials.head_numbers import head_numbers, trial_checks
from exhibit_a.trials.stages import StageProgress, Stages
from exhibit_a.trials.verdict import HeadVerdict, Thresholds, judge, judge_text

if TYPE_CHECKING:
    import pandas

TableOf = Literal["heads", "heat_maps", "long"]

KEPT = ("attention", "values", "hidden", "keys")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trial(SiteResult):
    """Everything about one text; a part that could not be had is None and its reason in skipped."""

    unit_rules: ClassVar[dict[str, Rule]] = {
        "special": "all",
        "attention": "map",
        "values": "leave out",  # a word has none
        "effective": "result",
        "hidden": "result",
        "mixing": "result",
        "attribution": "result",
        "tree": "result",
        "alternative": "map",
        "reliance": "result",
        "sequences": "names",
    }
    special: Bool[Tensor, " token"]  # tokens that the tokenizer added
    target: str  # empty where the model answers with hidden states
    answer: dict[str, float]  # probability of each label, or of the likeliest next tokens
    attention: tuple[SiteMap, ...]  # the weights of the model
    values: tuple[SiteValues, ...]  # of the heads that own values; query heads share them in order
    effective: EffectiveAttention | None
    identifiability: AttentionIdentifiability | None
    hidden: HiddenAttribution | None
    mixing: HeadMixing | None
    attribution: SelfAttribution | None
    tree: AttributionTree | None
    alternative: tuple[SiteMap, ...]  # other valid maps, same output; rows that have none are raw
    reliance: Reliance | None = None
    heat_maps: HeatMaps | None = None
    carriers: MinimalHeadSet | None = (
        None  # the smallest set of heads found that carries the answer
    )
    thresholds: Thresholds
    verdicts: tuple[HeadVerdict, ...]  # by site, then by head
    word: str  # the verdict for the text
    verdict: str  # and the sentence with its numbers
    advice: str = ""  # what to do about it, in one sentence
    label: str = ""  # the true label, where it was given
    skipped: dict[str, str] = field(default_factory=dict)  # method: reason
    seconds: dict[str, float] = field(default_factory=dict)  # stage: time it took

    @property
    def token_scores(self) -> Float[Tensor, " token"] | None:
        """What the answer took from each position of the input, over all heads and layers.

        Layers whose attribution is incomplete are left out; None where it is known of none.
        """
        stack = main_stack(self.sites)
        looked_at = [s.index for s in self.sites if key_stack(s, self.sequences) == stack]
        if self.attribution is None or not any(self.attribution.complete[s] for s in looked_at):
            return None
        return self.attribution.by_token(looked_at)

    def to_pandas(self, *, what: str = "heads") -> "pandas.DataFrame":
        """A table of the trial.

        "heads": one row for each head, with its verdict, every number behind it and the reason.
        "heat_maps": one row for each heat map, with its advice. "long": every tensor as one long
        table, as for other results.
        """
        require_choice("table", what, get_args(TableOf))
        if what == "long":
            return super().to_pandas()
        return record_table(_head_rows(self) if what == "heads" else _heat_map_rows(self))

    def of(self, site: int, head: int) -> HeadVerdict:
        """The verdict on one head."""
        return next(v for v in self.verdicts if (v.site, v.head) == (site, head))


COST = Cost(165, algebra=60, maps=4, states=34, most=400, at_once=GAME.tokens_at_once)


@method(
    question="Is the attention on this text evidence of what the model did?",
    cost=COST,
    command="explain",
)
def trial(
    subject: Subject,
    text: object,
    *,
    pair: str | None = None,
    target_text: str | tuple[int, ...] | None = None,
    generate: int | None = None,
    target: Target | str | int | None = None,
    label: str | None = None,
    thresholds: Thresholds = Thresholds(),  # noqa: B008 (frozen)
    seed: int = 0,
    probes: int | None = None,
    heat_maps: bool = True,
    truncate: bool = False,
    progress: StageProgress | None = None,
) -> Trial:
    """Examine one text with every method that applies, and give a verdict on every head.

    >>> trial = xa.trial(subject, "a fine film", probes=2)
    >>> len(trial.verdicts), trial.word in ("evidence", "contested", "misleading", "no effect")
    (72, True)
    >>> trial.of(site=5, head=2).site
    5

    Args:
        pair: the second text, for models of pairs.
        target_text: the answer of a language model, as text or token ids; for a model with two
            stacks, what its decoder says (without, its own words).
        generate: let a language model generate an answer of at most this number of tokens.
        target: label or token to explain; without, the answer, or what the model answers.
        label: the true label, which is shown with the answer and changes nothing.
        thresholds: where the words of the verdict begin.
        seed: same seed, same numbers.
        probes: random directions per token with which mixing is estimated; without, up to 8, as
            many as fit next to everything else, and none for a text of more than 20 tokens.
        heat_maps: also judge whether heat maps of this text may be shown.
        truncate: cut a text that is too long for the model.
        progress: is called when a stage begins; what it raises ends the trial.
    """
    require_seed(seed)
    if probes is not None and probes < 2:
        raise BadRequestError(f"An error needs at least 2 probes, {probes} were requested.")
    truth = _truth(subject, label)
    stages = Stages(progress)
    options: Options = {"pair": pair, "target_text": target_text, "generate": generate}
    trace = stages.run(
        "capture", lambda: capture(subject, text, keep=KEPT, truncate=truncate, **options)
    )
    requested = _requested_target(trace, target, stages.skipped)
    how = TrialOptions(probes, seed, thresholds.carries, heat_maps)
    judged = _judged(examine(trace, requested, stages, how), stages, thresholds, how)
    return replace(judged, label=truth)


def _judged(
    examined: Examination, stages: Stages, thresholds: Thresholds, how: TrialOptions
) -> Trial:
    """The examination, with a verdict on every head and on the text."""
    trace, target, relied = examined.trace, examined.target, examined.reliance
    verdicts = judge(head_numbers(examined), relied, thresholds)
    word, sentence = judge_text(verdicts, relied, thresholds)
    alternatives = examined.alternatives
    name = None if target is None else str(target)
    return build_result(
        Trial,
        trace,
        "trial",
        seed=how.seed,
        settings={"target": name, "probes": how.probes},
        checks=trial_checks(examined),
        special=trace.special,
        target=name or "",
        answer=_answer(trace, target),
        attention=tuple(trace.attention),
        values=tuple(_shared_values(trace, site) for site in trace.sites),
        effective=examined.effective,
        identifiability=examined.identifiability,
        hidden=examined.hidden,
        mixing=examined.mixing,
        attribution=examined.attribution,
        tree=examined.tree,
        alternative=tuple(trace.attention) if alternatives is None else alternatives.maps,
        reliance=relied,
        heat_maps=examined.heat_maps,
        carriers=examined.carriers,
        advice=advice_for(word, examined, thresholds.whole),
        thresholds=thresholds,
        verdicts=verdicts,
        word=word,
        verdict=sentence,
        skipped=stages.skipped,
        seconds=stages.seconds,
    )


def _truth(subject: Subject, label: str | None) -> str:
    """The name of the true label, by its name or its number."""
    if label is None:
        return ""
    known = list(subject.labels)
    if str(label) in known or not known:
        return str(label)
    numbers = list(map(str, range(len(known))))
    require_choice("label", str(label), (*known, *numbers))
    return known[numbers.index(str(label))]


def _requested_target(
    trace: Trace, target: Target | str | int | None, skipped: dict[str, str]
) -> Target | None:
    """The number to explain; a model that has none is no mistake unless one was requested."""
    try:
        return chosen_target(trace, target)
    except ExhibitError as reason:
        if target is not None:
            raise
        skipped["target"] = str(reason)
        return None


def _answer(trace: Trace, target: Target | None) -> dict[str, float]:
    """What the model answers, with shares; of a whole answer its probability."""
    if target is None:
        return {}
    if target.following:
        return {target.name: float(replace(target, scale="probability").value(trace))}
    return in_words(trace.subject, trace.output, target.position)


def _shared_values(trace: Trace, site: Site) -> SiteValues:
    """The values once for every head that owns some."""
    return trace.values[site.index][:: site.heads // site.kv_heads]


def _head_rows(trial: Trial) -> list[Options]:
    """Where each head stands, its word, and every number behind it."""
    return [
        {"stack": site.stack, "layer": site.layer, "kind": site.kind, "head": head.head}
        | {"word": head.word}
        | {
            name: value
            for name, value in vars(head).items()
            if name not in ("site", "head", "word")
        }
        for head in trial.verdicts
        for site in (trial.sites[head.site],)
    ]


def _heat_map_rows(trial: Trial) -> list[Options]:
    """What was measured of each heat map, and its words from the most important on."""
    return [
        {name: value for name, value in vars(heat_map).items() if name not in ("words", "scores")}
        | {"words": tuple(heat_map.words[place] for place in heat_map.ranking)}
        for heat_map in (trial.heat_maps or {}).values()
    ]
