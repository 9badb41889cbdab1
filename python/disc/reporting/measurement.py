"""Where the time of a call goes: kernel by kernel, and line by line of the user's program."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import torch

from .limits import Limits

if TYPE_CHECKING:
    from ..kernels import KernelInfo
    from ..model import Model
    from ..profile import Launch
    from .calls import Call

WARM_UPS = 2


@dataclass(frozen=True)
class KernelRun:
    """All launches of one kernel in one call."""

    name: str
    kind: str
    sources: tuple[str, ...]
    """``"path/model.py:12"`` of each line with an operation in it, the one that the time belongs to first."""
    reason: str
    """Why these operations are one kernel."""
    launches: int
    """Launches of one call; 0 if they were not recorded: the kernel is always over within a microsecond."""
    seconds: float
    """Of one call: the median over the calls."""
    operations: int | None
    """Scalar operations of one call; None if they depend on data."""
    size: int | None
    """Bytes that one launch must read and write; None if they depend on data."""
    limits: Limits | None = field(repr=False)

    @property
    def source(self) -> str:
        """The line that the time belongs to; "" if there is none."""
        return self.sources[0] if self.sources else ""

    @property
    def bytes(self) -> int | None:
        """Bytes that one call must read and write."""
        return None if self.size is None else self.size * self.launches

    @property
    def intensity(self) -> float | None:
        """Operations per byte."""
        return self.operations / self.bytes if self.operations is not None and self.bytes else None

    @property
    def flops(self) -> float | None:
        """Operations per second."""
        return self.operations / self.seconds if self.operations is not None and self.seconds else None

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second."""
        return self.bytes / self.seconds if self.bytes is not None and self.seconds else None

    @property
    def least_seconds(self) -> float | None:
        """The time of one call if this machine's limit were reached."""
        if self.limits is None or self.operations is None or self.size is None or not self.launches:
            return None
        return self.launches * self.limits.seconds(self.operations // self.launches, self.size)

    @property
    def of_limit(self) -> float | None:
        """The part of the machine's limit that is reached: 1 is the limit."""
        least = self.least_seconds
        return least / self.seconds if least is not None and self.seconds else None

    @property
    def bound(self) -> str:
        """What limits it: ``"arithmetic"``, ``"cache"``, ``"memory"``; "" if unknown."""
        if self.limits is None or self.operations is None or self.size is None or not self.launches:
            return ""
        return self.limits.bound(self.operations // self.launches, self.size)


@dataclass(frozen=True)
class Line:
    """A line of the user's program, with the kernels that the compiler made of it."""

    source: str
    kernels: tuple[KernelRun, ...]
    """Kernels whose time belongs to this line: their main operation is here."""
    fused: tuple[KernelRun, ...]
    """Kernels of other lines that contain an operation of this one."""
    share: float
    """Of the time of all kernels."""

    @property
    def file(self) -> str:
        """The path of the file, or what stands for it."""
        return self.source.rpartition(":")[0]

    @property
    def number(self) -> int:
        """From 1; 0 if unknown."""
        number = self.source.rpartition(":")[2]
        return int(number) if number.isdecimal() else 0

    @property
    def short(self) -> str:
        """``"model.py:12"``."""
        return PurePath(self.source).name

    @property
    def seconds(self) -> float:
        """Of the kernels that the line's time is made of, in one call."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def of_limit(self) -> float | None:
        """The part of the machine's limit that its kernels reach; None if their work is unknown."""
        known = [(k.least_seconds, k.seconds) for k in self.kernels if k.least_seconds is not None and k.seconds]
        if len(known) != len([k for k in self.kernels if k.seconds]) or not known:
            return None
        return sum(least or 0.0 for least, _ in known) / sum(seconds for _, seconds in known)

    @property
    def bound(self) -> str:
        """What limits its slowest kernel."""
        return max(self.kernels, key=lambda kernel: kernel.seconds).bound if self.kernels else ""


@dataclass(frozen=True)
class Measurement:
    """One call of a model, measured several times."""

    name: str
    """The sizes of the dynamic dims."""
    extents: Mapping[str, int]
    calls: int
    seconds: float
    """The median time of a call without profiling."""
    outside_seconds: float
    """Outside of recorded kernels, in one call: checks, launches, short kernels. The median, as all of these."""
    kernel_share: float
    """The part of a call's time inside recorded kernels."""
    kernels: tuple[KernelRun, ...]
    """Those that calls launch, the most expensive first."""
    unrecorded: tuple[str, ...]
    """Names of kernels that are over within a microsecond, which are called directly."""

    @property
    def kernel_seconds(self) -> float:
        """Inside recorded kernels, in one call."""
        return sum(kernel.seconds for kernel in self.kernels)

    def lines(self) -> list[Line]:
        """The lines of the program with a kernel, the most expensive first."""
        own: dict[str, list[KernelRun]] = {}
        fused: dict[str, list[KernelRun]] = {}
        for kernel in self.kernels:
            if kernel.source:
                own.setdefault(kernel.source, []).append(kernel)
            for source in kernel.sources[1:]:
                fused.setdefault(source, []).append(kernel)
        total = self.kernel_seconds or 1.0
        found = []
        for source in dict.fromkeys([*own, *fused]):
            kernels = tuple(own.get(source, ()))
            share = sum(kernel.seconds for kernel in kernels) / total
            found.append(Line(source, kernels, tuple(fused.get(source, ())), share))
        return sorted(found, key=lambda line: -line.seconds)


def measure(model: Model, call: Call, calls: int, limits: Limits | None) -> Measurement:
    """Calls a model, and profiles as many calls again.

    State that the model updates has its old value afterwards.
    """
    seconds: list[float] = []
    profiled: list[float] = []
    profiles: list[list[Launch]] = []
    with state_restored(model), torch.no_grad():
        for _ in range(WARM_UPS):
            run(model, call)
        for _ in range(calls):
            inputs = call.copy()
            start = time.perf_counter()
            model(*inputs.args, **inputs.kwargs)
            seconds.append(time.perf_counter() - start)
        for _ in range(calls):
            inputs = call.copy()
            with model.profile() as profile:
                start = time.perf_counter()
                model(*inputs.args, **inputs.kwargs)
                profiled.append(time.perf_counter() - start)
            profiles.append(profile.launches)
    # Of the same call: what disturbs a call is in both.
    sums = [sum(launch.seconds for launch in launches) for launches in profiles]
    parts = list(zip(profiled, sums, strict=True))
    kernels, unrecorded = _kernel_runs(model.kernels(**call.extents), profiles, limits)
    return Measurement(
        name=call.name,
        extents=dict(call.extents),
        calls=calls,
        seconds=statistics.median(seconds),
        outside_seconds=statistics.median(max(0.0, whole - inside) for whole, inside in parts),
        kernel_share=statistics.median(min(1.0, inside / whole) if whole else 0.0 for whole, inside in parts),
        kernels=tuple(kernels),
        unrecorded=tuple(unrecorded),
    )


def run(model: Any, call: Call) -> Any:
    """The results of a call, whose arguments keep their values."""
    inputs = call.copy()
    return model(*inputs.args, **inputs.kwargs)


@contextlib.contextmanager
def state_restored(model: Model) -> Iterator[None]:
    """Restores the tensors that calls update afterwards."""
    before = {name: tensor.detach().clone() for name, tensor in model.state().items()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, tensor in model.state().items():
                tensor.copy_(before[name])


def _kernel_runs(
    infos: Sequence[KernelInfo], profiles: Sequence[Sequence[Launch]], limits: Limits | None
) -> tuple[list[KernelRun], list[str]]:
    """What was launched, and the names of kernels that calls run without recording them."""
    launches: dict[str, list[list[float]]] = {}
    first: dict[str, Launch] = {}
    for number, profile in enumerate(profiles):
        for launch in profile:
            first.setdefault(launch.kernel, launch)
            launches.setdefault(launch.kernel, [[] for _ in profiles])[number].append(launch.seconds)
    known = {info.name: info for info in infos}
    runs = []
    for name, launch in first.items():
        info = known.get(name)
        count = round(statistics.median(len(times) for times in launches[name]))
        # What a function or PyTorch does with an element is not known.
        operations = None if info is None or info.operations is None or info.kind == "call" else info.operations * count
        size = None if info is None or info.reads is None or info.writes is None else info.reads + info.writes
        runs.append(
            KernelRun(
                name=name,
                kind=launch.kind,
                sources=_main_first(info.sources if info else (), launch.source),
                reason=info.reason if info else "",
                launches=count,
                seconds=statistics.median(sum(times) for times in launches[name]),
                operations=operations,
                size=size,
                limits=limits,
            )
        )
    unrecorded = [info.name for info in infos if info.name not in first and set(info.launches) - {"init"}]
    return sorted(runs, key=lambda kernel: -kernel.seconds), unrecorded


def _main_first(sources: Sequence[str], main: str) -> tuple[str, ...]:
    """The lines of a kernel, first the one that a profile shows, of which ``main`` has the file's name alone."""
    found = next((source for source in sources if PurePath(source).name == main), None)
    if found is None:
        return tuple(sources) if sources or not main else (main,)
    return (found, *(source for source in sources if source != found))
