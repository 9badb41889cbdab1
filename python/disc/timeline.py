"""When each part of a compilation ran: nested spans on the monotonic clock."""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """One part of a compilation."""

    name: str
    begin_ns: int
    """On the clock of :func:`time.monotonic_ns`, as ``end_ns``."""
    end_ns: int
    depth: int
    """How many spans contain it."""
    failed: bool = False
    """Whether it ended with an exception."""

    @property
    def seconds(self) -> float:
        """From begin to end."""
        return (self.end_ns - self.begin_ns) * 1e-9


class Timeline:
    """The spans of one compilation, in the order in which they began."""

    def __init__(self) -> None:
        self._spans: list[Span | None] = []
        self._depth = 0

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans that have ended."""
        return tuple(span for span in self._spans if span is not None)

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """What runs inside is one span; :func:`part` adds spans to it."""
        place, depth = len(self._spans), self._depth
        self._spans.append(None)
        self._depth += 1
        token = _current.set(self)
        failed = True
        begin = time.monotonic_ns()
        try:
            yield
            failed = False
        finally:
            self._spans[place] = Span(name, begin, time.monotonic_ns(), depth, failed)
            self._depth = depth
            _current.reset(token)

    def divide(self, parts: Mapping[str, float]) -> None:
        """Adds parts of which only the seconds are known, one after the other, to the last span that began and ended.

        Parts of no time are left out. What exceeds the span is cut.
        """
        outer = next(span for span in reversed(self._spans) if span is not None)
        begin = outer.begin_ns
        for name, seconds in parts.items():
            end = min(begin + round(seconds * 1e9), outer.end_ns)
            if end > begin:
                self._spans.append(Span(name, begin, end, outer.depth + 1))
            begin = end


_current: contextvars.ContextVar[Timeline | None] = contextvars.ContextVar("disc timeline", default=None)


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """A span inside the innermost one of this thread; nothing outside of a compilation."""
    timeline = _current.get()
    if timeline is None:
        yield
        return
    with timeline.span(name):
        yield
