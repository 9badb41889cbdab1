"""The models that are measured, one file each.

A file's name is the workload's; it has two `Workload`s: `FULL`, which is measured, and `SMALL`, the same program at
sizes that a test can afford. To add one, add a file: nothing else lists them.
"""

from __future__ import annotations

import importlib
import pkgutil

from .base import Shape, Workload

__all__ = ["Shape", "Workload", "load", "names"]


def names() -> list[str]:
    """All workloads, by the names of their files."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base")


def load(name: str, *, small: bool = False) -> Workload:
    """The workload of that name."""
    if name not in names():
        raise ValueError(f"no workload {name!r}; there are: {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    workload: Workload = module.SMALL if small else module.FULL
    return workload
