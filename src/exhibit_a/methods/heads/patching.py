"""Which heads carry what differs between two prompts?

A counterfactual prompt differs in one thing (*The capital of France* / *of Italy*). If the output
of a head in the second pass, put in the place of its output in the first, moves the answer, the
head carries that difference (activation patching). Doing so for every head takes a pass for each.
To first order the effect of head h is

    Σ (z_h' − z_h) · ∂F/∂z_h

with z and z' its outputs in the two passes (attribution patching: Nanda, 2023; Syed et al., 2024):
two forward passes and one backward for all heads together. How good that is here is measured, not
hoped for: some heads are drawn and really patched, and the correlation stands in the checks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.custom_methods import Checks
from exhibit_a.methods.registry import Cost, method
from exhibit_a.numerics.correlation import pearson
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import generator
from exhibit_a.results.making import build_result
from exhibit_a.results.result import SiteResult
from exhibit_a.shapes import Context, SiteHeads
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.edits import ContextGradients, Edit
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target, chosen_target

ROUGH = 0.8  # correlation below which the first order is not to be relied upon
TOKENS_AT_ONCE = 4096

SiteOutputs = Float[Tensor, "head query d_head"]
Head = tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HeadPatching(SiteResult):
    """What the answer changes by when a head says what it says to the counterfactual prompt."""

    effects: tuple[SiteHeads, ...]  # to first order
    patched: tuple[SiteHeads, ...]  # really, where it was tried; NaN elsewhere
    value: float  # of the target, as it is
    counterfactual_value: float  # and for the other prompt
    correlation: float  # of effects and true effects, over the heads that were tried
    target: str
    counterfactual: tuple[str, ...]  # the tokens of the other prompt

    @property
    def tried(self) -> tuple[Bool[Tensor, " _head"], ...]:
        """The heads that were really patched."""
        return tuple(~site.isnan() for site in self.patched)


@method(
    question="Which heads carry what differs between two prompts?",
    needs=("attention", "values", "hidden", "target"),
    cost=Cost(forwards=20, maps=2, states=2),
    command="patch",
)
def head_patching(
    trace: Trace,
    *,
    counterfactual: str | Trace,
    target: Target | str | int | None = None,
    verify: int = 32,
    seed: int = 0,
) -> HeadPatching:
    """Attribution patching of every head, and true patching of some to compare it with.

    >>> other = "a terrible , beautifully shot film"
    >>> result = xa.head_patching(trace, counterfactual=other, verify=6)
    >>> tuple(result.effects[0].shape), sum(int(site.sum()) for site in result.tried)
    ((12,), 6)
    >>> result.value > result.counterfactual_value, abs(result.correlation) <= 1
    (True, True)

    Args:
        counterfactual: the other prompt, of as many tokens; an answer follows it too. In Python
            also a trace of it.
        target: label or token to explain; without, the answer, or what the model answers.
        verify: how many heads are really patched.
        seed: of the draw of these heads; same seed, same numbers.
    """
    if verify < 0:
        raise BadRequestError(f"{verify} heads cannot be patched; give 0 or more.")
    kept = trace.keeping("attention", "values", "hidden")
    # The pass over the other prompt, position by position comparable with this one.
    keep = ("attention", "values")
    if isinstance(counterfactual, Trace):
        other = counterfactual.keeping(*keep)
    else:
        reply = None if kept.reply is None else kept.reply.ids
        other = capture(kept.subject, counterfactual, target_text=reply, keep=keep)
    if [*map(len, kept.token_names.values())] != [*map(len, other.token_names.values())]:
        raise BadRequestError(
            f"The counterfactual has {len(other.tokens)} tokens and the text {len(kept.tokens)}; "
            "heads can be patched between prompts of one length only."
        )
    chosen = chosen_target(trace, target)
    outputs = [_outputs(other, site.index) for site in kept.sites]
    change = [context - _outputs(kept, site) for site, context in enumerate(outputs)]
    # (z' − z) · ∂F/∂z for every head, in one forward and one backward pass.
    kept.subject.require_gradients()
    passed, tap = chosen.narrowed(kept), ContextGradients()
    with torch.enable_grad():
        answer = chosen.value(passed, replay(passed, tap, start=0)).sum()
        gradients = torch.autograd.grad(answer, tap.nudges, materialize_grads=True)
    effects = tuple(
        (moved.float() * gradient[0].float()).sum((1, 2)).cpu()
        for moved, gradient in zip(change, gradients, strict=True)
    )
    patched = _patched(kept, chosen, outputs, verify, seed)
    tried = ~torch.cat(patched).isnan()
    both = to_float64(torch.cat(effects)[tried]), to_float64(torch.cat(patched)[tried])
    agreement = _agreement(*both) if int(tried.sum()) > 2 else torch.nan
    return build_result(
        HeadPatching,
        trace,
        "head_patching",
        seed=seed,
        settings={"target": str(chosen), "verify": verify, "counterfactual": other.tokens},
        checks=_checks(agreement, both),
        effects=effects,
        patched=patched,
        value=float(chosen.value(trace)[0]),
        counterfactual_value=float(chosen.value(other)[0]),
        correlation=agreement,
        target=str(chosen),
        counterfactual=other.tokens,
    )


def _agreement(effects: Float[Tensor, " head"], patched: Float[Tensor, " head"]) -> float:
    """The correlation of both, however small they are."""
    largest = effects.abs().maximum(patched.abs()).amax().clamp_min(1e-300)
    everywhere = torch.ones_like(effects, dtype=torch.bool)
    return float(pearson(effects / largest, patched / largest, everywhere))


def _outputs(trace: Trace, site: int) -> SiteOutputs:
    """What every head of a site gives: its weights times its values."""
    values = trace.values[site]
    return trace.attention[site].to(values.dtype) @ values


@torch.no_grad()
def _patched(
    trace: Trace, target: Target, outputs: Sequence[SiteOutputs], verify: int, seed: int
) -> tuple[SiteHeads, ...]:
    """The true effect of some heads, drawn at random; NaN for all others."""
    heads: list[Head] = [(s.index, head) for s in trace.sites for head in range(s.heads)]
    drawn = torch.randperm(len(heads), generator=generator(seed))[:verify].tolist()
    effects = tuple(torch.full((site.heads,), torch.nan) for site in trace.sites)
    passed, value = target.narrowed(trace), float(target.value(trace)[0])
    at_once = max(1, TOKENS_AT_ONCE // len(trace.tokens))
    for site, own_effects in enumerate(effects):
        chosen = torch.tensor(sorted(heads[n][1] for n in drawn if heads[n][0] == site)).long()
        for few in torch.split(chosen, at_once):
            if len(few):
                edit = _Patch(site, few.tolist(), outputs[site])
                patched = target.value(passed, replay(passed, edit, copies=len(few)))
                own_effects[few] = patched.float().cpu() - value
    return effects


class _Patch(Edit):
    """Puts other outputs in the place of one head's, another head in every copy."""

    context_only = True

    def __init__(self, site: int, heads: Sequence[int], outputs: SiteOutputs) -> None:
        super().__init__([site])
        self.heads, self.outputs = list(heads), outputs

    def result(self, call: AttentionCall, context: Context) -> Context | None:
        """The context with one head replaced in every copy."""
        if call.site not in self.sites:
            return None
        changed = context.clone()
        copies = torch.arange(len(self.heads))
        changed[copies, self.heads] = self.outputs[self.heads].to(changed)
        return changed


def _checks(agreement: float, both: tuple[Tensor, Tensor]) -> Checks:
    checks: Checks = {
        "heads really patched": len(both[0]),
        "correlation with true patching": agreement,
    }
    if len(both[0]):
        checks["largest error"] = float((both[0] - both[1]).abs().amax())
    if agreement < ROUGH:
        checks["first order"] = "does not hold well here; rely on the heads that were patched"
    return checks
