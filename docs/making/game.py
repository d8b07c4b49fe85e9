"""How far answers rest on attention: tables of docs/reliance.md, from what studies/game.py kept."""

from statistics import median
from typing import Any

from page_tables import NONE, columns, read, table

CLOSED = 0.05  # of what is shared out: a gap that is allowed
FARTHER = 3.0  # times as far as random sets: carriers that were well named
KINDS = ("facts", "induction", "two names", "key-value", "arithmetic", "far name", "chat")
Row = dict[str, Any]


def prompts() -> str:
    """What came of our prompts, by model and number type."""
    rows = read("game-prompts.jsonl")
    groups = dict.fromkeys((row["model"], row["dtype"]) for row in rows)
    shown = {
        "model": "{model}",
        "held in": "{dtype}",
        "prompts": "{count}",
        "closed within 25 points": "{closed}",
        "points: median, most": "{points}",
        "passes: median, most": "{passes}",
        "determined": "{determined}",
        "steering known": "{steering}",
        "carriers ≥ 3 × random": "{farther}",
        "times as far, median": "{times:.0f}",
    }
    lines = []
    for model, dtype in groups:
        some = [row for row in rows if (row["model"], row["dtype"]) == (model, dtype)]
        lines.append({"model": model, "dtype": dtype} | summed(some))
    return columns(lines, shown)


def summed(rows: list[Row]) -> Row:
    """Counts and medians of some prompts."""
    sure = [row for row in rows if row["determined"]]
    times = [row["loss"] / row["random"] for row in sure if row["random"]]
    points, passes = ([row[name] for row in rows] for name in ("points", "passes"))
    return {
        "count": len(rows),
        "closed": sum(row["gap"] <= CLOSED and row["points"] <= 25 for row in rows),
        "points": f"{median(points):g}, {max(points)}",
        "passes": f"{median(passes):g}, {max(passes)}",
        "determined": len(sure),
        "steering": sum(row["steering"] is True for row in rows),
        "farther": f"{sum(each >= FARTHER for each in times)} of {len(times)}",
        "times": median(times),
    }


def before() -> dict[str, Any]:
    """What 0.2.0 did with 20 short prompts and SmolLM2-135M, as it was measured then."""
    rows = read("game-before.jsonl")
    points, passes = ([row[name] for row in rows] for name in ("points", "passes"))
    return {
        "count": len(rows),
        "points": f"{median(points):g} (median; {max(points)} at most)",
        "passes": f"{median(passes):g} ({max(passes)} at most)",
        "determined": sum(row["determined"] for row in rows),
    }


def kinds() -> str:
    """The heads that most often have the largest share, by kind of prompt."""
    rows = [row for row in read("game-prompts.jsonl") if row["dtype"] == "float32"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    body = []
    for kind in KINDS:
        line = [kind]
        for model in models:
            some = [row for row in rows if (row["kind"], row["model"]) == (kind, model)]
            firsts = [(f"L{h[0]}.H{h[1]}", h[2]) for row in some for h in row["heads"][:3]]
            names = {name for name, part in firsts if part > 0}
            by_count = {n: sum(one == n and part > 0 for one, part in firsts) for n in names}
            best = sorted(by_count, key=lambda name: (-by_count[name], name))[:3]
            line.append(", ".join(f"{n} ({by_count[n]} of {len(some)})" for n in best) or NONE)
        body.append(line)
    return table(["kind", *models], body)


def baselines() -> str:
    """Both baselines on sentences and pairs."""
    shown = {
        "model": "{model}",
        "texts": "{count}",
        "baseline": "{baseline}",
        "whole, median part of the margin": "{whole:.2f}",
        "below .1 of the margin": "{small:.0%}",
        "heads that carry, median": "{carry:g}",
        "points: median, most": "{points}",
        "gap, largest": "{gap:.1%}",
        "with a block": "{block}",
        "determined": "{determined}",
        "steering known": "{steering}",
    }
    lines = []
    rows = read("game-baselines.jsonl")
    for model in dict.fromkeys(row["model"] for row in rows):
        some = [row for row in rows if row["model"] == model]
        for name in ("levelled", "uniform"):
            games = [row[name] for row in some]
            parts = [
                abs(game["whole"]) / (abs(row["margin"]) or 1.0)
                for row, game in zip(some, games, strict=True)
            ]
            points = [game["points"] for game in games]
            lines.append(
                {
                    "model": model,
                    "count": len(some),
                    "baseline": name,
                    "whole": median(parts),
                    "small": sum(part < 0.1 for part in parts) / len(parts),
                    "carry": median(game["carry"] for game in games),
                    "points": f"{median(points):g}, {max(points)}",
                    "gap": max(game["gap"] for game in games),
                    "block": sum(game["block"] > 0 for game in games),
                    "determined": sum(game["determined"] for game in games),
                    "steering": sum(game["steering"] for game in games),
                }
            )
    return columns(lines, shown)


def alike() -> dict[str, str]:
    """How alike the shares of both baselines are, by model."""
    rows = read("game-baselines.jsonl")
    by_model = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        some = [row for row in rows if row["model"] == model]
        r, same = (
            median(row[name] for row in some) for name in ("correlation", "same side of the line")
        )
        by_model[model] = (
            f"the correlation of shares is {r:.2f} (median), and {same:.0%} of the heads are on the "
            "same side of the 5 % line"
        )
    return by_model


def planted() -> str:
    """Shares of the heads that decide in models whose truth is known."""
    rows = read("game-planted.jsonl")
    head = ["kind", "models"]
    games = ("levelled, default rows", "levelled, all rows", "uniform, all rows")
    body = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        some = [row for row in rows if row["kind"] == kind]
        line = [kind, str(len(some))]
        for game in games:
            decisive = [
                max(share, steered)
                for row in some
                for share, steered in zip(row[game]["decisive"], row[game]["steering"], strict=True)
            ]
            others = max(row[game]["others"] for row in some)
            line.append(f"{min(decisive):.2f}, {others:.2f}" if decisive else f"–, {others:.2f}")
        body.append(line)
    return table([*head, *(f"{game}: least decisive, largest other" for game in games)], body)


def exact() -> dict[str, Any]:
    """The path beside the Shapley values by all sets of heads."""
    rows = [row["path"] for row in read("game-planted.jsonl") if "path" in row]
    return {
        "models": len(rows),
        "r": min(row["r"] for row in rows),
        "middle": median(row["r"] for row in rows),
        "error": max(row["error"] for row in rows),
        "same": sum(row["same side"] for row in rows) / len(rows),
    }


def costs() -> str:
    """The game at three lengths, this version beside 0.2.0."""
    body = []
    for row in read("game-costs.jsonl"):
        known = "times" in row
        body.append(
            [
                row["length"],
                {"now": "this", "before": "0.2.0"}[row["version"]],
                row["points"] if known else NONE,
                row["passes"] if known else NONE,
                f"{row['times']:.0f} ×" if known else NONE,
                f"{row['peak']:.0f} MB" if known else NONE,
                row["result"],
            ]
        )
    head = ["tokens, about", "version", "points", "passes of the text beside them"]
    head += ["processor time, of the text's own pass", "memory above the model", "result"]
    return table(head, body)
