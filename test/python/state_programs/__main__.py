"""The command: draws models with state, checks them, and prints those that fail, shrunk, with what happened."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter

from .generate import Model, generate, shrink
from .run import BAD, Outcome, check

_VARIABLE = re.compile(r"[\w/.-]*\.py:\d+|-?\d+(\.\d+)?(e[+-]\d+)?|\b(self|Model|Space)[\w.\[\]']*")


def cause(outcome: Outcome) -> str:
    """What failures of one cause have in common."""
    text = outcome.text.splitlines()[0] if outcome.text else ""
    return f"{outcome.kind}: " + _VARIABLE.sub("#", text)[:140]


def fails(model: Model, kind: str, seed: int) -> bool:
    """Whether a model has the same outcome."""
    return check(model, seed).kind == kind


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser("state_programs", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="models (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first model")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time; 0: no limit")
    parser.add_argument("--most", type=int, default=3, help="print so many models for each cause")
    args = parser.parse_args()
    begin, kinds = time.monotonic(), Counter[str]()
    causes, refusals = Counter[str](), Counter[str]()
    for number in range(args.first, args.first + args.count):
        outcome = check(generate(args.seed, number), args.seed)
        kinds[outcome.kind] += 1
        if outcome.kind in BAD:
            causes[cause(outcome)] += 1
            if causes[cause(outcome)] <= args.most:
                kind = outcome.kind
                small = shrink(outcome.model, lambda m: check(m, args.seed).kind == kind)
                outcome = check(small, args.seed)
                print(f"== {number} {outcome.kind}: {outcome.text[:700]}")
                print("\n".join([*small.aliases, *small.statements, f"return {small.result}"]), flush=True)
        elif outcome.kind == "refused":
            refusals[cause(outcome)] += 1
        if args.seconds and time.monotonic() - begin > args.seconds:
            break
    seconds = time.monotonic() - begin
    print(f"{kinds.total()} models in {seconds:.0f} s: " + ", ".join(f"{n} {k}" for k, n in kinds.most_common()))
    for what, n in refusals.most_common(20):
        print(f"  {n} {what}")
    for what, n in causes.most_common():
        print(f"FAILED {n}: {what}")
    return 1 if causes else 0


if __name__ == "__main__":
    sys.exit(main())
