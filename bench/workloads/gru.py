"""A GRU of one layer, over sequences of any length."""

from __future__ import annotations

from .lstm import workload

_MODELS = workload("GRU", "GRU", 1)
FULL, SMALL = _MODELS[False], _MODELS[True]
