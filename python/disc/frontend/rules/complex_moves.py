"""Moving complex numbers: the rules of real tensors, for both parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builder import Builder
from ..registry import Rule, find_rule, lowers_complex
from ..values import Extent, Tensor, normalize_dim
from . import data_dependent, gather, masks, padding, pooling, strided, updates
from .complex import imaginary_part, joined, real_part, to

# Which register the rules for real tensors.
_REAL = (data_dependent, gather, masks, padding, pooling, strided, updates)

_MOVES = (
    "flip",
    "roll",
    "diagonal",
    "diagonal_copy",
    "diag_embed",
    "diagonal_scatter",
    "select_scatter",
    "unfold",
    "unfold_copy",
    "as_strided",
    "as_strided_copy",
    "take",
    "masked_scatter",
    "masked_select",
    "im2col",
    *(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)),
)


def _register(name: str) -> None:
    real = find_rule(f"torch.aten.{name}")
    assert real is not None
    rule: Rule = real

    @lowers_complex(f"torch.aten.{name}")
    def both(b: Builder, *operands: Any) -> Tensor:
        """The same, of complex numbers."""

        def of(part: Any) -> Tensor:
            result: Tensor = rule(b, *(part(b, x) if _complex(x) else x for x in operands))
            return result

        return joined(b, of(real_part), of(imaginary_part))


def _complex(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype.is_complex


for _name in _MOVES:
    _register(_name)


@lowers_complex("torch.aten.constant_pad_nd")
def pad_constant(b: Builder, x: Tensor, pads: Sequence[Extent], value: Any = 0) -> Tensor:
    """x with ``value`` around it."""
    fill = complex(value or 0)
    re = padding.constant_pad(b, real_part(b, x), pads, fill.real)
    return joined(b, re, padding.constant_pad(b, imaginary_part(b, x), pads, fill.imag))


@lowers_complex("torch.aten.cat", "torch.aten.concat")
def cat(b: Builder, xs: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joins tensors along ``dim``; real ones become complex."""
    rank = max(x.rank for x in xs)
    kept = [to(b, x) for x in xs if x.rank == rank]
    return b.as_complex(b.concat([b.as_pairs(x) for x in kept], normalize_dim(dim, rank)))


@lowers_complex("torch.aten.stack")
def stack(b: Builder, xs: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joins tensors along a new dim."""
    dim = normalize_dim(dim, xs[0].rank + 1)
    return b.as_complex(b.concat([b.unsqueeze(b.as_pairs(to(b, x)), dim) for x in xs], dim))
