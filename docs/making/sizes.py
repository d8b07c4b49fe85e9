"""Write docs/sizes.md: what of identifiability and mixing depends on the size of a model.

Tables come from docs/data (identifiability-, mixing- and causal-MODEL.json) and from the ledger,
where ``studies/identifiability.py``, ``mixing.py`` and ``causal.py`` put them; ``make map`` runs it,
and a test sees that the page is what the files give. A part that has not been run is named as such.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

from told import (
    MISSING,
    NONE,
    ROOT,
    cell,
    commands,
    ledger,
    listed,
    numbers,
    pictures,
    ranged,
    share,
    table,
)

PAGE = ROOT / "docs/sizes.md"
MPNET, SMOL = "all-mpnet-base-v2", "SmolLM2-135M-Instruct"
SMALL = "sentiment"
MAPS = ("identity", "linear", "mlp")
DISTANCES = (1, 2, 3, 5, 8, 11)  # tokens away
SEEN = (1, 8, 16, 32, 48, 64, 65, 80, 96, 112, 128)  # tokens that a row sees
CAPTIONS = {
    f"mixing-{MPNET}-own-share": "How much of a hidden vector is owed to its own token, by layer",
    f"mixing-{MPNET}-neighbours": "Contribution of one neighbour by distance, a line for each layer",
    f"mixing-{MPNET}-tokens-cosine": "Tokens found again by layer and map, cosine",
    f"mixing-{MPNET}-tokens-l2": "Tokens found again by layer and map, L2",
    f"mixing-{MPNET}-heads": "Weight that lies elsewhere than the contribution, head by head",
    f"causal-{SMOL}": "Above, weight on the first token by layer, raw and effective; below, dimensions that no "
    "output shows, by row",
}


def parts() -> dict[str, str]:
    """What stands on the page beside its words, by its marks."""
    identifiable = numbers(f"identifiability-{MPNET}.json")
    mixed, causal = numbers(f"mixing-{MPNET}.json"), numbers(f"causal-{SMOL}.json")
    return {
        "BESIDE": beside(),
        "LENGTH": part(identifiable, "length", length),
        "SPECIAL": part(identifiable, "length", special),
        "OWN": part(mixed, "mixing", own),
        "NEIGHBOURS": part(mixed, "mixing", neighbours),
        "TOKENS": part(mixed, "tokens", tokens),
        "HEADS": part(mixed, "heads", heads),
        "SINKS": part(causal, "sinks", sinks),
        "KINDS": kinds(),
        "ROWS": part(causal, "rows", rows),
        "CAUSAL": part(causal, "mixing", causal_mixing),
        "DISTANCE": part(causal, "mixing", neighbours),
        "F-MIXING": pictures(
            f"mixing-{MPNET}", CAPTIONS, but=(f"mixing-{MPNET}-tokens", f"mixing-{MPNET}-heads")
        ),
        "F-TOKENS": pictures(f"mixing-{MPNET}-tokens", CAPTIONS),
        "F-HEADS": pictures(f"mixing-{MPNET}-heads", CAPTIONS),
        "F-CAUSAL": pictures(f"causal-{SMOL}", CAPTIONS),
        "COMMANDS": called(),
    }


def part(found: dict[str, Any], name: str, told: Callable[[dict[str, Any]], str]) -> str:
    """One part of a study, where it was run."""
    return told(found[name]) if name in found else MISSING


def beside() -> str:
    """What was measured of more than one model, under the same name."""
    known, body = ledger(), []
    ends = {MPNET: f", `{MPNET}`", SMOL: f", `{SMOL}`"}
    bare = [id.removesuffix(end) for id in known for end in ends.values() if id.endswith(end)]
    for name in dict.fromkeys(bare):
        small = name.replace("heads of width 64", "heads of width 32")  # where an id tells it
        if small in known and known[small].model != f"`{SMALL}`":
            small = ""
        ids = [small, *(name + end for end in ends.values())]
        there = [id in known for id in ids]
        if sum(there) > 1:
            cells = [
                f"{cell(id, known)}, {known[id].count} {known[id].of}" if id in known else NONE
                for id in ids
            ]
            body.append([name.removesuffix(", heads of width 64"), *cells])
    return table(["measured", f"`{SMALL}`", f"`{MPNET}`", f"`{SMOL}`"], body)


def length(found: dict[str, Any]) -> str:
    """Raw against effective attention by length."""
    body = []
    for place, tokens_ in enumerate(found["lengths"]):
        cells = [mid(found[name], place) for name in ("pearson", "null_fraction")]
        lowest = min(found["pearson"]["by layer"][place])
        beyond = "no" if tokens_ <= found["width"] else "yes"
        body.append([str(tokens_), beyond, cells[0], f"{lowest:.3f}", cells[1]])
    head = ["tokens", f"more than {found['width']}", "Pearson (raw, effective)", "lowest layer"]
    said = table([*head, "part of a row that no output shows"], body)
    inside = [p for p, n in enumerate(found["lengths"]) if n <= found["width"]]
    below = [
        str(found["lengths"][p])
        for p in inside
        if found["pearson"]["mean and half width"][p][0] < 1
    ]
    said += f"\n\nMeans over layers, heads and {found['paragraphs']} paragraphs, with 95 % intervals over paragraphs."
    if below:
        said += f" Not exactly 1 although no longer than a head is wide: {listed(below)} tokens "
        said += "([why it can be less](identifiability.md#on-real-weights))."
    return said


def mid(found: dict[str, Any], place: int, digits: int = 3) -> str:
    """A mean over paragraphs with its interval."""
    value, half = found["mean and half width"][place]
    return ranged(value, (value - half, value + half), digits)


def special(found: dict[str, Any]) -> str:
    """The weight on special tokens before and after, beside their even share."""
    body = []
    for place, tokens_ in enumerate(found["lengths"]):
        even = 2 / tokens_  # the two special tokens of a text
        after, _ = found["special_effective"]["mean and half width"][place]
        cells = [mid(found[name], place) for name in ("special_raw", "special_effective")]
        body.append([str(tokens_), *cells, f"{even:.3f}", f"{after / even:.1f}"])
    head = ["tokens", "raw", "effective", "even share of two tokens", "effective over even"]
    return table(head, body)


def own(found: dict[str, Any]) -> str:
    """Own shares and displaced tokens by layer."""
    body = []
    for layer, (low, middle, high) in enumerate(found["own share, quartiles"]):
        means = found["own share, mean of text medians"][layer], found["own share, interval"][layer]
        moved = share(found["not own top"][layer], found["not own top, interval"][layer])
        of_words = share(found["not own top, words alone"][layer])
        cells = [str(layer), f"{middle:.3f}", f"{low:.3f} – {high:.3f}", ranged(*means)]
        body.append([*cells, moved, of_words])
    head = ["layer", "median own share", "quartiles", "mean of sentence medians"]
    said = table([*head, "not own top", "of words alone"], body)
    counted = f"{found['sentences']} sentences, {found['tokens']} tokens, {found['probes']} probes."
    return f"{said}\n\n{counted}"


def neighbours(found: dict[str, Any]) -> str:
    """The contribution of one token at some distances, by layer."""
    near = found["contribution by distance"]
    asked = [distance for distance in DISTANCES if distance < len(near[0])]
    body = [[str(n), *(f"{row[d]:.4f}" for d in asked)] for n, row in enumerate(near) if n]
    shown = [str(distance) for distance in asked]
    return table(["layer", *(f"{one} away" for one in shown)], spread(body))


def spread(body: list[list[str]], most: int = 16) -> list[list[str]]:
    """All layers where they are few; else the first, the last and every third."""
    if len(body) <= most:
        return body
    return [row for row in body if row[0] == "1" or int(row[0]) % 3 == 0 or row is body[-1]]


def tokens(found: dict[str, Any]) -> str:
    """Rates by layer and map, cosine and L2."""
    said = []
    for metric, title in (("cosine", "Cosine"), ("l2", "L2")):
        if metric not in found:
            continue
        one = found[metric]
        maps = [name for name in MAPS if name in one["rate"]]
        controls = [name for name in maps if name in one["control"]]
        body = [
            [
                str(layer),
                *(ranged(one["rate"][m][layer], one["interval"][m][layer]) for m in maps),
                ", ".join(f"{one['control'][m][layer]:.3f}" for m in controls),
            ]
            for layer in range(len(one["rate"][maps[0]]))
        ]
        head = ["layer", *maps, f"control ({', '.join(controls)})"]
        opening = f"{title}, {one['words']} words, candidates in the same text (chance {one['chance']:.3f}):"
        said.append(f"{opening}\n\n{table(head, body)}{oddities(one)}")
    return "\n\n".join(said) or MISSING


def oddities(one: dict[str, Any]) -> str:
    """Where a fitted map finds no more than a simpler one."""
    rate, ends, said = one["rate"], one["interval"], ""
    layers = range(1, len(next(iter(rate.values()))))
    if {"linear", "mlp"} <= rate.keys():
        same = sum(rate["linear"][n] == rate["mlp"][n] for n in layers)
        said += f" In {same} of {len(layers)} layers the MLP gives the very numbers of the linear map that it starts from: its "
        said += "training found nothing better on the validation texts."
    if {"identity", "linear"} <= rate.keys():
        worse = [str(n) for n in layers if ends["linear"][n][1] < ends["identity"][n][0]]
        if worse:
            said += f" In layers {listed(worse)} the linear map finds clearly fewer words than no map at all. No map is a linear "
            said += "map too, so a better one exists. A likely reason is that this one has more numbers than few texts can settle, and "
            said += "was fitted to squared errors and not to finding words. The largest number of a row is the lower bound."
    return f"\n\n{said.strip()}" if said else ""


def heads(found: dict[str, Any]) -> str:
    """Attention beside input contribution, by layer."""
    names = ("pearson", "spearman", "jensen_shannon", "total_variation")
    body = [
        [str(layer + 1), *(f"{found[name][layer]:.3f}" for name in names)]
        for layer in range(len(found[names[0]]))
    ]
    head = ["layer", "Pearson", "Spearman", "Jensen–Shannon (share of ln 2)", "weight elsewhere"]
    counted = f"Means over heads and {found['sentences']} sentences, {found['probes']} probes."
    return f"{table(head, body)}\n\n{counted}"


def sinks(found: dict[str, Any]) -> str:
    """The first token by layer: its weight, and what its sinks do."""
    body = []
    names = found["kinds are"][1:]
    for layer, (raw, effective) in enumerate(zip(found["raw"], found["effective"], strict=True)):
        cells = [
            str(layer + 1),
            f"{raw:.3f}",
            f"{effective:.3f}",
            share(found["sink heads"][layer]),
        ]
        body.append([*cells, *(share(one) for one in found["kinds"][layer][1:])])
    head = ["layer", "weight", "effective weight", "heads whose sink it is"]
    said = table([*head, *(f"{name} (any token)" for name in names)], spread(body))
    return (
        f"{said}\n\n{found['paragraphs']} paragraphs of {found['tokens']} tokens. Weights are those of late rows, which see more tokens than "
        "a head is wide: in the others effective attention is raw attention, save in the first layer. If every late row looked "
        f"evenly, the first token would have {found['even']:.3f}. Layers are counted from 1 here and from 0 in the figure."
    )


def kinds() -> str:
    """The ledger's numbers about sinks, over all layers after the first."""
    known, end = ledger(), f", layers after the first, `{SMOL}`"
    body = []
    for id, one in known.items():
        if id.endswith(end) and not id.startswith("rows that"):
            body.append([id.removesuffix(end), cell(id, known), f"{one.count} {one.of}"])
    return table(["over all layers after the first", "mean (95 %)", "of"], body)


def rows(found: dict[str, Any]) -> str:
    """What the output of each row cannot show."""
    body = []
    for seen in (n for n in SEEN if n <= len(found["nullity"])):
        beyond = max(0, seen - found["width"])
        none = found["nullity"][seen - 1], found["null fraction"][seen - 1]
        body.append([str(seen), str(beyond), f"{none[0]:.2f}", f"{none[1]:.3f}"])
    head = ["tokens that a row sees", f"beyond {found['width']}", "dimensions not shown"]
    said = table([*head, "part of the row that no output shows"], body)
    known, start = (
        ledger(),
        f"rows that see at most {found['width']} tokens and are determined by their output",
    )
    for where in ("first layer", "layers after the first"):
        id = f"{start}, {where}, `{SMOL}`"
        if id in known:
            said += f"\n\n{start[0].upper()}{start[1:]}, {where}: {cell(id, known)} ({known[id].count} {known[id].of})."
    return said


def causal_mixing(found: dict[str, Any]) -> str:
    """Own shares, displaced tokens and the first token, by layer."""
    columns: Sequence[str] = ("own share", "not own top", "first token")
    body = [
        [str(layer), f"{a:.3f}", share(b), f"{c:.3f}"]
        for layer, (a, b, c) in enumerate(zip(*(found[name] for name in columns), strict=True))
    ]
    head = ["layer", "own share (mean of medians)", "not own top", "owed to the first token"]
    counted = f"{found['paragraphs']} paragraphs of {found['tokens']} tokens, {found['probes']} probes; the first token itself left out."
    return f"{table(head, spread(body))}\n\n{counted}"


def called() -> str:
    """What measured the numbers of both models."""
    known = {id: one for id, one in ledger().items() if id.endswith((f"`{MPNET}`", f"`{SMOL}`"))}
    used = commands(known, "")
    return "\n".join(["```", *used, "```"]) if used else MISSING
