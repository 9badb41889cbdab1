"""Results as tables and as a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .engines import LIBRARY, OURS, STATIC
from .results import Cell, EngineResult, Shape, WorkloadResult, geomean, load


def read(folder: Path) -> list[WorkloadResult]:
    """All results of a folder."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


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
    return milliseconds(cell.median) if cell.failed is None else "✗"


def columns(result: WorkloadResult) -> list[str]:
    """The engines that have figures, ours first."""
    shown = [n for n in result.engines if any(n in cells for cells in result.shapes.values())]
    return sorted(shown, key=lambda n: (n != OURS, n != STATIC, n != LIBRARY))


def reasons(result: WorkloadResult) -> list[str]:
    """Why figures are missing, one line per engine and reason."""
    lines = [f"{e.title}: {e.failed}" for e in result.engines.values() if e.failed]
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
    header += (["dynamic/static"] if static else []) + ["best peer", "best peer/DISC"]
    rows = []
    for shape, cells in result.shapes.items():
        best = result.best_peer(shape)
        row = [label(shape), *(entry(cells.get(n)) for n in names)]
        row += [number(result.price_of_dynamism(shape))] if static else []
        rows.append([*row, result.engines[best[0]].title if best else "–", number(result.ratio(shape))])
    last = ["geomean", *[""] * len(names)]
    last += [number(geomean(result.price_of_dynamism(s) for s in result.shapes), "{:.3f}")] if static else []
    rows.append([*last, "", number(geomean(result.ratio(s) for s in result.shapes))])
    return header, rows


def engine_rows(result: WorkloadResult) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of compile time and memory."""

    def row(engine: EngineResult) -> list[str]:
        memory = [engine.peak_of_calls, engine.peak_over_weights]
        mib = [number(None if m is None else m / 2**20, "{:.0f}") for m in memory]
        return [engine.title, number(engine.compile_seconds, "{:.1f}"), *mib, engine.version]

    shape = label(result.memory_shape)
    header = ["engine", "compile s", f"peak of calls at {shape}, MiB", "process over weights, MiB", "versions"]
    return header, [row(result.engines[n]) for n in columns(result)]


def subtitle(result: WorkloadResult) -> str:
    """On what, when and how long."""
    return f"{result.machine.describe()}. {result.settings}, {result.date}, DISC at {result.machine.revision}."


def show(console: Console, result: WorkloadResult) -> None:
    """Prints both tables."""
    header, rows = latency_rows(result)
    table = Table(title=f"{result.title}: latency, ms", caption=subtitle(result), caption_justify="left")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i in (0, len(header) - 2) else "right")
    for row in rows[:-1]:
        table.add_row(*row[:-1], colored(row[-1]))
    table.add_section()
    table.add_row(*rows[-1][:-1], colored(rows[-1][-1]))
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


def colored(ratio: str) -> Text:
    """A ratio in green where we are faster, red where we are not."""
    try:
        value = float(ratio)
    except ValueError:
        return Text(ratio)
    return Text(ratio, style="bold green" if value >= 1.0 else "yellow" if value >= 0.95 else "bold red")


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
        compiled = result.engines[OURS].compile_seconds if OURS in result.engines else None
        rows.append([result.title, str(len(ratios)), number(geomean(ratios.values())), low, number(compiled, "{:.1f}")])
    return ["workload", "shapes", "geomean of best peer/DISC", "lowest", "DISC compile s"], rows


def markdown(results: Sequence[WorkloadResult], plot: str) -> str:
    """The whole report."""
    lines = ["# Latency against the best peer", ""]
    lines += ["Made by `make bench`. Medians in ms; the ratio is the time of the fastest peer at that shape over ours."]
    lines += ["", f"![ratios]({plot})", "", *markdown_table(*summary(results)), ""]
    for result in results:
        lines += [f"## {result.title}", "", subtitle(result), "", *markdown_table(*latency_rows(result)), ""]
        lines += markdown_table(*engine_rows(result))
        lines += ["", *(f"- ✗ {line}" for line in reasons(result)), ""]
    return "\n".join(lines).rstrip() + "\n"


def write(folder: Path) -> list[WorkloadResult]:
    """Makes report.md and ratios.png of a folder's JSON files."""
    from . import plot

    try:
        results = read(folder)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise SystemExit(f"{folder}: a result of another version of the bench? {error!r}") from error
    if results:
        plot.draw(results, folder / "ratios.png")
        (folder / "report.md").write_text(markdown(results, "ratios.png"), encoding="utf-8")
    return results
