"""Silences warnings and log records of the calling thread; those of other threads appear."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()


class _Quiet:
    """A filter that is installed while one thread needs it, and has an effect in threads that need it only."""

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """While it is active, the calling thread's messages do not appear."""
        thread = threading.get_ident()
        before = self._depths.get(thread, 0)
        try:
            try:
                with _lock:
                    self._depths[thread] = before + 1
                    self._install()
                yield
            finally:
                self._leave(thread, before)
        finally:
            # Once more, for Ctrl-C in the first one.
            self._leave(thread, before)

    def _leave(self, thread: int, depth: int) -> None:
        with _lock:
            if depth:
                self._depths[thread] = depth
            else:
                self._depths.pop(thread, None)
            if not self._depths:
                self._remove()

    def _is_active(self) -> bool:
        return threading.get_ident() in self._depths

    def _install(self) -> None:
        raise NotImplementedError

    def _remove(self) -> None:
        raise NotImplementedError


class QuietWarning(_Quiet):
    """Warnings of a category whose text contains ``part``.

    ``warnings.catch_warnings`` would also drop what other threads change in the filters meanwhile.
    """

    def __init__(self, part: str, category: type[Warning]) -> None:
        super().__init__()
        self._part = part
        # The filter's third item is compared by its method match, as a regular expression is.
        self._filter: Any = ("ignore", self, category, None, 0)

    def match(self, text: str) -> bool:
        """Whether a warning is one of these."""
        return self._is_active() and self._part in text

    def _install(self) -> None:
        filters: Any = warnings.filters
        if self._filter not in filters:
            filters.insert(0, self._filter)

    def _remove(self) -> None:
        filters: Any = warnings.filters
        if self._filter in filters:
            filters.remove(self._filter)


class QuietLog(_Quiet):
    """Records of one logger."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)

    def filter(self, _: logging.LogRecord) -> bool:
        """Whether a record appears."""
        return not self._is_active()

    def _install(self) -> None:
        self._logger.addFilter(self)

    def _remove(self) -> None:
        self._logger.removeFilter(self)


STATE_OF_LAYERS = QuietWarning("_flat_weights", UserWarning)
"""Recurrent layers keep their weights in an additional list, and ``torch.export`` warns that it is not registered."""

COPIED_SPECIFICATIONS = QuietWarning("LeafSpec", FutureWarning)
"""PyTorch copies objects of a class that it has deprecated, while it decomposes a program."""

FAILING_OPERATORS = QuietLog("torch._subclasses.fake_tensor")
"""PyTorch logs the stack of an operator that fails while it is traced; DISC traces again, or reports the error."""

STATIC_DIMS = QuietLog("torch._export.non_strict_utils")
"""PyTorch logs dims of size 1 that a trace fixes; DISC traces again, and warns of those that stay fixed."""

UNMARKED_DIMS = QuietLog("torch.export.dynamic_shapes")
"""PyTorch logs that None for a dim is deprecated, which its own AdditionalInputs makes."""

ANOMALY_MODE = QuietWarning("Anomaly Detection has been enabled", UserWarning)
"""It notes the source lines of operations for their gradients, which is what DISC traces with it for."""
