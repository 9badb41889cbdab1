"""The ranker in int8."""

from __future__ import annotations

from .. import ctr_ranker
from ..base import in_int8

FULL = in_int8(ctr_ranker.FULL)
SMALL = in_int8(ctr_ranker.SMALL)
