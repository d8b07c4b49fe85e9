"""Follows hidden vectors and head outputs in one pushforward instead of two.

Hidden token attribution and head mixing move the same tokens in the same directions and only look
at different places. Where a model has one stack, both are read off the same derivatives.
"""

from exhibit_a.methods.mixing.head_mixing import (
    HeadLengths,
    HeadMixing,
    compared_maps,
    head_mixing,
)
from exhibit_a.methods.mixing.hidden_attribution import (
    HiddenAttribution,
    LayerLengths,
    assembled,
    hidden_attribution,
)
from exhibit_a.methods.mixing.probing import Probing
from exhibit_a.methods.mixing.pushforward import push_to_all
from exhibit_a.trace.capture import Trace


def hidden_and_heads(
    trace: Trace, *, probes: int, seed: int = 0
) -> tuple[HiddenAttribution, HeadMixing]:
    """What ``hidden_attribution`` and ``head_mixing`` give, for the cost of one of them."""
    trace = trace.keeping("attention", "hidden")
    if len(trace.sequences) > 1:
        return (
            hidden_attribution(trace, probes=probes, seed=seed),
            head_mixing(trace, probes=probes, seed=seed),
        )
    (stack,) = trace.sequences
    probing = Probing(probes, seed)
    probing.check(trace.stack_inputs[stack].shape[-1])
    places = probing.positions(trace, stack)
    push, layers = push_to_all(trace), len(trace.layers)
    changes = probing.changes(push.entry, places)
    at_layers = LayerLengths(push, changes, places, keep_directions=True, layers=layers)
    at_heads = HeadLengths(trace, trace.sites, {stack: places}, stack, "averaged")
    for run in push.chunks(len(changes)):
        tangents, sources = changes.within(run, push.entry.detach())
        pushed = push.each(tangents)
        at_layers.add(run, sources, pushed[:layers])
        at_heads.add(sources, [moved.squeeze(1) for moved in pushed[layers:]])
    norms, error = at_layers.norms(sketch=True)
    checks = {f"{name}_{stack}": value for name, value in push.checks.items()}
    return (
        assembled(trace, push, probing, (norms[0], error[0]), (stack, stack)),
        compared_maps(trace, at_heads.shares(), checks, probing),
    )
