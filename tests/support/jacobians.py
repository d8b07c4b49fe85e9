"""A model as a function of the vectors that enter one of its stacks, for slow derivatives."""

from collections.abc import Callable

from torch import Tensor

from exhibit_a.subject.guard import frozen_eval, wrap_forward
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.passes import hidden_of_output


def run_from(
    trace: Trace, source: str, read: Callable[[list[Tensor]], Tensor], tap: Tap | None = None
) -> Callable[[Tensor], Tensor]:
    """x -> what is read of the outputs of all layers, with x as the input of a stack."""
    model = trace.subject.model
    first = next(i for i, layer in enumerate(trace.layers) if layer.stack == source)
    modules = [model.get_submodule(name) for name in {la.module: 0 for la in trace.layers}]

    def run(x: Tensor) -> Tensor:
        seen: list[Tensor] = []

        def wrap(forward):
            def layer(hidden, *args, **kwargs):
                output = forward(x if len(seen) == first else hidden, *args, **kwargs)
                seen.append(hidden_of_output(output))
                return output

            return layer

        with frozen_eval(model), trace.subject.tapping(tap or Tap()), wrap_forward(modules, wrap):
            model(**trace.inputs)
        return read(seen)

    return run
