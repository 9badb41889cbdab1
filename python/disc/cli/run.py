"""``disc-run``: what a compiled library is, and how fast it runs on random inputs. Needs NumPy alone."""

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

from .. import __version__
from ..interface import DTYPES, TensorSpec
from . import text

if TYPE_CHECKING:
    from ..library import Library

_COMMAND = "disc-run"
_RUN_ERROR = 1
_USAGE_ERROR = 2
# As torch and MLIR write element types in short.
_SHORT = {"i1": "bool", "bf16": "bfloat16"} | {
    f"{letter}{bits}": f"{name}{bits}"
    for letter, name in (("f", "float"), ("i", "int"), ("u", "uint"))
    for bits in (8, 16, 32, 64)
    if f"{name}{bits}" in DTYPES
}

_EPILOG = """\
examples:
  disc-run libminilm.so --info
  disc-run libminilm.so batch=8 length=64
  disc-run libminilm.so --input 8x64xi64 --input attention_mask=8x64xi64

exit status: 0; 1 if the library cannot be loaded or the run fails; 2 if the command line is wrong.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Runs a compiled library on random inputs, and prints shapes and times.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("library", metavar="LIBRARY.so")
    add("symbols", metavar="SYMBOL=VALUE", nargs="*", help="the value of a dynamic extent; others get their least")
    add("--input", metavar="[NAME=]2x8xi64", action="append", default=[], help="shape and dtype of an input, in order")
    add("--info", action="store_true", help="only print what the library is")
    add("--weights", metavar="FILE", help="take the weights from this safetensors file")
    add("--threads", type=int, metavar="N", help="threads of one call (default: all cores)")
    add("--repeat", type=int, metavar="N", default=20, help="runs to measure after a first one (default: %(default)s)")
    add("--high", type=int, metavar="N", default=2, help="integer inputs are from 0 to N-1 (default: %(default)s)")
    add("--seed", type=int, metavar="N", default=0, help="of the random inputs (default: %(default)s)")
    add("--version", action="version", version=f"disc {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = _parser().parse_args(argv)
    if args.repeat < 1 or args.high < 1:
        _fail("--repeat and --high: expected a number from 1", _USAGE_ERROR)
    try:
        import numpy  # noqa: F401  (for the message)

        from .. import load

        start = time.perf_counter()
        library = load(args.library, threads=args.threads, weights=args.weights)
        elapsed = time.perf_counter() - start
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.strerror and error.filename else str(error))
    except (ImportError, MemoryError) as error:
        _fail(str(error))
    except ValueError as error:
        _fail(str(error), _USAGE_ERROR)
    if args.info:
        print(_info(library, args.library))
        return 0
    shapes = _shapes(library, args)
    try:
        print(_run(library, shapes, args, elapsed))
    except (ValueError, TypeError, IndexError, MemoryError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


def _info(library: Library, path: str) -> str:
    facts = [
        ("library", f"{library.name} ({text.size(Path(path).stat().st_size)})"),
        ("made by", f"disc {library.version}"),
        ("code for", library.cpu),
        ("threads", str(library.threads)),
    ]
    for what, specs in (("input", library.inputs), ("output", library.outputs), ("symbol", library.symbols)):
        facts += [(what, str(spec)) for spec in specs]
    sizes = [math.prod(map(int, spec.dims)) * spec.itemsize for spec in library.parameters]
    facts.append(("weights", f"{len(sizes)} tensors, {text.size(sum(sizes))}"))
    return text.columns(facts)


def _shapes(library: Library, args: argparse.Namespace) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input, from the command line or from the values of symbols."""
    values = {spec.name: max(spec.min, spec.divisor if spec.min > 0 else 0) for spec in library.symbols}
    for item in args.symbols:
        name, _, value = item.partition("=")
        if name not in values:
            known = ", ".join(values) or "none"
            _fail(f"{item!r}: the library has no symbol {name!r}; its symbols: {known}", _USAGE_ERROR)
        if not value.isdecimal():
            _fail(f"{item!r}: expected {name}=NUMBER", _USAGE_ERROR)
        values[name] = int(value)
    result = {spec.name: (_extents(spec, values), spec.dtype) for spec in library.inputs}
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


def _extents(spec: TensorSpec, values: Mapping[str, int]) -> tuple[int, ...]:
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


def _random(generator: Any, shape: tuple[int, ...], dtype: str, high: int) -> Any:
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


def _run(library: Library, shapes: Mapping[str, tuple[tuple[int, ...], str]], args: Any, load_time: float) -> str:
    import numpy as np

    generator = np.random.default_rng(args.seed)
    inputs = {name: _random(generator, shape, dtype, args.high) for name, (shape, dtype) in shapes.items()}
    times = []
    for _ in range(args.repeat + 1):
        start = time.perf_counter()
        results = library(**inputs) if inputs else library()
        times.append(time.perf_counter() - start)
    outputs = results if isinstance(results, tuple) else (results,)
    rows = [("input", f"{name}: {array.dtype}{list(array.shape)}") for name, array in inputs.items()]
    rows += [
        ("output", f"{spec.name}: {array.dtype}{list(array.shape)}")
        for spec, array in zip(library.outputs, outputs, strict=True)
    ]
    rows.append(("load", text.seconds(load_time)))
    rows.append(("first run", text.seconds(times[0])))
    best, median = text.seconds(min(times[1:])), text.seconds(statistics.median(times[1:]))
    rows.append(("runs", f"{args.repeat} with {library.threads} threads: median {median}, best {best}"))
    return text.columns(rows)


def _fail(message: str, status: int = _RUN_ERROR) -> NoReturn:
    text.fail(_COMMAND, message, status)


if __name__ == "__main__":
    sys.exit(main())
