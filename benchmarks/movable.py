"""Movable weight of rows of `sentiment` beside a plain linear program and the search for corners.

    python benchmarks/movable.py [--data DATA] [--out docs/data/movable.json]

The beginnings of film reviews (DATA/movie-rationales; without, a made-up one over and over) at four
lengths. Of every head of every text, one row at random: its processor time and its movable weight.
Beside it, in turns on one thread:

1. the plain program: the columns of [V, 1] as they are, keys with equal values apart, the options
   of `scipy.optimize.linprog` as they are, and no certificate;
2. the search of `alternative_attention` without its replays, for one row of each length: all least
   and largest weights, and climbs from there. It does not bound the weight on S.
"""

import json
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import torch
from scipy.optimize import linprog
from support.measure import REVIEW, begun, told, turns, written
from torch import Tensor

import exhibit_a as xa
from exhibit_a.methods.identifiability.alternatives import polytope
from exhibit_a.methods.identifiability.movable import MovableWeight, movable_weight

LENGTHS = (35, 134, 266, 464)
OURS, PLAIN, SEARCH = "movable weight", "plain program", "search for corners"


def main() -> None:
    given = begun(__doc__, data=Path, texts=6, seed=0)
    subject, rows = xa.load("sentiment"), []
    texts = reviews(subject, given.data)[: given.texts]
    for length in LENGTHS:
        cut = {"truncation": True, "max_length": length, "return_tensors": "pt"}
        inputs = [dict(subject.tokenizer(text, **cut)) for text in texts]
        traces = [xa.capture(subject, each, keep=("attention", "values")) for each in inputs]
        assert {len(trace.tokens) for trace in traces} == {length}
        rows.append({"tokens": length} | measured(traces, Random(given.seed)))
    written(given.out, {"model": "sentiment", "texts": len(texts), "rows": rows})


def reviews(subject: xa.Subject, data: Path | None) -> list[str]:
    """Reviews that are long enough, or a made-up one over and over."""
    if data is None:
        return [" ".join([REVIEW] * 4)]
    lines = (data / "movie-rationales/test.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    return [text for text in texts if len(subject.tokenizer.tokenize(text)) >= LENGTHS[-1]]


def measured(traces: list[xa.Trace], chance: Random) -> dict[str, object]:
    """Times of one row of every head, and what they show."""
    length = len(traces[0].tokens)
    marks = [
        [
            torch.stack([torch.arange(length) == chance.randrange(length) for _ in maps])
            for maps in trace.attention
        ]
        for trace in traces
    ]
    chosen = [
        (trace.attention[site][head, query], trace.values[site][head])
        for trace, of_text in zip(traces, marks, strict=True)
        for site, rows in enumerate(of_text)
        for head, query in rows.nonzero().tolist()
    ]
    spent = turns(
        {
            OURS: partial(by_site, traces, marks),
            PLAIN: lambda: [plain(*row) for row in chosen],
        }
    )
    search = turns({SEARCH: lambda: polytope(*chosen[-1], samples=1)}, repeats=1)
    told(f"{length} tokens, {len(chosen)} rows, search of one", spent | search, OURS)
    sites = spent[OURS].made
    every = [rows for of_text in marks for rows in of_text]
    movable, shown = (
        torch.cat([getattr(site, name)[rows] for site, rows in zip(sites, every, strict=True)])
        for name in ("movable", "shown")
    )
    apart = np.abs(np.array(spent[PLAIN].made) - movable.numpy())
    row = {
        "rows": len(chosen),
        "milliseconds": 1e3 * spent[OURS].least / len(chosen),
        "plain_milliseconds": 1e3 * spent[PLAIN].least / len(chosen),
        "search_milliseconds": 1e3 * search[SEARCH].least,
        "median": float(movable.nanmedian()),
        "median_shown": float(shown.nanmedian()),
        "all_movable": float((movable >= 0.99 * shown).double().mean()),
        "failed": sum(site.failed for site in sites),
        "disagreement": max(site.disagreement for site in sites),
        "plain_differs": float(np.nanmax(apart)),
        "plain_failed": int(np.isnan(apart).sum()),
    }
    print(row, flush=True)
    return row


def by_site(traces: list[xa.Trace], marks: list[list[Tensor]]) -> list[MovableWeight]:
    """The marked rows of every site of every text."""
    return [
        movable_weight(trace.attention[site], trace.values[site], trace.visible[site], rows)
        for trace, of_text in zip(traces, marks, strict=True)
        for site, rows in enumerate(of_text)
    ]


def plain(row: Tensor, values: Tensor) -> float:
    """μ by a program with the equations as they are."""
    weights = row.double().numpy()
    order = np.argsort(-weights, kind="stable")
    in_set = order[: np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2) + 1]
    cost = np.zeros(len(weights))
    cost[in_set] = 1
    equations = np.column_stack([values.double().numpy(), np.ones(len(weights))]).T
    program = linprog(cost, A_eq=equations, b_eq=equations @ weights, bounds=(0, None))
    return float(weights[in_set].sum() - program.fun) if program.status == 0 else float("nan")


if __name__ == "__main__":
    main()
