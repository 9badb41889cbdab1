"""Calls and kernels of compiled models in ``torch.profiler``.

While a profiler of PyTorch is active, each call of a compiled model is a range ``disc: MODEL`` in it. PyTorch has no
function that adds events with times of the past, so the kernels of a call, whose times are known when it has ended,
are kept here.
:func:`export_chrome_trace` writes them into the profiler's trace and :func:`add_kernels` into its tables.
"""

from __future__ import annotations

import bisect
import gzip
import json
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import DeviceType
from torch.autograd import profiler as autograd_profiler
from torch.autograd.profiler_util import EventList, FunctionEvent

from ..logs import log
from ..recorder import RawLaunch, Recorder

PREFIX = "disc: "
"""How the names of ranges begin."""
CATEGORY = "disc_kernel"
"""The category of kernels in a Chrome trace."""

_MOST_LAUNCHES = 1 << 18
"""Launches that are kept for export; of more, those of the oldest calls are dropped."""
_MOST_CALLS = 4096
"""Calls whose launches the runtime keeps, before they are read."""
_MOST_SKEW_NS = 2_000_000
"""PyTorch's clock may differ by so much from the system's."""


class _Call(NamedTuple):
    """A call that a profiler saw."""

    name: str
    begin_ns: int
    """On the monotonic clock, as the launches' times."""
    end_ns: int
    real_ns: int
    """The real time of ``begin_ns``, since 1970."""


@dataclass
class _Recorded:
    """A call with its launches."""

    call: _Call
    launches: list[RawLaunch] = field(default_factory=list)
    others: list[RawLaunch] = field(default_factory=list)
    """Launches of this call or of one at the same time in another thread."""


@dataclass
class _Block:
    """Calls of one executable, and the launches of all of them."""

    calls: list[_Call]
    launches: list[RawLaunch]


class _Store:
    """The calls that profilers saw, as they were read: what belongs to what is found out when it is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: deque[_Block] = deque()
        self._launches = 0
        self._warned = False

    def add(self, block: _Block) -> None:
        """Keeps calls; of too many launches, the first are dropped."""
        with self._lock:
            self._blocks.append(block)
            self._launches += len(block.launches)
            while self._launches > _MOST_LAUNCHES and len(self._blocks) > 1:
                self._launches -= len(self._blocks.popleft().launches)
                if not self._warned:
                    self._warned = True
                    log.warning("the profiler runs for long: the kernels of its first calls are no longer known")

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._blocks.clear()
            self._launches = 0

    def by_name(self) -> dict[str, list[_Recorded]]:
        """The calls of each range's name, sorted by time."""
        with self._lock:
            blocks = list(self._blocks)
        found: dict[str, list[_Recorded]] = {}
        for block in blocks:
            for entry in _distributed(block):
                found.setdefault(entry.call.name, []).append(entry)
        for calls in found.values():
            calls.sort(key=lambda entry: entry.call.real_ns)
        return found


class _Session:
    """The calls of one executable while a profiler is active.

    The runtime records launches all the while, and they are read after many calls, most often when a profile is
    exported: reading takes longer than a call of a small model.
    """

    def __init__(self, recorder: Recorder) -> None:
        # A model that is dropped while a profiler is active is freed.
        self._recorder = weakref.ref(recorder)
        self._recording = recorder.start(calls=False)
        self._calls: list[_Call] = []
        self._lock = threading.Lock()
        # The runtime stops when a call finds that the profiler has ended.
        recorder.before_next(self.end)

    def add(self, call: _Call) -> None:
        """Keeps a call that has ended."""
        self._calls.append(call)
        if len(self._calls) >= _MOST_CALLS:
            self.read()

    def read(self) -> None:
        """Hands the calls so far to the store."""
        with self._lock:
            calls, self._calls = self._calls, []
            recorder = self._recorder()
            if calls and recorder is not None:
                _store.add(_Block(calls, recorder.read(self._recording)))

    def end(self) -> None:
        """Stops recording."""
        recorder = self._recorder()
        with _sessions_lock:
            if recorder is None or _sessions.get(recorder) is not self:
                return
            del _sessions[recorder]
        recorder.before_next(None)
        self.read()
        recorder.stop(self._recording)


def _distributed(block: _Block) -> list[_Recorded]:
    """Calls with their launches. Calls in several threads may overlap: a launch then belongs to one of them."""
    found = [_Recorded(call) for call in block.calls]
    waiting = sorted(found, key=lambda entry: -entry.call.begin_ns)
    running: list[_Recorded] = []
    for launch in sorted(block.launches, key=lambda launch: launch[3]):
        while waiting and waiting[-1].call.begin_ns <= launch[3]:
            running.append(waiting.pop())
        running = [entry for entry in running if launch[3] <= entry.call.end_ns]
        if running:
            (running[0].launches if len(running) == 1 else running[0].others).append(launch)
    return found


_store = _Store()
_sessions: weakref.WeakKeyDictionary[Recorder, _Session] = weakref.WeakKeyDictionary()
_sessions_lock = threading.RLock()


def clear() -> None:
    """Forgets the kernels that were recorded so far; profiles that are already exported keep theirs."""
    _read()
    _store.clear()


def run(name: str, recorder: Recorder, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Runs a call of the model ``name`` as a range of the active profiler, and keeps its launches for export."""
    session = _sessions.get(recorder)
    if session is None:
        with _sessions_lock:
            session = _sessions.get(recorder)
            if session is None:
                session = _sessions[recorder] = _Session(recorder)
    name = PREFIX + name
    with _RecordFunctionFast(name):
        begin, real = time.monotonic_ns(), time.time_ns()
        try:
            return recorder.plain(inputs)
        finally:
            session.add(_Call(name, begin, time.monotonic_ns(), real))


def _read() -> None:
    """Stores what every executable has recorded, and ends recording if no profiler is active."""
    with _sessions_lock:
        sessions = list(_sessions.values())
    for session in sessions:
        if autograd_profiler._is_profiler_enabled:
            session.read()
        else:
            session.end()


def export_chrome_trace(profiler: torch.profiler.profile, path: str | os.PathLike[str]) -> int:
    """Writes what ``profiler.export_chrome_trace`` writes, with the kernels of compiled models.

    >>> with torch.profiler.profile() as profiler:
    ...     model(x)
    >>> torch_profiler.export_chrome_trace(profiler, "trace.json")

    Args:
        profiler: a profiler that has ended, or the argument of an ``on_trace_ready`` function.
        path: a file ``.json`` or ``.json.gz``.

    Returns:
        How many kernels were added.

    Raises:
        OSError: the file cannot be written.
    """
    profiler.export_chrome_trace(os.fspath(path))
    return add_to_trace(path)


def add_to_trace(path: str | os.PathLike[str]) -> int:
    """Adds the kernels to a Chrome trace that a profiler of this process wrote; returns how many there are.

    Kernels are in the row of their call. They are in a row of their own if they run on after the call, as on a GPU,
    or if several threads called the model at the same time, so that the call is unknown.
    """
    path = Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    base_ns = int(trace.get("baseTimeNanoseconds", 0))
    ranges = [e for e in events if e.get("ph") == "X" and str(e.get("name", "")).startswith(PREFIX)]
    added: list[dict[str, Any]] = []
    for found, entry in _matched(ranges, lambda e: base_ns + round(e["ts"] * 1000), lambda e: e["name"]):
        call = entry.call
        inside = all(launch[4] <= call.end_ns for launch in entry.launches)
        apart = f"kernels of {call.name}"
        rows = [(launch, found["tid"] if inside else apart) for launch in entry.launches]
        for (kernel, kind, source, begin, end, tasks), row in [*rows, *((other, apart) for other in entry.others)]:
            added.append(
                {
                    "ph": "X",
                    "cat": CATEGORY,
                    "name": kernel,
                    "pid": found["pid"],
                    "tid": row,
                    "ts": found["ts"] + (begin - call.begin_ns) / 1000,
                    "dur": (end - begin) / 1000,
                    "args": {"kind": kind, "source": source, "tasks": tasks},
                }
            )
    events += added
    with opened(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file)
    return len(added)


def add_kernels(profiler: torch.profiler.profile) -> int:
    """Adds the kernels to ``profiler.events()`` and ``profiler.key_averages()``; returns how many there are.

    Their time is then no longer the calls' own (``self_cpu_time_total``). A second call adds none.

    >>> torch_profiler.add_kernels(profiler)
    >>> print(profiler.key_averages().table(sort_by="self_cpu_time_total"))
    """
    events: EventList | None = profiler.events()
    if events is None:
        return 0
    start_ns = profiler.profiler.kineto_results.trace_start_ns()  # type: ignore[union-attr]
    ranges = [e for e in events if e.name.startswith(PREFIX) and not any(c.name for c in _kernels_of(e))]
    added: list[FunctionEvent] = []
    number = max((e.id for e in events), default=0)
    for found, entry in _matched(ranges, lambda e: start_ns + round(e.time_range.start * 1000), lambda e: e.name):
        for kernel, _, source, begin, end, _ in (*entry.launches, *entry.others):
            number += 1
            start_us = found.time_range.start + (begin - entry.call.begin_ns) / 1000
            event = FunctionEvent(
                id=number,
                name=f"{kernel} ({source})" if source else kernel,
                thread=found.thread,
                start_us=start_us,
                end_us=start_us + (end - begin) / 1000,
                device_type=DeviceType.CPU,
                overload_name="",
                is_legacy=False,
                stack=[],
                input_shapes=[],
            )
            event.trace_name = CATEGORY
            found.append_cpu_child(event)
            event.set_cpu_parent(found)
            added.append(event)
    events.extend(added)
    return len(added)


def _kernels_of(event: Any) -> Iterator[Any]:
    return (child for child in event.cpu_children if getattr(child, "trace_name", None) == CATEGORY)


def _matched(
    ranges: Sequence[Any], real_ns: Callable[[Any], int], name: Callable[[Any], str]
) -> Iterator[tuple[Any, _Recorded]]:
    """Each range of a profiler with the call that it is of: the one of its name that began at the same time."""
    _read()
    calls = _store.by_name()
    times = {key: [entry.call.real_ns for entry in found] for key, found in calls.items()}
    taken: set[int] = set()
    for item in sorted(ranges, key=real_ns):
        known, at = times.get(name(item), []), real_ns(item)
        place = bisect.bisect_left(known, at)
        near = [n for n in (place - 1, place, place + 1) if 0 <= n < len(known)]
        near = [n for n in near if abs(known[n] - at) <= _MOST_SKEW_NS and id(calls[name(item)][n]) not in taken]
        if near:
            best = calls[name(item)][min(near, key=lambda n: abs(known[n] - at))]
            taken.add(id(best))
            yield item, best
