"""``disc explain``: what the compiler makes of a model: dynamic sizes, guards, operations that it does not support."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import CompileError, UnsupportedOpError
from . import commands, text

_EXAMPLES = """\
disc explain minilm.pt2
disc explain minilm.pt2 --dims input_ids=batch,length
disc explain model.onnx --json
"""
_GUARD = re.compile(r'disc_shape\.guard <(.*?)> (\w+) <(.*?)>(?: "((?:[^"\\]|\\.)*)")?.*?loc\((#?\w+|.*)\)\s*$', re.M)
_RELATIONS = {"eq": "==", "ne": "!=", "le": "<=", "lt": "<", "ge": ">=", "gt": ">", "divisible": "is a multiple of"}


@click.command(
    "explain",
    cls=commands.Command,
    short_help="Show dynamic sizes, guards and unsupported operations.",
    examples=_EXAMPLES,
)
@click.argument("model", metavar="MODEL.pt2|.onnx", type=click.Path(path_type=Path))
@click.option("--dims", metavar="INPUT=NAME,...", multiple=True, help="Names of dynamic dims, as for disc compile.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@commands.version_option
def command(model: Path, dims: tuple[str, ...], as_json: bool) -> int:
    """Explain what DISC makes of a model, without generating code.

    Prints the inputs, the dynamic sizes with their ranges, the guards that each call checks, and the operations that
    are not supported or fall back to PyTorch, each with its reason and its line of the source. The exit status is 1 if
    the model cannot be compiled as it is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        found = explain(model, dims)
    click.echo(json.dumps(found, indent=2)) if as_json else _print(found)
    return text.FAILURE if found["unsupported"] or found["error"] else 0


def explain(path: Path, dims: Sequence[str] = ()) -> dict[str, Any]:
    """What ``disc explain`` prints, as data."""
    from .compile import compile_errors, dynamic_shapes, load_model

    program = load_model(path)
    found: dict[str, Any] = {
        "model": str(path),
        "inputs": [],
        "outputs": [],
        "symbols": [],
        "guards": [],
        "unsupported": [],
        "fallbacks": [],
        "error": None,
    }
    with compile_errors():
        shapes = dynamic_shapes(program, dims) if dims else None
        try:
            _compiled(program, shapes, found)
        except UnsupportedOpError as error:
            found["unsupported"] = [{"op": o.name, "source": o.source, "reason": o.reason} for o in error.ops]
            if not isinstance(program, Path):
                _with_fallback(program, shapes, found)
        except CompileError as error:
            found["error"] = {"stage": error.stage, "message": error.diagnostic, "source": error.source}
    return found


def _compiled(program: Any, shapes: Any, found: dict[str, Any], fallback: bool = False) -> None:
    """The facts of a model that reaches the memory stage."""
    from .. import _native, compile
    from ..interface import SymbolSpec, TensorSpec
    from ..options import Options

    options = Options(stop_after="memory", target="cpu", code_cache=False, progress=None)
    model = compile(program, dynamic_shapes=shapes, options=options, fallback=fallback)
    interface = _native.Module.parse(model.ir("memory")).interface()
    if interface is None:
        raise CompileError("memory", "the model has no interface after this stage")
    for what in ("inputs", "outputs"):
        found[what] = [str(TensorSpec(*spec)) for spec in interface[what]]
    found["symbols"] = [str(SymbolSpec(*spec)) for spec in interface["symbols"]]
    found["guards"] = guards(model.ir("shape", locations=True))
    found["fallbacks"] = [{"op": f.name, "source": f.source} for f in model.fallbacks]


def _with_fallback(program: Any, shapes: Any, found: dict[str, Any]) -> None:
    """What would be done by PyTorch with ``disc.compile(fallback=True)``."""
    try:
        _compiled(program, shapes, found, fallback=True)
    except CompileError as error:
        found["error"] = {"stage": error.stage, "message": error.diagnostic, "source": error.source}


def guards(ir: str) -> list[dict[str, str]]:
    """The guards in the text of a module that has locations."""
    places = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", ir, re.M))
    found = []
    for left, relation, right, message, place in _GUARD.findall(ir):
        condition = f"{left} {_RELATIONS.get(relation, relation)} {right}"
        found.append({"condition": condition, "message": message, "source": _source(place, places)})
    return found


def _source(place: str, places: Mapping[str, str]) -> str:
    """The innermost ``file:line`` of a location; "" if it has none."""
    pending, seen = [place], set()
    while pending:
        current = pending.pop(0)
        if match := re.search(r'"([^"]+)":(\d+)', current):
            return f"{match[1]}:{match[2]}"
        for name in re.findall(r"#loc\d*", current):
            if name not in seen:
                seen.add(name)
                pending.append(places.get(name, ""))
    return ""


def _print(found: Mapping[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    console = text.console()

    def section(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], none: str) -> None:
        if not rows:
            console.print(f"[bold]{title}[/]: {none}")
            return
        table = Table(*columns, box=box.SIMPLE_HEAD, title=f"[bold]{title}[/]", title_justify="left", show_lines=False)
        for row in rows:
            table.add_row(*(_plain(cell) for cell in row))
        console.print(table)

    if found["inputs"]:
        tensors = [("input", *spec.split(": ", 1)) for spec in found["inputs"]]
        tensors += [("output", *spec.split(": ", 1)) for spec in found["outputs"]]
        section("Tensors", ("", "name", "type"), tensors, "none")
        section(
            "Dynamic sizes", ("symbol", "range"), [s.split(": ", 1) for s in found["symbols"]], "all sizes are static"
        )
        rows = [(g["condition"], g["message"], g["source"]) for g in found["guards"]]
        section("Guards, checked at each call", ("condition", "message", "source"), rows, "none beyond the ranges")
    rows = [(o["op"], o["reason"], o["source"]) for o in found["unsupported"]]
    section("Unsupported operations", ("operation", "reason", "source"), rows, "none")
    if found["fallbacks"]:
        section(
            "With disc.compile(fallback=True) PyTorch runs",
            ("operation", "source"),
            [(o["op"], o["source"]) for o in found["fallbacks"]],
            "none",
        )
    if found["error"]:
        where = f"\n  at {found['error']['source']}" if found["error"]["source"] else ""
        console.print(f"[bold]Error[/] in stage {found['error']['stage']}: {_plain(found['error']['message'])}{where}")
    elif not found["unsupported"]:
        console.print("The model compiles.")


def _plain(cell: str) -> str:
    """Text that rich must not take for markup."""
    from rich.markup import escape

    return escape(cell)
