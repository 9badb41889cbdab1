"""Jagged nested tensors while a model is traced: their operations become operations on values and offsets.

``torch.export`` cannot trace the subclass: its modes see an operation before the subclass takes it apart. Here an
operation that is given a nested tensor is taken apart first, by the subclass's own table, and only what it does with
dense tensors is recorded. The raggedness of two tensors is then compared as in eager mode, while tracing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sympy
import torch

from .. import jagged
from ..torch_compat import patches, pytree
from ..torch_compat.nested import NestedIntNode, NestedTensor, nested_tensor, ops, sdpa, symbolic_trace
from ..torch_compat.operators import DispatchKey, has_kernel
from ..torch_compat.patching import instead, replaced
from ..torch_compat.symbols import statically_known_true
from ..torch_compat.tracing import FakeTensorMode, maybe_enable_thunkify

_aten = torch.ops.aten


def _is_given(args: Any, kwargs: Any) -> bool:
    return any(isinstance(leaf, NestedTensor) for leaf in pytree.tree_leaves((args, kwargs)))


def _taken_apart(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    if func is _aten.unbind.int and args[0]._size and not isinstance(args[0]._size[0], int):
        raise RuntimeError(
            "unbind of a nested tensor returns one tensor for each sequence, and their number is dynamic: compute on"
            " the nested tensor, or pad it"
        )
    if func.namespace == "disc":
        raise RuntimeError(jagged.CARRIED)
    if func is _aten.to_padded_tensor.default and len(args) < 3 and not kwargs.get("output_size"):
        jagged.asks(jagged.LONGEST)
    if ops.lookup_jagged(func, *args, **kwargs) is None:
        keys = DispatchKey
        for key in (keys.CompositeImplicitAutogradNestedTensor, keys.CompositeImplicitAutograd):
            if has_kernel(func.name(), key):
                return func._op_dk(key, *args, **kwargs)
    return NestedTensor.__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


def _dispatched(original: Any, self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    kwargs = kwargs or {}
    if not _is_given(args, kwargs):
        if kwargs.get("layout") is torch.jagged:
            # A dense operand made with the options of a nested one, as where(x > 0, x, 0.0) does.
            kwargs = {**kwargs, "layout": torch.strided}
        return original(self, func, types, args, kwargs)
    # The mode is active again for what the operation does.
    with self, maybe_enable_thunkify():
        return _taken_apart(func, types, args, kwargs)


def _extreme(func: Any, lengths: torch.Tensor) -> Any:
    """The least or greatest length: a data-dependent number."""
    size = func(lengths).item()
    torch._check(size >= 0)
    return size


def _longest(x: Any) -> Any:
    """The greatest length of a nested tensor without lengths, which stays out of its cache."""
    cached = x._maybe_max_seqlen
    return _extreme(torch.max, x._offsets.diff()) if cached is None else cached


class _Ragged(NestedIntNode):
    """The size of a ragged dimension: equal to itself alone, as in eager mode. It is no number."""

    shape_env = None

    @property
    def expr(self) -> sympy.Symbol:
        """What messages call it."""
        return sympy.Symbol(str(self))

    def mul(self, other: Any) -> _Ragged:
        """A stride. Nothing asks for that of the first dimension where others are dynamic: it is left as it is."""
        factor = 1 if other.is_symbolic() else other.constant_int()
        return _Ragged(self.t_id, self.coeff * factor)

    def guard_int(self, file: str, line: int) -> int:
        """It is asked for as an extent."""
        return self.int_()

    def int_(self) -> int:
        """It is asked for as a number of Python."""
        raise RuntimeError("the size of a ragged dimension is not one number: use the differences of the offsets")


def _nested_int(self: FakeTensorMode, *, nt_tensor_id: int | None = None) -> Any:
    if nt_tensor_id is None:
        nt_tensor_id = self.nt_tensor_id_counter
        self.nt_tensor_id_counter += 1
    return torch.SymInt(_Ragged(nt_tensor_id, 1))


def _attended(
    original: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention of padded sequences, with a mask for the keys that are padding.

    PyTorch's own goes through a list of tensors, one for each sequence.
    """
    tensors = (query, key, value)
    plain = all(isinstance(x, NestedTensor) and x.dim() == 4 and x._ragged_idx == 2 for x in tensors)
    if not plain:
        return original(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    sdpa._validate_sdpa_input(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if attn_mask is not None or any(x._lengths is not None for x in tensors):
        raise RuntimeError("scaled_dot_product_attention: nested tensors with lengths or a mask are not supported")
    if key._size[2] != value._size[2]:
        raise RuntimeError("scaled_dot_product_attention: key and value must have the same offsets tensor")
    if query._size[1] != key._size[1] or query._size[1] != value._size[1]:
        raise RuntimeError("scaled_dot_product_attention: nested query, key and value must have as many heads")
    torch._check(query._offsets.shape[0] == key._offsets.shape[0])
    # One number for one raggedness; the result's cache is the query's, to which eager mode adds none.
    longest = {id(x._offsets): _longest(x) for x in (value, key, query)}

    def padded(x: Any) -> torch.Tensor:
        flat = x._values.transpose(0, 1).flatten(1)
        rows = _aten._jagged_to_padded_dense_forward(flat, [x._offsets], [longest[id(x._offsets)]])
        result: torch.Tensor = rows.unflatten(-1, [x._values.shape[0], x._values.shape[2]]).transpose(1, 2)
        return result

    queries, keys, values = map(padded, tensors)
    places = torch.arange(keys.shape[2], device=keys.device)
    allowed = (places < key._offsets.diff().unsqueeze(1)).unsqueeze(1).unsqueeze(1)
    if is_causal:
        allowed = allowed & (places <= torch.arange(queries.shape[2], device=keys.device).unsqueeze(1))
    # scaled_dot_product_attention itself asks more of sizes than data-dependent ones can answer.
    found = _aten._scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, dropout_p, attn_mask=allowed, scale=scale
    )[0]
    rows = found.transpose(1, 2).flatten(2)
    flat = _aten._padded_dense_to_jagged_forward(rows, [query._offsets], query._values.shape[1])
    unflat = flat.unflatten(-1, [found.shape[1], found.shape[3]]).transpose(0, 1)
    return NestedTensor(unflat, query._offsets, _ragged_idx=2, _metadata_cache=query._metadata_cache)


def _suggested(original: Any, error: Any) -> None:
    with suppress(AttributeError):  # It takes all extents for expressions, which those of ragged dims are not.
        original(error)


def _squeezed(tensor: torch.Tensor) -> torch.Tensor:
    """A dense operand without its leading dims of 1: those that are 1 for every size, as others broadcast as well."""
    while tensor.dim() and statically_known_true(tensor.shape[0] == 1):
        tensor = tensor.squeeze(0)
    return tensor


@contextmanager
def taken_apart() -> Iterator[None]:
    """While it is active, operations on nested tensors are traced as operations on their parts."""
    # Made outside of the tracing: it lives on.
    nested_tensor._nt_view_dummy()
    with replaced(
        {
            patches.PROXY_DISPATCH: _dispatched,
            patches.NESTED_INT: instead(_nested_int),
            patches.EXTREME_LENGTH: instead(_extreme),
            patches.JAGGED_ATTENTION: _attended,
            patches.SQUEEZE: instead(_squeezed),
            patches.SUGGESTED_FIXES: _suggested,
            # It cannot be traced by torch.fx, but it can here.
            patches.IS_FX_TRACING: instead(symbolic_trace.is_fx_symbolic_tracing),
        }
    ):
        yield
