"""Attention maps of single layers as a path from the answer to the input.

Every map is seen as one step: from the positions where the answer is read, through the layers, down
to the input tokens (Abnar & Zuidema, 2020; Chefer et al., 2021). With Ā the mean over heads,

rollout     multiply the steps: row · Â(L) ··· Â(1), Â = ½(Ā + I);
flow        treat the entries of Â as pipes and ask how much can run from the answer to a token;
relevance   row · (I + Ḡ(L)) ··· (I + Ḡ(1)), Ḡ = mean over heads of max(0, ∂F/∂A ⊙ A).

Only the rows that the answer is read from are ever followed, so a step is a vector times a matrix.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from exhibit_a.subject.anatomy import Site
from exhibit_a.trace.answer_rows import one_stack
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.edits import ContextGradients
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target

GRAIN = 2**24  # capacities are whole numbers for the solver: this many to one

Map = Float[Tensor, "query key"]
Row = Float[Tensor, " token"]
Nodes = npt.NDArray[np.int_]


def steps(trace: Trace) -> list[Map]:
    """The mean over heads of every map, from the first layer to the last."""
    sites, maps = one_stack(trace), trace.keeping("attention").attention
    return [maps[site.index].mean(0) for site in sites]


def rollout(start: Row, maps: Sequence[Map], *, residual: bool) -> Row:
    """The product of all steps seen from ``start``; ``residual`` averages each with no step."""
    row = start
    for attention in reversed(maps):
        moved = row @ attention
        row = (moved + row) / 2 if residual else moved
    return row


def max_flow(start: Row, maps: Sequence[Map]) -> Row:
    """How much can run from the answer to each token through pipes as wide as the weights.

    One graph serves all tokens: layer by layer from the answer's side, node 0 the source.
    """
    size, count = len(start), len(maps)
    graph = _pipes(start, maps)
    first = 1 + count * size  # the input tokens are the last nodes
    flows = [
        maximum_flow(graph, 0, first + token, method="dinic").flow_value for token in range(size)
    ]
    return torch.tensor(flows, dtype=start.dtype, device=start.device) / GRAIN


def relevance(start: Row, weighted: Iterable[Float[Tensor, "head query key"]]) -> Row:
    """Attention times its gradient, last layer first: positive parts of heads, accumulated."""
    row = start
    for attention in weighted:
        row = row + row @ attention.clamp_min(0).mean(0)
    return row


def attention_times_gradient(
    trace: Trace, target: Target, sites: Iterable[Site]
) -> Iterator[Float[Tensor, "_head _query _key"]]:
    """A ⊙ ∂F/∂A of some sites, in one backward pass; later maps may move with earlier ones.

    The gradient of a map is (∂F/∂C)Vᵀ, C = AV. It is formed when its site is requested.
    """
    trace.subject.require_gradients()
    kept = trace.keeping("attention", "values")
    passed, tap = target.narrowed(kept), ContextGradients()
    answer = target.value(passed, replay(passed, tap, start=0)).sum()
    gradients = torch.autograd.grad(answer, tap.nudges, materialize_grads=True)
    for site in sites:
        attention, values = kept.attention[site.index], kept.values[site.index]
        yield attention * (gradients[site.index][0] @ values.mT)


def _pipes(start: Row, maps: Sequence[Map]) -> csr_array:
    """The layered graph with a source in front; pipes too thin for the grain are left out."""
    size = len(start)
    nodes = 1 + (len(maps) + 1) * size
    rows, columns, widths = [], [], []

    def connect(from_node: Nodes, to_node: Nodes, weight: Tensor) -> None:
        width = (weight.detach().cpu().double().numpy() * GRAIN).astype(np.int32)
        open_ones = width > 0
        rows.append(np.broadcast_to(from_node, width.shape)[open_ones])
        columns.append(np.broadcast_to(to_node, width.shape)[open_ones])
        widths.append(width[open_ones])

    places = np.arange(size)
    connect(np.array(0), 1 + places, start)
    for depth, attention in enumerate(reversed(maps)):
        upper, lower = 1 + depth * size + places, 1 + (depth + 1) * size + places
        stay = torch.eye(size, dtype=attention.dtype, device=attention.device)
        connect(upper[:, None], lower[None, :], (attention + stay) / 2)
    width, row, column = (np.concatenate(entries) for entries in (widths, rows, columns))
    return csr_array((width, (row, column)), shape=(nodes, nodes))
