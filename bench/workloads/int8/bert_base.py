"""A model with BERT's sizes in int8."""

from __future__ import annotations

from .. import bert_base
from ..base import in_int8

FULL = in_int8(bert_base.FULL, transformer=True)
SMALL = in_int8(bert_base.SMALL, transformer=True)
