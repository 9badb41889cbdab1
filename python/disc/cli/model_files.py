"""Models that commands compile or load, with example arguments and the module to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import text

if TYPE_CHECKING:
    from ..model import Model
    from ..reporting.calls import Call


class Opened(NamedTuple):
    """A model that can be called."""

    model: Model
    example: Call | None
    """The example arguments that a .pt2 file has."""
    reference: Callable[..., Any] | None
    """The module in eager PyTorch; None for an ONNX model and for a saved one."""


def open_model(
    path: Path,
    dims: Sequence[str] = (),
    *,
    threads: int | None = None,
    fallback: bool = False,
    stop_after: str | None = None,
    backends: Sequence[str] = (),
) -> Opened:
    """Compiles a .pt2 or an ONNX model, or loads what ``model.save`` wrote.

    Raises:
        CompileError: the model cannot be compiled.
        CommandError: the file is not a model, or is a library.
    """
    from ..options import Options
    from .compile import dynamic_shapes, load_model

    if _is_saved(path):
        if dims:
            text.fail("--dims is for models that are compiled; a saved model has its dims", text.USAGE)
        return Opened(_load(path, threads), None, None)
    program = load_model(path)
    shapes = dynamic_shapes(program, dims) if dims else None
    from .. import compile

    options = Options(stop_after=stop_after, target="cpu", threads=threads, backends=tuple(backends))
    if stop_after is not None:
        options = replace(options, code_cache=False)
    model = compile(program, dynamic_shapes=shapes, options=options, fallback=fallback)
    if isinstance(program, Path):
        return Opened(model, None, None)
    return Opened(model, example_call(model, program.example_inputs), program.module())


def example_call(model: Model, example: Any) -> Call | None:
    """The example arguments of an exported program as a call; None if the file has none."""
    from ..reporting.calls import Call, extents_of

    if example is None:
        return None
    args, kwargs = example
    return Call(tuple(args), dict(kwargs), extents_of(model, args, kwargs))


def eager_module(path: Path) -> Callable[..., Any]:
    """The module of a .pt2 file, to compare a saved model with."""
    from .compile import load_model

    program = load_model(path)
    if isinstance(program, Path):
        text.fail(f"--eager {path}: only a .pt2 model runs in eager PyTorch", text.USAGE)
    return program.module()


def parse_sizes(items: Sequence[str]) -> dict[str, int]:
    """What SYMBOL=VALUE says, one item each."""
    sizes = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name or not value.isdecimal():
            text.fail(f"{item!r}: expected SYMBOL=NUMBER", text.USAGE)
        sizes[name] = int(value)
    return sizes


def call_errors(error: Exception) -> str:
    """An error of a call with example arguments, in one line."""
    return text.reason(error).splitlines()[0]


def _is_saved(path: Path) -> bool:
    from .. import library

    try:
        saved = library._is_saved(path)
    except OSError as error:
        text.fail(text.reason(error))
    if not saved and path.suffix in (".so", ".a", ".o"):
        text.fail(
            f"{path} is a library, which has no kernels to show; give the .pt2 or ONNX model, or what model.save wrote"
        )
    return saved


def _load(path: Path, threads: int | None) -> Model:
    from .. import load
    from ..errors import LibraryError
    from ..model import Model

    try:
        model = load(path, threads=threads)
    except (LibraryError, OSError, ImportError) as error:
        text.fail(text.reason(error))
    assert isinstance(model, Model)
    return model


def sizes_text(sizes: Mapping[str, int]) -> str:
    """``"batch=8, length=64"``."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "static sizes"
