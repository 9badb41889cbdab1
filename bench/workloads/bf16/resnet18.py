"""ResNet-18 in bf16."""

from __future__ import annotations

from .. import resnet18
from ..base import in_bf16

FULL = in_bf16(resnet18.FULL)
SMALL = in_bf16(resnet18.SMALL)
