"""Batch norm of inference: a scale and a shift for each channel, which the fusion stage folds into convolutions."""

from __future__ import annotations

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor
from .elementwise import convert


@lowers("torch.aten.batch_norm")
def batch_norm(
    b: Builder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, with the statistics of the running averages."""
    if training or mean is None or var is None:
        raise NotLowerable("batch norm with the statistics of the batch")
    return _normalized(b, x, weight, bias, mean, var, eps)


@lowers("torch.aten._native_batch_norm_legit_no_training")
def native_batch_norm(
    b: Builder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The same, and two empty tensors for the statistics that inference does not save.

    On GPUs PyTorch has statistics there, which are not given.
    """
    saved = b.results[1]
    empty = b.full([0], 0, saved.dtype) if saved.shape == (0,) else None
    return _normalized(b, x, weight, bias, mean, var, eps), empty, empty


def _normalized(
    b: Builder, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Tensor:
    compute = dtypes.opmath(x.dtype)
    rest: list[Extent] = [1] * (x.rank - 2)

    def factor(var: Elem, *weights: Elem) -> Elem:
        inverse = 1.0 / scalar.sqrt(var + eps)
        return inverse * weights[0] if weights else inverse

    given = [] if weight is None else [weight]
    scale = b.elementwise(compute, [var, *given], factor)
    others = [] if bias is None else [bias]

    def offset(mean: Elem, var: Elem, *more: Elem) -> Elem:
        moved = mean * factor(var, *more[: len(given)])
        return more[-1] - moved if others else 0.0 - moved

    shift = b.elementwise(compute, [mean, var, *given, *others], offset)
    scale, shift = (b.reshape(v, [*v.dims, *rest]) for v in (scale, shift))
    b.require_equal(x.dims[1], mean.dims[0], "batch norm: channels of input and statistics differ")
    return convert(b, b.elementwise(b.out.dtype, [x, scale, shift], lambda x, s, t: x * s + t), b.out.dtype)
