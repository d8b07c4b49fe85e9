"""What do real weights say about attention identifiability?

    python studies/identifiability.py --base FOLDER --data DATA [--texts 20] [--figures FOLDER]
    python studies/identifiability.py --base MPNET --data DATA --texts 6 --longest 512 --parts
    length demands

An encoder (all-MiniLM-L6-v2 and its children have heads of width 32, all-mpnet-base-v2 of width 64)
on paragraphs of wikitext-2:

length        raw against effective attention by length, the weight on special tokens before and
after, with a map of
              the head that the projection changes most
demands       how many of the rows of ``--counted`` texts are the only ones possible under each
demand alternatives  how far valid alternatives lie

Draws figures where a folder is given, keeps the numbers of each layer in
docs/data/identifiability-MODEL.json, and writes what claims rest on into the ledger.
"""

from dataclasses import replace
from pathlib import Path

import torch
from study import (
    DOCS,
    TABLES,
    Ledger,
    Row,
    cut,
    figure_name,
    keep,
    keep_table,
    ledger_of,
    mean_and_half,
    paragraphs,
    parse,
    save,
)

import exhibit_a as xa

LENGTHS = (8, 16, 24, 32, 33, 40, 48, 64, 65, 96, 128, 192, 256, 384, 512)
CLAIMED = (24, 64, 128, 256, 512)  # the lengths that claims are about
NUMBERS = ("pearson", "null_fraction", "special_raw", "special_effective")
SHOWN = 64  # tokens of the map of one head, and of alternatives
SPECIAL = 2  # tokens of a paragraph: [CLS] and [SEP]


def main() -> None:
    given = {
        "base": str,
        "data": Path,
        "texts": 20,
        "longest": 256,
        "counted": 5,
        "figures": Path,
        "docs": DOCS,
    }
    parts = ("length", "demands", "alternatives")
    options = parse(__doc__, need=["base", "data"], parts=parts, **given)
    subject, name = xa.load(options.base), figure_name(options, "identifiability")
    texts = paragraphs(subject, options)
    ledger = ledger_of(options, "wikitext-2 test, first long paragraphs")
    if "length" in options.parts:
        lengths = [length for length in LENGTHS if length <= options.longest]
        found = [xa.identifiability_by_length(subject, text, lengths=lengths) for text in texts]
        write_lengths(found, ledger)
        kept = kept_by_length(found)
        keep(options, "identifiability", {"length": kept})
        if name != "identifiability":
            shown_by_length(kept, name, options.docs / TABLES.name)
        if options.figures:
            means = {
                number: torch.stack([getattr(one, number) for one in found]).mean(0)
                for number in NUMBERS
            }
            save(
                replace(found[0], **means).plot(figsize="one column"),
                options.figures / f"{name}-length.svg",
            )
            effective = xa.effective_attention(cut(subject, texts[0], SHOWN))
            pearson = torch.stack(effective.pearson)
            site, head = divmod(int(pearson.argmin()), pearson.shape[1])
            save(effective.plot(site=site, head=head), options.figures / f"{name}-head.svg")
    if "demands" in options.parts:
        keep(
            options,
            "identifiability",
            {"demands": demands(subject, texts[: options.counted], ledger)},
        )
    if "alternatives" in options.parts:
        alternatives(subject, texts[:2], ledger)


def kept_by_length(found: list[xa.IdentifiabilityByLength]) -> Row:
    """The means over paragraphs by length and layer, and the intervals of the means over layers."""
    kept: Row = {
        "paragraphs": len(found),
        "lengths": list(found[0].lengths),
        "width": int(found[0].d_head[0]),
    }
    for name in NUMBERS:
        every = torch.stack([getattr(one, name) for one in found]).flatten(
            2
        )  # paragraph, length, layer
        over_layers = [list(mean_and_half(column)) for column in every.mean(2).T]
        kept[name] = {"by layer": every.mean(0).tolist(), "mean and half width": over_layers}
    return kept


def shown_by_length(kept: Row, name: str, path: Path, command: str | None = None) -> None:
    """The table of a page: what was kept, by length."""
    body = []
    for place, length in enumerate(kept["lengths"]):
        pearson, half = kept["pearson"]["mean and half width"][place]
        lowest = min(kept["pearson"]["by layer"][place])
        null, raw, effective = (
            kept[number]["mean and half width"][place][0] for number in NUMBERS[1:]
        )
        row = (
            length,
            f"{pearson:.4f} ± {half:.4f}",
            f"{lowest:.3f}",
            f"{null:.3f}",
            f"{raw:.3f} → {effective:.3f}",
        )
        body.append(row)
    heading = ("tokens", "Pearson(raw, effective)", "lowest layer mean", "null fraction")
    special = "weight on special tokens: raw → effective"
    keep_table(f"{name}-length", (*heading, special), body, path, command)


def write_lengths(found: list[xa.IdentifiabilityByLength], ledger: Ledger) -> None:
    """What the claims about length and special tokens rest on."""
    width, lengths = found[0].d_head[0], found[0].lengths

    def at(number: str, length: int) -> torch.Tensor:
        """Means over layers, a number for each paragraph."""
        place = lengths.index(length)
        return torch.stack([getattr(one, number)[place].mean() for one in found]).double()

    asked = [length for length in CLAIMED if length in lengths]
    for length in asked:
        name = f"Pearson of raw and effective attention at {length} tokens, heads of width {width}"
        ledger.mean(name, at("pearson", length), "paragraphs")
    for far in (length for length in asked if length >= 256):
        raw, effective, even = at("special_raw", far), at("special_effective", far), SPECIAL / far
        lost = at("pearson", 64) - at("pearson", far)
        ledger.mean(f"Pearson lost between 64 and {far} tokens", lost, "paragraphs")
        ledger.mean(
            f"weight that special tokens lose at {far} tokens", raw - effective, "paragraphs"
        )
        for shares, said in ((raw, "weight"), (effective, "effective weight")):
            name = f"{said} of a special token at {far} tokens, over its even share"
            ledger.mean(name, shares / even, "paragraphs")


def demands(subject: xa.Subject, texts: list[str], ledger: Ledger) -> dict[str, list[float]]:
    """The share of rows that are unique under each demand, at 32, 64 and 256 tokens."""
    by_length = {}
    for length in (32, 64, 256):
        shares = []
        for text in texts:
            result = xa.attention_identifiability(cut(subject, text, length))
            shares.append(torch.stack([result.unique(i) for i in range(len(result.sites))]).mean(0))
        by_length[str(length)] = torch.stack(shares).mean(0).tolist()
        for place, demand in ((0, "the output alone determines"), (3, "output and keys determine")):
            if length == SHOWN:
                unique = [share[place] for share in shares]
                ledger.mean(f"rows that {demand}, at {length} tokens", unique, "paragraphs")
    return by_length


def alternatives(subject: xa.Subject, texts: list[str], ledger: Ledger) -> None:
    """How far a valid row with the same output lies, for the first row of every third head."""
    distances, changes = [], []
    for text in texts:
        trace = cut(subject, text, SHOWN)
        for site in range(len(trace.sites)):
            for head in range(0, trace.sites[site].heads, 3):
                found = xa.alternative_attention(trace, site=site, head=head, samples=4)
                distances.append(found.distance)
                changes.append(found.checks["largest change of the answer"])
    name = "distance of the farthest valid row with the same output, at 64 tokens"
    ledger.mean(name, distances, "heads")
    ledger.exact("change of the answer with that row in place", max(changes), len(changes), "heads")


if __name__ == "__main__":
    main()
