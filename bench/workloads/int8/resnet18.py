"""ResNet-18 in int8."""

from __future__ import annotations

from .. import resnet18
from ..base import in_int8

FULL = in_int8(resnet18.FULL)
SMALL = in_int8(resnet18.SMALL)
