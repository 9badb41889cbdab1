"""Layers whose weights are codes of few bits, as files of quantised models have them.

A row of a weight is divided into groups of one size. Each group has a scale, and may have a zero point and an offset:

    weight = (code - zero) * scale + offset

The layers compute this in PyTorch too, slowly; compiled, products read the codes themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from .errors import ArgumentValueError


@dataclass(frozen=True)
class Codes:
    """A matrix of codes.

    Attributes:
        codes: [rows, columns] int8 or uint8 if ``bits`` is 8; [rows, columns / 2] uint8 if it is 4, two codes in a
            byte, the first in the low half.
        scales: [rows, groups], f16 or f32.
        offsets: the same, f32; None means 0.
        zero: what is subtracted from each code: one number, or [rows, groups] uint8.
        bits: 4 or 8.
        order: [columns] int64, which column of the weight each column of codes is; None means that they are in order.
    """

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None = None
    zero: int | Tensor = 0
    bits: int = 8
    order: Tensor | None = None

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise ArgumentValueError(f"bits: expected 4 or 8, got {self.bits}")
        if self.scales.dim() != 2 or self.codes.dim() != 2 or self.scales.shape[0] != self.rows:
            raise ArgumentValueError(
                f"scales: expected [rows, groups] beside codes {list(self.codes.shape)}, got {list(self.scales.shape)}"
            )
        if self.scales.shape[1] == 0 or self.columns % self.scales.shape[1]:
            raise ArgumentValueError(f"scales: {self.scales.shape[1]} groups do not divide {self.columns} columns")
        for name in ("offsets", "zero"):
            numbers = getattr(self, name)
            if isinstance(numbers, Tensor) and numbers.shape != self.scales.shape:
                raise ArgumentValueError(
                    f"{name}: expected {list(self.scales.shape)} as the scales, got {list(numbers.shape)}"
                )
        if self.order is not None and self.order.shape != (self.columns,):
            raise ArgumentValueError(f"order: expected [{self.columns}], got {list(self.order.shape)}")

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.codes.shape[0])

    @property
    def columns(self) -> int:
        """The number of columns."""
        return int(self.codes.shape[1]) * (8 // self.bits)

    def take_rows(self, order: Tensor) -> Codes:
        """These rows, in this order."""
        offsets = None if self.offsets is None else self.offsets[order]
        zero = self.zero[order] if isinstance(self.zero, Tensor) else self.zero
        return replace(self, codes=self.codes[order], scales=self.scales[order], offsets=offsets, zero=zero)


def packed(codes: Tensor) -> Tensor:
    """[rows, columns] of codes from 0 to 15, two in a byte: [rows, columns / 2] uint8."""
    pairs = codes.to(torch.uint8).unflatten(-1, (-1, 2))
    return pairs[..., 0] | pairs[..., 1] << 4


@torch.library.custom_op("disc::decoded", mutates_args=())
def decoded(codes: Tensor, scales: Tensor, zeros: Tensor | None, zero: int, bits: int) -> Tensor:
    """(code - zero) * scale in f32: [rows, columns] of [rows, columns * bits / 8] and [rows, groups].

    The zero point is that of the group if there are ``zeros``, otherwise ``zero``.
    """
    if bits == 4:
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    groups = codes.unflatten(-1, (scales.shape[-1], -1)).float()
    groups = groups - (zero if zeros is None else zeros.float().unsqueeze(-1))
    return (groups * scales.float().unsqueeze(-1)).flatten(-2)


@decoded.register_fake
def _(codes: Tensor, scales: Tensor, zeros: Tensor | None, zero: int, bits: int) -> Tensor:
    return codes.new_empty((codes.shape[0], codes.shape[1] * (8 // bits)), dtype=torch.float32)


class _Coded(nn.Module):
    """Buffers of a weight."""

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None
    zeros: Tensor | None
    order: Tensor | None

    def __init__(self, weight: Codes) -> None:
        super().__init__()
        self.zero, self.bits = 0 if isinstance(weight.zero, Tensor) else weight.zero, weight.bits
        for name in ("codes", "scales", "offsets", "order"):
            self.register_buffer(name, getattr(weight, name))
        self.register_buffer("zeros", weight.zero if isinstance(weight.zero, Tensor) else None)

    def _decoded(self) -> Tensor:
        """The weight without its offsets, its columns as the codes have them."""
        return torch.ops.disc.decoded(self.codes, self.scales, self.zeros, self.zero, self.bits)

    @property
    def weight(self) -> Tensor:
        """The weight in f32, computed anew each time: [rows, columns]."""
        weight = self._decoded()
        if self.offsets is not None:
            weight = (weight.unflatten(-1, (self.offsets.shape[-1], -1)) + self.offsets.unsqueeze(-1)).flatten(-2)
        return weight if self.order is None else weight[:, self.order.argsort()]

    def extra_repr(self) -> str:
        """Sizes and bits."""
        rows, groups = self.scales.shape
        columns = self.codes.shape[1] * (8 // self.bits)
        return f"{rows} x {columns}, {self.bits} bits in groups of {columns // groups}"


class CodedLinear(_Coded):
    """``nn.Linear`` with a weight of codes.

    Args:
        weight: the codes.
        bias: [rows] of floats; None means that there is no bias.
        activations: 8 rounds each row of the input to codes of 8 bits with a scale of its own, so products are products
            of integers (``W8A8``); None leaves it as it is.
    """

    def __init__(self, weight: Codes, bias: Tensor | None = None, activations: int | None = None) -> None:
        super().__init__(weight)
        if activations not in (None, 8):
            raise ArgumentValueError(f"activations: expected 8 or None, got {activations}")
        self.out_features, self.in_features, self.activations = weight.rows, weight.columns, activations
        self.bias: Tensor | None
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., columns] of floats. The result: [..., rows] of the same dtype."""
        if self.order is not None:
            x = x[..., self.order]
        dtype = x.dtype
        if self.activations is not None:
            x = _rounded(x)
        y = nn.functional.linear(x, self._decoded().to(x.dtype))
        if self.offsets is not None:
            # An offset multiplies the sum of what its group multiplies.
            sums = x.float().unflatten(-1, (self.offsets.shape[-1], -1)).sum(-1)
            y = y.float() + nn.functional.linear(sums, self.offsets)
        if self.bias is not None:
            y = y + self.bias
        return y.to(dtype)


def _rounded(x: Tensor) -> Tensor:
    """x by codes from -128 to 127 with a scale for each row, as compressed-tensors computes it, in f32."""
    scale = x.abs().amax(-1, keepdim=True) / 127.5
    scale = torch.where(scale == 0, torch.finfo(x.dtype).eps, scale)
    return (x / scale).round().clamp(-128, 127).to(torch.int8).float() * scale.float()


class CodedEmbedding(_Coded):
    """``nn.Embedding`` with a weight of codes."""

    def __init__(self, weight: Codes) -> None:
        super().__init__(weight)
        if weight.order is not None:
            raise ArgumentValueError("order: the columns of an embedding are in order")
        self.num_embeddings, self.embedding_dim = weight.rows, weight.columns

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [...] of integers. The result: [..., columns] f32."""
        rows = ids.flatten()
        zeros = None if self.zeros is None else self.zeros[rows]
        result = torch.ops.disc.decoded(self.codes[rows], self.scales[rows], zeros, self.zero, self.bits)
        if self.offsets is not None:
            result = result.unflatten(-1, (self.offsets.shape[-1], -1)) + self.offsets[rows].unsqueeze(-1)
        return result.reshape(*ids.shape, self.embedding_dim)
