"""Layers whose weights are codes of few bits, as files of quantised models have them.

A row of a weight is divided into groups of one size. Each group has a scale, and may have an offset:

    weight = (code - zero) * scale + offset

The layers compute this in PyTorch too, in f32 and slowly; compiled, products read the codes themselves.
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
        zero: what is subtracted from each code.
        bits: 4 or 8.
    """

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None = None
    zero: int = 0
    bits: int = 8

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise ArgumentValueError(f"bits: expected 4 or 8, got {self.bits}")
        if self.scales.dim() != 2 or self.codes.dim() != 2 or self.scales.shape[0] != self.rows:
            raise ArgumentValueError(
                f"scales: expected [rows, groups] beside codes {list(self.codes.shape)}, got {list(self.scales.shape)}"
            )
        if self.scales.shape[1] == 0 or self.columns % self.scales.shape[1]:
            raise ArgumentValueError(f"scales: {self.scales.shape[1]} groups do not divide {self.columns} columns")

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
        return replace(self, codes=self.codes[order], scales=self.scales[order], offsets=offsets)


def packed(codes: Tensor) -> Tensor:
    """[rows, columns] of codes from 0 to 15, two in a byte: [rows, columns / 2] uint8."""
    pairs = codes.to(torch.uint8).unflatten(-1, (-1, 2))
    return pairs[..., 0] | pairs[..., 1] << 4


@torch.library.custom_op("disc::decoded", mutates_args=())
def decoded(codes: Tensor, scales: Tensor, zero: int, bits: int) -> Tensor:
    """(code - zero) * scale in f32: [rows, columns] of [rows, columns * bits / 8] and [rows, groups]."""
    if bits == 4:
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
    groups = codes.unflatten(-1, (scales.shape[-1], -1))
    return ((groups.float() - zero) * scales.float().unsqueeze(-1)).flatten(-2)


@decoded.register_fake
def _(codes: Tensor, scales: Tensor, zero: int, bits: int) -> Tensor:
    return codes.new_empty((codes.shape[0], codes.shape[1] * (8 // bits)), dtype=torch.float32)


class _Coded(nn.Module):
    """Buffers of a weight."""

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None

    def __init__(self, weight: Codes) -> None:
        super().__init__()
        self.zero, self.bits = weight.zero, weight.bits
        for name in ("codes", "scales", "offsets"):
            self.register_buffer(name, getattr(weight, name))

    @property
    def weight(self) -> Tensor:
        """The weight in f32, computed anew each time: [rows, columns]."""
        weight = torch.ops.disc.decoded(self.codes, self.scales, self.zero, self.bits)
        if self.offsets is not None:
            weight = (weight.unflatten(-1, (self.offsets.shape[-1], -1)) + self.offsets.unsqueeze(-1)).flatten(-2)
        return weight

    def extra_repr(self) -> str:
        """Sizes and bits."""
        rows, groups = self.scales.shape
        columns = self.codes.shape[1] * (8 // self.bits)
        return f"{rows} x {columns}, {self.bits} bits in groups of {columns // groups}"


class CodedLinear(_Coded):
    """``nn.Linear`` with a weight of codes."""

    def __init__(self, weight: Codes, bias: Tensor | None = None) -> None:
        super().__init__(weight)
        self.out_features, self.in_features = weight.rows, weight.columns
        self.bias: Tensor | None
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., columns] of floats. The result: [..., rows] of the same dtype."""
        weight = torch.ops.disc.decoded(self.codes, self.scales, self.zero, self.bits)
        y = nn.functional.linear(x.float(), weight)
        if self.offsets is not None:
            # An offset multiplies the sum of what its group multiplies.
            sums = x.float().unflatten(-1, (self.offsets.shape[-1], -1)).sum(-1)
            y = y + nn.functional.linear(sums, self.offsets)
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)


class CodedEmbedding(_Coded):
    """``nn.Embedding`` with a weight of codes."""

    def __init__(self, weight: Codes) -> None:
        super().__init__(weight)
        self.num_embeddings, self.embedding_dim = weight.rows, weight.columns

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [...] of integers. The result: [..., columns] f32."""
        rows = ids.flatten()
        result = torch.ops.disc.decoded(self.codes[rows], self.scales[rows], self.zero, self.bits)
        if self.offsets is not None:
            result = result.unflatten(-1, (self.offsets.shape[-1], -1)) + self.offsets[rows].unsqueeze(-1)
        return result.reshape(*ids.shape, self.embedding_dim)
