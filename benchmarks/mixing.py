"""Hidden token attribution beside the usual ways to get a Jacobian, in one run.

    python benchmarks/mixing.py [--base FOLDER] [--tokens 16] [--large]

Without --base a BERT of the shape of MiniLM-L6 with random weights stands in. With --large, only
the sketch runs, on the shape of BERT-base with 128 tokens, and the memory it took is reported.
Everything runs on one thread, and seconds are processor seconds, so that a busy machine disturbs
all ways alike.
"""

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from support.quiet import one_quiet_thread
from torch import Tensor

from exhibit_a.methods.mixing.hidden_attribution import HiddenAttribution, hidden_attribution
from exhibit_a.subject.guard import frozen_eval, wrap_forward
from exhibit_a.subject.subject import load
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.passes import hidden_of_output

SAMPLED = 24  # cotangents that are timed one at a time; the rest is extrapolated
LARGE_PROBES = 4  # pushed a few at a time: memory hardly depends on how many there are
TOGETHER = 256  # cotangents of the single call that are timed; all of them need tens of gigabytes


class _Enough(Exception):  # noqa: N818 - it is not an error
    pass


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--base", help="folder of a model; default: random weights")
    asked.add_argument("--tokens", type=int, default=16)
    asked.add_argument("--large", action="store_true")
    options = asked.parse_args()
    one_quiet_thread()

    if options.large:
        _large()
        return
    trace = _trace(options.base or _bert(384, 6, 12), options.tokens)
    hidden_attribution(trace, probes=2)  # warm
    exact, before = _timed(lambda: hidden_attribution(trace))
    ways = {
        "autograd Jacobian, vectorised, one call (extrapolated)": _in_one_call(trace),
        "autograd Jacobian, vectorised, a call per layer": _vectorised(trace),
        "one cotangent at a time (extrapolated)": _one_at_a_time(trace),
    }
    _, after = _timed(lambda: hidden_attribution(trace))
    exact_time = (before + after) / 2
    print(f"{trace.subject.name}: {len(trace.tokens)} tokens\n")
    print(f"{'way':55} {'seconds':>9} {'exact is':>9}  worst error of a norm")
    for name, (norms, seconds) in ways.items():
        error = "" if norms is None else f"{_relative(norms, exact.norms[1:]):.1e} relative"
        print(f"{name:55} {seconds:9.2f} {seconds / exact_time:8.1f}x  {error}")
    print(f"{f'exhibit_a, exact: {before:.1f} before, {after:.1f} after':55} {exact_time:9.2f}")

    columns = ("seconds", "faster", "mean error", "worst", "inside 2 SE")
    print("\nsketch      ", " ".join(f"{name:>11}" for name in columns))
    for probes in (4, 8, 16, 32):
        _sketch(trace, exact, exact_time, probes)


def _sketch(trace: Trace, exact: HiddenAttribution, exact_time: float, probes: int) -> None:
    runs = [
        _timed(lambda s=seed: hidden_attribution(trace, probes=probes, seed=s)) for seed in range(5)
    ]  # type: ignore[misc]
    seconds = sorted(time for _, time in runs)[2]
    missed = torch.stack([(run.contribution - exact.contribution)[1:].abs() for run, _ in runs])
    errors = torch.stack([run.standard_error[1:] for run, _ in runs])
    inside = (missed <= 2 * errors).double().mean()
    told = (f"{seconds:.2f}", f"{exact_time / seconds:.1f}x", f"{missed.mean():.4f}")
    told = (*told, f"{missed.amax():.4f}", f"{inside:.1%}")
    print(f"{probes:5} probes", " ".join(f"{value:>11}" for value in told))


def _large() -> None:
    trace = _trace(_bert(768, 12, 12), 128)
    _, seconds = _timed(lambda: hidden_attribution(trace, probes=LARGE_PROBES))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"BERT-base shape, 128 tokens, {LARGE_PROBES} probes: {seconds:.0f} s, {peak:.1f} GB")


def _in_one_call(trace: Trace) -> tuple[Tensor | None, float]:
    """What jacobian(vectorize=True) of all layers does inside, for some of its cotangents."""
    entry, layers = trace.stack_inputs["encoder"].clone().requires_grad_(), len(trace.layers)
    outputs = torch.stack(_states(trace, entry, layers))
    count = outputs.numel()
    chosen = torch.linspace(0, count - 1, TOGETHER).long()
    cotangents = torch.zeros(TOGETHER, count)
    cotangents[torch.arange(TOGETHER), chosen] = 1.0
    start = time.process_time()
    cotangents = cotangents.reshape(TOGETHER, *outputs.shape)
    torch.autograd.grad(outputs, entry, cotangents, is_grads_batched=True)
    return None, (time.process_time() - start) / TOGETHER * count


def _vectorised(trace: Trace) -> tuple[Tensor | None, float]:
    entry, norms, spent = trace.stack_inputs["encoder"], [], 0.0
    for layer in range(1, len(trace.layers) + 1):
        jacobian, seconds = _timed(
            lambda depth=layer: torch.autograd.functional.jacobian(  # type: ignore[misc]
                lambda x: _state(trace, x, depth), entry, vectorize=True
            )
        )
        norms.append(jacobian.squeeze(2).square().sum((1, 3)).sqrt())
        spent += seconds
    return torch.stack(norms), spent


def _one_at_a_time(trace: Trace) -> tuple[Tensor | None, float]:
    spent = 0.0
    for layer in range(1, len(trace.layers) + 1):
        entry = trace.stack_inputs["encoder"].clone().requires_grad_()
        outputs = _state(trace, entry, layer).flatten()
        start = time.process_time()
        for place in torch.linspace(0, len(outputs) - 1, SAMPLED).long():
            torch.autograd.grad(outputs[place], entry, retain_graph=True)
        spent += (time.process_time() - start) / SAMPLED * len(outputs)
    return None, spent


def _state(trace: Trace, entry: Tensor, depth: int) -> Tensor:
    """The output of layer ``depth`` when the first layer is given ``entry``."""
    return _states(trace, entry, depth)[-1]


def _states(trace: Trace, entry: Tensor, depth: int) -> list[Tensor]:
    """The outputs of all layers up to ``depth``."""
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


def _trace(source: object, tokens: int) -> Trace:
    subject = load(source)  # type: ignore[arg-type]
    chance = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, 20000, (1, tokens), generator=chance)
    ids[0, 0], ids[0, -1] = 101, 102
    return capture(subject, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def _bert(width: int, layers: int, heads: int) -> transformers.BertModel:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return transformers.BertModel(config).eval()


def _relative(found: Tensor, truth: Tensor) -> float:
    return float(((found - truth).abs() / truth).amax())


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


if __name__ == "__main__":
    main()
