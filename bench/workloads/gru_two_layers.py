"""A GRU of two layers, over sequences of any length."""

from __future__ import annotations

from .lstm import workload

_MODELS = workload("GRU, two layers", "GRU", 2)
FULL, SMALL = _MODELS[False], _MODELS[True]
