"""The changes of the input that are pushed through the model, exact or by random probes.

A change is a direction at one token of a stack's input. The exact mode takes all d directions at
every token; a sketch takes a few random ones, the probes, which are orthonormal at every token.
Padding is never changed and never looked at; special tokens are both unless they are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.numerics.seeds import generator
from exhibit_a.trace.capture import Trace

Tangents = Float[Tensor, "tangent token d_model"]


@dataclass(frozen=True, eq=False)
class Changes:
    """Every direction at every source token, one after the other."""

    directions: Float[Tensor, "source direction d_model"]
    sources: Sequence[int]
    scale: Float[Tensor, "source d_model"] | None = None

    def scaled(self, scale: Float[Tensor, "source d_model"]) -> "Changes":
        """The same changes with every component multiplied by what stands at the source."""
        return replace(self, scale=scale)

    def __len__(self) -> int:
        return len(self.sources) * self.directions.shape[1]

    def within(self, run: slice, like: Tensor) -> tuple[Tangents, Int[Tensor, " tangent"]]:
        """The changes of a run as tangents of ``like``, and the source each belongs to."""
        number = torch.arange(run.start, run.stop)
        source, direction = number // self.directions.shape[1], number % self.directions.shape[1]
        places = torch.tensor(self.sources)[source]
        tangents = like.new_zeros(len(number), *like.shape[1:])
        unit = self.directions[source, direction].to(like)
        scaled = unit if self.scale is None else unit * self.scale[source.to(like.device)]
        tangents[torch.arange(len(number)), places] = scaled
        return tangents, source


@dataclass(frozen=True)
class Probing:
    """How the changes are chosen: all of them without ``probes``, else as many random ones."""

    probes: int | None
    seed: int = 0
    special: bool = True  # whether special tokens take part

    @property
    def exact(self) -> bool:
        """Whether all directions are pushed."""
        return self.probes is None

    def check(self, width: int) -> None:
        """Refuse a number of probes that says nothing, or exceeds the number of directions."""
        if self.probes is not None and not 2 <= self.probes <= width:
            raise BadRequestError(
                f"{self.probes} probes were asked for; 2 to {width} (the model's width) make "
                "sense, and probes=None is exact."
            )

    def positions(self, trace: Trace, stack: str) -> list[int]:
        """The positions of a stack that take part."""
        sequence = trace.sequences[stack]
        kept = sequence.real if self.special else sequence.real & ~sequence.special
        if not bool(kept.any()):
            raise BadRequestError("The text has none but special tokens; use special=True.")
        return [int(place) for place in kept.nonzero()]

    def changes(self, entry: Tensor, sources: Sequence[int]) -> Changes:
        """Unit changes of ``entry``, the input of a stack, at every source."""
        width = entry.shape[-1]
        if self.probes is None:
            return Changes(torch.eye(width).expand(len(sources), -1, -1), sources)
        return Changes(orthonormal(len(sources), self.probes, width, self.seed), sources)

    @property
    def used_seed(self) -> int | None:
        """The seed, if anything depends on it: without probes nothing does."""
        return None if self.exact else self.seed

    def checks(self, **measured: float) -> dict[str, float | str]:
        """How the changes were chosen, around what was measured with them."""
        return {
            "probes": "all" if self.probes is None else self.probes,
            **measured,
            "padding": "excluded",
            "special_tokens": "kept" if self.special else "excluded",
        }


def orthonormal(
    sources: int, count: int, width: int, seed: int
) -> Float[Tensor, "source direction d_model"]:
    """Random orthonormal directions for every source; the same for the same seed."""
    drawn = torch.randn(sources, width, count, generator=generator(seed), dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    signs = triangle.diagonal(dim1=1, dim2=2).sign()  # without them the basis is not uniform
    uniform: Tensor = basis * signs.unsqueeze(1)
    return uniform.mT
