"""all-MiniLM-L6-v2 in bf16."""

from __future__ import annotations

from .. import minilm
from ..base import in_bf16

FULL = in_bf16(minilm.FULL)
SMALL = in_bf16(minilm.SMALL)
