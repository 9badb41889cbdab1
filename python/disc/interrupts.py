"""Signals while something runs that must not be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Ctrl-C takes effect behind the ``with`` block.

    For imports that register something in native libraries: an import that is interrupted is repeated from the start,
    and what has a name already cannot be registered again.
    """
    handler = signal.getsignal(signal.SIGINT)
    # Signals are handled in the main thread; a handler that was not installed by Python cannot be put back.
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    pending: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: pending.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pending:
            handler(*pending[0])
