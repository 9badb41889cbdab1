"""What the kernels of a compiled model compute, before any of them runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of a compiled model, at some sizes of its dynamic dims; made by :meth:`disc.Model.kernels`."""

    name: str
    """As in a profile (:attr:`disc.profile.Launch.kernel`)."""
    kind: str
    """``"contraction"``, ``"convolution"``, ``"attention"``, ``"row"``, ``"column"``, ``"loop"``, ``"pack"`` or
    ``"call"``."""
    reason: str
    """Why these operations are one kernel."""
    sources: tuple[str, ...]
    """``"path/model.py:12"`` for each line of the program that an operation of the kernel comes from, in order."""
    launches: Mapping[str, int]
    """How many places of the host code launch it: ``"main"``, ``"init"`` (when weights are packed), or a procedure. A
    place in a loop launches once per iteration."""
    operations: int | None
    """Additions, products, comparisons and math functions of one launch. None if a size has no value."""
    reads: int | None
    """Bytes of its operands, each once. None if a size has no value."""
    writes: int | None
    """Bytes of its results. None if a size has no value."""

    @property
    def source(self) -> str:
        """The first of :attr:`sources` without folders, ``"model.py:12"``; "" if there is none."""
        return PurePath(self.sources[0]).name if self.sources else ""

    @property
    def intensity(self) -> float | None:
        """Operations for each byte that must be moved."""
        if self.operations is None or self.reads is None or self.writes is None or self.reads + self.writes == 0:
            return None
        return self.operations / (self.reads + self.writes)
