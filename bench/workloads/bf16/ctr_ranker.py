"""The ranker in bf16."""

from __future__ import annotations

from .. import ctr_ranker
from ..base import in_bf16

FULL = in_bf16(ctr_ranker.FULL)
SMALL = in_bf16(ctr_ranker.SMALL)
