"""Sequences: their length and the places of their elements must be known while importing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...registry import NotLowerable, lowers
from ...values import Tensor, normalize_dim
from ..builder import OnnxBuilder, known, known_everywhere
from ..known import Known, integers
from ..tensor_list import TensorList, listed
from .shapes import concat, split


def _place(position: Any, length: int, *, end: bool = False) -> int:
    """An operand as an index; with ``end`` the one behind the last element is valid too."""
    found = integers(position)
    assert found is not None
    (place,) = found
    if not -length <= place < length + end:
        raise NotLowerable(f"position {place} is outside of a sequence of {length} tensors")
    return place % length if place < 0 else place


@lowers("onnx.SequenceEmpty")
def sequence_empty(b: OnnxBuilder, dtype: Any = None) -> TensorList:
    """A sequence without elements."""
    return TensorList(())


@lowers("onnx.SequenceConstruct")
@known_everywhere
def sequence_construct(b: OnnxBuilder, *items: Any) -> TensorList:
    """A sequence of the operands."""
    return TensorList(items)


@lowers("onnx.SequenceInsert")
@known(1, 2)
def sequence_insert(b: OnnxBuilder, sequence: Any, item: Any, position: Any = None) -> TensorList:
    """A sequence with one element more, by default at its end."""
    items = listed(sequence)
    at = len(items) if position is None else _place(position, len(items), end=True)
    return TensorList((*items[:at], item, *items[at:]))


@lowers("onnx.SequenceErase")
@known(1)
def sequence_erase(b: OnnxBuilder, sequence: Any, position: Any = None) -> TensorList:
    """A sequence with one element less, by default without its last."""
    items = listed(sequence)
    at = len(items) - 1 if position is None else _place(position, len(items))
    return TensorList((*items[:at], *items[at + 1 :]))


@lowers("onnx.SequenceAt")
@known(1)
def sequence_at(b: OnnxBuilder, sequence: Any, position: Any) -> Any:
    """One element."""
    items = listed(sequence)
    return items[_place(position, len(items))]


@lowers("onnx.SequenceLength")
def sequence_length(b: OnnxBuilder, sequence: Any) -> Known:
    """The number of elements."""
    return Known.of(np.array(len(listed(sequence))), torch.int64)


@lowers("onnx.SplitToSequence")
@known(0, 1)
def split_to_sequence(b: OnnxBuilder, x: Any, lengths: Any = None, axis: int = 0, keepdims: int = 1) -> TensorList:
    """Pieces along a dim: of given lengths, of one length but for the last, or of length 1."""
    shape = list(x.values.shape) if isinstance(x, Known) else list(x.dims)
    dim = normalize_dim(axis, len(shape))
    single = lengths is None
    if single or _rank(lengths) == 0:
        total, (each,) = shape[dim], integers(lengths) or [1]
        if not isinstance(total, int):
            text = b.described(b.expression(total))
            raise NotLowerable(f"the number of tensors in its result depends on a size, {text}: the size must be fixed")
        if each < 1:
            raise NotLowerable(f"pieces of length {each}")
        if total == 0:
            return TensorList(())
        lengths = Known.of([min(each, total - at) for at in range(0, total, each)], torch.int64)
    pieces = split(b, x, lengths, axis=dim)
    return TensorList(tuple(_without(b, piece, dim) if single and not keepdims else piece for piece in pieces))


def _rank(x: Any) -> int:
    return x.values.ndim if isinstance(x, Known) else x.rank


def _without(b: OnnxBuilder, x: Any, dim: int) -> Any:
    """x without a dim of size 1."""
    if isinstance(x, Known):
        return Known.of(np.squeeze(x.values, dim), x.dtype)
    return b.reshape(x, [*x.dims[:dim], *x.dims[dim + 1 :]])


@lowers("onnx.ConcatFromSequence")
def concat_from_sequence(b: OnnxBuilder, sequence: Any, axis: int, new_axis: int = 0) -> Any:
    """The elements one after the other along a dim, or stacked along a new one."""
    items = listed(sequence)
    if not items:
        raise NotLowerable("its operand is an empty sequence")
    dim = normalize_dim(axis, _rank(items[0]) + bool(new_axis))
    if all(isinstance(x, Known) for x in items):
        join = np.stack if new_axis else np.concatenate
        return Known.of(join([x.values for x in items], dim), items[0].dtype)
    tensors: list[Tensor] = [b.tensor(x) for x in items]
    if new_axis:
        tensors = [b.reshape(x, [*x.dims[:dim], 1, *x.dims[dim:]]) for x in tensors]
    return concat(b, *tensors, axis=dim)
