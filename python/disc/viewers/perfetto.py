"""Traces in Perfetto's own format: calls, kernels and memory of a profile, and the parts of a compilation.

https://ui.perfetto.dev opens the files. Times are those of the monotonic clock, and each trace has a snapshot of the
system's clocks, so that it can be viewed beside traces that other tools took at the same time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentValueError
from ..profile import PERFETTO_SUFFIXES, Call, Launch, Profile
from ..timeline import Span
from . import model_of, required
from .launches import Walk, by_call, owners

if TYPE_CHECKING:
    from ..model import Model
    from ..training import TrainingStep

_SEQUENCE = 1
"""The one sequence of packets of a trace."""


def save_profile(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Writes the calls, the launches and the arena memory of a profile.

    The tracks of the process ``disc: MODEL`` are ``calls`` (one for each calling thread), ``kernels`` (several if
    launches overlap in time), and the counters ``arena in use`` and ``arena allocated``, in bytes. Calls have the
    extents of the symbols, launches their kind, source lines, tasks, operations and bytes. What is unknown is left out:
    the counters need the value of every symbol that a temporary's size depends on, and data-dependent sizes are not in
    a profile. A call then says so.

    Raises:
        ImportError: the package ``perfetto`` is not installed.
        OSError: the file cannot be written.
    """
    name = next((call.model for call in profile.calls), None) or getattr(profile.model, "name", "model")
    trace = _Trace(f"disc: {name}")
    memory = _Memory(profile)
    facts = _KernelFacts(profile.model)
    for rank, (thread, calls) in enumerate(_by_thread(profile.calls).items()):
        track = trace.track("calls" if rank == 0 else f"calls, thread {thread}")
        track.slices += [_call_slice(call, memory) for call in calls]
    launches = [
        _launch_slice(launch, facts.of(launch, owner.extents if owner else {}))
        for launch, owner in zip(profile.launches, owners(profile), strict=True)
    ]
    for lane, slices in enumerate(_lanes(launches)):
        track = trace.track("kernels" if lane == 0 else f"kernels {lane + 1}")
        track.slices += slices
    trace.counter("arena in use", "bytes", memory.used)
    trace.counter("arena allocated", "bytes", memory.allocated)
    trace.write(path)


def save_compilation(model: Model | TrainingStep, path: str | os.PathLike[str]) -> None:
    """Writes when each stage of the compilation of a model or a training step ran, and the parts of stages.

    Of a model that was loaded from a file only the seconds of each stage are known: the stages follow each other.

    >>> perfetto.save_compilation(model, "compile.pftrace")

    Raises:
        ArgumentTypeError: it is neither a compiled model nor a training step.
        ArgumentValueError: the file's name has another suffix than ``.pftrace`` or ``.perfetto-trace``.
        ImportError: the package ``perfetto`` is not installed.
        OSError: the file cannot be written.
    """
    model = model_of(model)
    save_spans(model.name, model.timeline or spans_of(model.timings), path)


def save_spans(name: str, spans: Iterable[Span], path: str | os.PathLike[str]) -> None:
    """Writes spans of a compilation of ``name``; see :func:`save_compilation`."""
    check_suffix(path)
    trace = _Trace(f"disc compile: {name}")
    track = trace.track("stages")
    for span in spans:
        track.slices.append(
            _Slice(span.name, span.begin_ns, span.end_ns, "compile", {"failed": True} if span.failed else {})
        )
    trace.write(path)


def check_suffix(path: str | os.PathLike[str]) -> None:
    """ArgumentValueError if the name of a trace has another suffix than Perfetto's."""
    if Path(path).suffix not in PERFETTO_SUFFIXES:
        raise ArgumentValueError(
            f"trace: expected a file name that ends in {' or '.join(PERFETTO_SUFFIXES)}, got {os.fspath(path)!r}"
        )


def spans_of(timings: Mapping[str, float]) -> list[Span]:
    """Spans of steps of which only the seconds are known, one after the other, in one span."""
    spans, end = [], 0
    for name, seconds in timings.items():
        begin, end = end, end + round(seconds * 1e9)
        spans.append(Span(name, begin, end, 1))
    return [Span("compile", 0, end, 0), *spans]


# -- Profiles ----------------------------------------------------------------------------------------------------------


def _by_thread(calls: Iterable[Call]) -> dict[int, list[Call]]:
    found: dict[int, list[Call]] = {}
    for call in sorted(calls, key=lambda call: call.begin_ns):
        found.setdefault(call.thread, []).append(call)
    return found


def _call_slice(call: Call, memory: _Memory) -> _Slice:
    facts: dict[str, Any] = dict(call.extents)
    if call.failed:
        facts["failed"] = True
    if reason := memory.unknown.get(_key(call)):
        facts["arena memory"] = f"unknown: {reason}"
    return _Slice(call.model, call.begin_ns, call.end_ns, "call", facts)


def _launch_slice(launch: Launch, more: Mapping[str, Any]) -> _Slice:
    facts = {"kind": launch.kind, "source": launch.source, "tasks": launch.tasks, **more}
    return _Slice(launch.kernel, launch.begin_ns, launch.end_ns, launch.kind, facts, launch.source)


def _key(call: Call) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(call.extents.items()))


class _KernelFacts:
    """The source lines, operations and bytes of kernels, as far as the model knows them."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known: dict[tuple[tuple[str, int], ...], dict[str, dict[str, Any]]] = {}

    def of(self, launch: Launch, extents: Mapping[str, int]) -> dict[str, Any]:
        """The facts about a launch in a call with these extents."""
        key = tuple(sorted(extents.items()))
        if key not in self._known:
            self._known[key] = self._all(extents)
        return self._known[key].get(launch.kernel, {})

    def _all(self, extents: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        if self._model is None:
            return {}
        found: dict[str, dict[str, Any]] = {}
        for info in self._model.kernels(**extents):
            facts = {"operations": info.operations, "bytes read": info.reads, "bytes written": info.writes}
            found[info.name] = {what: value for what, value in facts.items() if value is not None}
            if info.sources:
                found[info.name]["sources"] = ", ".join(info.sources)
        return found


class _Memory:
    """The bytes of the arena over time, of all calls together."""

    def __init__(self, profile: Profile) -> None:
        self.unknown: dict[tuple[tuple[str, int], ...], str] = {}
        """Why the arena is unknown at some extents."""
        self.used: list[tuple[int, int]] = []
        self.allocated: list[tuple[int, int]] = []
        if profile.model is None or not profile.calls:
            return
        from .arena import ArenaUse, UnknownSizeError

        arena = ArenaUse(profile.model)
        used: list[tuple[int, int]] = []
        allocated: list[tuple[int, int]] = []
        for call, launches in by_call(profile):
            try:
                use = arena.at(call.extents)
            except UnknownSizeError as error:
                self.unknown[_key(call)] = str(error)
                continue
            allocated += [(call.begin_ns, use.allocated), (call.end_ns, -use.allocated)]
            current, walk = 0, Walk(use.steps)
            for launch in launches:
                step = walk.next(launch.kernel)
                live = current if step is None else use.live(step)
                if live != current:
                    used.append((launch.begin_ns, live - current))
                    current = live
            used.append((call.end_ns, -current))
        self.used, self.allocated = _sums(used), _sums(allocated)


def _sums(changes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The values of a counter that begins at 0, from its changes."""
    value = 0
    values: list[tuple[int, int]] = []
    for at, change in sorted(changes):
        value += change
        if values and values[-1][0] == at:
            values.pop()
        values.append((at, value))
    return values


# -- The file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slice:
    """A bar of a track."""

    name: str
    begin_ns: int
    end_ns: int
    category: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    """``file.py:12``"""


@dataclass
class _Track:
    uuid: int
    slices: list[_Slice] = field(default_factory=list)


def _lanes(slices: Sequence[_Slice]) -> list[list[_Slice]]:
    """Slices in as few tracks as possible, without two that overlap in time in one."""
    lanes: list[list[_Slice]] = []
    for item in sorted(slices, key=lambda item: (item.begin_ns, item.end_ns)):
        free = next((lane for lane in lanes if lane[-1].end_ns <= item.begin_ns), None)
        if free is None:
            lanes.append(free := [])
        free.append(item)
    return lanes


class _Trace:
    """A trace of one process."""

    def __init__(self, process: str) -> None:
        self._proto: Any = required("perfetto.protos.perfetto.trace.perfetto_trace_pb2", "a trace for Perfetto")
        self._builder = required("perfetto.trace_builder.proto_builder", "a trace for Perfetto").TraceProtoBuilder()
        self._tracks: list[_Track] = []
        self._events: list[tuple[int, Any]] = []
        self._snapshot()
        self._root = self._uuid(0)
        packet = self._packet()
        packet.sequence_flags = self._proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        descriptor = packet.track_descriptor
        descriptor.uuid = self._root
        descriptor.process.pid = os.getpid()
        descriptor.process.process_name = process
        descriptor.child_ordering = self._proto.TrackDescriptor.EXPLICIT

    def track(self, name: str) -> _Track:
        """A new track below those before it."""
        track = _Track(self._uuid(len(self._tracks) + 1))
        self._tracks.append(track)
        self._describe(track, name)
        return track

    def counter(self, name: str, unit: str, values: Sequence[tuple[int, int]]) -> None:
        """A counter with its values from a time on, in ns; without values nothing."""
        if not values:
            return
        track = _Track(self._uuid(len(self._tracks) + 1))
        self._tracks.append(track)
        self._describe(track, name).counter.unit_name = unit
        for at, value in values:
            event = self._event(at, track, self._proto.TrackEvent.TYPE_COUNTER)
            event.counter_value = value

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the file."""
        for track in self._tracks:
            self._add_slices(track)
        # The order of a track's events at one time is kept.
        for at, packet in sorted(self._events, key=lambda entry: entry[0]):
            self._stamp(packet, at)
            self._builder.trace.packet.append(packet)
        Path(path).write_bytes(self._builder.serialize())

    def _uuid(self, number: int) -> int:
        # Traces of several processes may be merged into one file.
        return (os.getpid() << 20) + number + 1

    def _packet(self) -> Any:
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _stamp(self, packet: Any, at: int) -> None:
        packet.timestamp = at
        packet.timestamp_clock_id = self._proto.BUILTIN_CLOCK_MONOTONIC

    def _snapshot(self) -> None:
        """The system's clocks at one time, which relate this trace to others."""
        snapshot = self._builder.add_packet().clock_snapshot
        snapshot.primary_trace_clock = self._proto.BUILTIN_CLOCK_MONOTONIC
        clocks = {
            self._proto.BUILTIN_CLOCK_MONOTONIC: time.CLOCK_MONOTONIC,
            self._proto.BUILTIN_CLOCK_BOOTTIME: time.CLOCK_BOOTTIME,
            self._proto.BUILTIN_CLOCK_REALTIME: time.CLOCK_REALTIME,
        }
        for number, clock in clocks.items():
            snapshot.clocks.add(clock_id=number, timestamp=time.clock_gettime_ns(clock))

    def _describe(self, track: _Track, name: str) -> Any:
        descriptor = self._packet().track_descriptor
        descriptor.uuid = track.uuid
        descriptor.parent_uuid = self._root
        descriptor.name = name
        descriptor.sibling_order_rank = len(self._tracks)
        return descriptor

    def _event(self, at: int, track: _Track, kind: int) -> Any:
        packet = self._proto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
        packet.track_event.type = kind
        packet.track_event.track_uuid = track.uuid
        self._events.append((at, packet))
        return packet.track_event

    def _add_slices(self, track: _Track) -> None:
        """Begins and ends, properly nested: an outer slice begins before and ends after what is in it."""
        kinds = self._proto.TrackEvent
        open_ends: list[int] = []
        for item in sorted(track.slices, key=lambda item: (item.begin_ns, -item.end_ns)):
            while open_ends and open_ends[-1] <= item.begin_ns:
                self._event(open_ends.pop(), track, kinds.TYPE_SLICE_END)
            # Parts of which only the seconds are known may exceed what they are in.
            end = min([item.end_ns, *open_ends[-1:]])
            event = self._event(item.begin_ns, track, kinds.TYPE_SLICE_BEGIN)
            event.name = item.name
            if item.category:
                event.categories.append(item.category)
            self._annotate(event, item)
            open_ends.append(end)
        while open_ends:
            self._event(open_ends.pop(), track, kinds.TYPE_SLICE_END)

    @staticmethod
    def _annotate(event: Any, item: _Slice) -> None:
        file, _, line = item.source.rpartition(":")
        if file and line.isdecimal():
            event.source_location.file_name = file
            event.source_location.line_number = int(line)
        for name, value in item.facts.items():
            note = event.debug_annotations.add(name=name)
            if isinstance(value, bool):
                note.bool_value = value
            elif isinstance(value, int):
                note.int_value = value
            elif isinstance(value, float):
                note.double_value = value
            else:
                note.string_value = str(value)
