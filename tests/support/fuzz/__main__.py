"""``make fuzz``: attack every target, print what happened, and fail if anything bad did."""

import argparse
import sys
import time

import transformers

from support.fuzz import BAD, TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=300, help="attempts for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=list(TARGETS), action="append", help="only this one")
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bad = 0
    for name in asked.target or TARGETS:
        start = time.perf_counter()
        outcomes = TARGETS[name](asked.seed, asked.attempts)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(outcomes.counts.items()))
        seconds = time.perf_counter() - start
        sys.stdout.write(f"{name}: {outcomes.total} attempts, {counts} ({seconds:.0f} s)\n")
        for example in outcomes.examples:
            sys.stdout.write(f"    {example}\n")
        bad += sum(outcomes.counts[kind] for kind in BAD)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
