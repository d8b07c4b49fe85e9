"""Which head does a map show, and what are sites and heads called in a figure?"""

from collections.abc import Sequence

from torch import Tensor

from exhibit_a.subject.anatomy import Site, check_site


def choose_head(
    sites: Sequence[Site], weights: Sequence[Tensor], site: int | None, head: int | None
) -> tuple[int, int]:
    """The site and head that were asked for; what is left open goes to the heaviest head.

    ``weights`` holds a number for each head of each site. A negative site counts from the last.
    """
    if site is not None:
        site = site + len(sites) if -len(sites) <= site < 0 else site
        check_site(sites, site, head)
    places = range(len(sites)) if site is None else [site]
    heads = [
        (float(weight.nan_to_num()), place, number)
        for place in places
        for number, weight in enumerate(weights[place])
        if head is None or number == head
    ]
    if not heads:
        check_site(sites, 0, head)
    _, place, number = max(heads, key=lambda known: known[0])
    return place, number


def site_name(site: Site, sites: Sequence[Site]) -> str:
    """A site as "layer 3"; with its stack and kind where there are several of them."""
    return layer_name((site.stack, site.layer, site.kind), {other.stack for other in sites})


def layer_name(place: tuple[str, int, str], stacks: set[str]) -> str:
    """The same from the stack, the layer and the kind."""
    stack, layer, kind = place
    name = f"{stack} layer {layer}" if len(stacks) > 1 else f"layer {layer}"
    return f"{name}, cross" if kind == "cross" else name


def head_name(sites: Sequence[Site], site: int, head: int) -> str:
    """A head as "layer 3, head 9"."""
    return f"{site_name(sites[site], sites)}, head {head}"
