"""What would other methods say about the same answer?

Attention is one candidate explanation among many. Here are the usual others, all in one shape: a
score for each input token, for one number of the answer. They come in three kinds:

maps     what can be read off attention maps: raw (the last layer's), rollout, flow,
         attention_gradient, relevance (Chefer et al., 2021);
vectors  the same with the length of what is handed on: norm (Kobayashi et al., 2020),
         norm_residual (2021), alti (Ferrando et al., 2022), value_zeroing (Mohebbi et al., 2023);
inputs   what happens when the input changes, through captum: gradient_input,
         integrated_gradients, occlusion, lime, kernel_shap.

Maps of single layers become one score for each token by rollout from the positions that the answer
is read from. ``norm`` leaves the residual out, so half of each step stays put, as in rollout;
the other vector methods count the residual themselves.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, UnsupportedModelError
from exhibit_a.methods.explanation.decomposition import alti_maps, norm_maps, value_zeroing_maps
from exhibit_a.methods.explanation.erasure import by_presence, by_states, nothing_said, require_way
from exhibit_a.methods.explanation.flow import (
    attention_times_gradient,
    max_flow,
    readout,
    relevance,
    require_one_stack,
    rollout,
    steps,
)
from exhibit_a.results.result import Result
from exhibit_a.subject.provenance import provenance
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, choose_target

if TYPE_CHECKING:
    pass

TOKENS = 4096  # in one pass of copies
STEPS = 64  # of the path from nothing to the text

Scores = Float[Tensor, " token"]
Map = Float[Tensor, "query key"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenAttribution(Result):
    """How much each input token speaks for the target, by one method."""

    method: str
    target: str
    scores: Scores


@dataclass(frozen=True, eq=False)
class Question:
    """What a method is asked: a trace, the number to explain, and how inputs may be changed."""

    trace: Trace
    target: Target
    erase: str = "delete"
    samples: int = 256
    seed: int = 0


Method = Callable[[Question], tuple[Scores, dict[str, Any]]]


def companions(
    trace: Trace,
    *,
    methods: Iterable[str] | None = None,
    target: Target | None = None,
    erase: str = "delete",
    samples: int = 256,
    seed: int = 0,
) -> dict[str, TokenAttribution]:
    """Token scores by every method asked for; by default by all that apply to this model.

    ``erase`` says how occlusion, LIME and SHAP take tokens away (delete, mask or pad), ``samples``
    how many texts the last two look at. Methods that do not apply are left out when all are asked
    for, with the reason in every result's checks, and raise when they are named.
    """
    require_way(trace.subject, erase)
    question = Question(trace, target or choose_target(trace), erase, samples, seed)
    wanted = list(METHODS) if methods is None else _known(methods)
    found: dict[str, tuple[Scores, dict[str, Any]]] = {}
    left_out: dict[str, str] = {}
    for name in wanted:
        try:
            found[name] = METHODS[name](question)
        except (NotComputableError, UnsupportedModelError) as reason:
            if methods is not None:
                raise
            left_out[name] = str(reason)
    return {
        name: _result(question, name, scores, checks | ({"left out": left_out} if left_out else {}))
        for name, (scores, checks) in found.items()
    }


def _raw(q: Question) -> tuple[Scores, dict[str, Any]]:
    last = steps(q.trace)[-1]
    return readout(q.trace, q.target) @ last, {"read from": "the last layer, mean over heads"}


def _rolled(maps: Callable[[Trace], list[Map]], residual: bool) -> Method:
    def method(q: Question) -> tuple[Scores, dict[str, Any]]:
        return rollout(readout(q.trace, q.target), maps(q.trace), residual=residual), {}

    return method


def _flow(q: Question) -> tuple[Scores, dict[str, Any]]:
    flows = max_flow(readout(q.trace, q.target), steps(q.trace))
    return flows / flows.sum(), {}


def _attention_gradient(q: Question) -> tuple[Scores, dict[str, Any]]:
    require_one_stack(q.trace)
    scores = torch.stack([one.sum((0, 1)) for one in attention_times_gradient(q.trace, q.target)])
    return scores.sum(0), {"summed over": "sites, heads and queries"}


def _relevance(q: Question) -> tuple[Scores, dict[str, Any]]:
    require_one_stack(q.trace)
    weighted = attention_times_gradient(q.trace, q.target)
    return relevance(readout(q.trace, q.target), weighted), {}


def _gradient_input(q: Question) -> tuple[Scores, dict[str, Any]]:
    with by_states(q.trace, q.target) as (score, states):
        product = _captum().InputXGradient(score).attribute(states.requires_grad_())
    return product[0].sum(-1).detach(), {"differentiated by": "the input of the first layer"}


def _integrated_gradients(q: Question) -> tuple[Scores, dict[str, Any]]:
    baseline, name = nothing_said(q.trace)
    with by_states(q.trace, q.target) as (score, states):
        integrated, gap = (
            _captum()
            .IntegratedGradients(score)
            .attribute(
                states,
                baselines=baseline,
                n_steps=STEPS,
                internal_batch_size=max(1, TOKENS // states.shape[1]),
                return_convergence_delta=True,
            )
        )
    checks = {"baseline": name, "gap": float(gap.abs().amax())}
    return integrated[0].sum(-1).detach(), checks


def _occlusion(q: Question) -> tuple[Scores, dict[str, Any]]:
    score, written = by_presence(q.trace, q.target, q.erase)
    change = (
        _captum()
        .FeatureAblation(score)
        .attribute(torch.ones(1, int(written.sum())), perturbations_per_eval=64)
    )
    return _spread(q, written, change[0])


def _lime(q: Question) -> tuple[Scores, dict[str, Any]]:
    score, written = by_presence(q.trace, q.target, q.erase)
    surrogate = _captum().Lime(score, interpretable_model=_Ridge(1e-2))
    return _sampled(q, written, surrogate)


def _kernel_shap(q: Question) -> tuple[Scores, dict[str, Any]]:
    score, written = by_presence(q.trace, q.target, q.erase)
    count = int(written.sum())
    ends = score(torch.stack([torch.ones(count), torch.zeros(count)]))
    change = float(ends[0] - ends[1])
    if count == 1:
        return _spread(q, written, torch.tensor([change]))
    surrogate = _captum().KernelShap(score)
    surrogate.interpretable_model = _Ridge(0.0)  # captum's own needs scikit-learn
    scores, checks = _sampled(q, written, surrogate)
    return scores, checks | {"efficiency gap": abs(float(scores.sum()) - change)}


METHODS: dict[str, Method] = {
    "raw": _raw,
    "rollout": _rolled(steps, residual=True),
    "flow": _flow,
    "attention_gradient": _attention_gradient,
    "relevance": _relevance,
    "norm": _rolled(lambda trace: norm_maps(trace, residual=False), residual=True),
    "norm_residual": _rolled(lambda trace: norm_maps(trace, residual=True), residual=False),
    "alti": _rolled(alti_maps, residual=False),
    "value_zeroing": _rolled(value_zeroing_maps, residual=False),
    "gradient_input": _gradient_input,
    "integrated_gradients": _integrated_gradients,
    "occlusion": _occlusion,
    "lime": _lime,
    "kernel_shap": _kernel_shap,
}


class _Ridge:
    """Weighted least squares in closed form, the linear surrogate that captum fits."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def fit(self, train_data: Iterable[tuple[Tensor, Tensor, Tensor]]) -> None:
        """Fit coefficients and an intercept; only the coefficients are held small."""
        rows, said, weight = (torch.cat(part).double() for part in zip(*train_data, strict=True))
        rows = torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
        heavy = weight.reshape(-1, 1).sqrt()
        small = self.strength * torch.eye(rows.shape[1], dtype=rows.dtype)[:-1]
        left = torch.cat([heavy * rows, small.sqrt()])
        right = torch.cat([heavy * said.reshape(-1, 1), small.new_zeros(len(small), 1)])
        self.coefficients = torch.linalg.lstsq(left, right, driver="gelsd").solution[:-1, 0]

    def representation(self) -> Tensor:
        """The coefficients."""
        found: Tensor = self.coefficients.float()
        return found


def _sampled(q: Question, written: Tensor, surrogate: Any) -> tuple[Scores, dict[str, Any]]:
    """Scores of a method that draws texts at random; captum draws from torch's global stream."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(q.seed)
        scores = surrogate.attribute(
            torch.ones(1, int(written.sum())),
            baselines=torch.zeros(1, int(written.sum())),
            n_samples=q.samples,
            perturbations_per_eval=64,
        )
    found, checks = _spread(q, written, scores[0])
    return found, checks | {"samples": q.samples}


def _spread(q: Question, written: Tensor, scores: Tensor) -> tuple[Scores, dict[str, Any]]:
    """Scores of the written tokens at their places; special tokens stay and have none."""
    full = torch.zeros(len(written))
    full[written] = scores.float()
    return full, {"tokens are taken away by": q.erase, "special tokens": "never taken away"}


def _result(q: Question, name: str, scores: Tensor, checks: dict[str, Any]) -> TokenAttribution:
    subject = q.trace.subject
    used = {"target": str(q.target), "erase": q.erase, "samples": q.samples}
    return TokenAttribution(
        tokens=q.trace.tokens,
        provenance=provenance(subject.name, name, subject.revision, q.seed, **used),
        checks=checks,
        method=name,
        target=str(q.target),
        scores=scores.detach().cpu(),
    )


def _known(methods: Iterable[str]) -> list[str]:
    wanted = [methods] if isinstance(methods, str) else list(dict.fromkeys(methods))
    for name in wanted:
        if name not in METHODS:
            raise BadRequestError(
                f"There is no companion {name!r}; there are {', '.join(METHODS)}."
            )
    return wanted


def _captum() -> Any:
    try:
        import captum.attr
    except ImportError as missing:
        raise BadRequestError("captum is missing: pip install 'exhibit-a[compare]'") from missing
    return captum.attr
