"""Python's garbage collector while a program is traced."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 20, 100)
"""Tracing makes objects by the hundred thousand that live until its end, between those of PyTorch, which live as long
as the process: with Python's own thresholds, hundreds of collections find nothing, in 8 % of the time."""

_lock = threading.Lock()
_running = 0
_before: tuple[int, int, int] = gc.get_threshold()


@contextmanager
def rare_collections() -> Iterator[None]:
    """While it is active in any thread, garbage is collected less often; not more often than the user wants."""
    global _running, _before
    entered = False
    try:
        with _lock:
            if _running == 0:
                _before = gc.get_threshold()
                if _before[0] != 0:  # 0 means never
                    gc.set_threshold(*(max(pair) for pair in zip(_before, _THRESHOLDS, strict=True)))
            _running += 1
            entered = True
        yield
    finally:
        with _lock:
            _running -= entered
            if _running == 0:
                gc.set_threshold(*_before)
