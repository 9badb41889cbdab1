"""Which versions of PyTorch the compiler works with. Imports neither torch nor anything else of disc."""

from __future__ import annotations

import importlib.metadata
import os
import warnings

_MAJOR, _MINORS = 2, (12, 13)
"""The lowering rules are written for the operators of the last one. The test suite runs with each;
docs/api/platforms.md has the exceptions."""
ANY = "DISC_ANY_TORCH"
"""The environment variable with which other versions are a warning instead of an error."""


def supported() -> str:
    """The versions, as pip takes them: ``">=2.12,<2.14"``."""
    return f">={_MAJOR}.{_MINORS[0]},<{_MAJOR}.{_MINORS[-1] + 1}"


def names() -> str:
    """The versions for readers: ``"2.12 and 2.13"``."""
    return " and ".join(f"{_MAJOR}.{minor}" for minor in _MINORS)


def unsupported(version: str) -> str:
    """Why a version of torch does not work, in one sentence; "" if it works."""
    if version.split("+")[0].split(".")[:2] in ([str(_MAJOR), str(minor)] for minor in _MINORS):
        return ""
    return (
        f"DISC compiles with torch {names()}, and torch {version} is installed; run: pip install 'torch{supported()}'"
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
