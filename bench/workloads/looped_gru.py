"""GRU cells in a Python loop over the steps of a dynamic length, as one writes it by hand."""

from __future__ import annotations

from .looped_lstm import GRU, workload

_GRU = workload("GRU, looped", GRU)
FULL, SMALL = _GRU[False], _GRU[True]
