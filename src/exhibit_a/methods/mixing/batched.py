"""How is hidden token attribution measured on a whole corpus?

This is the batched form of ``hidden_attribution``, for texts of one length without padding. The
texts of a batch do not see each other, so a change made at the same place in all of them is pushed
through all of them in one pass. Texts of one length are given the same directions by the same seed,
whether they come alone or together, and so get the same numbers, up to rounding.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from exhibit_a.errors import BrokenInvariantError
from exhibit_a.methods.mixing.hidden_attribution import contributions, displaced, estimated_norms
from exhibit_a.methods.mixing.probing import Probing
from exhibit_a.methods.mixing.pushforward import push_to_layers
from exhibit_a.numerics.precision import to_float64
from exhibit_a.subject.anatomy import main_stack
from exhibit_a.trace.batches import Batch

EachLayer = Float[Tensor, "batch layer"]


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Contributions of every input token to every hidden vector; the first layer is layer 1."""

    contribution: Float[Tensor, "batch layer target source"]
    standard_error: Float[Tensor, "batch layer target source"]  # zero where all was computed
    adjoint_gap: float

    @property
    def own(self) -> EachLayer:
        """What a token contributes to its own hidden vector, on average over tokens."""
        return self.contribution.diagonal(dim1=-2, dim2=-1).mean(-1)

    @property
    def displaced(self) -> EachLayer:
        """The share of tokens to whose hidden vector another contributes most."""
        return to_float64(displaced(self.contribution)).mean(-1)

    @property
    def doubt(self) -> EachLayer:
        """The standard error of a contribution, on average."""
        return self.standard_error.mean((-2, -1))


def mixtures(batch: Batch, *, probes: int | None, seed: int) -> Mixtures:
    """Hidden token attribution of texts of one length, without padding, in the input's stack."""
    stack = main_stack(batch.sites)
    tokens, width = batch.stack_inputs[stack].shape[1:]
    probing = Probing(probes, seed)
    probing.check(width)
    push = push_to_layers(batch, stack, stack)
    every = list(range(tokens))
    changes = probing.changes(push.entry, every)
    norms, error = estimated_norms(push, changes, every, sketch=not probing.exact)
    if not bool(norms.isfinite().all()):
        raise BrokenInvariantError("a derivative of the model is NaN or infinite")
    return Mixtures(contributions(norms), error, push.adjoint_gap)
