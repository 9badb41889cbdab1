"""U-Net in bf16."""

from __future__ import annotations

from .. import unet
from ..base import in_bf16

FULL = in_bf16(unet.FULL)
SMALL = in_bf16(unet.SMALL)
