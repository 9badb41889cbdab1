"""The command: draws programs, checks them in processes of their own, shrinks what fails, prints what was covered."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from opinfo.pool import Lost, run

from .coverage import Coverage
from .found import write
from .generate import KINDS, generate, kind_of
from .program import Program
from .rewrite import rewritten
from .run import BAD, Compile, Outcome, check, compiled
from .shrink import shrink
from .ways import WAYS

GROUP = 48
"""Programs that a worker draws and checks at once."""
TOGETHER = 4
"""Programs in one module: the cost of tracing one grows with the number of symbols in it."""
_SECONDS = 240.0


def check_numbers(seed: int, numbers: Sequence[int], compile: Compile = compiled) -> tuple[list[Outcome], Coverage]:
    """Outcomes of the programs of these numbers; every second one is also rewritten."""
    programs = [generate(seed, n) for n in numbers]
    outcomes: list[Outcome] = []
    for kind in KINDS:
        own = [p for p in programs if kind_of(p) == kind]
        # A program and its rewritten form are in one module, where they are called with the same inputs.
        own = [form for p in own[::2] for form in (p, rewritten(p, seed))] + own[1::2]
        for begin in range(0, len(own), TOGETHER):
            outcomes += check(own[begin : begin + TOGETHER], seed, compile)
    # One program of every group also by another way.
    way = list(WAYS)[numbers[0] // len(numbers) % len(WAYS)]
    chosen = next((p for p in programs if kind_of(p) == "plain" and not _complex(p)), None)
    if chosen is not None:
        for outcome in check([replace(chosen, name=chosen.name + "W")], seed, WAYS[way]):
            outcome.kind += f" by {way}" if outcome.kind != "pass" else ""
            outcomes.append(outcome)
    coverage = Coverage()
    for program in programs:
        coverage.add(program)
    for outcome in outcomes:
        coverage.kernels.update(outcome.kernels)
    return outcomes, coverage


def _complex(program: Program) -> bool:
    """Whether complex numbers may occur: a library takes and returns their parts."""
    return any(i.dtype == "c64" for i in program.inputs) or re.search("complex|polar", program.source) is not None


def check_one(seed: int, number: int, second: bool, compile: Compile = compiled) -> list[Outcome]:
    """Of one program, or of its rewritten form, by itself."""
    program = generate(seed, number)
    return check([rewritten(program, seed) if second else program], seed, compile)


def shrunk(program: Program, seed: int, kind: str, way: str, text: str, compile: Compile = compiled) -> Program:
    """The smallest form that fails in the same way."""
    wanted = _class(kind, text)
    compile = WAYS.get(way, compile)

    def fails(candidate: Program) -> bool:
        if kind == "lost":
            # What crashes or hangs must not take the shrinking with it.
            [(_, result)] = run([(check, ([candidate], seed, compile))], 1, _SECONDS / 8)
            return isinstance(result, Lost)
        outcome = check([candidate], seed, compile)[0]
        return outcome.kind == kind and (kind == "wrong" or _class(outcome.kind, outcome.text) == wanted)

    return shrink(program, fails, 600 if kind == "lost" else 60)


def _class(kind: str, text: str) -> str:
    """What failures of one cause have in common: the message without names, numbers and places."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    first = (
        text.strip().splitlines()[1]
        if first.endswith("unsupported operation:") or first.endswith("operations:")
        else first
    )
    return kind + ": " + re.sub(r"[\w/.-]*\.py:\d+|\bP\d+R?_?|-?\d+(\.\d+)?(e[+-]\d+)?", "#", first)[:160]


class Report:
    """What was found."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kinds: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.bad: dict[str, list[Outcome]] = defaultdict(list)
        self.refusals: Counter[str] = Counter()
        self.coverage = Coverage()

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Counts outcomes, and keeps those that are failures."""
        for outcome in outcomes:
            self.kinds[outcome.kind] += 1
            self.runs.update(outcome.counts)
            kind = outcome.kind.partition(" by ")[0]
            if kind in BAD:
                group = _class(outcome.kind, outcome.text)
                self.bad[group].append(outcome)
                if len(self.bad[group]) == 1:
                    print(
                        f"== {group}\n{outcome.text[:600]}\nat {dict(outcome.at)}\n{outcome.program.source}", flush=True
                    )
            elif outcome.text:
                self.refusals[_class(outcome.kind, outcome.text)] += 1

    def text(self, seconds: float, drawn: int) -> str:
        """The summary."""
        lines = [
            f"{drawn} programs and their rewritten forms in {seconds:.0f} s: {drawn / seconds:.2f} programs a second",
            "programs: " + ", ".join(f"{n} {k}" for k, n in self.kinds.most_common()),
            "runs: " + ", ".join(f"{n} {k}" for k, n in self.runs.most_common()),
            self.coverage.text(),
        ]
        lines += [f"  {n} not accepted: {what}" for what, n in self.refusals.most_common(12)]
        lines += [f"FAILED {len(found)}: {what}" for what, found in self.bad.items()]
        return "\n".join(lines)


def main() -> int:
    """Parses the command line."""
    parser = argparse.ArgumentParser("programs", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--group", type=int, default=GROUP, help="programs of one task (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time; 0: no limit")
    parser.add_argument("--failures", type=Path, help="folder for shrunk programs that fail")
    parser.add_argument("--sanitize", action="store_true", help="with checks of all memory accesses")
    parser.add_argument("--cpu", help="compile for this kind of CPU, such as x86-64-v2")
    args = parser.parse_args()
    compile = partial(compiled, sanitize=args.sanitize, cpu=args.cpu)
    report, begin, drawn = Report(args.seed), time.monotonic(), 0
    groups = [
        range(first, min(first + args.group, args.first + args.count))
        for first in range(args.first, args.first + args.count, args.group)
    ]
    tasks = [(check_numbers, (args.seed, group, compile)) for group in groups]
    lost = []
    for place, result in run(tasks, args.processes, _SECONDS):
        if isinstance(result, Lost):
            lost += list(groups[place])
        else:
            report.add(result[0])
            report.coverage.update(result[1])
        drawn += len(groups[place])
        print(f"{drawn} programs in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        if args.seconds and time.monotonic() - begin > args.seconds:
            break
    # A crash or a hang takes its group with it.
    cases = [(n, second) for n in lost for second in (False, True)]
    for place, result in run([(check_one, (args.seed, *c, compile)) for c in cases], args.processes, _SECONDS / 4):
        number, second = cases[place]
        if isinstance(result, Lost):
            program = generate(args.seed, number)
            result = [Outcome(rewritten(program, args.seed) if second else program, "lost", str(result))]
        report.add(result)
    print(report.text(time.monotonic() - begin, drawn))
    _shrink_all(report, args.processes, args.failures, compile)
    return 1 if report.bad else 0


def _shrink_all(report: Report, processes: int, folder: Path | None, compile: Compile) -> None:
    """Shrinks one program of each group of failures, prints it, and writes it as a regression test."""
    groups = [(what, found[0]) for what, found in report.bad.items()]
    # Crashes and hangs are shrunk by this process, in a process of their own for each candidate.
    place_of = {False: [g for g in groups if g[1].kind != "lost"], True: [g for g in groups if g[1].kind == "lost"]}
    tasks = [
        (shrunk, (o.program, report.seed, *o.kind.partition(" by ")[::2], o.text, compile)) for _, o in place_of[False]
    ]
    for place, result in run(tasks, processes, 2 * _SECONDS):
        what, outcome = place_of[False][place]
        _write(what, outcome, outcome.program if isinstance(result, Lost) else result, report.seed, folder)
    for what, outcome in place_of[True]:
        program = shrunk(outcome.program, report.seed, "lost", "", outcome.text, compile)
        _write(what, outcome, program, report.seed, folder)


def _write(what: str, outcome: Outcome, program: Program, seed: int, folder: Path | None) -> None:
    print(f"\n-- {what}\n{program.source}", flush=True)
    if folder is not None:
        write(folder, program, seed, outcome.kind.partition(" by ")[2], what)


if __name__ == "__main__":
    sys.exit(main())
