"""Checks that the tensors of a stored result have the lengths that the rest of it gives them.

A file can be changed and sealed again, by anyone, and every value in it may be of the right type
and still be one row short. What a result says about its own axes is compared with its tensors:

1. an axis has as many places as it has tokens (or other names);
2. what is over sites has an entry for each site, and each entry has the heads of its site;
3. tensors of one site have the same heads, queries and keys.
"""

from collections.abc import Iterator
from dataclasses import fields

from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.results.result import TOKEN_AXES, Result
from exhibit_a.results.tables import Leaf, leaves
from exhibit_a.subject.anatomy import Site

SHARED = ("head", "query", "key")  # axes that the tensors of a site have in common


def require_sizes(result: Result) -> None:
    """Refuse a result whose tensors do not fit its tokens and sites, or each other.

    >>> from dataclasses import replace
    >>> effective = xa.effective_attention(trace)
    >>> require_sizes(effective)
    >>> require_sizes(replace(effective, sites=effective.sites[:5]))
    Traceback (most recent call last):
    exhibit_a.errors.BadRequestError: raw of its EffectiveAttention has 6 entries along site, ...
    """
    kind = type(result).__name__
    for field, axis, size, expected in _sizes(result):
        if size != expected:
            raise BadRequestError(
                f"{field} of its {kind} has {size} entries along {axis}, and there are {expected}."
            )


def _sizes(result: Result) -> Iterator[tuple[str, str, int, int]]:
    """Every axis whose size the result knows: the field, the axis, its size and what it must be."""
    sites: tuple[Site, ...] = getattr(result, "sites", ())
    for field in fields(result) if sites else ():
        entries = getattr(result, field.name)
        if isinstance(entries, tuple) and any(isinstance(entry, Tensor) for entry in entries):
            yield field.name, field.metadata.get("over", "site"), len(entries), len(sites)
    lengths = [len(tokens) for tokens in getattr(result, "sequences", {}).values()]
    if result.tokens is not None and lengths and len(result.tokens) not in lengths:
        yield "tokens", "token", len(result.tokens), lengths[0]
    shared: dict[tuple[int | str, str], int] = {}  # of each site, as they occur first
    for leaf in leaves(result):
        known = _known(result, leaf, sites)
        for axis, size in zip(leaf.dims, leaf.tensor.shape, strict=True):
            expected = known.get(axis, size)
            if "site" in leaf.where and axis in SHARED and not _of_owners(leaf, axis):
                expected = shared.setdefault((leaf.where["site"], axis), expected)
            yield leaf.field, axis, size, expected


def _known(result: Result, leaf: Leaf, sites: tuple[Site, ...]) -> dict[str, int]:
    """What the sizes of a tensor's axes must be, by name, as far as they are known."""
    known: dict[str, int] = {"site": len(sites)} if sites else {}
    stacks = {(site.stack, site.kind) for site in sites}
    if result.tokens is not None and (len(stacks) == 1 or "site" not in leaf.where):
        known |= dict.fromkeys(TOKEN_AXES, len(result.tokens))
    known |= {axis: len(names) for axis, names in result.tokens_along(leaf).items()}
    if sites and "site" in leaf.where:
        known["head"] = heads = sites[int(leaf.where["site"])].heads
        if _of_owners(leaf, "head"):
            owners = leaf.tensor.shape[leaf.dims.index("head")]
            known["head"] = owners if owners and heads % owners == 0 else heads
    return known


def _of_owners(leaf: Leaf, axis: str) -> bool:
    """Whether the heads are those that own keys and values, which may be fewer."""
    return axis == "head" and "d_head" in leaf.dims
