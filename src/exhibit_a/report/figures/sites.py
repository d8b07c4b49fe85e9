"""Which head does a map show?"""

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
