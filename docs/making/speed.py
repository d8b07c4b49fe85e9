"""Write docs/speed.md: what methods and rows cost, from the registry and from stored measurements.

``make map`` runs it; a test sees that the page is what the files give. ``benchmarks/rows.py`` and
``benchmarks/peers.py`` measure; a part that has not been measured is named as such.
"""

import json
import math
from pathlib import Path
from typing import Any

from exhibit_a.methods.registry import methods
from exhibit_a.trace.replay import LONG
from exhibit_a.trials.stages import FEWEST, PROBES, STAGES, TANGENTS

ROOT = Path(__file__).parents[2]
PAGE, DATA, FIGURE = ROOT / "docs/speed.md", ROOT / "docs/data", ROOT / "docs/figures/rows.svg"
MISSING = "*Not measured yet.*"
LAYERS, WIDTH, LENGTHS = 6, 384, (32, 128, 512)
SVD = "thin float32 SVD of V"
LITTLE = 0.5  # passes; less is not shown


def parts() -> dict[str, str]:
    """What stands on the page beside its words."""
    measured = _read("rows.json")
    longest = max(map(int, measured), default=0)
    maps = 12 * 9 * float(longest) ** 2 * 4 / 1e9
    return dict(
        middle=LENGTHS[1],
        longest_text=LENGTHS[-1],
        heads=" | ".join(f"n = {length}" for length in LENGTHS),
        lines="---|" * len(LENGTHS),
        methods="\n".join(_costs()),
        rows=_rows(measured) if measured else MISSING,
        row_methods=_row_methods(measured) if measured else MISSING,
        figure="![Free dimensions, null fraction and weight on the first token of the last row, by "
        "layer](figures/rows.svg)"
        if FIGURE.exists()
        else MISSING,
        longest=f"{longest:,}",
        all_maps=f"{maps:,.0f} GB",
        capture=_capture(),
        **_effective(_read("effective.json")),
        trial=_trial(),
        long=LONG,
        mixed=TANGENTS // FEWEST,
        probes=PROBES,
        **_start(_read("start.json")),
        corpus=_corpus(_read("corpus-passes.json")),
        **_quadrature(),
        peers=_peers(),
    )


def _costs() -> list[str]:
    """A line for every method: what was measured, and what it declares."""
    lines, measured = [], _read("costs.json")
    for name, entry in sorted(methods().items()):
        declared = entry.cost.passes(
            LAYERS, LENGTHS[1], PROBES if entry.cost.algebra_per_direction else WIDTH
        )
        if entry.room == "yours" or not declared:
            continue
        rows = [measured.get(name, {}).get(str(length)) for length in LENGTHS]
        passes = " | ".join(_passes(row["passes"]) if row else "" for row in rows)
        peak = f"{rows[-1]['megabytes']:,.0f} MB" if rows[-1] else ""
        few = "yes" if entry.rows else "" if entry.takes == ("trace",) else "–"
        lines.append(
            f"| `{name}` | {passes} | {_growth(rows)} | {_passes(declared)} | {peak} | {entry.cost.maps:g} | {few} |"
        )
    return lines


def _passes(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def _growth(rows: list[dict[str, float] | None]) -> str:
    """The exponent of n between the two longest texts, beside that of a pass."""
    before, after = rows[-2:]
    if before is None or after is None:
        return ""
    exponent = math.log(after["passes"] / before["passes"]) / math.log(
        after["tokens"] / before["tokens"]
    )
    return f"n^{exponent:.2f}"


def _rows(measured: dict[str, dict[str, Any]]) -> str:
    table = [
        "| tokens | own pass | with rows | effective attention of them | own peak | peak with rows | parity |",
        "|---|---|---|---|---|---|---|",
    ]
    for length, row in sorted(measured.items(), key=lambda item: int(item[0])):
        own = math.isfinite(row["own_seconds"])
        table.append(
            f"| {int(length):,} | {row['own_seconds']:.1f} s | {row['ratio']:.2f} × | "
            f"{row['effective_ratio']:.2f} × | {row['own_megabytes']:,.0f} MB | "
            f"{row['megabytes']:,.0f} MB | {row['parity']:.0e} |"
            if own
            else f"| {int(length):,} | not run | {row['seconds']:.0f} s | | | "
            f"{row['megabytes']:,.0f} MB | {row['parity']:.0e} |"
        )
    return "\n".join(table)


def _row_methods(measured: dict[str, dict[str, Any]]) -> str:
    """What methods take that were given a few rows, by length."""
    lengths = sorted(measured, key=int)
    names = sorted({name for row in measured.values() for name in row.get("methods", ())})
    table = [
        f"| method | {' | '.join(f'{int(length):,} tokens' for length in lengths)} |",
        "|---|" + "---|" * len(lengths),
    ]
    for name in names:
        taken = [measured[length].get("methods", {}).get(name) for length in lengths]
        told = " | ".join(
            "" if passes is None else f"{passes:.2f}" if passes < 10 else f"{passes:.0f}"
            for passes in taken
        )
        table.append(f"| `{name}` | {told} |")
    return "\n".join(table)


def _capture() -> str:
    measured = _read("capture.json")
    if not measured:
        return MISSING
    table = [
        "| model | tokens | bare pass | own maps | watched, nothing kept | all kept |",
        "|---|---|---|---|---|---|",
    ]
    for row in measured["rows"]:
        ratios = (row[way] for way in ("own maps and states", "watched", "all kept"))
        told = " | ".join(f"{ratio:.2f} ×" for ratio in ratios)
        table.append(f"| {row['model']} | {row['tokens']} | {row['bare_seconds']:.2f} s | {told} |")
    return "\n".join(table)


def _effective(measured: dict[str, Any]) -> dict[str, str]:
    """What effective attention takes beside a pass, and at most in memory."""
    passes = ["| attention | work | seconds | forward passes |", "|---|---|---|---|"]
    for row in measured["passes"]:
        if (row["kind"], row["work"]) != ("causal", SVD):  # it would be another projection
            share = row["seconds"] / row["pass_seconds"]
            passes.append(f"| {row['kind']} | {row['work']} | {row['seconds']:.2f} | {share:.2f} |")
    peaks = [
        "| attention | threads | peak | of it maps, raw and effective | of it libraries |",
        "|---|---|---|---|---|",
    ]
    peaks += [
        f"| {row['kind']} | {row['threads']} | {row['peak_gigabytes']:.2f} GB | {row['maps_gigabytes']:.2f} GB | "
        f"{row['libraries_gigabytes']:.2f} GB |"
        for row in measured["peaks"]
    ]
    return {
        "effective_heads": str(12 * 12),
        "effective_tokens": str(measured["tokens"]),
        "effective": "\n".join(passes),
        "peak_tokens": f"{measured['peaks'][0]['tokens']:,}",
        "peaks": "\n".join(peaks),
    }


def _trial() -> str:
    """What trials of several lengths take, stage by stage."""
    measured = _read("trial.json")
    if not measured:
        return MISSING
    names = [
        name for name in STAGES if any(row["stages"].get(name, 0) >= LITTLE for row in measured)
    ]
    table = [
        f"| tokens | passes | of them {' | '.join(names)} |",
        "|---|---|" + "---|" * len(names),
    ]
    for row in measured:
        shares = [row["stages"].get(name, 0) for name in names]
        told = " | ".join(f"{share:.0f}" if share >= LITTLE else "" for share in shares)
        table.append(f"| {row['tokens']} | {row['passes']:.0f} | {told} |")
    return "\n".join(table)


def _start(measured: dict[str, Any]) -> dict[str, str]:
    """The parts of a command, and their sum."""
    if not measured:
        return {"start": MISSING, "start_runs": "several"}
    seconds = measured["seconds"]
    table = [f"| {' | '.join(seconds)} | together |", "|---|" + "---|" * len(seconds)]
    told = " | ".join(f"{part:.2f} s" for part in (*seconds.values(), sum(seconds.values())))
    return {"start": "\n".join([*table, f"| {told} |"]), "start_runs": str(measured["runs"])}


def _corpus(measured: dict[str, Any]) -> str:
    """Two methods, in this version and in others that were measured beside it."""
    table = ["| method | texts | version | forward work | time |", "|---|---|---|---|---|"]
    table += [
        f"| `{method}` | {row['texts']} | {version} | {row['work']:.2f} passes | "
        f"{row['time']:.1f} passes |"
        for method in next(iter(measured.values()), {})
        for version, row in ((version, rows[method]) for version, rows in measured.items())
    ]
    return "\n".join(table) if measured else MISSING


def _quadrature() -> dict[str, str]:
    """Points that self-attribution could look at, and what they would cost."""
    measured = _read("quadrature.json")
    groups = ("embedded", "rough")
    if not measured:
        names = ["quadrature_points", *(f"quadrature_{group}" for group in groups)]
        return {"quadrature": MISSING} | dict.fromkeys(names, "some")
    errors = "error of a site's edges, median | nine sites in ten | worst"
    table = [
        f"| points | models | passes forwards | backwards | {errors} |",
        "|---|---|---|---|---|---|---|",
    ]
    table += [
        f"| {row['way']} | {group} | {row['forwards']:.1f} | {row['backwards']:.1f} | "
        f"{row['error']:.2%} | {row['error of nine in ten']:.2%} | {row['worst error']:.2%} |"
        for group in groups
        for row in measured["rows"][group]
    ]
    return {
        "quadrature": "\n".join(table),
        "quadrature_points": str(measured["points"]),
        **{f"quadrature_{group}": str(measured["texts"][group]) for group in groups},
    }


def _peers() -> str:
    measured = _read("peers.json")
    if not measured:
        return MISSING
    table = ["| work | peer | peer | ours | peer / ours | note |", "|---|---|---|---|---|---|"]
    for row in measured["rows"]:
        if row.get("missing"):
            table.append(f"| {row['work']} | {row['peer']} | | | | {row['missing']} |")
            continue
        table.append(
            f"| {row['work']} | {row['peer']} | {row['peer_seconds']:.3f} s | "
            f"{row['our_seconds']:.3f} s | {row['peer_seconds'] / row['our_seconds']:.2f} | "
            f"{row.get('note', '')} |"
        )
    return "\n".join(table)


def _read(name: str) -> dict[str, Any]:
    file = DATA / name
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def draw(measured: dict[str, dict[str, Any]]) -> None:
    """The figure: the last row by layer, at every length."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "exhibit-a"}
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
    named = (
        ("nullity", "free dimensions"),
        ("null_fraction", "null fraction"),
        ("sink", "first token"),
    )
    for panel, (field, name) in zip(panels, named, strict=True):
        for length, row in sorted(measured.items(), key=lambda item: int(item[0])):
            panel.plot(row[field], marker=".", label=f"{int(length):,} tokens")
        panel.set(xlabel="layer", ylabel=name)
        if field != "null_fraction":
            panel.set_yscale("log")
    panels[0].legend(fontsize=7)
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    stored = _read("rows.json")
    if stored:
        draw(stored)
