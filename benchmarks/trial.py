"""What the trial adds to the methods, beside the plain way, in one run.

    python benchmarks/trial.py [--model sentiment] [--tokens 48]

1. alternatives for every row of every head: all rows of a site at once, against a linear program
   for each row (timed on a few, scaled to all);
2. the reliance on each head: one joint path, against sampled orders of all heads (timed on a few,
   scaled to the number that is as exact).

Everything runs on one thread, and seconds are processor seconds.
"""

import argparse
import time

import torch
from support.quiet import one_quiet_thread

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame, margin_of
from exhibit_a.methods.attribution.head_orders import orders
from exhibit_a.methods.identifiability.alternative_maps import alternative_maps
from exhibit_a.numerics.seeds import generator

WORDS = "the film is slow but the acting is superb and nobody will look at a watch before the end"
SOLVED = 12  # linear programs that are timed
ORDERS, TRUTH = 4, 16  # orders that are timed, and that are as exact as the path


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--model", default="sentiment")
    asked.add_argument("--tokens", type=int, default=48)
    options = asked.parse_args()
    one_quiet_thread()
    words = (WORDS.split() * options.tokens)[: options.tokens - 2]
    trace = xa.capture(
        xa.load(options.model), " ".join(words), keep=("attention", "values", "hidden", "keys")
    )
    print(f"{trace.subject.name}, {len(trace.tokens)} tokens, one thread")
    alternatives(trace)
    reliance(trace)


def alternatives(trace: xa.Trace) -> None:
    counted = xa.attention_identifiability(trace)
    free = tuple(part > 0 for part in counted.same_sum)
    start = time.process_time()
    ours = alternative_maps(trace, free)
    spent = time.process_time() - start
    rows = [(s, *place) for s, part in enumerate(free) for place in part.nonzero().tolist()]
    if not rows:
        print("no row has an alternative at this length")
        return
    some = [rows[int(i)] for i in torch.linspace(0, len(rows) - 1, SOLVED)]
    start, reached = time.process_time(), []
    for site, head, query in some:
        found = xa.alternative_attention(trace, site=site, head=head, query=query, samples=1)
        own = trace.attention[site][head, query].double()
        farthest = 0.5 * float((found.farthest.double() - own).abs().sum())
        near = 0.5 * float((ours.maps[site][head, query].double() - own).abs().sum())
        reached.append(near / farthest if farthest > 0 else 1.0)
    slow = (time.process_time() - start) / SOLVED * len(rows)
    print(f"\nalternatives for {len(rows)} rows")
    print(f"  linear programs (scaled from {SOLVED} rows)  {slow:9.1f} s")
    print(f"  all rows of a site at once         {spent:9.1f} s  {slow / spent:8.0f}x")
    print(
        f"  distance reached: {sum(reached) / SOLVED:.0%} of the programs', mean of {SOLVED} rows"
    )


@torch.no_grad()
def reliance(trace: xa.Trace) -> None:
    start = time.process_time()
    result = xa.reliance(trace, by="path")
    spent = time.process_time() - start
    game = HeadGame(trace, margin_of(xa.choose_target(trace)))
    start = time.process_time()
    orders(game, ORDERS // 2, generator(0))
    slow = (time.process_time() - start) / ORDERS * TRUTH
    print(f"\nreliance on each of {len(game)} heads, gap {result.gap:.3f} of {result.whole:.3f}")
    print(f"  {TRUTH} sampled orders (scaled from {ORDERS})   {slow:9.1f} s")
    print(f"  one path, every head alone         {spent:9.1f} s  {slow / spent:8.0f}x")


if __name__ == "__main__":
    main()
