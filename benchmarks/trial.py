"""What the trial adds to the methods, beside the plain way, and what a whole trial takes.

    python benchmarks/trial.py [--model sentiment] [--tokens 48] [--lengths 12 … 510] [--out FILE]

1. alternatives for every row of every head: all rows of a site at once, against a linear program
   for each row (timed on a few, scaled to all);
2. the reliance on each head: one joint path, against sampled orders of all heads (timed on a few,
   scaled to the number that is as exact);
3. a whole trial without heat_maps, stage by stage, in forward passes of the same model on the same
   text: the processor time of the trial over that of a pass, medians of some before and after it.
"""

from functools import partial
from statistics import median

import torch
from support.measure import REVIEW, bare, begun, once, written

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame, orders
from exhibit_a.methods.identifiability.alternative_maps import alternative_maps
from exhibit_a.numerics.seeds import generator
from exhibit_a.trace.targets import margin_of

WORDS = "the film is slow but the acting is superb and nobody will look at a watch before the end"
SOLVED = 12  # linear programs that are timed
ORDERS, TRUTH = 4, 16  # orders that are timed, and that are as exact as the path


def main() -> None:
    lengths = [12, 20, 24, 37, 64, 128, 256, 510]
    given = begun(__doc__, model="sentiment", tokens=48, lengths=lengths)
    words = (WORDS.split() * given.tokens)[: given.tokens - 2]
    subject = xa.load(given.model)
    trace = xa.capture(subject, " ".join(words), keep=("attention", "values", "hidden", "keys"))
    print(f"{subject.name}, {len(trace.tokens)} tokens")
    alternatives(trace)
    reliance(trace)
    written(given.out, [whole(subject, length) for length in given.lengths])


def alternatives(trace: xa.Trace) -> None:
    free = tuple(part > 0 for part in xa.attention_identifiability(trace).same_sum)
    spent = once(lambda: alternative_maps(trace, free))
    ours = spent.made
    rows = [(s, *place) for s, part in enumerate(ours.tried) for place in part.nonzero().tolist()]
    if not rows:
        print("no row has an alternative at this length")
        return
    some = [rows[int(i)] for i in torch.linspace(0, len(rows) - 1, SOLVED)]

    def solve(site: int, head: int, query: int) -> float:
        """How far ours reaches beside the program of a row."""
        found = xa.alternative_attention(trace, site=site, head=head, query=query, samples=1)
        own = trace.attention[site][head, query].double()
        farthest = float((found.farthest.double() - own).abs().sum())
        near = float((ours.maps[site][head, query].double() - own).abs().sum())
        return near / farthest if farthest > 0 else 1.0

    programs = once(lambda: [solve(*row) for row in some])
    slow = programs.least / SOLVED * len(rows)
    print(f"alternatives for {len(rows)} rows, of {ours.free} that have any: {spent.least:.1f} s")
    print(
        f"  linear programs (scaled from {SOLVED} rows): {slow:.1f} s, {slow / spent.least:.0f} ×"
    )
    print(f"  distance reached: {sum(programs.made) / SOLVED:.0%} of the programs'")


@torch.no_grad()
def reliance(trace: xa.Trace) -> None:
    path = once(lambda: xa.reliance(trace, by="path"))
    game = HeadGame(trace, margin_of(xa.choose_target(trace)))
    slow = once(lambda: orders(game, ORDERS // 2, generator(0))).least / ORDERS * TRUTH
    print(f"one path for {len(game)} heads: {path.least:.1f} s, gap {path.made.gap:.3f}")
    print(
        f"  {TRUTH} sampled orders (scaled from {ORDERS}): {slow:.1f} s, {slow / path.least:.0f} ×"
    )


def whole(subject: xa.Subject, tokens: int) -> dict[str, object]:
    """What a trial of so many tokens takes, in forward passes."""
    text = " ".join((REVIEW.split() * tokens)[:tokens])
    given = subject.tokenizer(text, truncation=True, max_length=tokens, return_tensors="pt")
    xa.trial(subject, "a warm film", heat_maps=False)  # what is only done once
    a_pass = partial(once, partial(bare, subject, given), 11)
    before = a_pass().times
    spent = once(lambda: xa.trial(subject, dict(given), heat_maps=False))
    unit, trial = median(before + a_pass().times), spent.made
    by_clock = (
        sum(trial.seconds.values()) * unit / spent.least
    )  # of a pass, in seconds of the clock
    stages = {
        name: round(one / by_clock, 1) for name, one in trial.seconds.items() if name != "heat_maps"
    }
    left_out = sorted(set(trial.skipped) - {"heat_maps"})
    row: dict[str, object] = {"tokens": len(trial.tokens), "passes": round(spent.least / unit, 1)}
    row |= {"stages": stages, "left_out": left_out}
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
