"""Gradients that are zero in forward mode, without PyTorch's tensors of zeros.

PyTorch has tensors without memory for them. Their addition and multiplication are kernels of C++ which take dynamic
sizes for numbers. While a transform is recorded they are ordinary zeros, of which it is known that they are zeros: the
same four operations skip them, so that ``0 * inf`` is 0 and no gradient is computed that eager PyTorch does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import errors
from ..torch_compat.operators import OpOverload
from ..torch_compat.symbols import statically_known_true
from ..torch_compat.tracing import disable_proxy_modes_tracing
from .locations import user_line

_aten = torch.ops.aten
_SUMS = (_aten.add.Tensor, _aten.sub.Tensor)
_PRODUCTS = (_aten.mul.Tensor, _aten.div.Tensor)
_MAKING = (_aten._efficientzerotensor.default, _aten._new_zeros_with_same_feature_meta.default)


class Zeros:
    """The tensors of a trace of which it is known that they are zero."""

    def __init__(self) -> None:
        # By their storage, so that views are zero, too. The tensors are kept: a storage is not used again.
        self._known: dict[int, Tensor] = {}
        self._dense: dict[int, Tensor] = {}
        """Tensors that are stored in the order of their dims, where PyTorch's would be stored as another one is."""

    def concern(self, func: Any, args: Any) -> bool:
        """Whether an operation makes zeros, or is simpler because of them."""
        if func in _MAKING:
            return True
        if func is _aten.as_strided.default and _storage(args[0]) in self._dense:
            text = "a change in place of a view that is not stored in the order of its dims, in forward-mode gradients"
            raise errors.GradientError("import", text, user_line())
        if not self._known or func not in (*_SUMS, *_PRODUCTS):
            return False
        return self._is_zero(args[0]) or (func is not _aten.div.Tensor and self._is_zero(args[1]))

    def computed(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """The result of an operation that :meth:`concern` knows."""
        if func is _aten._efficientzerotensor.default:
            return self._zeros(args[0], dtype=kwargs.get("dtype"), device=kwargs.get("device"))
        if func is _aten._new_zeros_with_same_feature_meta.default:
            # A copy of a gradient in the memory order of the value, after the dims of vmap.
            gradient, value = args
            size = [*gradient.shape[: kwargs.get("self_num_batch_dims", 0)], *value.shape]
            result = self._zeros(size, dtype=gradient.dtype, device=gradient.device)
            if not _is_dense(value):
                self._dense[_storage(result)] = result
            return result
        with disable_proxy_modes_tracing():
            like = func(*args, **kwargs)
        one, two = args
        if func in _PRODUCTS or (self._is_zero(one) and self._is_zero(two)):
            return self._zeros(like.shape, dtype=like.dtype, device=like.device)
        other = one
        if self._is_zero(one):
            factor = kwargs.get("alpha", 1) * (1 if func is _aten.add.Tensor else -1)
            other = two if factor == 1 else two * factor
        return other.to(like.dtype).expand(like.shape).clone()

    def note(self, func: Any, args: Any) -> None:
        """Forgets what an operation changes in place."""
        if not self._known or not isinstance(func, OpOverload):
            return
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Tensor):
                self._known.pop(_storage(value), None)

    def _zeros(self, size: Any, **options: Any) -> Tensor:
        result = torch.zeros(size, **options)
        self._known[_storage(result)] = result
        return result

    def _is_zero(self, value: Any) -> bool:
        return isinstance(value, Tensor) and _storage(value) in self._known


def _storage(value: Tensor) -> int:
    return value.untyped_storage()._cdata


def _is_dense(value: Tensor) -> bool:
    expected: Any = 1
    for size, stride in reversed(list(zip(value.shape, value.stride(), strict=True))):
        if not statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True
