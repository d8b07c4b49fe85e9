"""The heat maps of a text that people show, and how each of them is made.

A heat map has one number for every token: the scores of a method that is registered for tokens, the
row of the one head that the answer rests on most, or numbers that the caller brings. It has a name
in Python and a label for the person who decides. What several heat maps need, a reliance above all,
is computed once, and not at all where a result of it is known. Whether a heat map may be shown is
another question (``heat_maps.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import (
    BadRequestError,
    NotComputableError,
    UnsupportedModelError,
    require_choice,
)
from exhibit_a.methods.attribution.acting import acting_in, first_head_in_its_rows
from exhibit_a.methods.attribution.reliance import Reliance, reliance
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.custom_methods import token_scores
from exhibit_a.methods.explanation.erasure import Erase
from exhibit_a.methods.registry import attributions
from exhibit_a.results.result import Result
from exhibit_a.trace.answer_rows import one_stack, readout_rows
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target

Methods = Sequence[str] | Mapping[str, Float[Tensor, " token"]]  # names, or scores by name

ONE_HEAD = "one_head"
OF_THE_GAME = (ONE_HEAD, "acting_attention", "head_in_its_rows")  # that need a reliance
LABELS = {  # what a person who decides would call each heat map
    "raw": "last-layer attention",
    "mean_attention": "mean attention of all heads",
    "rollout": "attention rollout",
    "effective": "effective attention",
    ONE_HEAD: "the most important head",
    "acting_attention": "acting attention",
    "head_in_its_rows": "the most important head, in the rows where it acts",
    "attention_gradient": "attention × gradient",
    "relevance": "attention relevance",
    "alti": "layer contributions (ALTI)",
    "self_attribution": "self-attribution",
    "reliance": "joint attribution",
    "norm": "vector norms",
    "norm_residual": "vector norms with residual",
    "value_zeroing": "value zeroing",
    "gradient_input": "gradient × input",
    "integrated_gradients": "integrated gradients",
    "occlusion": "leave one out",
    "lime": "LIME",
    "kernel_shap": "Shapley values",
    "flow": "attention flow",
    "hidden_attribution": "hidden token attribution",
    "contribution_weights": "contribution weights",
}
USUAL = tuple(LABELS)[:12]


@dataclass(frozen=True, eq=False)
class ScoredHeatMaps:
    """The scores of every heat map, what it is called, and which could not be drawn and why."""

    scores: dict[str, Float[Tensor, " _token"]]
    labels: dict[str, str]
    left_out: dict[str, str]


def drawn(drawing: "Drawing", methods: Methods | None) -> ScoredHeatMaps:
    """The heat maps of a text by these methods, or those that people show most."""
    if isinstance(methods, Mapping):
        given = {name: _checked(name, row, drawing.trace) for name, row in methods.items()}
        _require_some(given)
        return ScoredHeatMaps(given, {name: label_of(name) for name in given}, {})
    names = _names(methods)
    scores: dict[str, Tensor] = {}
    labels: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in names:
        try:
            scores[name], labels[name] = drawing.of(name)
        except (NotComputableError, UnsupportedModelError) as reason:
            if methods is not None:
                raise
            left_out[name] = str(reason)
    if not scores:
        raise NotComputableError(f"No heat map can be drawn: {next(iter(left_out.values()))}")
    return ScoredHeatMaps(scores, labels, left_out)


def label_of(name: str) -> str:
    """What a person would call a method."""
    return LABELS.get(name, name.replace("_", " "))


class Drawing:
    """Draws heat maps of one text; what several of them need is computed once."""

    def __init__(
        self,
        trace: Trace,
        target: Target,
        results: Mapping[str, Result],
        known_only: Sequence[str] = (),
        erase: Erase = "hide",
    ) -> None:
        self.trace, self.target, self.results = trace, target, dict(results)
        self.erase = erase  # how methods that take words away do so
        self.known = attributions()
        self.known_only = known_only  # drawn only if their result is known

    def of(self, name: str) -> tuple[Tensor, str]:
        """The scores of a heat map, and what it is called."""
        needed = "reliance" if name in OF_THE_GAME else name
        if needed in self.known_only and needed not in self.results:
            raise NotComputableError(f"It needs {needed.replace('_', '-')}, which was left out.")
        if name == ONE_HEAD:
            return self._one_head()
        if name == "reliance":
            return self._reliance().token_scores, label_of(name)
        if name == "acting_attention":
            return acting_in(self._reliance(), self.trace), label_of(name)
        if name == "head_in_its_rows":
            relied = self._reliance()
            scores, site, head = first_head_in_its_rows(relied, self.trace)
            named = f"layer {relied.sites[site].layer}, head {head}, in the rows where it acts"
            return scores, named
        if name == "self_attribution" and isinstance(
            known := self.results.get(name), SelfAttribution
        ):
            sites = [site.index for site in one_stack(self.trace)]
            return known.by_token(sites), label_of(name)
        scores, _ = token_scores(self.known[name], self.trace, self.target, erase=self.erase)
        return scores.detach().cpu(), label_of(name)

    def _reliance(self) -> Reliance:
        one_stack(self.trace)
        shares = self.results.get("reliance")
        if not isinstance(shares, Reliance):
            shares = self.results["reliance"] = reliance(self.trace, target=self.target)
        return shares

    def _one_head(self) -> tuple[Tensor, str]:
        """Where the head looks that the answer rests on most."""
        shares = self._reliance()
        places = [site.index for site in one_stack(self.trace)]
        site = max(places, key=lambda place: float(shares.heads[place].amax()))
        head = int(shares.heads[site].argmax())
        maps = self.trace.keeping("attention").attention[site][head]
        scores = readout_rows(self.trace, self.target) @ maps
        return scores.detach().cpu(), f"layer {shares.sites[site].layer}, head {head}"


def _names(methods: Sequence[str] | None) -> list[str]:
    """The names requested, each once; the usual ones where none was requested."""
    if methods is None:
        return list(USUAL)
    names = [methods] if isinstance(methods, str) else list(dict.fromkeys(methods))
    _require_some(names)
    known = (*attributions(), ONE_HEAD)
    for name in names:
        require_choice("heat map", name, known)
    return names


def _require_some(names: Sequence[str] | Mapping[str, Tensor]) -> None:
    if not names:
        raise BadRequestError(f"No heat map was named; the usual ones are {', '.join(USUAL)}.")


def _checked(name: str, scores: Tensor, trace: Trace) -> Tensor:
    row = torch.as_tensor(scores).detach().cpu()
    if row.shape != (len(trace.tokens),) or not bool(row.isfinite().all()):
        raise BadRequestError(
            f"The heat map {name!r} has {tuple(row.shape)} scores for {len(trace.tokens)} tokens, "
            "or some that are not numbers; give one finite number for each token."
        )
    return row
