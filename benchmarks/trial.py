"""What the trial adds to the methods, beside the plain way, and what a whole trial takes.

    python benchmarks/trial.py [--model sentiment] [--tokens 48] [--lengths 12 … 510] [--out FILE]

1. alternatives for every row of every head: all rows of a site at once, against a linear program
   for each row (timed on a few, scaled to all);
2. the reliance on each head: one joint path, against sampled orders of all heads (timed on a few,
   scaled to the number that is as exact);
3. a whole trial without pictures, stage by stage, in forward passes of the same model on the same
   text: the processor time of the trial over that of a pass, medians of some before and after it.

Everything runs on one thread, and seconds are processor seconds.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import torch
from support.quiet import one_quiet_thread, seconds_of_a_pass

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame
from exhibit_a.methods.attribution.head_orders import orders
from exhibit_a.methods.identifiability.alternative_maps import alternative_maps
from exhibit_a.numerics.seeds import generator
from exhibit_a.trace.targets import margin_of

WORDS = "the film is slow but the acting is superb and nobody will look at a watch before the end"
REVIEW = """a slow , tender film about two brothers who inherit a failing orchard and cannot agree
what to do with it . the older one wants to sell , the younger one to stay , and for most of its
two hours nothing happens that a postcard could not tell . yet the acting is superb : a look
across the kitchen table says more than the script ever does , and when the rain comes at last you
may find that you have held your breath . the music is too sweet , the ending a little neat , and
a subplot about a lost letter should have been left on the floor . still , i would rather watch
these people peel apples than see most heroes save the world . it is honest , it is funny in the
right places , and it trusts us to notice things ."""
LENGTHS = (12, 20, 24, 37, 64, 128, 256, 510)
SOLVED = 12  # linear programs that are timed
ORDERS, TRUTH = 4, 16  # orders that are timed, and that are as exact as the path


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--model", default="sentiment")
    asked.add_argument("--tokens", type=int, default=48)
    asked.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    asked.add_argument("--out", type=Path, help="write what trials take to this file")
    options = asked.parse_args()
    one_quiet_thread()
    words = (WORDS.split() * options.tokens)[: options.tokens - 2]
    subject = xa.load(options.model)
    trace = xa.capture(subject, " ".join(words), keep=("attention", "values", "hidden", "keys"))
    print(f"{trace.subject.name}, {len(trace.tokens)} tokens, one thread")
    alternatives(trace)
    reliance(trace)
    measured = [whole(subject, length) for length in options.lengths]
    if options.out:
        options.out.write_text(json.dumps(measured, indent=1) + "\n")


def alternatives(trace: xa.Trace) -> None:
    counted = xa.attention_identifiability(trace)
    free = tuple(part > 0 for part in counted.same_sum)
    start = time.process_time()
    ours = alternative_maps(trace, free)
    spent = time.process_time() - start
    rows = [(s, *place) for s, part in enumerate(ours.tried) for place in part.nonzero().tolist()]
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
    print(f"\nalternatives for {len(rows)} rows, of {ours.free} that have any")
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


def whole(subject: xa.Subject, tokens: int) -> dict[str, object]:
    """What a trial of so many tokens takes, in forward passes."""
    words = (REVIEW.split() * tokens)[:tokens]
    given = subject.tokenizer(
        " ".join(words), truncation=True, max_length=tokens, return_tensors="pt"
    )
    xa.trial(subject, "a warm film", pictures=False)  # what is only done once
    before = [seconds_of_a_pass(subject, given) for _ in range(11)]
    start = time.process_time()
    trial = xa.trial(subject, dict(given), pictures=False)
    spent = time.process_time() - start
    a_pass = median(before + [seconds_of_a_pass(subject, given) for _ in range(11)])
    by_clock = sum(trial.seconds.values())
    stages = {
        stage: round(seconds / by_clock * spent / a_pass, 1)
        for stage, seconds in trial.seconds.items()
        if stage != "pictures"
    }
    passes = round(spent / a_pass, 1)
    print(f"\na trial of {len(trial.tokens)} tokens: {passes:.0f} forward passes of {a_pass:.3f} s")
    print("  " + ", ".join(f"{stage} {share:.1f}" for stage, share in stages.items()))
    left_out = sorted(set(trial.skipped) - {"pictures"})
    return {"tokens": len(trial.tokens), "passes": passes, "stages": stages, "left_out": left_out}


if __name__ == "__main__":
    main()
