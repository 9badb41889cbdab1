"""DISC compiles a PyTorch model once, for all shapes, into native code.

>>> model = disc.compile(module, args, dynamic_shapes=...)
>>> out = model(*args)
"""

try:
    from . import _native  # noqa: F401  (before anything else, for the message)
except ImportError as error:
    raise ImportError(f"disc's native module cannot be loaded; run make to build it ({error})") from error

from . import pipeline
from .compiler import compile
from .errors import CompileError, ShapeError, UnsupportedOp, UnsupportedOpError
from .frontend import NotLowerable, lowers
from .model import MemoryUse, Model
from .options import Options
from .profile import KernelTime, Launch, Profile

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "KernelTime",
    "Launch",
    "MemoryUse",
    "Model",
    "NotLowerable",
    "Options",
    "Profile",
    "ShapeError",
    "UnsupportedOp",
    "UnsupportedOpError",
    "compile",
    "lowers",
    "pipeline",
]
