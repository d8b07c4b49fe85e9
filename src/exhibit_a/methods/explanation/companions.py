"""What do other methods say about the same answer?

Attention is one candidate explanation among many. Here are the usual others, all in one shape: a
score for each input token, for one number of the answer. They come in three kinds:

maps     what can be read off attention maps: raw (the last layer's), mean_attention, rollout,
         flow, attention_gradient, relevance (Chefer et al., 2021);
vectors  the same with the length of the vectors counted: norm (Kobayashi et al., 2020),
         norm_residual (2021), alti (Ferrando et al., 2022), value_zeroing (Mohebbi et al., 2023);
inputs   what happens when the input changes: gradient_input, integrated_gradients, occlusion and
         lime through captum, kernel_shap (``numerics.shapley``).

Maps of single layers become one score for each token by rollout from the positions that the answer
is read from. ``norm`` leaves the residual out, so half of each step is the residual, as in rollout;
the other vector methods count the residual themselves.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from exhibit_a.errors import (
    BadRequestError,
    NotComputableError,
    UnsupportedModelError,
    require_choice,
)
from exhibit_a.extras import extra
from exhibit_a.methods.custom_methods import (
    STANDARD_ERROR,
    Checks,
    Scores,
    TokenAttribution,
    attribution_of,
)
from exhibit_a.methods.explanation.decomposition import alti_maps, norm_maps, value_zeroing_maps
from exhibit_a.methods.explanation.erasure import (
    Erase,
    baseline,
    by_presence,
    by_states,
    require_way,
)
from exhibit_a.methods.explanation.flow import (
    attention_times_gradient,
    max_flow,
    relevance,
    rollout,
    steps,
)
from exhibit_a.methods.registry import Cost, Need, attributions, method, rows_of, token_method
from exhibit_a.numerics.precision import to_float64
from exhibit_a.numerics.seeds import require_seed
from exhibit_a.numerics.shapley import shapley_values
from exhibit_a.trace.answer_rows import one_stack, readout, readout_rows
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.targets import Target, choose_target

TOKENS = 4096  # in one pass of copies
MAPS: tuple[Need, ...] = ("attention", "target")  # what methods of the first kind need
VECTORS: tuple[Need, ...] = ("attention", "values", "projection", "target")  # of the second
READING = Cost(forwards=1, maps=1)  # the maps themselves
GRADIENTS = Cost(forwards=2, backwards=True, maps=2)  # and their gradients
LENGTHS = Cost(forwards=2, algebra=1, maps=1)  # of vectors that attention adds, and of the residual
STEPS = 64  # of the path from the baseline to the text


@method(
    question="What do other methods say about the same answer?",
    needs=rows_of("target"),
    cost=Cost(forwards=600, per_token=2, algebra_per_token=8, maps=2),
)
def companions(
    trace: Trace,
    *,
    methods: Iterable[str] | None = None,
    target: Target | None = None,
    erase: Erase = "hide",
    samples: int = 256,
    seed: int = 0,
) -> dict[str, TokenAttribution]:
    """Token scores by every method requested; by default by all that apply to this model.

    Methods that do not apply are left out when all are requested, with the reason in every
    result's checks, and raise when they are named.

    >>> sorted(xa.companions(trace, methods=["raw", "rollout"]))
    ['raw', 'rollout']
    >>> xa.companions(trace, methods="raw")["raw"].scores.sum().round(decimals=3)
    tensor(1.)

    Args:
        methods: names of methods; without, all that are registered.
        target: what is explained; without, what the model answers.
        erase: how occlusion, LIME and SHAP take tokens away: hide, delete or mask.
        samples: how many texts LIME and SHAP look at.
        seed: same seed, same numbers.
    """
    require_way(trace.subject, erase)
    requested = target or choose_target(trace)
    known = attributions()
    results: dict[str, TokenAttribution] = {}
    left_out: dict[str, str] = {}
    for name in _names(methods, known):
        try:
            result = attribution_of(
                known[name], trace, requested, erase=erase, samples=samples, seed=seed
            )
        except (NotComputableError, UnsupportedModelError) as reason:
            if methods is not None:
                raise
            left_out[name] = str(reason)
            continue
        results[name] = result
    if not left_out:
        return results
    return {
        name: replace(result, checks=result.checks | {"left out": left_out})
        for name, result in results.items()
    }


def _names(methods: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """The names requested, each once; all that are known where none was requested."""
    if methods is None:
        return list(known)
    names = [methods] if isinstance(methods, str) else list(dict.fromkeys(methods))
    for name in names:
        require_choice("companion", name, known)
    return names


@token_method("raw", "Where does the last layer look?", READING, *MAPS, rows=True)
def raw(trace: Trace, target: Target) -> tuple[Scores, Checks]:
    """The attention of the last layer, mean over heads, in the rows the answer is read from."""
    last = steps(trace)[-1]
    return readout_rows(trace, target) @ last, {"read from": "the last layer, mean over heads"}


@token_method("mean_attention", "Where do all heads of all layers look?", READING, *MAPS, rows=True)
def mean_attention(trace: Trace, target: Target) -> tuple[Scores, Checks]:
    """The mean attention of all heads of all layers, in the rows the answer is read from."""
    mean = torch.stack(steps(trace)).mean(0)
    return readout_rows(trace, target) @ mean, {"read from": "all layers, mean over heads"}


@token_method("rollout", "Where do all layers look, one after the other?", READING, *MAPS)
def attention_rollout(trace: Trace, target: Target) -> Scores:
    """Attention multiplied through the layers, where half of each step is the residual."""
    return rollout(readout(trace, target), steps(trace), residual=True)


@token_method(
    "flow",
    "How much can run from the answer to each token?",
    Cost(forwards=1, algebra_per_token=0.25, maps=1),
    *MAPS,
)
def attention_flow(trace: Trace, target: Target) -> Scores:
    """The largest flow through attention, seen as pipes, from the answer to each token."""
    flows = max_flow(readout(trace, target), steps(trace))
    return flows / flows.sum()


@token_method("attention_gradient", "Which attention is the answer sensitive to?", GRADIENTS, *MAPS)
def attention_gradient(trace: Trace, target: Target) -> tuple[Scores, Checks]:
    """Attention times its gradient, summed over layers, heads and queries."""
    weighted = attention_times_gradient(trace, target, one_stack(trace))
    scores = torch.stack([site.sum((0, 1)) for site in weighted])
    return scores.sum(0), {"summed over": "layers, heads and queries"}


@token_method("relevance", "What does attention times gradient add up to?", GRADIENTS, *MAPS)
def attention_relevance(trace: Trace, target: Target) -> Scores:
    """The positive part of attention times gradient, multiplied through the layers."""
    weighted = attention_times_gradient(trace, target, reversed(one_stack(trace)))
    return relevance(readout(trace, target), weighted)


@token_method(
    "norm",
    "How long are the vectors that attention adds?",
    Cost(forwards=1, algebra=1, maps=1),
    *VECTORS,
)
def norm(trace: Trace, target: Target) -> Scores:
    """Lengths of weighted values, rolled out; half of each step is the residual."""
    return rollout(readout(trace, target), norm_maps(trace, residual=False), residual=True)


@token_method("norm_residual", "And with the residual and the norm counted?", LENGTHS, *VECTORS)
def norm_residual(trace: Trace, target: Target) -> Scores:
    """Lengths of weighted values and of the residual after the layer norm, rolled out."""
    return rollout(readout(trace, target), norm_maps(trace, residual=True), residual=False)


@token_method(
    "alti",
    "Which token's vector brings a layer to its output?",
    Cost(forwards=2, algebra=3, algebra_per_token=0.02, maps=1),
    *VECTORS,
)
def alti(trace: Trace, target: Target) -> Scores:
    """How much nearer each vector brings the output of its layer, rolled out."""
    return rollout(readout(trace, target), alti_maps(trace), residual=False)


@token_method(
    "value_zeroing",
    "What if a token's values were zero?",
    Cost(forwards=1, per_token=1, maps=1),
    "attention",
    "values",
    "target",
)
def value_zeroing(trace: Trace, target: Target) -> Scores:
    """How far a layer's output turns when a token's values are zero, rolled out."""
    return rollout(readout(trace, target), value_zeroing_maps(trace), residual=False)


@token_method(
    "gradient_input",
    "Which inputs is the answer sensitive to?",
    Cost(forwards=2, backwards=True),
    "hidden",
    "target",
    rows=True,
)
def gradient_input(trace: Trace, target: Target) -> tuple[Scores, Checks]:
    """The gradient times the input of the first layer."""
    with by_states(trace, target) as (score, states):
        product = extra("captum.attr").InputXGradient(score).attribute(states.requires_grad_())
    return product[0].sum(-1).detach(), {"differentiated by": "the input of the first layer"}


@token_method(
    "integrated_gradients",
    "What does each input add on the way?",
    Cost(forwards=68, backwards=True),
    "hidden",
    "target",
    rows=True,
)
def integrated_gradients(trace: Trace, target: Target) -> tuple[Scores, Checks]:
    """Gradients along the straight path from a text of masks to the text."""
    start, name = baseline(trace)
    with by_states(trace, target) as (score, states):
        integrated, gap = (
            extra("captum.attr")
            .IntegratedGradients(score)
            .attribute(
                states,
                baselines=start,
                n_steps=STEPS,
                internal_batch_size=max(1, TOKENS // states.shape[1]),
                return_convergence_delta=True,
            )
        )
    checks = {"baseline": name, "gap": float(gap.abs().amax())}
    return integrated[0].sum(-1).detach(), checks


@token_method(
    "occlusion",
    "What if a token were not there?",
    Cost(per_token=1),
    "text",
    "distribution",
    rows=True,
)
def occlusion(trace: Trace, target: Target, erase: Erase = "hide") -> tuple[Scores, Checks]:
    """How much the answer loses when each token alone is taken away.

    Args:
        erase: how tokens are taken away: hide, delete or mask.
    """
    score, written = by_presence(trace, target, erase)
    change = (
        extra("captum.attr")
        .FeatureAblation(score)
        .attribute(torch.ones(1, int(written.sum())), perturbations_per_eval=64)
    )
    return _spread(change[0], written, erase)


@token_method(
    "lime",
    "Which linear model fits the answers nearby?",
    Cost(forwards=256),
    "text",
    "distribution",
    rows=True,
)
def lime(
    trace: Trace, target: Target, erase: Erase = "hide", samples: int = 256, seed: int = 0
) -> tuple[Scores, Checks]:
    """The weights of a ridge regression on which tokens are there.

    Args:
        erase: how tokens are taken away: hide, delete or mask.
        samples: how many texts with tokens taken away are run.
        seed: same seed, same numbers.
    """
    score, written = by_presence(trace, target, erase)
    surrogate = extra("captum.attr").Lime(score, interpretable_model=_Ridge(1e-2))
    require_seed(seed)
    _require_samples(samples)
    # captum draws from torch's global stream.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        scores = surrogate.attribute(
            torch.ones(1, int(written.sum())),
            baselines=torch.zeros(1, int(written.sum())),
            n_samples=samples,
            perturbations_per_eval=64,
        )
    placed, checks = _spread(scores[0], written, erase)
    return placed, checks | {"samples": samples}


@token_method(
    "kernel_shap",
    "What is each token's fair share?",
    Cost(forwards=258),
    "text",
    "distribution",
    rows=True,
)
def kernel_shap(
    trace: Trace, target: Target, erase: Erase = "hide", samples: int = 256, seed: int = 0
) -> tuple[Scores, Checks]:
    """Shapley values of the tokens: exact for few, else by weighted least squares.

    Args:
        erase: how tokens are taken away: hide, delete or mask.
        samples: how many texts with tokens taken away are run.
        seed: same seed, same numbers.
    """
    _require_samples(samples)
    score, written = by_presence(trace, target, erase)
    count = int(written.sum())
    shares = shapley_values(score, count, budget=samples, seed=seed)
    scores, checks = _spread(shares.values, written, erase)
    error = torch.zeros(len(written))
    error[written] = shares.standard_error.float()
    checks |= {
        "samples": shares.coalitions,
        "coalitions": "all" if shares.exact else "the smallest, the largest and some others",
        "largest standard error": float(error.amax()),
        STANDARD_ERROR: error,
    }
    if not shares.exact and shares.coalitions < 2 * count:
        checks["too few samples"] = f"{samples} for {count} tokens; give at least {2 * count}"
    return scores, checks


class _Ridge:
    """Weighted least squares in closed form, the linear surrogate that captum fits."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def fit(self, train_data: Iterable[tuple[Tensor, Tensor, Tensor]]) -> None:
        """Fit coefficients and an intercept; only the coefficients are held small."""
        columns = zip(*train_data, strict=True)
        rows, answers, weights = (to_float64(torch.cat(column)) for column in columns)
        rows = torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
        scale = weights.reshape(-1, 1).sqrt()
        penalty = self.strength * torch.eye(rows.shape[1], dtype=rows.dtype)[:-1]
        left = torch.cat([scale * rows, penalty.sqrt()])
        right = torch.cat([scale * answers.reshape(-1, 1), penalty.new_zeros(len(penalty), 1)])
        self.coefficients = torch.linalg.lstsq(left, right, driver="gelsd").solution[:-1, 0]

    def representation(self) -> Tensor:
        """The coefficients."""
        coefficients: Tensor = self.coefficients.float()
        return coefficients


def _require_samples(samples: int) -> None:
    if samples < 1:
        raise BadRequestError(f"{samples} samples were requested; give 1 or more.")


def _spread(scores: Tensor, written: Tensor, erase: str) -> tuple[Scores, Checks]:
    """Scores of the text's own tokens at their places; special tokens stay and have none."""
    placed = torch.zeros(len(written))
    placed[written] = scores.float()
    return placed, {"tokens are taken away by": erase, "special tokens": "never taken away"}
