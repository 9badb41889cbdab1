"""Compiles every architecture of the zoo, or those named, and prints a table: ``python -m zoo [name ...]``."""

from __future__ import annotations

import argparse
import sys

import torch

from . import ARCHITECTURES
from .runner import check


def main() -> int:
    parser = argparse.ArgumentParser(prog="zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures, or kinds of them; all by default")
    parser.add_argument("--from", dest="first", default="", help="start at this architecture")
    parser.add_argument("--long", action="store_true", help="print reasons in full")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [
        a for a in ARCHITECTURES.values() if not options.names or a.name in options.names or a.kind in options.names
    ]
    if options.first:
        chosen = chosen[[a.name for a in chosen].index(options.first) :]
    passed = 0
    for architecture in chosen:
        outcome = check(architecture)
        passed += outcome.passed
        state = "ok" if outcome.passed else "FAILS"
        print(
            f"{outcome.name:30} {outcome.kind:16} {state:6} {outcome.compile_seconds:5.1f} s  {outcome.shapes} shapes  "
            f"{outcome.worst:.0e}  [{outcome.dims}]",
            flush=True,
        )
        for reason in outcome.reasons:
            text = reason if options.long else " ".join(reason.split())[:200]
            print(f"    {text}", flush=True)
    print(f"{passed} of {len(chosen)} architectures match eager")
    return 0 if passed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
