"""What ``dynamic_shapes`` says of one dim beyond ``torch.export``: a hint with a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.export import Dim

from ..torch_compat.symbols import DimHint, DimHintType

AUTO = "auto"
"""In ``dynamic_shapes``: whatever can be dynamic is."""


@dataclass
class NamedHint(DimHint):
    """``Dim.DYNAMIC`` or ``Dim.AUTO`` whose symbol gets a name."""

    name: str = ""

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, name={self.name!r})"


def dynamic(name: str | None = None, **bounds: int | None) -> Any:
    """A dim that has to be dynamic, with a name for its symbol."""
    return NamedHint(DimHintType.DYNAMIC, _factory=False, name=name, **bounds) if name else Dim.DYNAMIC


def name_of(spec: Any) -> str | None:
    """The user's name for a dim: of its ``Dim``, or of the root of a derived one."""
    if isinstance(spec, str):
        return spec
    if isinstance(spec, NamedHint):
        return spec.name or None
    root = getattr(spec, "root", spec)
    # Dim.AUTO and Dim.DYNAMIC are hints, not names.
    return getattr(root, "__name__", None) if isinstance(root, Dim) else None
