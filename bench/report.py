"""Results as tables and as a plot."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .engines import LIBRARY, NATIVE, OURS, STATIC
from .machine import dirty
from .results import FEW_ROUNDS, Cell, EngineResult, Shape, WorkloadResult, geomean, load


def read(folder: Path) -> list[WorkloadResult]:
    """All results below a folder, section by section."""
    folders = [below for below in sorted(folder.iterdir()) if re.fullmatch(r"[a-z0-9]+-\d+", below.name)]
    return [load(path) for below in folders for path in sorted(below.glob("*.json"))]


def by_section(results: Sequence[WorkloadResult]) -> dict[str, list[WorkloadResult]]:
    """Results that belong into one table."""
    found: dict[str, list[WorkloadResult]] = {}
    for result in results:
        found.setdefault(result.section, []).append(result)
    return found


def section_title(result: WorkloadResult) -> str:
    """What the results of a section have in common."""
    isa = "all instructions" if result.isa == NATIVE else f"{result.isa.upper()} only"
    threads = result.machine.threads
    return f"{isa}, {threads} thread{'s' * (threads > 1)}"


def label(shape: Shape) -> str:
    """A shape as people write it."""
    return "×".join(map(str, shape))


def milliseconds(seconds: float | None) -> str:
    """Three significant digits."""
    if seconds is None:
        return "–"
    ms = seconds * 1e3
    return f"{ms:.0f}" if ms >= 100 else f"{ms:#.3g}".rstrip(".")


def number(value: float | None, pattern: str = "{:.2f}") -> str:
    """A figure, or a dash."""
    return "–" if value is None else pattern.format(value)


def entry(cell: Cell | None) -> str:
    """What a table shows of one engine at one shape."""
    if cell is None:
        return "–"
    if cell.failed is not None:
        return "✗"
    # A peer that is not near the fastest has few rounds.
    rough = "~" * (0 < len(cell.rounds) <= FEW_ROUNDS)
    return rough + milliseconds(cell.median)


def ratio_entry(result: WorkloadResult, shape: Shape) -> list[str]:
    """The ratio, its interval, and what follows."""
    interval = result.interval(shape)
    if interval is None:
        return [number(result.ratio(shape)), "–", "–"]
    return [number(result.ratio(shape)), f"{interval.low:.2f}–{interval.high:.2f}", interval.verdict]


def columns(result: WorkloadResult) -> list[str]:
    """The engines that have figures, ours first."""
    shown = [n for n in result.engines if any(n in cells for cells in result.shapes.values())]
    return sorted(shown, key=lambda n: (n != OURS, n != STATIC, n != LIBRARY))


def reasons(result: WorkloadResult) -> list[str]:
    """Why figures are missing, one line per engine and reason."""
    lines = [f"{e.title}: {e.failed}" for e in result.engines.values() if e.failed]
    for engine in result.engines.values():
        for variant, figure in engine.variants.items():
            if figure and not figure[0].isdigit() and figure != engine.failed:
                lines.append(f"{engine.title}, {variant}: {figure}")
    for name, engine in result.engines.items():
        failures: dict[str, list[Shape]] = {}
        for shape, cells in result.shapes.items():
            failed = cells.get(name, Cell()).failed
            if failed:
                failures.setdefault(failed, []).append(shape)
        lines += [f"{engine.title} at {', '.join(map(label, shapes))}: {why}" for why, shapes in failures.items()]
    return lines


def latency_rows(result: WorkloadResult) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of times, with the ratio in the last column."""
    names = columns(result)
    static = STATIC in names
    header = ["×".join(result.dims), *(result.engines[n].title for n in names)]
    header += (["dynamic/static"] if static else []) + ["best peer", "best peer/DISC", "95 %", "DISC is"]
    rows = []
    for shape, cells in result.shapes.items():
        best = result.best_peer(shape)
        row = [label(shape), *(entry(cells.get(n)) for n in names)]
        row += [number(result.price_of_dynamism(shape))] if static else []
        rows.append([*row, result.engines[best[0]].title if best else "–", *ratio_entry(result, shape)])
    last = ["geomean", *[""] * len(names)]
    last += [number(geomean(result.price_of_dynamism(s) for s in result.shapes), "{:.3f}")] if static else []
    rows.append([*last, "", number(geomean(result.ratio(s) for s in result.shapes)), "", ""])
    return header, rows


def engine_rows(result: WorkloadResult) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of compile time and memory."""

    def row(engine: EngineResult) -> list[str]:
        memory = [engine.peak_of_calls, engine.peak_over_weights]
        mib = [number(None if m is None else m / 2**20, "{:.0f}") for m in memory]
        figures = {name: figure.partition(";")[0] for name, figure in engine.variants.items()}
        tried = ", ".join(f"{name} {figure if figure[:1].isdigit() else '✗'}" for name, figure in figures.items())
        return [engine.title, number(engine.compile_seconds, "{:.1f}"), *mib, engine.version, engine.variant, tried]

    shape = label(result.memory_shape)
    header = ["engine", "compile s", f"peak of calls at {shape}, MiB", "process over weights, MiB", "versions"]
    header += ["variant", "variants tried, time over the fastest's"]
    return header, [row(result.engines[n]) for n in columns(result)]


def subtitle(result: WorkloadResult) -> str:
    """On what, when and how long, and how much others disturbed it."""
    repeated = sum(d.repeated for d in result.disturbances.values())
    kept = sum(d.kept for d in result.disturbances.values())
    disturbed = f"; {repeated} rounds repeated because other programs ran, {kept} kept although they did"
    disturbed = disturbed if result.disturbances else ""
    if dirty(result.machine.revision):
        disturbed = " and files that differ from it" + disturbed
    return (
        f"{result.machine.describe()}. {result.settings}, {result.date}, DISC at {result.machine.revision}{disturbed}."
    )


def show(console: Console, result: WorkloadResult) -> None:
    """Prints both tables."""
    header, rows = latency_rows(result)
    table = Table(title=f"{result.title}: latency, ms", caption=subtitle(result), caption_justify="left")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i in (0, len(header) - 4) else "right")
    for row in rows:
        if row is rows[-1]:
            table.add_section()
        table.add_row(*row[:-3], colored(row[-3], row[-1]), *row[-2:])
    console.print(table)
    header, rows = engine_rows(result)
    table = Table()
    for i, name in enumerate(header):
        table.add_column(name, justify="right" if 0 < i < 4 else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in reasons(result):
        console.print("✗ " + line, markup=False, highlight=False)
    console.print()


def colored(ratio: str, verdict: str) -> Text:
    """A ratio in green where we are faster, red where we are not."""
    return Text(ratio, style={"faster": "bold green", "slower": "bold red"}.get(verdict, ""))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def summary(results: Sequence[WorkloadResult]) -> tuple[list[str], list[list[str]]]:
    """One row per workload."""
    rows = []
    for result in results:
        ratios = {shape: r for shape in result.shapes if (r := result.ratio(shape)) is not None}
        worst = min(ratios, key=lambda s: ratios[s], default=None)
        low = f"{ratios[worst]:.2f} at {label(worst)}" if worst else "–"
        intervals = [interval for shape in ratios if (interval := result.interval(shape)) is not None]
        verdicts = [interval.verdict for interval in intervals]
        counts = [str(verdicts.count(verdict)) if verdicts else "–" for verdict in ("faster", "same", "slower")]
        mean = number(geomean(ratios.values()))
        rows.append([result.title, str(len(ratios)), mean, low, *counts, *_compile_seconds(result)])
    header = ["workload", "shapes", "geomean of best peer/DISC", "lowest", "faster", "same", "slower"]
    return [*header, "compile s: DISC", *("torch.compile", "AOTInductor", "ONNX Runtime", "OpenVINO")], rows


def _compile_seconds(result: WorkloadResult) -> list[str]:
    names = (OURS, "inductor", "aotinductor", "onnx_runtime", "openvino_pt")
    return [number(result.engines[n].compile_seconds if n in result.engines else None, "{:.1f}") for n in names]


def revisions(results: Sequence[WorkloadResult]) -> str:
    """Of what a table is: it should be one commit."""
    found = sorted({result.machine.revision for result in results})
    if len(found) == 1:
        return f"DISC at {found[0]}" + (" and files that differ from it." if dirty(found[0]) else ".")
    return f"**Not of one revision of DISC**, but of {', '.join(found)}."


def markdown(results: Sequence[WorkloadResult], plot: str) -> str:
    """The report of a section."""
    lines = [f"# Latency against the best peer: {section_title(results[0])}", ""]
    lines += [
        "Made by `make bench`. Medians in ms; the ratio is the time of the fastest peer at that shape over ours, with "
        "its 95 % bootstrap interval over rounds. DISC is *faster* or *slower* where the interval excludes 1. A time "
        f"with ~ is of {FEW_ROUNDS} rounds: that peer is not near the fastest."
    ]
    lines += ["", f"{results[0].machine.describe()}. {revisions(results)}", ""]
    lines += [f"![ratios]({plot})", "", *markdown_table(*summary(results)), ""]
    for result in results:
        lines += [f"## {result.title}", "", subtitle(result), "", *markdown_table(*latency_rows(result)), ""]
        lines += markdown_table(*engine_rows(result))
        lines += ["", *(f"- ✗ {line}" for line in reasons(result)), ""]
    return "\n".join(lines).rstrip() + "\n"


def overview(sections: dict[str, list[WorkloadResult]]) -> str:
    """The page that leads to the reports of all sections: the geomeans side by side."""
    lines = [
        "# Latency against the best peer",
        "",
        "Made by `make bench`: time of the fastest peer over ours, geomean over",
    ]
    lines += ["shapes, in each section's own run.", ""]
    for name, results in sections.items():
        lines += [f"- [{section_title(results[0])}]({name}/report.md): {len(results)} workloads. {revisions(results)}"]
    titles = list(dict.fromkeys(result.title for results in sections.values() for result in results))
    means = {
        (name, result.title): number(geomean(result.ratio(shape) for shape in result.shapes))
        for name, results in sections.items()
        for result in results
    }
    header = ["workload", *(section_title(results[0]) for results in sections.values())]
    rows = [[title, *(means.get((name, title), "–") for name in sections)] for title in titles]
    return "\n".join([*lines, "", *markdown_table(header, rows)]) + "\n"


def write(folder: Path) -> list[WorkloadResult]:
    """Makes report.md and ratios.png of each section, and a report.md that leads to them."""
    from . import plot

    try:
        results = read(folder)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise SystemExit(f"{folder}: a result of another version of the bench? {error!r}") from error
    sections = by_section(results)
    for name, members in sections.items():
        plot.draw(members, folder / name / "ratios.png")
        (folder / name / "report.md").write_text(markdown(members, "ratios.png"), encoding="utf-8")
    if results:
        (folder / "report.md").write_text(overview(sections), encoding="utf-8")
    return results
