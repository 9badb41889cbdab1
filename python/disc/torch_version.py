"""Which versions of PyTorch the compiler works with. Imports neither torch nor anything else of disc."""

from __future__ import annotations

import importlib.metadata
import os
import warnings

_MAJOR, _MINOR = 2, 13
"""The lowering rules are written against the operators of this version, and torch-mlir is built for it."""
ANY = "DISC_ANY_TORCH"
"""The environment variable with which other versions are a warning instead of an error."""


def supported() -> str:
    """The versions, as pip takes them."""
    return f"{_MAJOR}.{_MINOR}.*"


def unsupported(version: str) -> str:
    """Why a version of torch does not work, in one sentence; "" if it works."""
    if version.split("+")[0].split(".")[:2] == [str(_MAJOR), str(_MINOR)]:
        return ""
    return (
        f"DISC compiles with torch {supported()}, and torch {version} is installed; "
        f"run: pip install 'torch=={supported()}'"
    )


def check() -> None:
    """Raises ImportError if the installed torch is one that the compiler does not work with; warns with ``ANY``."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        # Missing, which its import says, or not installed by pip: then nothing is known.
        return
    if problem := unsupported(version):
        if os.environ.get(ANY) != "1":
            raise ImportError(problem, name="torch")
        warnings.warn(f"{problem}; {ANY}=1 goes on, and some programs will fail", stacklevel=3)
