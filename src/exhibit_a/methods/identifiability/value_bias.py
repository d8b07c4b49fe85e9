"""Which part of the values is there whatever the input?

Values are usually a linear map of the hidden states plus a bias, but where that map sits differs:
a Linear of its own, a third of a fused one, every third slice of another. So it is observed: when
every Linear answers as if its input were zero, what arrives as values is the bias.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import NotComputableError
from exhibit_a.shapes import SharedValues
from exhibit_a.subject.guard import frozen_eval, hooked
from exhibit_a.subject.tap import Tap, shared_to_all
from exhibit_a.trace.capture import Trace

HeadBias = Float[Tensor, "_head _d_head"]


@torch.no_grad()
def value_bias(trace: Trace) -> tuple[HeadBias, ...]:
    """The bias inside the values of every site and head."""
    listener, model = _Listener(trace), trace.subject.model
    linear = [part for part in model.modules() if isinstance(part, nn.Linear | Conv1D)]
    with (
        frozen_eval(model),
        hooked([part.register_forward_hook(_bias_only) for part in linear]),
        trace.subject.tapping(listener),
    ):
        model(**trace.inputs)
    return tuple(listener.found)


class _Listener(Tap):
    """Hears the values of every site; they must be the same for every key."""

    def __init__(self, trace: Trace) -> None:
        self.sites = trace.sites
        self.found: list[Tensor] = []

    def values(self, site: int, value: SharedValues) -> None:
        """Keep one key's values, if all keys agree."""
        one = value[:, :, :1]
        if not torch.allclose(
            value, one.expand_as(value), rtol=0, atol=1e-6 + 1e-4 * float(one.abs().amax())
        ):
            raise NotComputableError(
                f"The values of site {site} are not a linear map plus a bias, so there is no bias "
                'to leave out; use value_bias="include".'
            )
        self.found.append(shared_to_all(one, self.sites[site].heads)[0, :, 0].clone())


def _bias_only(module: nn.Module, _: tuple[Any, ...], output: Tensor) -> Tensor:
    if module.bias is None:
        return torch.zeros_like(output)
    return module.bias.to(output.dtype).expand_as(output)  # type: ignore[operator]
