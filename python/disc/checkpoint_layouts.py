"""How files of quantised models store a linear layer: words of 32 bits, and the codes, scales and zero points in them.

The layouts are those of AutoGPTQ and GPTQModel (https://github.com/ModelCloud/GPTQModel), AutoAWQ
(https://github.com/casper-hansen/AutoAWQ) and compressed-tensors (https://github.com/vllm-project/compressed-tensors).
In all of them codes of ``bits`` each fill words from the lowest bit up, without padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .coded import Codes, packed
from .errors import ArgumentValueError

Tensors = Mapping[str, Tensor]
"""The tensors of a layer, by the last part of their names."""

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word of AutoAWQ each of eight neighbours is."""


def unpacked(words: Tensor, bits: int) -> Tensor:
    """The codes in words, along the last dim: [..., words] int32 to [..., words * 32 / bits] uint8."""
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, dtype=torch.int32)
        return (words.unsqueeze(-1) >> shifts & (1 << bits) - 1).to(torch.uint8).flatten(-2)
    single = unpacked(words, 1)
    single = single[..., : single.shape[-1] // bits * bits].unflatten(-1, (-1, bits))
    return (single << torch.arange(bits, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)


def gptq(tensors: Tensors, columns: int, zero_is_less: bool) -> Codes:
    """A layer of AutoGPTQ or GPTQModel.

    Args:
        tensors: ``qweight`` [columns * bits / 32, rows] int32, words along the columns; ``qzeros``
            [groups, rows * bits / 32] int32, words along the rows; ``scales`` [groups, rows]; perhaps ``g_idx``
            [columns], the group of each column.
        columns: the number of columns of the weight.
        zero_is_less: zero points are stored less 1, as in the first version of the format.
    """
    words, zeros, scales = tensors["qweight"], tensors["qzeros"], tensors["scales"]
    bits = _bits(len(words), columns)
    points = unpacked(zeros, bits)[:, : scales.shape[1]]
    if zero_is_less:
        points = points + 1 & (1 << bits) - 1
    codes = unpacked(words.T.contiguous(), bits)[:, :columns]
    return _in_groups(codes, scales.T, points.T, bits, tensors.get("g_idx"))


def awq(tensors: Tensors, columns: int) -> Codes:
    """A layer of AutoAWQ's version "gemm".

    Args:
        tensors: ``qweight`` [columns, rows / 8] int32 and ``qzeros`` [groups, rows / 8] int32, words along the rows,
            each with its rows in another order; ``scales`` [groups, rows].
        columns: the number of columns of the weight.
    """
    scales = tensors["scales"]
    if tensors["qweight"].shape != (columns, scales.shape[1] // 8):
        raise ArgumentValueError(
            f"a weight {list(tensors['qweight'].shape)} is not of AutoAWQ's version gemm with 4 bits"
        )

    def in_order(words: Tensor) -> Tensor:
        return unpacked(words, 4).unflatten(-1, (-1, 8))[..., _AWQ_ORDER].flatten(-2)

    return _in_groups(in_order(tensors["qweight"]).T, scales.T, in_order(tensors["qzeros"]).T, 4)


def compressed(tensors: Tensors, columns: int, bits: int) -> Codes:
    """A layer of compressed-tensors, in its formats "pack-quantized", "int-quantized" and "naive-quantized".

    Args:
        tensors: ``weight_packed`` [rows, columns * bits / 32] int32, words along the columns, or ``weight``
            [rows, columns] int8; ``weight_scale`` [rows, groups], or of one element; perhaps ``weight_zero_point``
            [rows * bits / 32, groups] int32, words along the rows, or int8 as the scales; perhaps ``weight_g_idx``
            [columns], the group of each column.
        columns: the number of columns of the weight.
        bits: the number of bits of a code. Codes and zero points are signed: in words they are stored plus half their
            range.
    """
    half = 1 << bits - 1
    words, zeros = tensors.get("weight_packed"), tensors.get("weight_zero_point")
    codes = unpacked(words, bits)[:, :columns] if words is not None else _unsigned(tensors["weight"], half)
    if codes.shape[1] != columns:
        raise ArgumentValueError(f"{list(codes.shape)} codes of {bits} bits are not a weight of {columns} columns")
    rows, scales = len(codes), tensors["weight_scale"]
    scales = scales.reshape(1, 1).expand(rows, 1) if scales.numel() == 1 else scales.reshape(rows, -1)
    if zeros is None:
        points = torch.full(scales.shape, half, dtype=torch.uint8)
    elif zeros.dtype == torch.int32:
        points = unpacked(zeros.T.contiguous(), bits)[:, :rows].T
    else:
        points = _unsigned(zeros, half).reshape(-1, scales.shape[1]).expand(rows, -1)
    return _in_groups(codes, scales, points, bits, tensors.get("weight_g_idx"))


def _unsigned(codes: Tensor, half: int) -> Tensor:
    return (codes.to(torch.int16) + half).to(torch.uint8)


def _bits(words: int, columns: int) -> int:
    """How many bits a code has if ``words`` of them hold this many columns."""
    for bits in range(2, 9):
        if words == math.ceil(columns * bits / 32):
            return bits
    raise ArgumentValueError(f"{words} words do not hold {columns} columns")


def _in_groups(codes: Tensor, scales: Tensor, zeros: Tensor, bits: int, group: Tensor | None = None) -> Codes:
    """Codes [rows, columns], scales and zero points [rows, groups], and perhaps the group of each column."""
    columns, groups = codes.shape[1], scales.shape[1]
    order = None
    size = math.ceil(columns / groups)
    if group is None:
        group = torch.arange(columns) // size
    group = group.long()
    if group.numel() != columns or int(group.min()) < 0 or int(group.max()) >= groups:
        raise ArgumentValueError(f"the groups of {columns} columns are not of 0 to {groups - 1}")
    if not bool((group[1:] >= group[:-1]).all()):
        order = group.argsort(stable=True)
        codes, group = codes[:, order], group[order]
    # Groups of different sizes become several of one size each, with the same scale.
    present, counts = group.unique_consecutive(return_counts=True)
    size = math.gcd(*counts.tolist())
    each = present.repeat_interleave(counts // size)
    scales, zeros = scales[:, each].contiguous(), zeros[:, each].contiguous()
    first = int(zeros.flatten()[0])
    zero = first if bool((zeros == first).all()) else zeros
    if bits <= 4 and columns % 2 == 0:
        return Codes(packed(codes), scales, zero=zero, bits=4, order=order)
    if isinstance(zero, int) and zero == 128:
        return Codes((codes.to(torch.int16) - 128).to(torch.int8), scales, order=order)
    return Codes(codes.contiguous(), scales, zero=zero, order=order)
