"""TorchScript's operators on numbers where Python calls them: ``torch.ops.aten.Int(x)``, ``torch.ops.prim.min(n, m)``.

Their kernels take numbers of C++, which makes the example's value of a dynamic size, and is no more than an error for a
number that depends on data. While a model is traced they are functions of Python, which take both.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_compat import patches
from ..torch_compat.patching import replaced

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _int(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.to(torch.int64).item()
    return torch.sym_ite(x, 1, 0) if isinstance(x, torch.SymBool) else torch.sym_int(x)


def _float(x: Any) -> Any:
    return x.to(torch.float64).item() if isinstance(x, torch.Tensor) else torch.sym_float(x)


def _bool(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.to(torch.bool).item()
    return x if isinstance(x, torch.SymBool) else x != 0


def _item(x: Any) -> Any:
    return x.item() if isinstance(x, torch.Tensor) else x


def _size(x: torch.Tensor, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


def _of_tensor(value: Any) -> Callable[..., Any]:
    """An operator that PyTorch has for tensors alone: numbers become tensors without dims."""

    def call(*args: Any) -> Any:
        return value(*(torch.scalar_tensor(x, dtype=_dtype(x)) for x in args))

    return call


def _dtype(x: Any) -> torch.dtype:
    if isinstance(x, (bool, torch.SymBool)):
        return torch.bool
    return torch.int64 if isinstance(x, (int, torch.SymInt)) else torch.get_default_dtype()


def _power(x: Any, y: Any) -> Any:
    whole = isinstance(x, (int, torch.SymInt)) and isinstance(y, (int, torch.SymInt))
    return torch.sym_float(x) ** y if whole else x**y


# Of what they are given, tensors or numbers, these ask for a number.
_ASKING: dict[str, Callable[..., Any]] = {
    "aten::size": _size,
    "aten::numel": lambda x: x.numel(),
    "aten::dim": lambda x: x.dim(),
    "aten::len": lambda x: x.shape[0],
    "aten::Int": _int,
    "aten::Float": _float,
    "aten::Bool": _bool,
    "aten::IntImplicit": _item,
    "aten::FloatImplicit": _item,
    "aten::ScalarImplicit": _item,
    "aten::item": _item,
}
# Of tensors these are operators like others.
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}": _of_tensor(getattr(torch, name)) for name in ("add", "sub", "mul", "div", "floor_divide")},
    **{f"aten::{name}": getattr(operator, name) for name in ("neg", "floordiv", "eq", "ne", "lt", "le", "gt", "ge")},
    "aten::remainder": operator.mod,
    "aten::pow": _power,
    "aten::sqrt": lambda x: torch.sym_sqrt(torch.sym_float(x)),
    "aten::ceil": math.ceil,
    "aten::floor": math.floor,
    "prim::abs": abs,
    "prim::min": lambda *x: torch.sym_min(*x),
    "prim::max": lambda *x: torch.sym_max(*x),
    "prim::NumToTensor": lambda x: torch.scalar_tensor(
        x, dtype=torch.float64 if isinstance(x, (float, torch.SymFloat)) else torch.int64
    ),
}


def _function(name: str, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """What does in Python what the operator does to these arguments; None if the operator itself can."""
    if name in _ASKING:
        return _ASKING[name] if args and isinstance(args[0], (torch.Tensor, *_SYMBOLIC)) else None
    if any(isinstance(x, _SYMBOLIC) for x in args) and all(isinstance(x, (int, float, *_SYMBOLIC)) for x in args):
        return _OF_NUMBERS.get(name)
    return None


@contextmanager
def numbers_in_python() -> Iterator[None]:
    """While it is active, TorchScript's operators take symbolic numbers, and give them."""

    def call(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
        function = None if kwargs else _function(self._qualified_op_name, args)
        return original(self, *args, **kwargs) if function is None else function(*args)

    with replaced({patches.OPERATOR_CALL: call}):
        yield
