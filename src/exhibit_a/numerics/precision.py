"""Moves numbers to float64, on the host where a device does not know it.

Ranks, gaps and distances need the digits of float64, and a device such as mps has only float32.
What needs them is computed on the host then, from numbers that were copied there, and the results
are rounded on their way back. Number type and device are never changed in one step: it may be taken
in the wrong order, and fail.
"""

from functools import cache

import torch
from torch import Tensor


def to_float64(tensor: Tensor) -> Tensor:
    """The numbers in float64: where they are, or on the host if there is no float64 there.

    >>> to_float64(torch.ones(2)).dtype, exact_device(torch.device("cpu"))
    (torch.float64, device(type='cpu'))
    """
    place = exact_device(tensor.device)
    return (tensor if place == tensor.device else tensor.to(place)).to(torch.float64)


def float64_sum(tensor: Tensor, dims: int | tuple[int, ...]) -> Tensor:
    """Sums in float64, for which the numbers themselves are not copied where it is known."""
    return tensor.to(exact_device(tensor.device)).sum(dims, dtype=torch.float64)


def exact_device(device: torch.device) -> torch.device:
    """Where tensors of a device are computed with in float64."""
    return device if device.type == "cpu" or _has_float64(device.type) else torch.device("cpu")


def returned(tensor: Tensor, device: torch.device) -> Tensor:
    """A result back on the requested device; in float32 if it has no float64.

    >>> returned(to_float64(torch.ones(2)), torch.device("cpu")).dtype
    torch.float64
    """
    if tensor.dtype == torch.float64 and exact_device(device) != device:
        tensor = tensor.to(torch.float32)
    return tensor.to(device)


@cache
def _has_float64(device_type: str) -> bool:
    try:
        torch.zeros(1, device=device_type).to(torch.float64)
    except (TypeError, RuntimeError):  # which of them depends on the device
        return False
    return True


def at_least_float32(tensor: Tensor) -> Tensor:
    """At least single precision: sums of half-precision numbers are too inexact.

    >>> half, double = torch.ones(2, dtype=torch.bfloat16), torch.ones(2).double()
    >>> at_least_float32(half).dtype, at_least_float32(double).dtype
    (torch.float32, torch.float64)
    """
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
