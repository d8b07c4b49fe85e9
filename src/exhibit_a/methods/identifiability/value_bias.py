"""Finds the part of the values that does not depend on the input.

Values are usually a linear map of the hidden states plus a bias, but where that map sits differs:
a Linear of its own, a third of a fused one, every third slice of another. So it is observed: when
every Linear returns what it would for an input of zeros, the values that arrive are the bias.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import NotComputableError
from exhibit_a.shapes import SharedValues
from exhibit_a.subject.guard import frozen_eval, here_only, hooked
from exhibit_a.subject.tap import Tap, shared_to_all
from exhibit_a.trace.capture import Trace

HeadBias = Float[Tensor, "_head _d_head"]


@torch.no_grad()
def value_bias(trace: Trace) -> tuple[HeadBias, ...]:
    """The bias inside the values of every site and head."""
    recorder, model = _ValueRecorder(trace), trace.model
    linear = [module for module in model.modules() if isinstance(module, nn.Linear | Conv1D)]
    with (
        frozen_eval(model),
        hooked([module.register_forward_hook(here_only(_bias_only)) for module in linear]),
        trace.subject.tapping(recorder, fused=trace.fused),
    ):
        model(**trace.inputs)
    return tuple(recorder.biases)


class _ValueRecorder(Tap):
    """Keeps the values of every site, which must be the same for every key."""

    def __init__(self, trace: Trace) -> None:
        self.sites = trace.sites
        self.biases: list[Tensor] = []

    def values(self, site: int, value: SharedValues) -> None:
        """Keep the values of the first key, if all keys agree."""
        first = value[:, :, :1]
        if not torch.allclose(
            value, first.expand_as(value), rtol=0, atol=1e-6 + 1e-4 * float(first.abs().amax())
        ):
            raise NotComputableError(
                f"The values of site {site} are not a linear map plus a bias, so there is no bias "
                'to leave out; use value_bias="include".'
            )
        self.biases.append(shared_to_all(first, self.sites[site].heads)[0, :, 0].clone())


def _bias_only(module: nn.Module, _: tuple[object, ...], output: Tensor) -> Tensor:
    """A hook that puts the output for an input of zeros in place of the output."""
    if module.bias is None:
        return torch.zeros_like(output)
    return module.bias.to(output.dtype).expand_as(output)  # type: ignore[operator]
