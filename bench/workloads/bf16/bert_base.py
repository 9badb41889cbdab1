"""BERT-base in bf16."""

from __future__ import annotations

from .. import bert_base
from ..base import in_bf16

FULL = in_bf16(bert_base.FULL)
SMALL = in_bf16(bert_base.SMALL)
