"""Where the time of calls goes, kernel by kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import tables

PERFETTO_SUFFIXES = (".pftrace", ".perfetto-trace")
"""Suffixes of traces in Perfetto's own format."""


@dataclass(frozen=True)
class Launch:
    """One kernel run over all of its tasks."""

    kernel: str
    kind: str
    """``"contraction"``, ``"attention"``, ``"row"``, ``"column"``, ``"loop"`` or ``"pack"``."""
    source: str
    """Where the program asks for it, ``"model.py:12"``; of a fused kernel, where its first operation does."""
    begin_ns: int
    end_ns: int
    tasks: int

    @property
    def seconds(self) -> float:
        """From the launch until all its tasks were done."""
        return (self.end_ns - self.begin_ns) * 1e-9


@dataclass(frozen=True)
class Call:
    """One call of a compiled model, without what Python does with the arguments before and the results afterwards."""

    model: str
    """The model's name, :attr:`disc.Model.name`."""
    begin_ns: int
    """On the clock of :func:`time.monotonic_ns`, as ``end_ns`` and the times of launches."""
    end_ns: int
    thread: int
    """The operating system's number of the thread that called."""
    extents: Mapping[str, int] = field(default_factory=dict)
    """The values of the symbols in the shapes of the inputs."""
    failed: bool = False
    """Whether it ended with an exception."""

    @property
    def seconds(self) -> float:
        """From begin to end."""
        return (self.end_ns - self.begin_ns) * 1e-9


@dataclass
class KernelTime:
    """All launches of one kernel."""

    kernel: str
    kind: str
    source: str
    launches: int = 0
    seconds: float = 0.0


@dataclass
class Profile:
    """The calls and launches that a profile has seen; made by :meth:`disc.Model.profile`."""

    launches: list[Launch] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """In the order in which they ended. A call that several threads make at once is one entry for each."""
    model: Any = field(default=None, repr=False, compare=False)
    """The :class:`disc.Model`; None in a profile that was pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "model": None}

    def kernels(self) -> list[KernelTime]:
        """One entry per kernel, the most expensive first."""
        totals: dict[str, KernelTime] = {}
        for launch in self.launches:
            entry = totals.setdefault(launch.kernel, KernelTime(launch.kernel, launch.kind, launch.source))
            entry.launches += 1
            entry.seconds += launch.seconds
        return sorted(totals.values(), key=lambda entry: -entry.seconds)

    def seconds(self, kind: str | None = None) -> float:
        """Time inside kernels, or inside those of one kind."""
        return sum(launch.seconds for launch in self.launches if kind in (None, launch.kind))

    def save(self, path: str | Path) -> None:
        """Writes a timeline: calls, kernels, and the memory that they use.

        ``trace.pftrace`` and ``trace.perfetto-trace`` are Perfetto's own format, for https://ui.perfetto.dev, and need
        the package ``perfetto``. Any other name is the Chrome trace format, which has the kernels alone, for Perfetto
        and chrome://tracing.

        Raises:
            ImportError: the package ``perfetto`` is missing; the message says how to install it.
            OSError: the file cannot be written.
        """
        if Path(path).suffix in PERFETTO_SUFFIXES:
            from .viewers import perfetto

            perfetto.save_profile(self, path)
            return
        events = [
            {
                "name": launch.kernel,
                "cat": launch.kind,
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": launch.begin_ns / 1e3,
                "dur": (launch.end_ns - launch.begin_ns) / 1e3,
                "args": {"source": launch.source, "tasks": launch.tasks},
            }
            for launch in self.launches
        ]
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")

    def _repr_html_(self) -> str:
        total = self.seconds() or 1.0
        rows = [
            (f"{k.seconds * 1e6:.1f}", f"{k.seconds / total:.1%}", k.launches, k.kind, k.source, k.kernel)
            for k in self.kernels()
        ]
        columns = ("µs", "share", "launches", "kind", "line", "kernel")
        title = f"Profile: {self.seconds() * 1e3:.3f} ms in {len(self.launches)} launches"
        return tables.html(title, columns, rows, right=(0, 1, 2))

    def __str__(self) -> str:
        total = self.seconds() or 1.0
        lines = [f"{'us':>10} {'share':>6} {'launches':>8}  {'kind':11}  {'source':24}  kernel"]
        lines += [
            f"{k.seconds * 1e6:10.1f} {k.seconds / total:6.1%} {k.launches:8}  {k.kind:11}  {k.source:24}  {k.kernel}"
            for k in self.kernels()
        ]
        return "\n".join(lines)
