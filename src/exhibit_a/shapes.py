"""The axes of the package, named once.

batch   examples in a forward pass        layer   layer calls, in the order the model makes them
head    attention heads (after sharing)   kv_head heads that own keys and values (before sharing)
query   positions that look               key     positions that are looked at
token   positions of a sequence           site    attention calls, in the order the model makes them
d_head  width of one head's values        d_model width of the residual stream
"""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

Options = dict[str, Any]  # what a function is called with, by name
Inputs = dict[str, Any]  # what a model is called with: tensors by name, switches such as use_cache

Attention = Float[Tensor, "batch head query key"]
Values = Float[Tensor, "batch head key d_head"]
SharedValues = Float[Tensor, "batch kv_head key d_head"]
Queries = Float[Tensor, "batch head query d_query"]
SharedKeys = Float[Tensor, "batch kv_head key d_query"]
Context = Float[Tensor, "batch head query d_head"]
Hidden = Float[Tensor, "batch token d_model"]
Scores = Float[Tensor, " batch"]
TokenIds = Int[Tensor, "batch token"]
SourceIds = Int[Tensor, "batch source"]  # what a model with two stacks reads, and what it writes
TargetIds = Int[Tensor, "batch target"]
Source = Float[Tensor, "batch source d_model"]
Target = Float[Tensor, "batch target d_model"]

TokenStates = Float[Tensor, "token d_model"]
Visible = Bool[Tensor, "query key"]
TokenMarks = Bool[Tensor, " token"]

# One entry of a list over sites. Sites may differ in every axis (two stacks, cross-attention), and
# the underscore says so: the axis has a name, its size is not compared with the other entries.
SiteMap = Float[Tensor, "_head _query _key"]
SiteValues = Float[Tensor, "_head _key _d_head"]
SiteQueries = Float[Tensor, "_head _query _d_query"]
SiteKeys = Float[Tensor, "_head _key _d_query"]
SiteVisible = Bool[Tensor, "_query _key"]
SiteRows = Float[Tensor, "_head _query"]
SiteHeads = Float[Tensor, " _head"]


@runtime_checkable
class HasLogits(Protocol):
    """The output of a model with a head, whatever else it holds."""

    @property
    def logits(self) -> Tensor:
        """One row for each text, or for each text and position."""
