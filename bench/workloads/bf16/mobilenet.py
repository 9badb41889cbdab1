"""MobileNetV2 in bf16."""

from __future__ import annotations

from .. import mobilenet
from ..base import in_bf16

FULL = in_bf16(mobilenet.FULL)
SMALL = in_bf16(mobilenet.SMALL)
