"""Measures training steps of DISC against eager PyTorch and `torch.compile`.

python -m bench.training                        # six models, 20 shapes each
python -m bench.training --quick                # four models, 3 shapes each
python -m bench.training --models mlp gpt       # these; the report keeps the others' last results
python -m bench.training --report               # only the report, from the results that exist
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from bench import machine
from bench.report import engine_rows, label, latency_rows, markdown_table, number, reasons, subtitle
from bench.results import WorkloadResult, geomean, load

from . import models
from .engines import ENGINES, OURS
from .measure import Run, Settings

RESULTS = Path(__file__).resolve().parents[1] / "results" / "training"
QUICK_RESULTS = RESULTS.parent / "quick" / "training"
DEFAULT = ("mlp", "ranker", "lstm_tagger", "gpt", "resnet18", "minilm")
"""The models with two dynamic sizes."""
QUICK = ("mlp", "ranker", "lstm_tagger", "gpt")
QUICK_ENGINES = ("eager", "eager_foreach", "compile", OURS)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="python -m bench.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--models", nargs="+", choices=models.names(), help=f"instead of {' '.join(DEFAULT)}")
    result.add_argument("--engines", nargs="+", choices=list(ENGINES), help="instead of all")
    result.add_argument("--quick", action="store_true", help="4 models at 3 shapes, one engine less")
    result.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    result.add_argument("--seconds", type=float, help="measured per shape, all engines (default: 3, quick 1.5)")
    result.add_argument("--rounds", type=int, default=15, help="turns of each engine (default: 15)")
    result.add_argument("--out", type=Path, help="folder of the results (default: bench/results/training)")
    result.add_argument("--allow-dirty", action="store_true", help="measure files that differ from the commit")
    result.add_argument("--report", action="store_true", help="measure nothing, write the report again")
    return result


def main() -> None:
    """Measures, and writes the results and the report."""
    command = parser()
    args = command.parse_args()
    folder = args.out or (QUICK_RESULTS if args.quick else RESULTS)
    console = Console(width=None if os.isatty(1) else 180)
    if not args.report:
        if machine.dirty(machine.revision()) and not args.allow_dirty:
            command.error("files differ from the commit: commit them, or pass --allow-dirty")
        host = machine.measure(args.threads)
        seconds = args.seconds or (1.5 if args.quick else 3.0)
        engines = args.engines or (QUICK_ENGINES if args.quick else ENGINES)
        chosen = Settings(tuple(engines), args.threads, seconds, args.rounds, args.quick)
        for name in args.models or (QUICK if args.quick else DEFAULT):
            result = Run(name, chosen, host, lambda text: console.print(text, style="dim", highlight=False)).run()
            result.save(folder)
            show(console, result)
    results = [load(path) for path in sorted(folder.glob("*-*/*.json"))]
    if not results:
        command.error(f"no results in {folder}")
    (folder / "report.md").write_text("\n".join(markdown(results)) + "\n", encoding="utf-8")
    console.print(f"geomean of best peer/DISC over all shapes: {number(total(results))}; tables and JSON: {folder}")


def total(results: list[WorkloadResult]) -> float | None:
    """The geometric mean over models of that over their shapes."""
    return geomean(geomean(result.ratio(shape) for shape in result.shapes) for result in results)


def summary(results: list[WorkloadResult]) -> tuple[list[str], list[list[str]]]:
    """One row per model."""
    header = ["model", "shapes", "best peer/DISC", "lowest", "eager fused/DISC", "eager foreach/DISC"]
    header += [
        "compile s: torch.compile",
        "DISC",
        "recompilations: torch.compile",
        "DISC",
        "peak of steps, MiB: leanest peer",
    ]
    header += ["DISC"]
    rows = []
    for result in results:
        ratios = {shape: r for shape in result.shapes if (r := result.ratio(shape)) is not None}
        worst = min(ratios, key=lambda shape: ratios[shape], default=None)
        ours, theirs = result.engines.get(OURS), result.engines.get("compile")
        peaks = [e.peak_of_calls for name, e in result.engines.items() if name != OURS and e.peak_of_calls is not None]
        rows.append(
            [
                result.title,
                str(len(result.shapes)),
                number(geomean(ratios.values())),
                f"{ratios[worst]:.2f} at {label(worst)}" if worst else "–",
                *(
                    number(geomean(against(result, name, shape) for shape in result.shapes))
                    for name in ("eager", "eager_foreach")
                ),
                *(number(e.compile_seconds if e else None, "{:.1f}") for e in (theirs, ours)),
                *(number(e.recompilations if e else None, "{:.0f}") for e in (theirs, ours)),
                number(min(peaks) / 2**20 if peaks else None, "{:.1f}"),
                number(ours.peak_of_calls / 2**20 if ours and ours.peak_of_calls is not None else None, "{:.1f}"),
            ]
        )
    return header, [*rows, ["geomean", "", number(total(results)), *[""] * (len(header) - 3)]]


def against(result: WorkloadResult, peer: str, shape: tuple[int, ...]) -> float | None:
    """The time of one peer over ours."""
    medians = [cell.median if (cell := result.shapes[shape].get(name)) else None for name in (peer, OURS)]
    return medians[0] / medians[1] if medians[0] and medians[1] else None


def engine_table(result: WorkloadResult) -> tuple[list[str], list[list[str]]]:
    """Compile time, recompilations and memory of each engine."""
    header, rows = engine_rows(result)
    counts = {engine.title: number(engine.recompilations, "{:.0f}") for engine in result.engines.values()}
    keep = 4  # without variants, which these engines do not have
    return [*header[:keep], "recompilations"], [[*row[:keep], counts[row[0]]] for row in rows]


def markdown(results: list[WorkloadResult]) -> list[str]:
    """The report."""
    lines = ["# Training steps", "", "`python -m bench.training`. Ratios above 1 mean that DISC is faster.", ""]
    lines += [*markdown_table(*summary(results))]
    for result in results:
        lines += [
            "",
            f"## {result.title}",
            "",
            "Milliseconds per step.",
            "",
            *markdown_table(*latency_rows(result)),
            "",
        ]
        lines += [*markdown_table(*engine_table(result)), "", subtitle(result)]
        lines += [text for reason in reasons(result) for text in ("", f"✗ {reason}")]
    return lines


def show(console: Console, result: WorkloadResult) -> None:
    """Prints the tables of a model."""
    for line in [result.title, *markdown_table(*latency_rows(result)), *markdown_table(*engine_table(result))]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for reason in reasons(result):
        console.print("✗ " + reason, markup=False, highlight=False)


if __name__ == "__main__":
    main()
