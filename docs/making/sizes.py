"""What of identifiability and mixing depends on the size of a model: tables of docs/sizes.md.

From docs/data (identifiability-, mixing- and causal-MODEL.json) and from the ledger.
"""

from typing import Any

from page_tables import NONE, listed, ranged, read, table

SMALL, MPNET, SMOL = "sentiment", "all-mpnet-base-v2", "SmolLM2-135M-Instruct"
MAPS = ("identity", "linear", "mlp")
DISTANCES = (1, 2, 3, 5, 8, 11)  # tokens away
LENGTH = read(f"identifiability-{MPNET}.json")["length"]
MIXED, CAUSAL = read(f"mixing-{MPNET}.json"), read(f"causal-{SMOL}.json")
FOUND = {MPNET: MIXED, SMOL: CAUSAL}


def spans(name: str) -> list[str]:
    """Means over paragraphs with their intervals, by length."""
    return [ranged(v, (v - half, v + half)) for v, half in LENGTH[name]["mean and half width"]]


def by_layer(head: list[str], body: list[list[str]], start: int = 0) -> str:
    """A line for each layer; of more than sixteen the first, the last and every third."""
    numbered = [[str(n), *cells] for n, cells in enumerate(body, start)]
    last = len(numbered) - 1
    some = [r for n, r in enumerate(numbered) if r[0] == "1" or int(r[0]) % 3 == 0 or n == last]
    return table(["layer", *head], some if len(body) > 16 else numbered)


def neighbours(model: str) -> str:
    """The contribution of one token at some distances, by layer."""
    near = FOUND[model]["mixing"]["contribution by distance"][1:]
    asked = [distance for distance in DISTANCES if distance < len(near[0])]
    body = [[f"{row[distance]:.4f}" for distance in asked] for row in near]
    return by_layer([f"{distance} away" for distance in asked], body, 1)


def tokens(metric: str) -> str:
    """Rates by layer and map."""
    found, body = MIXED["tokens"][metric], []
    maps = [name for name in MAPS if name in found["rate"]]
    controls = [name for name in maps if name in found["control"]]
    for layer in range(len(found["rate"][maps[0]])):
        cells = [ranged(found["rate"][m][layer], found["interval"][m][layer]) for m in maps]
        body.append([*cells, ", ".join(f"{found['control'][m][layer]:.3f}" for m in controls)])
    return by_layer([*maps, f"control ({', '.join(controls)})"], body)


def oddities() -> dict[str, dict[str, Any]]:
    """Layers where a fitted map finds no more than a simpler one, by metric."""
    said = {}
    for metric, found in MIXED["tokens"].items():
        rate, ends = found["rate"], found["interval"]
        after = range(1, len(rate["linear"]))
        worse = [str(n) for n in after if ends["linear"][n][1] < ends["identity"][n][0]]
        same = sum(rate["linear"][n] == rate["mlp"][n] for n in after)
        said[metric] = {"same": same, "layers": len(after), "worse": listed(worse or [NONE])}
    return said
