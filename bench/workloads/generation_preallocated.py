"""generation.py with a cache that is as large from the start as it can get."""

from __future__ import annotations

from .generation import workload

FULL, SMALL = workload("Generation, preallocated", "preallocated")
