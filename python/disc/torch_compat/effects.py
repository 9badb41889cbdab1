"""Operators without results that may not be left out of a program."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Declares such an operator. The result takes the declaration back.
from torch._higher_order_ops.effects import _EffectType as EffectType
from torch._higher_order_ops.effects import _register_effectful_op as register_effect

from .versions import MINOR

_lock = threading.Lock()
_keeping: list[object] = []
_handles: list[Any] = []


@contextmanager
def checks_kept() -> Iterator[None]:
    """While it is active, AOTAutograd keeps the checks of linear algebra. PyTorch 2.12 leaves them out.

    Other threads that compile meanwhile keep theirs, too.
    """
    if MINOR >= 13:
        yield
        return
    entry = object()
    with _lock:
        if not _keeping:
            _handles.append(register_effect("aten::_linalg_check_errors", EffectType.ORDERED))
        _keeping.append(entry)
    try:
        yield
    finally:
        with _lock:
            _keeping.remove(entry)
            if not _keeping:
                _handles.pop().destroy()
