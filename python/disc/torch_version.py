"""Which versions of PyTorch the compiler works with. Imports neither torch nor anything else of disc."""

from __future__ import annotations

import importlib.metadata

_MAJOR, _MINOR = 2, 13
"""The lowering rules are written against the operators of this version, and torch-mlir is built for it."""


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
    """Raises ImportError if the installed torch is one that the compiler does not work with."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        # Missing, which its import says, or not installed by pip: then nothing is known.
        return
    if problem := unsupported(version):
        raise ImportError(problem, name="torch")
