"""``disc bench``: how long a model takes at each of several shapes, beside eager PyTorch if there is a .pt2 file."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from ..interface import SymbolSpec, TensorSpec
from . import commands, text
from .saved_model import SavedModel, as_tensor, tensor_spec

_EXAMPLES = """\
disc bench libminilm.so batch=1,length=16 batch=8,length=128
disc bench minilm.pt2 --dims input_ids=batch,length batch=1,length=16
disc bench libminilm.so --eager minilm.pt2 batch=1,length=16
disc bench minilm.disc batch=8,length=128
"""
_PERCENTILES = (50, 90, 99)


@click.command(
    "bench",
    cls=commands.Command,
    short_help="Measure a model at several shapes, beside eager PyTorch.",
    examples=_EXAMPLES,
)
@click.argument("model", metavar="LIBRARY.so|MODEL.pt2|.onnx|.disc")
@click.argument("shapes", metavar="[SYMBOL=VALUE,...]...", nargs=-1)
@click.option(
    "--eager",
    metavar="MODEL.pt2",
    type=click.Path(path_type=Path),
    help="Compare a library or a saved model with this one.",
)
@click.option("--dims", metavar="INPUT=NAME,...", multiple=True, help="Names of dynamic dims, as for disc compile.")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True, help="Time for each shape."
)
@click.option("--calls", type=click.IntRange(3), default=20, show_default=True, help="The fewest calls for each shape.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of one call (default: all cores).")
@click.option("--weights", metavar="FILE", help="Take a library's weights from this safetensors file.")
@click.option(
    "--high", type=click.IntRange(1), default=2, show_default=True, help="Integer inputs are from 0 to HIGH-1."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@commands.version_option
def command(**options: Any) -> None:
    """Measure a model at several shapes: median, percentiles and the best time of a call.

    A .pt2 or ONNX model is compiled first. A .pt2 model is also run by eager PyTorch, in turns with DISC, at the same
    number of threads, and the results are compared. A shape is a list SYMBOL=VALUE,...; symbols that it does not name
    get their least value.
    """
    _bench(argparse.Namespace(**options))


class _Subject(NamedTuple):
    """What is measured."""

    inputs: Sequence[TensorSpec]
    symbols: Sequence[SymbolSpec]
    threads: int
    call: Callable[..., Any]
    eager: Callable[..., Any] | None
    notes: list[str]
    takes_tensors: bool = False
    """Whether inputs are torch tensors, not NumPy arrays."""


def _bench(args: argparse.Namespace) -> None:
    from .run import extents, random_array, symbol_values

    _import_numpy()
    subject = _library(args) if not args.model.endswith((".pt2", ".onnx")) else _compiled(args)
    results = []
    for shape in args.shapes or ("",):
        # Nothing can be said of empty tensors.
        values = symbol_values(subject.symbols, [item for item in shape.split(",") if item], least=1)
        import numpy as np

        generator = np.random.default_rng(args.seed)
        arrays = [random_array(generator, extents(spec, values), spec.dtype, args.high) for spec in subject.inputs]
        try:
            results.append(_measure(subject, values, arrays, args))
        except (ValueError, TypeError, IndexError, MemoryError) as error:
            text.fail(f"{shape or 'the least shape'}: {text.reason(error)}")
    if args.as_json:
        click.echo(json.dumps({"threads": subject.threads, "shapes": results}, indent=2))
    else:
        _print(subject, results)


def _import_numpy() -> None:
    """NumPy, or an error of a command."""
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        text.fail(text.reason(error))


def _library(args: argparse.Namespace) -> _Subject:
    from .run import load_library

    library = load_library(args.model, args.threads, args.weights)
    eager = None
    if args.eager is not None:
        from .compile import load_model

        program = load_model(args.eager)
        if isinstance(program, Path):
            text.fail(f"--eager {args.eager}: only a .pt2 model runs in eager PyTorch", text.USAGE)
        eager = _eager(program, library.threads)
    takes_tensors = eager is not None or isinstance(library, SavedModel)
    return _Subject(library.inputs, library.symbols, library.threads, library, eager, [], takes_tensors)


def _compiled(args: argparse.Namespace) -> _Subject:
    from .. import compile
    from ..options import Options
    from .compile import compile_errors, dynamic_shapes, load_model

    for name in ("eager", "weights"):
        if getattr(args, name) is not None:
            text.fail(f"--{name} is for a library, and {args.model} is a model", text.USAGE)
    program = load_model(Path(args.model))
    shapes = dynamic_shapes(program, args.dims) if args.dims else None
    start = time.perf_counter()
    with compile_errors():
        model = compile(program, dynamic_shapes=shapes, options=Options(threads=args.threads))
    notes = [f"compiled in {text.seconds(time.perf_counter() - start)}"]
    inputs = [tensor_spec(entry.name, entry.dtype, entry.dims) for entry in model.inputs]
    symbols = [SymbolSpec(s.name, s.min, s.max, computed=s.data_dependent) for s in model.symbols]
    if isinstance(program, Path):
        return _Subject(inputs, symbols, model.threads, model, None, notes, True)
    eager = _eager(program, model.threads)
    return _Subject(inputs, symbols, model.threads, _spread(program, model), eager, notes, True)


def _eager(program: Any, threads: int) -> Callable[..., Any]:
    import torch

    torch.set_num_threads(threads)
    run = _spread(program, program.module())

    def call(*tensors: Any) -> Any:
        with torch.no_grad():
            return run(*tensors)

    return call


def _spread(program: Any, module: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a module with tensors in the places of the example's, and all else as it was in the example."""
    import torch

    from ..torch_compat import pytree

    if program.example_inputs is None:
        text.fail("the file has no example inputs, which say what the arguments other than tensors are")
    leaves, spec = pytree.tree_flatten(program.example_inputs)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return module(*args, **kwargs)

    return call


def _measure(
    subject: _Subject, values: Mapping[str, int], arrays: Sequence[Any], args: argparse.Namespace
) -> dict[str, Any]:
    """Calls in turns, after one of each that warms up."""
    calls: dict[str, Callable[[], Any]] = {}
    inputs = [as_tensor(array) for array in arrays] if subject.takes_tensors else arrays
    calls["disc"] = lambda: subject.call(*inputs)
    if (eager := subject.eager) is not None:
        calls["eager"] = lambda: eager(*inputs)
    first = {name: call() for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + args.seconds
    while time.perf_counter() < end or len(times["disc"]) < args.calls:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    result: dict[str, Any] = {"values": dict(values)}
    for name, seconds in times.items():
        result[name] = {f"p{q}": _percentile(seconds, q) for q in _PERCENTILES}
        result[name] |= {"best": min(seconds), "calls": len(seconds)}
    if "eager" in calls:
        result["ratio"] = statistics.median(times["eager"]) / statistics.median(times["disc"])
        result["difference"] = _difference(first["disc"], first["eager"])
    return result


def _percentile(seconds: Sequence[float], percent: int) -> float:
    return sorted(seconds)[min(len(seconds) - 1, math.ceil(len(seconds) * percent / 100) - 1)]


def _difference(got: Any, expected: Any) -> float | None:
    """The largest difference of two results; None if they are not as many tensors of the same shapes."""
    import torch

    from ..torch_compat import pytree

    pairs = [[x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor)] for results in (got, expected)]
    if len(pairs[0]) != len(pairs[1]) or any(a.shape != b.shape for a, b in zip(*pairs, strict=True)):
        return None
    differences = [(a.double() - b.double()).abs().max().item() for a, b in zip(*pairs, strict=True) if a.numel()]
    return max(differences, default=0.0)


def _print(subject: _Subject, results: Sequence[Mapping[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    eager = "ratio" in results[0]
    table = Table(box=box.SIMPLE_HEAD, title=f"{subject.threads} threads; milliseconds a call", title_justify="left")
    table.add_column("shape")
    for name in [f"p{q}" for q in _PERCENTILES] + ["best", "calls"]:
        table.add_column(name, justify="right")
    if eager:
        for name in ("eager p50", "eager/DISC", "max. difference"):
            table.add_column(name, justify="right")
    for result in results:
        disc = result["disc"]
        row = [", ".join(f"{k}={v}" for k, v in result["values"].items()) or "static"]
        row += [f"{disc[name] * 1e3:.3f}" for name in (*(f"p{q}" for q in _PERCENTILES), "best")] + [str(disc["calls"])]
        if eager:
            difference = result["difference"]
            row += [f"{result['eager']['p50'] * 1e3:.3f}", f"{result['ratio']:.2f}"]
            row.append("not comparable" if difference is None else f"{difference:.1e}")
        table.add_row(*row)
    console = text.console()
    for note in subject.notes:
        console.print(note)
    console.print(table)
