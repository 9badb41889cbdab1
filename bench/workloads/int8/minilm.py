"""all-MiniLM-L6-v2 in int8."""

from __future__ import annotations

from .. import minilm
from ..base import in_int8

FULL = in_int8(minilm.FULL, transformer=True)
SMALL = in_int8(minilm.SMALL, transformer=True)
