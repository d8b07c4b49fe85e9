"""Hidden token attribution beside the usual ways to get a Jacobian, in one run.

    python benchmarks/mixing.py [--base FOLDER] [--tokens 16] [--large]

Without --base a BERT of the shape of MiniLM-L6 with random weights stands in. With --large, only
the sketch runs, on the shape of BERT-base with 128 tokens, and the memory it took is reported.
"""

from collections.abc import Callable

import torch
import transformers
from support.measure import begun, bert, drawn, megabytes, once
from torch import Tensor

from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution, hidden_attribution
from exhibit_a.subject.guard import frozen_eval, wrap_forward
from exhibit_a.subject.subject import Subject, load
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.passes import hidden_of_output

SAMPLED = 24  # cotangents that are timed one at a time; the rest is extrapolated
LARGE_PROBES = 4  # pushed a few at a time: memory hardly depends on how many there are
TOGETHER = 256  # cotangents of the single call that are timed; all of them need tens of gigabytes


class _Enough(Exception):  # noqa: N818 - it is not an error
    pass


def main() -> None:
    given = begun(__doc__, base=str, tokens=16, large=False)
    if given.large:
        trace = traced(bert(kind=transformers.BertModel), 128)
        seconds = once(lambda: hidden_attribution(trace, probes=LARGE_PROBES)).least
        peak = megabytes("VmHWM") / 1024
        print(f"BERT-base shape, 128 tokens, {LARGE_PROBES} probes: {seconds:.0f} s, {peak:.1f} GB")
        return
    small = load(given.base) if given.base else bert(384, 6, transformers.BertModel)
    trace = traced(small, given.tokens)
    hidden_attribution(trace, probes=2)  # warm
    before = once(lambda: hidden_attribution(trace))
    ways = {
        "autograd Jacobian, vectorised, one call (extrapolated)": in_one_call(trace),
        "autograd Jacobian, vectorised, a call per layer": vectorised(trace, before.made),
        "one cotangent at a time (extrapolated)": one_at_a_time(trace),
    }
    exact = (before.least + once(lambda: hidden_attribution(trace)).least) / 2
    print(f"{trace.subject.name}: {len(trace.tokens)} tokens, exact {exact:.2f} s")
    for name, seconds in ways.items():
        print(f"{name:55} {seconds:9.2f} s, exact is {seconds / exact:6.1f} times as fast")
    for probes in (4, 8, 16, 32):
        sketch(trace, before.made, exact, probes)


def traced(subject: Subject, tokens: int) -> Trace:
    inputs = drawn(tokens, 1000, 20000)
    inputs["input_ids"][0, 0], inputs["input_ids"][0, -1] = 101, 102
    return capture(subject, inputs)


def sketch(trace: Trace, exact: HiddenAttribution, seconds: float, probes: int) -> None:
    """Errors of five sketches, and whether their standard errors say so."""
    runs = [
        once(lambda s=seed: hidden_attribution(trace, probes=probes, seed=s)) for seed in range(5)
    ]
    spent = sorted(run.least for run in runs)[2]
    missed = torch.stack([(run.made.contribution - exact.contribution)[1:].abs() for run in runs])
    errors = torch.stack([run.made.standard_error[1:] for run in runs])
    inside = (missed <= 2 * errors).double().mean()
    print(
        f"{probes:3} probes: {spent:.2f} s, {seconds / spent:.1f} times as fast, mean error "
        f"{missed.mean():.4f}, worst {missed.amax():.4f}, inside 2 SE {inside:.1%}"
    )


def in_one_call(trace: Trace) -> float:
    """What jacobian(vectorize=True) of all layers does inside, for some of its cotangents."""
    entry, layers = trace.stack_inputs["encoder"].clone().requires_grad_(), len(trace.layers)
    outputs = torch.stack(states(trace, entry, layers))
    count = outputs.numel()
    cotangents = torch.zeros(TOGETHER, count)
    cotangents[torch.arange(TOGETHER), torch.linspace(0, count - 1, TOGETHER).long()] = 1.0
    cotangents = cotangents.reshape(TOGETHER, *outputs.shape)
    work = lambda: torch.autograd.grad(outputs, entry, cotangents, is_grads_batched=True)  # noqa: E731
    return once(work).least / TOGETHER * count


def vectorised(trace: Trace, exact: HiddenAttribution) -> float:
    """A Jacobian for every layer; how far its norms are from ours is told."""
    entry, norms, spent, jacobian = (
        trace.stack_inputs["encoder"],
        [],
        0.0,
        torch.autograd.functional.jacobian,
    )
    for depth in range(1, len(trace.layers) + 1):
        last = lambda x, depth=depth: states(trace, x, depth)[-1]  # noqa: E731
        one = once(lambda last=last: jacobian(last, entry, vectorize=True))
        norms.append(one.made.squeeze(2).square().sum((1, 3)).sqrt())
        spent += one.least
    truth = exact.norms[1:]
    worst = ((torch.stack(norms) - truth).abs() / truth).amax()
    print(f"worst error of a norm: {float(worst):.1e} relative")
    return spent


def one_at_a_time(trace: Trace) -> float:
    spent = 0.0
    for depth in range(1, len(trace.layers) + 1):
        entry = trace.stack_inputs["encoder"].clone().requires_grad_()
        outputs = states(trace, entry, depth)[-1].flatten()
        some = outputs[torch.linspace(0, len(outputs) - 1, SAMPLED).long()]
        work = lambda some=some, entry=entry: [  # noqa: E731
            torch.autograd.grad(one, entry, retain_graph=True) for one in some
        ]
        spent += once(work).least / SAMPLED * len(outputs)
    return spent


def states(trace: Trace, entry: Tensor, depth: int) -> list[Tensor]:
    """The outputs of all layers up to ``depth`` when the first layer is given ``entry``."""
    model, seen = trace.subject.model, []

    def wrap(forward: Callable[..., object]) -> Callable[..., object]:
        def layer(hidden: Tensor, *args: object, **kwargs: object) -> object:
            output = forward(hidden if seen else entry, *args, **kwargs)
            seen.append(hidden_of_output(output))
            if len(seen) == depth:
                raise _Enough
            return output

        return layer

    modules = [model.get_submodule(layer.module) for layer in trace.layers]
    try:
        with frozen_eval(model), trace.subject.tapping(Tap()), wrap_forward(modules, wrap):
            model(**trace.inputs)
    except _Enough:
        pass
    return [one[0] for one in seen]


if __name__ == "__main__":
    main()
