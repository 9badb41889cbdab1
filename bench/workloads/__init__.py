"""The models that are measured, one file each.

A file's name is the workload's; it has two `Workload`s: `FULL`, which is measured, and `SMALL`, the same program at
sizes that a test can afford. To add one, add a file: nothing else lists them. A folder is a family, whose name comes
before that of its workloads.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from .base import Shape, Workload

__all__ = ["Shape", "Workload", "families", "load", "names"]

_SHARED = {"base", "network"}


def families() -> dict[str, list[str]]:
    """The workloads of each family."""
    folder = Path(__file__).parent
    return {
        m.name: sorted(
            f"{m.name}_{w.name}" for w in pkgutil.iter_modules([str(folder / m.name)]) if w.name not in _SHARED
        )
        for m in pkgutil.iter_modules([str(folder)])
        if m.ispkg
    }


def names(*, members: bool = True) -> list[str]:
    """All workloads, by the names of their files; those of families only if asked for."""
    single = [m.name for m in pkgutil.iter_modules(__path__) if m.name not in _SHARED and not m.ispkg]
    return sorted(single + [name for family in families().values() for name in family if members])


def load(name: str, *, small: bool = False) -> Workload:
    """The workload of that name."""
    if name not in names():
        raise ValueError(f"no workload {name!r}; there are: {', '.join(names())}")
    family = next((f for f, members in families().items() if name in members), None)
    path = name if family is None else f"{family}.{name.removeprefix(family + '_')}"
    module = importlib.import_module(f"{__name__}.{path}")
    workload: Workload = module.SMALL if small else module.FULL
    return workload
