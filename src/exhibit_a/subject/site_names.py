"""Names layers and heads, wherever a person reads them.

"layer 3, head 9" on the page, in the terminal, in figures and tables; the stack is named where
there are several ("decoder layer 3"), and attention from one stack to another is "cross".
"""

from collections.abc import Iterable, Sequence

from exhibit_a.subject.anatomy import Site


def layer_name(site: Site, sites: Sequence[Site]) -> str:
    """The layer of a site: "layer 3", "decoder layer 3, cross"."""
    return place_name(site.stack, site.layer, site.kind, {other.stack for other in sites})


def place_name(stack: str, layer: int, kind: str, stacks: set[str]) -> str:
    """The same from a stack, a layer in it and a kind, where ``stacks`` are all there are.

    >>> place_name("encoder", 3, "self", {"encoder"})
    'layer 3'
    >>> place_name("decoder", 3, "cross", {"encoder", "decoder"})
    'decoder layer 3, cross'
    """
    name = f"{stack} layer {layer}" if len(stacks) > 1 else f"layer {layer}"
    return f"{name}, cross" if kind == "cross" else name


def layer_number(site: Site, sites: Sequence[Site]) -> int | str:
    """The same for a column that is called layer: 3, "decoder 3, cross"."""
    name = layer_name(site, sites).replace("layer ", "")
    return site.layer if name == str(site.layer) else name


def head_name(sites: Sequence[Site], site: int, head: int) -> str:
    """A head: "layer 3, head 9"."""
    return f"{layer_name(sites[site], sites)}, head {head}"


def heads_by_layer(sites: Sequence[Site], heads: Iterable[tuple[int, int]]) -> str:
    """Several heads (site, head): "heads 1 and 9 of layer 3, head 2 of layer 5"."""
    numbers: dict[int, list[int]] = {}
    for site, head in sorted(heads):
        numbers.setdefault(site, []).append(head)
    return ", ".join(
        f"{_counted(numbers[site])} of {layer_name(sites[site], sites)}" for site in numbers
    )


def _counted(heads: list[int]) -> str:
    *first, last = map(str, heads)
    return f"heads {', '.join(first)} and {last}" if first else f"head {last}"
