"""What do the pages of several kinds of results have in common? Maps, and the names of sites.

Each function makes one part of the header (``header.py``); the parts that only one kind of result
has are made in ``views/``.
"""

from typing import Protocol, runtime_checkable

from exhibit_a.report.header import Column, Maps, Mode, Sequence
from exhibit_a.report.header import Site as SiteEntry
from exhibit_a.report.pack import Blocks, Packed, SiteMaps, pack
from exhibit_a.subject.anatomy import Site, key_stack
from exhibit_a.subject.site_names import layer_name

BUDGET = 2_600_000  # bytes of the maps, before base64

_CAPTIONS = {
    "raw": "Raw attention: the weights the model used. Rows sum to one.",
    "effective": "Effective attention: what is left of the weights after removing the part that "
    "the head’s values multiply away. It gives the same output; it may be negative.",
    "attribution": "Attribution: what each weight contributed to the answer, for (orange) or "
    "against it (blue).",
    "reliance": "Reliance: what this weight, in place of an even look at all words, added to the "
    "answer (orange) or took from it (blue), while all heads go from even to what they were.",
    "difference": "Effective minus raw: the part of attention that cannot be seen in the output.",
}
_NAMES = {
    "raw": "Raw",
    "effective": "Effective",
    "attribution": "Attribution",
    "reliance": "Reliance",
    "difference": "Difference",
}


@runtime_checkable
class OnSites(Protocol):
    """A result about the attention sites of one text."""

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites, in the order the model calls them."""

    @property
    def sequences(self) -> dict[str, tuple[str, ...]]:
        """The tokens of each stack."""


def attention_maps(
    blocks: Blocks, modes: dict[str, SiteMaps], sites: list[SiteEntry], columns: list[Column]
) -> Maps:
    """Raw, effective and attribution of every head, with their difference."""
    weights = [mode for mode in modes if mode in ("raw", "effective")]
    together = [weights] * bool(weights) + [[mode] for mode in modes if mode not in weights]
    packed = pack(blocks, "maps", modes, together=together, budget=int(BUDGET * blocks.share))
    limits = dict(packed.limits)
    shared = max((limits[mode] for mode in weights), default=0.0)
    limits |= dict.fromkeys((*weights, "difference"), shared)
    shown = [_mode(mode, limits[mode]) for mode in modes]
    if len(weights) == 2:
        difference = _mode("difference", limits["difference"])
        shown.append({**difference, "minus": ("effective", "raw")})
    for site, block in zip(sites, packed.visible, strict=True):
        if block:
            site["visible"] = block
    return {
        "modes": shown,
        "sites": sites,
        "heads": packed.heads,
        "columns": columns,
        "words": [],
        "bits": packed.bits,
        "groups": packed.groups,
        "note": storage_note(packed),
    }


def _mode(key: str, limit: float) -> Mode:
    return {
        "key": key,
        "name": _NAMES.get(key, key.replace("_", " ")),
        "caption": _CAPTIONS.get(key, ""),
        "limit": limit,
        "signed": key != "raw",
    }


def storage_note(packed: Packed) -> str:
    """What a page says about how exactly its maps are stored, and what is not in it."""
    if packed.groups is None:
        return f"Stored in {packed.bits}-bit steps of each head’s largest value; nothing left out."
    shares = "; ".join(f"{mode} {share:.1%}" for mode, share in packed.kept.items())
    count = packed.groups[0]["count"]
    return (
        f"Long text: the {count} largest entries of every row are stored, in 8-bit steps, and the "
        f"mean of the rest of the row, which is drawn in place of the others. Share of the "
        f"absolute weight that is stored entry by entry: {shares}."
    )


def site_entries(result: OnSites, maps: SiteMaps) -> list[SiteEntry]:
    """The sites of a result, with the shapes of their maps."""
    entries = []
    for site, scores in zip(result.sites, maps, strict=True):
        name, keys = layer_name(site, result.sites), key_stack(site, result.sequences)
        entries.append(site_entry(name.capitalize(), name, (site.stack, keys), tuple(scores.shape)))
    return entries


def site_entry(
    name: str, short: str, sequences: tuple[str, str], shape: tuple[int, ...]
) -> SiteEntry:
    """A site: its names, the sequences of its queries and keys, its shape (head, query, key)."""
    heads, rows, columns = shape
    return {
        "name": name,
        "short": short,
        "queries": sequences[0],
        "keys": sequences[1],
        "rows": rows,
        "columns": columns,
        "heads": heads,
    }


def sequence(tokens: tuple[str, ...], special: tuple[bool, ...] = ()) -> Sequence:
    """Tokens, and which of them are special where that is known."""
    return {"tokens": list(tokens), "special": list(special)}
