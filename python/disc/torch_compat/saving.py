"""Programs of ``torch.export`` as files."""

from __future__ import annotations

# Whether PyTorch can write a program to a file.
from torch._export.serde.serialize import GraphModuleSerializer as GraphModuleSerializer

__all__ = [
    "GraphModuleSerializer",
]
