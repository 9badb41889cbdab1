"""Compiled models on the engines that people serve with: :mod:`disc.serve.ray`.

Importing this package imports no engine. Each needs its own extra, ``pip install "disc-compiler[ray]"``.
"""

from __future__ import annotations

import importlib
from typing import Any

from .policies import Padded, Policy, Ragged, Stacked

__all__ = ["Padded", "Policy", "Ragged", "Stacked", "ray"]


def __getattr__(name: str) -> Any:
    if name != "ray":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(".ray", __name__)
