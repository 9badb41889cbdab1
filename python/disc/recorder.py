"""Recording the calls and launches of one executable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

RawLaunch: TypeAlias = tuple[str, str, str, int, int, int]
"""Kernel, kind, source, begin and end in ns, tasks."""
Run: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]
"""Runs a call with the inputs of the compiled function."""


class Profiled(Protocol):
    """What has launches to record: an executable."""

    def start_profile(self) -> None:
        """Records every launch from here on, and forgets the former ones."""

    def stop_profile(self) -> list[RawLaunch]:
        """The launches since start_profile."""


class RawCall(NamedTuple):
    """One call of an executable."""

    begin_ns: int
    end_ns: int
    thread: int
    shapes: tuple[tuple[int, ...], ...]
    """Of the inputs, in the order of the compiled function."""
    failed: bool


class Recording:
    """The launches between :meth:`Recorder.start` and :meth:`Recorder.stop`, and the calls if they are wanted."""

    def __init__(self, calls: bool) -> None:
        self.wants_calls = calls
        self.calls: list[RawCall] = []
        self.launches: list[RawLaunch] = []


class Recorder:
    """Runs an executable, and records its launches for any number of recordings at the same time.

    The runtime keeps one list of launches. It is distributed when a recording begins, is read or ends: launches that
    finish in another thread during these few microseconds are missing in the recordings that go on.

    Attributes:
        run: runs a call. It is the executable's own function while nothing wants the calls.
    """

    def __init__(self, executable: Profiled | None, run: Run) -> None:
        """``executable``: None if nothing was built, so that ``run`` is an error."""
        self._executable = executable
        self._plain = run
        self._lock = threading.Lock()
        self._active: list[Recording] = []
        self._before: Callable[[], None] | None = None
        self.run: Run = run

    def start(self, *, calls: bool = True) -> Recording:
        """Begins a recording."""
        recording = Recording(calls)
        with self._lock:
            self._distribute()
            self._active.append(recording)
            self._go_on()
            self._choose()
        return recording

    def read(self, recording: Recording) -> list[RawLaunch]:
        """Takes the launches that a recording has so far out of it."""
        with self._lock:
            self._distribute()
            self._go_on()
            launches, recording.launches = recording.launches, []
        return launches

    def stop(self, recording: Recording) -> Recording:
        """Ends a recording, and returns it complete."""
        with self._lock:
            self._distribute()
            # By identity: two empty recordings are alike.
            self._active = [other for other in self._active if other is not recording]
            self._go_on()
            self._choose()
        return recording

    def before_next(self, function: Callable[[], None] | None) -> None:
        """Has ``function`` called before the next call through :attr:`run`; None takes that back."""
        with self._lock:
            self._before = function
            self._choose()

    def _choose(self) -> None:
        wanted = self._before is not None or any(recording.wants_calls for recording in self._active)
        self.run = self.recorded if wanted else self._plain

    def recorded(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Runs a call, and adds it to the recordings that are active when it ends."""
        if (before := self._before) is not None:
            before()
        return self.plain(inputs)

    def plain(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The same without :meth:`before_next`."""
        if not any(recording.wants_calls for recording in self._active):
            return self._plain(inputs)
        failed = True
        begin = time.monotonic_ns()
        try:
            results = self._plain(inputs)
            failed = False
            return results
        finally:
            end = time.monotonic_ns()
            shapes = tuple(tuple(getattr(x, "shape", ())) for x in inputs)
            call = RawCall(begin, end, threading.get_native_id(), shapes, failed)
            with self._lock:
                for recording in self._active:
                    if recording.wants_calls:
                        recording.calls.append(call)

    def _go_on(self) -> None:
        if self._active and self._executable is not None:
            self._executable.start_profile()

    def _distribute(self) -> None:
        if self._active and self._executable is not None:
            launches = self._executable.stop_profile()
            for recording in self._active:
                recording.launches += launches
