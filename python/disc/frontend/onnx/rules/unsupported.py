"""Operators that are not supported. Without these rules, torch-mlir would convert them, and errors would say less."""

from __future__ import annotations

from typing import Any, NoReturn

from ...registry import NotLowerable, lowers
from ..builder import OnnxBuilder

_REASONS = {
    "loops over sequences are not supported": ("SequenceMap",),
}


def _refuse(op: str, why: str) -> None:
    @lowers(f"onnx.{op}")
    def rule(b: OnnxBuilder, *operands: Any, **attributes: Any) -> NoReturn:
        raise NotLowerable(why)


for _why, _ops in _REASONS.items():
    for _op in _ops:
        _refuse(_op, _why)
