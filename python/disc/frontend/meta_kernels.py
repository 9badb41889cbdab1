"""Shapes of ATen operations that PyTorch's own meta kernels lack, so that ``torch.export`` traces them.

They are registered once, and only where PyTorch has no kernel, or one that disagrees with its CPU kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..torch_compat import lasting, patches
from ..torch_compat.operators import has_kernel, meta_convolution_backward
from ..torch_compat.patching import instead, replaced

_library = torch.library.Library("aten", "IMPL")


def _meta(*names: str, wrong: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if wrong:
                _library.impl(name, kernel, "Meta", allow_override=True)
                # While torch.export traces, PyTorch's own kernels written in Python come first.
                op: Any = getattr(torch.ops.aten, name).default
                lasting.replace_python_kernel(op, kernel)
            elif not has_kernel(f"aten::{name}", "Meta"):
                _library.impl(name, kernel, "Meta")
        return kernel

    return register


@_meta(
    "fake_quantize_per_tensor_affine_cachemask",
    "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)
def _fake_quantized(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


@_meta("_fake_quantize_learnable_per_tensor_affine", "_fake_quantize_learnable_per_channel_affine")
def _fake_quantized_learnable(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


@_meta("conv_tbc")
def _conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    return x.new_empty([x.shape[0] + 2 * pad - weight.shape[0] + 1, x.shape[1], weight.shape[2]])


@_meta("_trilinear")
def _trilinear(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> Tensor:
    for dims, t in ((expand_x, 0), (expand_y, 1), (expand_z, 2)):
        for dim in sorted(dims):
            x, y, z = (v.unsqueeze(dim) if i == t else v for i, v in enumerate((x, y, z)))
    absent = set(expand_x) & set(expand_y) & set(expand_z)
    shape = [0 if d in absent else n for d, n in enumerate(torch.broadcast_shapes(x.shape, y.shape, z.shape))]
    rank = len(shape)
    gone = {dim % rank for dim in summed}
    return x.new_empty([size for dim, size in enumerate(shape) if dim not in gone])


@_meta("threshold_backward", wrong=True)
def _threshold_backward(grad: Tensor, x: Tensor, threshold: float) -> Tensor:
    # PyTorch's decomposition, which serves as its meta kernel, has the gradient's dtype.
    return torch.empty_like(grad + x)


@_meta("logsumexp", wrong=True)
def _logsumexp(x: Tensor, dims: Any, keepdim: bool = False) -> Tensor:
    # PyTorch's asks whether there are elements: of none the result is -inf.
    wide = x if x.is_floating_point() or x.is_complex() else x.to(torch.get_default_dtype())
    return torch.sum(wide, dims, keepdim)


lasting.replace_meta_decomposition(torch.ops.aten.logsumexp.default, _logsumexp)


@_meta("convolution_backward", wrong=True)
def _convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, *rest: Any) -> Any:
    # PyTorch's kernel knows the bias' shape only if it is given; its CPU kernel does not need it.
    sizes = [grad.shape[1]] if bias_sizes is None else bias_sizes
    return meta_convolution_backward(grad, x, weight, sizes, *rest)


@_meta("im2col", wrong=True)
def _im2col(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    # PyTorch's decomposition, which serves as its meta kernel, asks whether there is one window.
    counts = [
        _pooled(x.shape[d - 2], kernel[d], padding[d], padding[d], stride[d], dilation[d], False) for d in range(2)
    ]
    for count in counts:
        torch._check(count > 0, lambda: "im2col: the kernel is larger than the input")
    return x.new_empty([*x.shape[:-3], x.shape[-3] * kernel[0] * kernel[1], counts[0] * counts[1]])


lasting.replace_meta_decomposition(torch.ops.aten.im2col.default, _im2col)


def _decomposed_threshold_backward(grad: Tensor, x: Tensor, threshold: float) -> Tensor:
    return torch.where(x <= threshold, 0, grad).to(torch.result_type(grad, x))


# Fake tensors prefer it, or a kernel in Python, to one of a library.
lasting.replace_decomposition(torch.ops.aten.threshold_backward.default, _decomposed_threshold_backward)
lasting.replace_python_kernel(torch.ops.aten.threshold_backward.default, _threshold_backward, always=True)


def _affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool) -> Tensor:
    """PyTorch's decomposition, which serves as its meta kernel, makes numbers of Python of the sizes."""
    batch, _, *spatial = size
    dtype = theta.dtype if theta.dtype == torch.float64 else torch.float32
    axes = []
    for n in spatial:
        i, last = torch.arange(n, dtype=dtype, device=theta.device), torch.scalar_tensor(n - 1, dtype=dtype)
        step = 2 / last.clamp(min=1)
        # From both ends to the middle, as torch.linspace.
        places = torch.where(i < torch.floor((last + 1) / 2), step * i - 1, 1 - step * (last - i))
        places = torch.where(last > 0, places, 0)
        axes.append(places if align_corners else places * last / (last + 1))
    grids = torch.meshgrid(*axes, indexing="ij")
    base = torch.stack([*reversed(grids), torch.ones_like(grids[0])], -1).to(theta.dtype)
    flat = base.reshape(1, -1, base.shape[-1]).expand(batch, -1, -1)
    return torch.bmm(flat, theta.transpose(1, 2)).reshape(batch, *spatial, len(spatial))


lasting.replace_decomposition(torch.ops.aten.affine_grid_generator.default, _affine_grid)


def _pooled(size: Any, kernel: Any, low: Any, high: Any, stride: Any, dilation: Any, ceil_mode: bool) -> Any:
    """How many windows a dim has. PyTorch's function compares sizes in ceil mode, which fixes their parity."""
    room = size + low + high - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return room // stride + 1
    # The last window begins inside the input or the padding before it.
    return torch.sym_min((room + stride - 1) // stride + 1, (size + low - 1) // stride + 1)


@contextmanager
def sizes_of_windows() -> Iterator[None]:
    """While it is active, PyTorch's kernels compute the sizes of pooled tensors without comparing sizes."""
    with replaced({patches.POOLED_SIZE: instead(_pooled)}):
        yield
