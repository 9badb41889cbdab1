"""Which versions of PyTorch the compiler works with. Imports neither torch nor anything else of disc."""

from __future__ import annotations

import importlib.metadata

_MAJOR, _FIRST, _LAST = 2, 11, 13
"""The lowering rules are written against the operators of the last minor version, and torch-mlir is built for it. The
suites of tests pass with all of them."""


def supported() -> str:
    """The versions, as pip takes them."""
    return f">={_MAJOR}.{_FIRST},<{_MAJOR}.{_LAST + 1}"


def unsupported(version: str) -> str:
    """Why a version of torch does not work, in one sentence; "" if it works."""
    numbers = version.split("+")[0].split(".")[:2]
    if numbers in [[str(_MAJOR), str(minor)] for minor in range(_FIRST, _LAST + 1)]:
        return ""
    return (
        f"DISC compiles with torch {_MAJOR}.{_FIRST} to {_MAJOR}.{_LAST}, and torch {version} is installed; "
        f"run: pip install 'torch{supported()}'"
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
