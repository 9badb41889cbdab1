"""``disc explain``: what is dynamic in a model, what falls back, and which lines of its source are slow."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import CompileError, UnsupportedOpError
from . import commands, text

if TYPE_CHECKING:
    from rich.console import Console

    from .model_files import Opened

_EXAMPLES = """\
disc explain minilm.pt2
disc explain minilm.pt2 --dims input_ids=batch,length batch=8 length=64
disc explain model.onnx --no-run --json
"""
_CALLS = 5
_LINES = 5
"""The slowest lines that are shown."""
_ROWS = 6
"""Rows of each table: all of the answer is on one screen, and --json has the rest."""

_SHRINKING = ("code", "message", "of", "reason", "why")
"""Columns that a narrow terminal cuts; numbers are never cut."""


@click.command(
    "explain",
    cls=commands.Command,
    short_help="Show dynamic sizes, guards, fallbacks and the slowest lines.",
    examples=_EXAMPLES,
)
@click.argument("model", metavar="MODEL.pt2|.onnx|.disc", type=click.Path(path_type=Path))
@click.argument("sizes", metavar="[SYMBOL=VALUE]...", nargs=-1)
@click.option("--dims", metavar="INPUT=NAME,...", multiple=True, help="Names of dynamic dims, as for disc compile.")
@click.option("--run/--no-run", default=True, show_default=True, help="Run the model to find its slowest lines.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of one call (default: all cores).")
@click.option("--backend", "backends", metavar="NAME", multiple=True, help="An external back end, as for disc compile.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all guards, dims and lines.")
@commands.version_option
def command(
    model: Path,
    sizes: tuple[str, ...],
    dims: tuple[str, ...],
    run: bool,
    threads: int | None,
    backends: tuple[str, ...],
    as_json: bool,
) -> int:
    """Explain on one screen what DISC makes of a model.

    Prints the dynamic sizes and why they are dynamic, the guards that each call checks, the operations that are not
    supported or fall back to PyTorch with their reasons, and the slowest lines of the source with the part of this
    machine's limit that they reach. The model runs with the sizes of its example inputs, or 16, unless SYMBOL=VALUE
    sets others; with --no-run nothing is run and no code is generated. The exit status is 1 if the model cannot be
    compiled as it is.
    """
    from .model_files import parse_sizes

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        found = explain(model, dims, sizes=parse_sizes(sizes), run=run, threads=threads, backends=backends)
    click.echo(json.dumps(found, indent=2)) if as_json else _print(found)
    return text.FAILURE if found["unsupported"] or found["error"] else 0


def explain(
    path: Path,
    dims: Sequence[str] = (),
    *,
    sizes: Mapping[str, int] | None = None,
    run: bool = False,
    threads: int | None = None,
    backends: Sequence[str] = (),
) -> dict[str, Any]:
    """What ``disc explain`` prints, as data."""
    from .compile import compile_errors
    from .model_files import open_model

    stop_after = None if run else "memory"
    found: dict[str, Any] = {
        "model": str(path),
        "inputs": [],
        "outputs": [],
        "symbols": [],
        "sizes": [],
        "dims": [],
        "guards": [],
        "unsupported": [],
        "fallbacks": [],
        "backends": [],
        "error": None,
        "run": None,
    }
    opened = None
    with compile_errors():
        try:
            opened = open_model(path, dims, threads=threads, stop_after=stop_after, backends=backends)
        except UnsupportedOpError as error:
            found["unsupported"] = [{"op": o.name, "source": o.source, "reason": o.reason} for o in error.ops]
            if path.suffix != ".onnx":
                opened = _with_fallback(path, dims, threads, stop_after, found)
        except CompileError as error:
            found["error"] = {"stage": error.stage, "message": error.diagnostic, "source": error.source}
    if opened is not None:
        _describe(opened, found)
        if run:
            found["run"] = _measured(opened, sizes or {})
    return found


def _with_fallback(
    path: Path, dims: Sequence[str], threads: int | None, stop_after: str | None, found: dict[str, Any]
) -> Opened | None:
    """The model with the operations that PyTorch would run with ``disc.compile(fallback=True)``."""
    from .model_files import open_model

    try:
        return open_model(path, dims, threads=threads, fallback=True, stop_after=stop_after)
    except CompileError as error:
        found["error"] = {"stage": error.stage, "message": error.diagnostic, "source": error.source}
        return None


def _describe(opened: Opened, found: dict[str, Any]) -> None:
    """The facts of a model that reached the memory stage."""
    from .. import _native
    from ..interface import SymbolSpec, TensorSpec
    from ..reporting.facts import sizes

    model = opened.model
    interface = _native.Module.parse(model.ir("memory")).interface()
    if interface is None:
        raise CompileError("memory", "the model has no interface after this stage")
    for what in ("inputs", "outputs"):
        found[what] = [str(TensorSpec(*spec)) for spec in interface[what]]
    known = sizes(model)
    symbols = {symbol.name: symbol for symbol in known.symbols}
    for spec in interface["symbols"]:
        symbol = SymbolSpec(*spec)
        name, _, limits = str(symbol).partition(": ")
        entry = {"name": name, "range": limits, "places": "", "reason": ""}
        if name in symbols:
            entry |= {"places": known.places(symbols[name]), "reason": known.reason(symbols[name])}
        found["symbols"].append(str(symbol))
        found["sizes"].append(entry)
    found["dims"] = [
        {"input": d.input, "dim": d.dim, "size": d.size, "dynamic": d.dynamic, "reason": d.reason} for d in known.dims
    ]
    found["guards"] = [{"condition": g.condition, "message": g.message, "source": g.source} for g in known.guards]
    found["fallbacks"] = [{"op": f.op, "source": f.source, "reason": f.reason} for f in model.fallbacks]
    found["backends"] = [
        {
            "op": d.op,
            "source": d.source,
            "backend": d.backend,
            "region": d.region,
            "pattern": d.pattern,
            "when": d.when,
            "refusals": [{"backend": r.backend, "pattern": r.pattern, "reason": r.reason} for r in d.refusals],
        }
        for d in model.backends
    ]


def _measured(opened: Opened, given: Mapping[str, int]) -> dict[str, Any]:
    """The slowest lines of a call; ``note`` says why if there are none."""
    from ..reporting.calls import calls_for
    from ..reporting.facts import machine_limits
    from ..reporting.measurement import measure
    from ..source_lines import line_of
    from .model_files import call_errors

    model = opened.model
    try:
        (call,) = calls_for(model, None, [given], opened.example)
        limits = machine_limits(model)
        measured = measure(model, call, _CALLS, limits)
    except (ValueError, TypeError, IndexError, RuntimeError, MemoryError) as error:
        if given:
            text.fail(call_errors(error), text.USAGE)
        return {"note": f"the model did not run with example inputs: {call_errors(error)}", "lines": []}
    lines = [
        {
            "source": line.source,
            "code": line_of(line.file, line.number),
            "seconds": line.seconds,
            "share": line.share,
            "of_limit": line.of_limit,
            "bound": line.bound,
        }
        for line in measured.lines()
        if line.seconds
    ]
    return {
        "note": "",
        "sizes": dict(call.extents),
        "threads": model.threads,
        "seconds": measured.seconds,
        "kernel_share": measured.kernel_share,
        "limits": None
        if limits is None
        else {
            "flops": limits.flops,
            "cache_bandwidth": limits.cache_bandwidth,
            "memory_bandwidth": limits.memory_bandwidth,
        },
        "lines": lines,
    }


def _print(found: Mapping[str, Any]) -> None:
    console = text.console()
    if found["inputs"]:
        for what in ("inputs", "outputs"):
            console.print(f"[bold]{what.capitalize()}[/]: {_plain(_listed(found[what]))}", soft_wrap=False)
        rows: list[tuple[str, ...]] = [
            (s["name"], s["range"], s["places"] or "computed", s["reason"]) for s in found["sizes"]
        ]
        _section(console, "Dynamic sizes", ("size", "range", "of", "why"), rows, "all sizes are static")
        static = [
            f"{d['input']} dim {d['dim']} = {d['size']} ({d['reason']})" for d in found["dims"] if not d["dynamic"]
        ]
        if static:
            console.print(f"[bold]Static[/]: {_plain(_listed(static))}")
        rows = [(g["condition"], g["message"], _short(g["source"])) for g in found["guards"]]
        _section(
            console, "Guards, checked at each call", ("condition", "message", "line"), rows, "none beyond the ranges"
        )
    rows = [(o["op"], o["reason"], _short(o["source"])) for o in found["unsupported"]]
    _section(console, "Unsupported operations", ("operation", "reason", "line"), rows, "none")
    if found["fallbacks"]:
        rows = [(f["op"], f["reason"], _short(f["source"])) for f in found["fallbacks"]]
        _section(
            console, "With disc.compile(fallback=True) PyTorch runs", ("operation", "reason", "line"), rows, "none"
        )
    if found["backends"]:
        rows = [
            (
                d["op"],
                f"{d['backend']}, region {d['region']}" if d["backend"] else "DISC",
                "; ".join(f"{r['backend']}: {r['reason']}" for r in d["refusals"]) or d["when"],
                _short(d["source"]),
            )
            for d in found["backends"]
        ]
        _section(console, "Back ends", ("operation", "compiled by", "why", "line"), rows, "none")
    if found["run"] is not None:
        _print_run(console, found["run"])
    if found["error"]:
        where = f"\n  at {found['error']['source']}" if found["error"]["source"] else ""
        console.print(f"[bold]Error[/] in stage {found['error']['stage']}: {_plain(found['error']['message'])}{where}")
    elif not found["unsupported"]:
        console.print("The model compiles.")


def _print_run(console: Console, run: Mapping[str, Any]) -> None:
    from .model_files import sizes_text

    if run["note"]:
        console.print(f"[bold]Slowest lines[/]: {_plain(run['note'])}")
        return
    title = (
        f"Slowest lines, {sizes_text(run['sizes'])}: {text.seconds(run['seconds'])} a call with {run['threads']} "
        f"threads, {run['kernel_share']:.0%} in kernels"
    )
    rows = []
    for line in run["lines"][:_LINES]:
        limit = "unknown" if line["of_limit"] is None else f"{line['of_limit']:.0%} of {line['bound']}"
        rows.append(
            (f"{line['share']:.1%}", text.seconds(line["seconds"]), limit, _short(line["source"]), line["code"])
        )
    columns = ("share", "time", "of the limit", "line", "code")
    _section(console, title, columns, rows, "no kernel takes longer than a microsecond", right=2)
    if (limits := run["limits"]) is not None:
        console.print(
            f"Limits, measured now: {limits['flops'] / 1e9:.0f} GFLOP/s of arithmetic, "
            f"{limits['cache_bandwidth'] / 1e9:.0f} GB/s from cache, {limits['memory_bandwidth'] / 1e9:.0f} GB/s from "
            "memory. All lines: disc report."
        )


def _section(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], none: str, right: int = 0
) -> None:
    """A table of a few rows, each on one line, or one line if there are none. ``right``: columns aligned there."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not rows:
        console.print(f"[bold]{_plain(title)}[/]: {none}")
        return
    console.print(f"[bold]{_plain(title)}[/]")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=column not in _SHRINKING, justify="right" if i < right else "left")
    for row in rows[:_ROWS]:
        # rich makes columns that may wrap narrower; these cells are cut instead.
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    console.print(table)
    if len(rows) > _ROWS:
        console.print(f"  and {len(rows) - _ROWS} more: --json lists all")


def _listed(items: Sequence[str]) -> str:
    """A few items of a list, and how many others there are."""
    more = f", and {len(items) - _ROWS} more" if len(items) > _ROWS else ""
    return ", ".join(items[:_ROWS]) + more


def _short(source: str) -> str:
    """A line without the folders."""
    return source.rpartition("/")[2]


def _plain(cell: str) -> str:
    """Text that rich must not take for markup."""
    from rich.markup import escape

    return escape(cell)
