"""The command: evaluates ops of OpInfo, prints a table, compares with the lists or renews them."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

from . import expected
from .evaluate import Outcome, evaluate, evaluate_together
from .pool import Lost, run
from .samples import ALL_DTYPES, DTYPES, MORE_DTYPES, OPS, supports

SAMPLES = 6
_SECONDS = 120.0
_GROUP = 24
"""Samples in one program."""
_PART = 64
"""CI evaluates one op and dtype in so many."""


def selection(patterns: Sequence[str], dtypes: Sequence[str]) -> list[tuple[str, str]]:
    """(op, dtype) of all ops that match a pattern, or of all."""
    names = [n for n in OPS if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)]
    return [(n, d) for d in dtypes for n in names if supports(OPS[n], ALL_DTYPES[d])]


def outcomes(
    chosen: Sequence[tuple[str, str]],
    limit: int,
    processes: int,
    *,
    shapes: int = 2,
    survey: bool = False,
    verbose: bool = False,
) -> list[Outcome]:
    """Evaluates each op by itself."""
    result = []
    tasks = [(evaluate, (name, dtype, limit, survey, shapes)) for name, dtype in chosen]
    for place, outcome in run(tasks, processes, _SECONDS if limit else 10 * _SECONDS):
        if isinstance(outcome, Lost):
            outcome = Outcome(*chosen[place], "fail", str(outcome))
        result.append(outcome)
        if verbose:
            said = outcome.reason or f"{outcome.shapes} {outcome.less}"
            print(f"{outcome.kind:6} {outcome.op} {outcome.dtype} {said}", flush=True)
    return result


def outcomes_together(
    chosen: Sequence[tuple[str, str]], limit: int, processes: int, *, verbose: bool = False
) -> list[Outcome]:
    """Evaluates many ops in one program, which is quicker: where one fails, in halves, and at last by themselves.

    Ops that are listed for some dtype are likely to fail for others, and would fail their neighbours.
    """
    listed = {op for path in (expected.PATH, expected.LESS, expected.NOT_EXPORTED) for op, _ in expected.read(path)}
    alone = [c for c in chosen if c[0] in listed]
    size = max(_GROUP // limit, 1)
    pending: list[tuple[list[str], str]] = []
    for dtype in dict.fromkeys(d for _, d in chosen):
        names = [n for n, d in chosen if d == dtype and n not in listed]
        pending += [(names[i : i + size], dtype) for i in range(0, len(names), size)]
    result = []
    while pending:
        failed = []
        tasks = [(evaluate_together, (names, dtype, limit)) for names, dtype in pending]
        for place, good in run(tasks, processes, 2 * _SECONDS):
            names, dtype = pending[place]
            if good is True:
                result += [Outcome(name, dtype, "pass") for name in names]
            else:
                failed.append((names, dtype))
            if verbose:
                print(f"{'passed' if good is True else 'failed'} {dtype}: {' '.join(names)}", flush=True)
        small = [f for f in failed if len(f[0]) <= max(size // 4, 1)]
        alone += [(name, dtype) for names, dtype in small for name in names]
        halves = [(names, dtype, len(names) // 2) for names, dtype in failed if (names, dtype) not in small]
        pending = [(part, dtype) for names, dtype, half in halves for part in (names[:half], names[half:])]
    return result + outcomes(alone, limit, processes, verbose=verbose)


def quick(processes: int) -> list[str]:
    """What disagrees with the lists, of a part of all ops and dtypes that is always the same."""
    failing, unexported = expected.read(expected.PATH), expected.read(expected.NOT_EXPORTED)
    chosen = [c for c in selection([], list(DTYPES)) if c not in unexported and not crc32(" ".join(c).encode()) % _PART]
    passing = outcomes_together([c for c in chosen if c not in failing], 2, processes)
    return disagreements(passing + outcomes([c for c in chosen if c in failing], SAMPLES, processes), together=True)


def disagreements(results: Sequence[Outcome], *, together: bool = False) -> list[str]:
    """What the lists say otherwise; fewer samples, ``together``, may have nothing less asked of them."""
    failing, unexported = expected.read(expected.PATH), expected.read(expected.NOT_EXPORTED)
    less = expected.read(expected.LESS)
    lines = []
    for r in results:
        key = (r.op, r.dtype)
        if r.kind == "less" and key not in less:
            lines.append(f"{r.op} {r.dtype}: passes only with less asked: {r.less}")
        elif r.kind in ("pass", "less") and (key in failing or key in unexported):
            lines.append(f"{r.op} {r.dtype}: passes; remove it from the list (python -m opinfo --shrink {r.op})")
        elif r.kind == "pass" and key in less and not together:
            lines.append(
                f"{r.op} {r.dtype}: passes with nothing less asked; remove it (python -m opinfo --shrink {r.op})"
            )
        elif r.kind == "fail" and key not in failing:
            lines.append(f"{r.op} {r.dtype}: fails: {r.reason}")
        elif r.kind == "export" and key not in unexported:
            lines.append(f"{r.op} {r.dtype}: torch.export has no sample any more: {r.reason}")
    return sorted(lines)


def table(results: Sequence[Outcome]) -> str:
    """Pass rates by dtype, among the ops that torch.export can express."""
    lines = []
    for dtype in ALL_DTYPES:
        kinds = Counter(r.kind for r in results if r.dtype == dtype)
        total = kinds["pass"] + kinds["less"] + kinds["fail"]
        if total:
            share = 100.0 * kinds["pass"] / total
            less = Counter(r.less for r in results if r.dtype == dtype and r.kind == "less")
            apart = ", ".join(f"{what} {count}" for what, count in sorted(less.items()))
            compared = sum(r.shapes for r in results if r.dtype == dtype)
            lines.append(
                f"{dtype:5} {kinds['pass']:4} of {total:4} pass ({share:.1f} %), {kinds['less']} with less asked"
                f"{f' ({apart})' if apart else ''}, {kinds['fail']} fail, {kinds['export']} not exported; "
                f"{compared} calls"
            )
    return "\n".join(lines)


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser("opinfo", description=__doc__)
    parser.add_argument("ops", nargs="*", help="names or patterns (*); default: all")
    parser.add_argument(
        "--dtypes", default=",".join(DTYPES), help="default: %(default)s; also " + ", ".join(MORE_DTYPES)
    )
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of each op (default: %(default)s)")
    parser.add_argument("--all-samples", action="store_true", help="every sample of each op")
    parser.add_argument("--shapes", type=int, default=2, help="shapes of each sample (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="what CI runs: a part of all ops and dtypes, together")
    parser.add_argument("--together", action="store_true", help="many ops in one program, which is quicker")
    parser.add_argument("--shrink", action="store_true", help="take what passes off the list")
    parser.add_argument("--grow", action="store_true", help="also list what fails (for a new version of PyTorch)")
    parser.add_argument("--survey", action="store_true", help="only import: which ops lack rules")
    parser.add_argument("--listed", action="store_true", help="only what is listed as failing")
    args = parser.parse_args()
    start = time.monotonic()
    if args.quick:
        lines = quick(args.processes)
    else:
        chosen = selection(args.ops, args.dtypes.split(","))
        if args.listed:
            failing = expected.read(expected.PATH)
            chosen = [c for c in chosen if c in failing]
        if args.together:
            results = outcomes_together(chosen, args.samples, args.processes, verbose=True)
        else:
            limit = 0 if args.all_samples else args.samples
            results = outcomes(chosen, limit, args.processes, shapes=args.shapes, survey=args.survey, verbose=True)
        print(table(results))
        if args.survey:
            return 0
        if args.shrink or args.grow:
            expected.renew([r for r in results if r.dtype in DTYPES], grow=args.grow)
        lines = disagreements([r for r in results if r.dtype in DTYPES], together=args.together)
    print("\n".join(lines))
    print(f"{len(lines)} disagree with the list; {time.monotonic() - start:.0f} s")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
