"""What the trial adds to the methods, beside the plain way, in one run.

    python benchmarks/trial.py [--model sentiment] [--tokens 48]

1. alternatives for every row of every head: all rows of a site at once, against a linear program
   for each row (timed on a few, scaled to all);
2. the effect of permuting each head: copies of one batch on the cached prefix, against a whole pass
   for each head and repeat (timed on the heads of one site, scaled to all).

Everything runs on one thread, and seconds are processor seconds.
"""

import argparse
import time

import torch
import transformers

import exhibit_a as xa
from exhibit_a.methods.explanation.head_permutation import head_permutation
from exhibit_a.methods.explanation.shuffling import shuffled
from exhibit_a.methods.identifiability.alternative_maps import alternative_maps

WORDS = "the film is slow but the acting is superb and nobody will look at a watch before the end"
SOLVED = 12  # linear programs that are timed
REPEATS = 4


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--model", default="sentiment")
    asked.add_argument("--tokens", type=int, default=48)
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    words = (WORDS.split() * options.tokens)[: options.tokens - 2]
    trace = xa.capture(
        xa.load(options.model), " ".join(words), keep=("attention", "values", "hidden", "keys")
    )
    print(f"{trace.subject.name}, {len(trace.tokens)} tokens, one thread")
    alternatives(trace)
    permutations(trace)


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
def permutations(trace: xa.Trace) -> None:
    target = xa.choose_target(trace)
    start = time.process_time()
    head_permutation(trace, target, repeats=REPEATS)
    spent = time.process_time() - start
    site, heads = len(trace.sites) // 2, len(trace.attention[0])
    chance = torch.Generator().manual_seed(0)
    start = time.process_time()
    for head in range(heads):
        for _ in range(REPEATS):
            probs = trace.attention[site].clone()
            draw = torch.rand(probs[head].shape, generator=chance)
            probs[head] = shuffled(probs[None, head : head + 1], None, draw)[0, 0]
            xa.replay(trace, xa.edits.replace(site, probs), start=0)
    slow = (time.process_time() - start) * len(trace.sites)
    print(f"\npermuting each of {heads * len(trace.sites)} heads, {REPEATS} times")
    print(f"  a whole pass each (scaled from one site) {slow:7.1f} s")
    print(f"  copies on the cached prefix              {spent:7.1f} s  {slow / spent:8.1f}x")


if __name__ == "__main__":
    main()
