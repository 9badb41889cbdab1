"""``disc run``: what a compiled library is, and how fast it runs on random inputs. A library needs NumPy alone."""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..interface import DTYPES, SymbolSpec, TensorSpec
from . import commands, text
from .saved_model import SavedModel, as_tensor, is_saved

if TYPE_CHECKING:
    from ..library import Library

_RUN_ERROR = text.FAILURE
_USAGE_ERROR = text.USAGE
# As torch and MLIR write element types in short.
_SHORT = {"i1": "bool", "bf16": "bfloat16"} | {
    f"{letter}{bits}": f"{name}{bits}"
    for letter, name in (("f", "float"), ("i", "int"), ("u", "uint"))
    for bits in (8, 16, 32, 64)
    if f"{name}{bits}" in DTYPES
}

_EXAMPLES = """\
disc run libminilm.so --info
disc run libminilm.so batch=8 length=64
disc run minilm.disc batch=8,length=64
disc run libminilm.so --input 8x64xi64 --input attention_mask=8x64xi64
"""


@click.command("run", cls=commands.Command, short_help="Run a compiled library on random inputs.", examples=_EXAMPLES)
@click.argument("library", metavar="LIBRARY.so|MODEL.disc")
@click.argument("symbols", metavar="[SYMBOL=VALUE,...]...", nargs=-1)
@click.option("--input", metavar="[NAME=]2x8xi64", multiple=True, help="Shape and dtype of an input, in order.")
@click.option("--info", is_flag=True, help="Only print what the library is.")
@click.option("--weights", metavar="FILE", help="Take the weights from this safetensors file.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of one call (default: all cores).")
@click.option(
    "--repeat", type=click.IntRange(1), default=20, show_default=True, help="Runs to measure after the first."
)
@click.option(
    "--high", type=click.IntRange(1), default=2, show_default=True, help="Integer inputs are from 0 to HIGH-1."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random inputs.")
@commands.version_option
def command(**options: Any) -> None:
    """Run a compiled library, or a model that model.save wrote, on random inputs; print shapes and times.

    SYMBOL=VALUE sets a dynamic size; other symbols get their least value. A library needs NumPy, no torch, no compiler.
    """
    _command(argparse.Namespace(**options))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command as ``disc-run``; returns its exit status."""
    return commands.run(command, "disc-run", argv)


def load_library(path: str, threads: int | None = None, weights: str | None = None) -> Library | SavedModel:
    """Loads a library, or a saved model, with errors of a command."""
    try:
        import numpy  # noqa: F401  (for the message)

        from .. import Library, load

        if is_saved(path):
            if weights is not None:
                _fail(f"--weights is for a library, and {path} is a saved model, which has its weights", _USAGE_ERROR)
            return SavedModel(path, threads)
        library = load(path, threads=threads, weights=weights)
    except (OSError, ImportError, MemoryError) as error:
        _fail(text.reason(error))
    except ValueError as error:
        _fail(str(error), _USAGE_ERROR)
    assert isinstance(library, Library)
    return library


def _command(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    library = load_library(args.library, args.threads, args.weights)
    elapsed = time.perf_counter() - start
    if args.info:
        print(_info(library, args.library))
        return
    shapes = _shapes(library, args)
    try:
        print(_run(library, shapes, args, elapsed))
    except (ValueError, TypeError, IndexError, MemoryError) as error:
        _fail(text.reason(error))


def _info(library: Library | SavedModel, path: str) -> str:
    facts = [
        (
            "model" if isinstance(library, SavedModel) else "library",
            f"{library.name} ({text.size(Path(path).stat().st_size)})",
        ),
        ("made by", f"disc {library.version}"),
        ("code for", library.cpu),
        ("threads", str(library.threads)),
    ]
    for what, specs in (("input", library.inputs), ("output", library.outputs), ("symbol", library.symbols)):
        facts += [(what, str(spec)) for spec in specs]
    sizes = [math.prod(map(int, spec.dims)) * spec.itemsize for spec in library.parameters]
    facts.append(("weights", f"{len(sizes)} tensors, {text.size(sum(sizes))}"))
    return text.columns(facts)


def symbol_values(specs: Sequence[SymbolSpec], items: Sequence[str], least: int = 0) -> dict[str, int]:
    """The value of each symbol that SYMBOL=VALUE sets, and the least one of the others, from ``least``."""
    values = {spec.name: -(-max(spec.min, least) // spec.divisor) * spec.divisor for spec in specs}
    for item in (part for listed in items for part in listed.split(",") if part):
        name, _, value = item.partition("=")
        if name not in values:
            known = ", ".join(values) or "there are none"
            _fail(f"{item!r}: the model has no symbol {name!r}; its symbols: {known}", _USAGE_ERROR)
        if not value.isdecimal():
            _fail(f"{item!r}: expected {name}=NUMBER", _USAGE_ERROR)
        values[name] = int(value)
    return values


def _shapes(library: Library | SavedModel, args: argparse.Namespace) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input, from the command line or from the values of symbols."""
    values = symbol_values(library.symbols, args.symbols)
    result = {spec.name: (extents(spec, values), spec.dtype) for spec in library.inputs}
    unnamed = list(result)
    for item in args.input:
        name, _, shape = item.rpartition("=")
        if not name and unnamed:
            name = unnamed[0]
        if name not in unnamed:
            _fail(f"--input {item}: {'no such input' if name else 'there are not so many inputs'}", _USAGE_ERROR)
        unnamed.remove(name)
        result[name] = _parse_shape(item, shape)
    return result


def extents(spec: TensorSpec, values: Mapping[str, int]) -> tuple[int, ...]:
    """The shape at these values of the symbols."""
    try:
        return tuple(dim.evaluate(values) for dim in spec.expressions())
    except ZeroDivisionError:
        _fail(f"the shape of {spec} divides by 0 at these values", _USAGE_ERROR)


def _parse_shape(item: str, shape: str) -> tuple[tuple[int, ...], str]:
    match = re.fullmatch(r"((?:\d+x)*)([a-z]+\d*)", shape)
    dtype = _SHORT.get(match[2], match[2]) if match else ""
    if match is None or dtype not in DTYPES:
        _fail(f"--input {item}: expected a shape and a dtype, such as 2x8xi64 or f32", _USAGE_ERROR)
    return tuple(int(extent) for extent in match[1].split("x")[:-1]), dtype


def random_array(generator: Any, shape: tuple[int, ...], dtype: str, high: int) -> Any:
    """Random numbers: integers from 0 to ``high - 1``, others of the normal distribution."""
    import numpy as np

    if dtype == "bfloat16":
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            _fail("inputs of bfloat16 need the package ml_dtypes")
        return generator.standard_normal(shape, dtype=np.float32).astype(bfloat16)
    if dtype.startswith("float"):
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    return np.asarray(generator.integers(0, 2 if dtype == "bool" else high, size=shape)).astype(dtype)


def _run(
    library: Library | SavedModel, shapes: Mapping[str, tuple[tuple[int, ...], str]], args: Any, load_time: float
) -> str:
    import numpy as np

    generator = np.random.default_rng(args.seed)
    inputs = {name: random_array(generator, shape, dtype, args.high) for name, (shape, dtype) in shapes.items()}
    given = {n: as_tensor(array) for n, array in inputs.items()} if isinstance(library, SavedModel) else inputs
    times = []
    for _ in range(args.repeat + 1):
        start = time.perf_counter()
        results = library(**given)
        times.append(time.perf_counter() - start)
    outputs = results if isinstance(results, tuple) else (results,)
    rows = [("input", f"{name}: {array.dtype}{list(array.shape)}") for name, array in inputs.items()]
    rows += [
        ("output", f"{spec.name}: {str(array.dtype).removeprefix('torch.')}{list(array.shape)}")
        for spec, array in zip(library.outputs, outputs, strict=True)
    ]
    rows.append(("load", text.seconds(load_time)))
    rows.append(("first run", text.seconds(times[0])))
    best, median = text.seconds(min(times[1:])), text.seconds(statistics.median(times[1:]))
    rows.append(("runs", f"{args.repeat} with {library.threads} threads: median {median}, best {best}"))
    return text.columns(rows)


def _fail(message: str, status: int = _RUN_ERROR) -> NoReturn:
    text.fail(message, status)


if __name__ == "__main__":
    sys.exit(main())
