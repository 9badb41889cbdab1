"""DISC compiles a PyTorch model once, for all shapes, into native code.

>>> model = disc.compile(module, args, dynamic_shapes=...)
>>> out = model(*args)

Compiling needs torch, torch-mlir and LLVM, loading a compiled library NumPy alone (``disc.load``): each part is
imported when it is first used.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from . import pipeline, targets, torch_version
from .errors import (
    BackendError,
    CompileError,
    DynamicDimError,
    LibraryError,
    SanitizerError,
    ShapeError,
    UnsupportedOp,
    UnsupportedOpError,
    WeightsError,
)
from .options import Options
from .profile import KernelTime, Launch, Profile

if TYPE_CHECKING:
    from . import backends
    from .aot import Artifact, aot_compile
    from .compiler import compile
    from .dynamo import explain
    from .exporting import export
    from .frontend import NotLowerable, lowers
    from .gradients import with_gradients
    from .guards import Guard
    from .kernels import KernelInfo
    from .lazy import LazyModel
    from .library import Library, load
    from .memory import MemoryCurve, MemoryPoint, MemoryUse
    from .model import Model
    from .quantization import quantize
    from .reporting import report
    from .training import TrainingStep, compile_training
    from .training_library import aot_compile_training
    from .trees import flatten_tree

__version__ = "0.1.1"

__all__ = [
    "Artifact",
    "BackendError",
    "CompileError",
    "DynamicDimError",
    "Guard",
    "KernelInfo",
    "KernelTime",
    "Launch",
    "LazyModel",
    "Library",
    "LibraryError",
    "MemoryCurve",
    "MemoryPoint",
    "MemoryUse",
    "Model",
    "NotLowerable",
    "Options",
    "Profile",
    "SanitizerError",
    "ShapeError",
    "TrainingStep",
    "UnsupportedOp",
    "UnsupportedOpError",
    "WeightsError",
    "aot_compile",
    "aot_compile_training",
    "backends",
    "compile",
    "compile_training",
    "explain",
    "export",
    "flatten_tree",
    "load",
    "lowers",
    "pipeline",
    "quantize",
    "report",
    "targets",
    "with_gradients",
]

# What needs more than Python: the module that a name comes from, and the extension module below that.
_LAZY = {
    "Artifact": ("aot", "_native"),
    "aot_compile": ("aot", "_native"),
    "aot_compile_training": ("training_library", "_native"),
    "compile": ("compiler", "_native"),
    "TrainingStep": ("training", "_native"),
    "compile_training": ("training", "_native"),
    "explain": ("dynamo", "_native"),
    "export": ("exporting", None),
    "flatten_tree": ("trees", None),
    "with_gradients": ("gradients", None),
    "NotLowerable": ("frontend", None),
    "lowers": ("frontend", None),
    "Library": ("library", "_runtime"),
    "load": ("library", "_runtime"),
    "Guard": ("guards", None),
    "quantization": ("quantization", None),
    "quantize": ("quantization", None),
    "report": ("reporting", "_native"),
    "KernelInfo": ("kernels", None),
    "LazyModel": ("lazy", "_native"),
    "MemoryCurve": ("memory", "_native"),
    "MemoryPoint": ("memory", "_native"),
    "MemoryUse": ("memory", "_native"),
    "Model": ("model", "_native"),
    "backends": ("backends", None),
    "coded": ("coded", None),
    "checkpoints": ("checkpoints", None),
    "gguf": ("gguf", None),
    "hf": ("hf", "_native"),
    "serve": ("serve", "_runtime"),
}

_WITHOUT_TORCH = ("library", "serve")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extension = _LAZY[name]
    if module not in _WITHOUT_TORCH:
        torch_version.check()
    if extension is not None:
        _require(name, extension)
    try:
        value = importlib.import_module(f".{module}", __name__)
        if module != name:
            value = getattr(value, name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == __name__ and importlib.util.find_spec(f".{module}", __name__) is None:
            raise ImportError(f"disc.{name} is not in disc-compiler-runtime; run: pip install disc-compiler") from error
        if missing in ("", __name__):
            raise
        raise ImportError(f"disc.{name} needs {missing}, which is not installed", name=error.name) from error
    globals()[name] = value
    return value


def _require(name: str, extension: str) -> None:
    """Raises an ImportError that says what to do if an extension module cannot be loaded."""
    try:
        module = importlib.import_module(f".{extension}", __name__)
    except ImportError as error:
        if extension == "_native" and importlib.util.find_spec(".aot", __name__) is None:
            raise ImportError(f"disc.{name} is not in disc-compiler-runtime; run: pip install disc-compiler") from error
        raise ImportError(f"disc.{name} needs disc.{extension}, which cannot be loaded ({error})") from error
    if getattr(module, "__file__", None) is None:
        # What was imported is the folder of its sources.
        raise ImportError(f"disc.{name} needs disc.{extension}, which is not built; run make")
    number = getattr(module, "version", None)
    if number is not None and (found := f"{number >> 16}.{number >> 8 & 255}.{number & 255}") != __version__:
        raise ImportError(
            f"disc {__version__} has a disc.{extension} of version {found}: two installations are mixed, or make has "
            "not built this one; run: pip install --force-reinstall --no-deps disc-compiler"
        )


_SERIALIZER = "torch._export.serde.serialize"


class _WatchSerializer:
    """Makes ``torch.ops.disc`` lazy when PyTorch is about to read or write a program.

    Programs of ``disc.export`` contain operators that ``disc.frontend`` registers. Neither torch nor the front end is
    imported together with disc, which would cost users of compiled libraries seconds. While the serializer is being
    imported, the front end cannot be: other modules of PyTorch are in the middle of their import, too.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Finds no module; it only notes which one is imported."""
        if name == _SERIALIZER:
            _register_on_demand()


def _register_on_demand() -> None:
    """Lets the first use of an unknown operator in ``torch.ops.disc`` import the front end."""
    from .torch_compat.namespace import register_on_demand

    register_on_demand("disc", _register_operators)


def _register_operators() -> None:
    try:
        importlib.import_module(".frontend", __name__)
    except ModuleNotFoundError as error:
        # Without torch-mlir compiled libraries can be loaded, and programs without our operators.
        if (error.name or "").partition(".")[0] == __name__:
            raise


if _SERIALIZER in sys.modules:
    _register_on_demand()
else:
    sys.meta_path.insert(0, _WatchSerializer)  # type: ignore[arg-type]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
