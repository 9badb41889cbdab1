"""Measures DISC against its peers: `make bench`, or, in the peers' environment, `python -m bench`.

make bench                                          # everything; some hours
make bench-quick                                    # fast compilers, few shapes
make bench BENCH_ARGS='minilm ctr_ranker'           # these workloads; the report keeps the others' last results
make bench BENCH_ARGS='minilm --static'             # and what dynamic shapes cost
make bench BENCH_ARGS='--isa avx2 --threads 1'      # tables of their own
make bench BENCH_ARGS='--report'                    # only the report, of the results that are there
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console
from tqdm import tqdm

from . import engines, machine, report, workloads
from .measure import ROUNDS, Run, Settings
from .process import allocators
from .results import geomean

RESULTS = Path(__file__).resolve().parent / "results"
QUICK_RESULTS = RESULTS / "quick"


def parse_shape(text: str) -> tuple[int, ...]:
    """Extents with commas or x between them."""
    return tuple(int(part) for part in text.replace("x", ",").split(","))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    peers = [name for name in engines.names() if name not in engines.OWN]
    chosen = [*workloads.names(members=False), *workloads.families()]
    result.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(chosen)}")
    result.add_argument("--quick", action="store_true", help="few shapes, and only engines that compile fast")
    result.add_argument("--peers", nargs="+", choices=peers, help="instead of all")
    result.add_argument("--without", nargs="+", choices=peers, default=[], help="leave these out")
    result.add_argument("--static", action="store_true", help="also DISC compiled for each shape alone")
    result.add_argument(
        "--library", action="store_true", help="also DISC ahead of time, without the compiler in the process"
    )
    result.add_argument("--shapes", nargs="+", type=parse_shape, help="instead of the workload's own")
    result.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    result.add_argument("--isa", choices=engines.ISAS, default=engines.NATIVE, help="instructions that engines may use")
    result.add_argument("--seconds", type=float, help="measured per engine and shape (default: 1, quick 0.25)")
    result.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each engine (default: {ROUNDS})")
    result.add_argument("--seed", type=int, default=0, help="of the order of engines in each round")
    result.add_argument("--allow-dirty", action="store_true", help="measure files that differ from the commit")
    result.add_argument(
        "--allocators",
        nargs="*",
        choices=list(allocators()),
        help="what peers are tried with (default: all; quick: none)",
    )
    result.add_argument(
        "--allocator", choices=list(allocators()), help="what peers that can are run with, without a trial"
    )
    result.add_argument(
        "--choices", metavar="SECTION", help="take the variants that were the fastest in this section (native-2)"
    )
    result.add_argument("--out", type=Path, help="folder of the results (default: bench/results)")
    result.add_argument("--report", action="store_true", help="measure nothing, write the report again")
    return result


def settings(args: argparse.Namespace) -> Settings:
    """What the command line asks for."""
    peers = args.peers or [n for n in engines.names() if n not in engines.OWN]
    if args.quick and not args.peers:
        peers = [name for name in peers if engines.load(name).quick]
    names = (
        [n for n in peers if n not in args.without]
        + [engines.OURS]
        + [engines.STATIC] * args.static
        + [engines.LIBRARY] * args.library
    )
    return Settings(
        engines=tuple(names),
        threads=args.threads,
        seconds=args.seconds or (0.25 if args.quick else 1.0),
        rounds=args.rounds,
        quick=args.quick,
        shapes=tuple(args.shapes) if args.shapes else None,
        isa=args.isa,
        seed=args.seed,
        choices=(args.out or RESULTS) / args.choices if args.choices else None,
        allocator=args.allocator or "",
        allocators=_tried(args),
    )


def _tried(args: argparse.Namespace) -> tuple[str, ...]:
    if args.allocators is not None:
        return tuple(args.allocators)
    return () if args.quick or args.allocator else tuple(allocators())


def main() -> None:
    """Runs what the command line asks for."""
    command = parser()
    args = command.parse_args()
    families = workloads.families()
    args.workloads = [name for asked in args.workloads for name in families.get(asked, [asked])]
    unknown = set(args.workloads) - set(workloads.names())
    if unknown:
        command.error(f"no workload {', '.join(sorted(unknown))}; there are: {', '.join(workloads.names())}")
    if args.shapes and len(args.workloads) != 1:
        command.error("--shapes needs one workload")
    console = Console(width=None if os.isatty(1) else 180)
    folder = args.out or (QUICK_RESULTS if args.quick else RESULTS)
    choices = settings(args).choices
    if choices and not any(choices.glob("*.json")):
        command.error(f"--choices: no results in {choices}")
    if not args.report:
        if machine.dirty(machine.revision()) and not args.allow_dirty:
            command.error("files differ from the commit, so that figures would be of none: commit, or --allow-dirty")
        measure(console, folder, args.workloads or workloads.names(), settings(args))
    results = report.write(folder)
    if args.report:
        for result in results:
            report.show(console, result)
    for result in results:
        mean = geomean(result.ratio(shape) for shape in result.shapes)
        line = f"{result.section:>9} {result.title:>20}  best peer / DISC, geomean {report.number(mean)}"
        console.print(line, highlight=False)
    console.print(f"Tables, JSON and plot: {folder}")


def measure(console: Console, folder: Path, names: list[str], chosen: Settings) -> None:
    """Measures workloads one after the other; each one's result is written as soon as it is there."""
    host = machine.measure(chosen.threads)
    console.print(host.describe())
    steps = sum(len(chosen.shapes_of(workloads.load(n))) + len({*chosen.engines, engines.REFERENCE}) for n in names)
    with tqdm(
        total=steps, bar_format="{l_bar}{bar:30}| {n_fmt}/{total_fmt} [{elapsed}]", leave=False, disable=None
    ) as bar:

        def step(what: str) -> None:
            bar.set_description_str(f"{what:32}")
            bar.update()

        for name in names:
            result = Run(name, chosen, host, step).run()
            if machine.revision() != host.revision:
                raise SystemExit(f"{name}: files or the commit changed while it was measured: it has no result")
            result.save(folder)
            bar.clear()
            report.show(console, result)


if __name__ == "__main__":
    main()
