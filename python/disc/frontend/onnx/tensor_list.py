"""Sequences of ONNX whose length is known while importing: lists of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..registry import NotLowerable


@dataclass(frozen=True, eq=False)
class TensorList:
    """The tensors of a sequence, and what is known of their elements."""

    items: tuple[Any, ...]


def listed(x: Any) -> tuple[Any, ...]:
    """The elements of an operand that must be a sequence."""
    if not isinstance(x, TensorList):
        raise NotLowerable("its operand is not a sequence of known length")
    return x.items
