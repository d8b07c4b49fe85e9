"""What do heads average whose maps are fixed, in many copies of a text at once?

The map of a head is the same in every copy, only the values differ. So the values of all copies
stand side by side, and one product for each head serves them all: a map is read once, and no map is
made for a copy. Maps that are even need no product where all rows see the same keys: the mean of
the values is the same for all of them. Query heads that share values are rows of one map.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from exhibit_a.shapes import SiteMap, SiteRows
from exhibit_a.subject.tap import shared_to_all

# Equal copies can be one row, so that the numbers of rows are not compared.
Averaged = Float[Tensor, "_copy _head _query d_head"]
CopyValues = Float[Tensor, "_copy _kv_head _key d_head"]


def average(maps: SiteMap, value: CopyValues) -> Averaged:
    """What every head averages in every copy, in the precision of the maps.

    >>> from exhibit_a.methods.attribution.frozen_average import average
    >>> maps, value = torch.rand(4, 3, 5), torch.rand(7, 2, 5, 8)  # two heads share their values
    >>> torch.allclose(average(maps, value), maps @ value.repeat_interleave(2, 1))
    True
    """
    (heads, queries, keys), (copies, shared, _, width) = maps.shape, value.shape
    of_several = maps.reshape(shared, -1, keys)
    side_by_side = value.permute(1, 2, 0, 3).reshape(shared, keys, copies * width)
    product = (of_several @ side_by_side.to(maps.dtype)).view(heads, queries, copies, width)
    return product.permute(2, 0, 1, 3)


def even_average(level: SiteRows, seen: Bool[Tensor, "_query key"], value: CopyValues) -> Averaged:
    """What every head averages in every copy if each row looks evenly at what it may see.

    ``level`` is the weight of every key of a row.

    >>> from exhibit_a.methods.attribution.frozen_average import even_average
    >>> level, seen = torch.rand(4, 5), torch.rand(5, 5) < 0.5
    >>> value, maps = torch.rand(7, 2, 5, 8), level[..., None] * seen
    >>> torch.allclose(even_average(level, seen, value), average(maps, value), atol=1e-6)
    True
    """
    alike = len(seen) > 0 and bool((seen == seen[0]).all())
    marks = (seen[:1] if alike else seen).to(level)
    summed = average(marks[None].expand(value.shape[1], -1, -1), value)
    return shared_to_all(summed, len(level)) * level[..., None]
